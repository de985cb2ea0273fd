package setting

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// A Rule is what the tags of one field say.
type Rule struct {
	Default string
	Ranged  bool
	Lo, Hi  float64 // of durations in nanoseconds; Hi may be +Inf
	Or      string  // one more value, "" for none
	OrMeans string
	OneOf   []string // nil: not an enumeration
	Want    string   // in words, "" if the rest says it
	Unit    string
	Example string
}

var durationType = reflect.TypeFor[time.Duration]()

// rule reads the tags of f, a field of owner. Tags are written by us: one that
// can't be read is a bug, and panics.
func rule(owner reflect.Value, f reflect.StructField) Rule {
	r := Rule{Default: f.Tag.Get("default"), Want: f.Tag.Get("want"), Unit: f.Tag.Get("unit"), Example: f.Tag.Get("example")}
	if text, ok := f.Tag.Lookup("range"); ok {
		lo, hi, ok := strings.Cut(text, "..")
		if !ok {
			panic(fmt.Sprintf("setting: %s.%s: range %q, want LO..HI", owner.Type(), f.Name, text))
		}
		r.Ranged, r.Hi = true, math.Inf(1)
		r.Lo = mustNumber(f, lo)
		if hi != "" {
			r.Hi = mustNumber(f, hi)
		}
	}
	r.Or, r.OrMeans, _ = strings.Cut(f.Tag.Get("or"), ": ")
	if text, ok := f.Tag.Lookup("oneof"); ok {
		if r.OneOf = strings.Split(text, "|"); text == "*" {
			r.OneOf = owner.Interface().(Chooser).Choices(key(f))
		}
	}
	return r
}

// A Chooser is a struct that knows the words which a field with oneof:"*" accepts.
type Chooser interface{ Choices(key string) []string }

// key returns the name of f in the file, "" if it has none.
func key(f reflect.StructField) string {
	k, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
	return k
}

func mustNumber(f reflect.StructField, text string) float64 {
	v, err := number(f.Type, text)
	if err != nil {
		panic(fmt.Sprintf("setting: %s: %q: %v", f.Name, text, err))
	}
	return v
}

// number reads a number or, where t is one, a duration (in nanoseconds).
func number(t reflect.Type, text string) (float64, error) {
	if t == durationType {
		d, err := time.ParseDuration(text)
		return float64(d), err
	}
	if n, ok := binary(text); ok {
		return float64(n), nil
	}
	return strconv.ParseFloat(text, 64)
}

// binary reads 4Ki, 64Mi, 1Gi or 2Ti.
func binary(text string) (int64, bool) {
	for i, suffix := range []string{"Ki", "Mi", "Gi", "Ti"} {
		head, ok := strings.CutSuffix(strings.TrimSuffix(text, "B"), suffix)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(head, 10, 32)
		return n << (10 * (i + 1)), err == nil
	}
	return 0, false
}
