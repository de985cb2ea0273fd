package setting

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// An Error is a setting with a value that isn't accepted.
type Error struct {
	Key   string // policy.session.virtual_nodes
	Value string // as a person would write it
	Want  string // what is accepted
	Hint  string // what may have been meant, or what to do; may be empty
}

func (e *Error) Error() string {
	s := fmt.Sprintf("%s: %s, want %s", e.Key, e.Value, e.Want)
	if e.Hint != "" {
		s += " (" + e.Hint + ")"
	}
	return s
}

// A Checker is a struct with a rule that a tag can't say: over several fields, or
// over the form of a text. Its errors are *Error with keys relative to the struct.
// It is asked after its own fields have passed.
type Checker interface{ Check() error }

// Check returns an *Error for the first field of *p, a pointer to a struct, that
// isn't accepted. prefix is where the struct stands in the file: "policy.", or "".
func Check(prefix string, p any) error { return check(prefix, reflect.ValueOf(p).Elem()) }

func check(prefix string, v reflect.Value) error {
	for i := range v.NumField() {
		f, x := v.Type().Field(i), v.Field(i)
		k := prefix + key(f)
		if key(f) == "" {
			continue
		}
		if err := checkField(k, v, f, x); err != nil {
			return err
		}
	}
	c, ok := v.Addr().Interface().(Checker)
	if !ok {
		return nil
	}
	err := c.Check()
	var e *Error
	if errors.As(err, &e) {
		e.Key = prefix + e.Key
		return e
	}
	return err
}

func checkField(k string, owner reflect.Value, f reflect.StructField, x reflect.Value) error {
	switch {
	case x.Kind() == reflect.Struct:
		if f.Tag.Get("optional") == "true" && x.IsZero() {
			return nil
		}
		return check(k+".", x)
	case x.Kind() == reflect.Slice && x.Type().Elem().Kind() == reflect.Struct:
		for i := range x.Len() {
			if err := check(fmt.Sprintf("%s[%d].", k, i), x.Index(i)); err != nil {
				return err
			}
		}
		return nil
	case x.Kind() == reflect.Pointer:
		if x.IsNil() {
			return nil
		}
		x = x.Elem()
	}
	r := rule(owner, f)
	if text := Text(x); r.accepts(x, text) {
		return nil
	} else {
		return &Error{Key: k, Value: quoted(x, text), Want: r.Accepts(x.Type()), Hint: r.nearest(text)}
	}
}

func (r *Rule) accepts(x reflect.Value, text string) bool {
	if r.Or != "" && same(x, r.Or) {
		return true
	}
	if r.OneOf != nil {
		return slices.Contains(r.OneOf, text)
	}
	var n float64
	switch x.Kind() {
	case reflect.Float64:
		if n = x.Float(); math.IsNaN(n) || math.IsInf(n, 0) {
			return false
		}
	case reflect.Int, reflect.Int64:
		n = float64(x.Int())
	default:
		return true
	}
	return !r.Ranged || n >= r.Lo && n <= r.Hi
}

// same says whether x is the value that a tag writes as text.
func same(x reflect.Value, text string) bool {
	y := reflect.New(x.Type()).Elem()
	return set(y, text) == nil && x.Comparable() && x.Equal(y)
}

// Accepts says in words what a field of type t may be.
func (r *Rule) Accepts(t reflect.Type) string {
	var s string
	switch {
	case r.Want != "":
		s = r.Want
	case r.OneOf != nil:
		words := slices.Clone(r.OneOf)
		for i, w := range words {
			if w == "" {
				words[i] = `""`
			}
		}
		s = strings.Join(words, ", ")
		if n := len(words); n > 1 {
			s = strings.Join(words[:n-1], ", ") + " or " + words[n-1]
		}
	case r.Ranged && math.IsInf(r.Hi, 1):
		s = fmt.Sprintf("at least %s", r.bound(t, r.Lo))
	case r.Ranged:
		s = fmt.Sprintf("%s to %s", r.bound(t, r.Lo), r.bound(t, r.Hi))
	default:
		s = kindWord(t)
	}
	if r.Or != "" {
		s = fmt.Sprintf("%s (%s) or %s", r.Or, r.OrMeans, s)
	}
	return s
}

// kindWord says what a value of type t is.
func kindWord(t reflect.Type) string {
	switch {
	case t == durationType:
		return "a duration such as 30s or 5m"
	case t.Kind() == reflect.Bool:
		return "true or false"
	case t.Kind() == reflect.Float64:
		return "a finite number"
	case t.Kind() == reflect.Int, t.Kind() == reflect.Int64:
		return "a whole number"
	case t.Kind() == reflect.String:
		return "text"
	case t.Kind() == reflect.Pointer:
		return kindWord(t.Elem())
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.String:
		return "a list of texts"
	case t.Kind() == reflect.Slice:
		return "a list of mappings"
	}
	return "a mapping, key: value"
}

func (r *Rule) bound(t reflect.Type, n float64) string {
	if r.Unit == "bytes" {
		return Bytes(int64(n))
	}
	return bound(t, n)
}

// Bytes writes 67108864 as 64MiB, and what is no whole KiB as it is.
func Bytes(n int64) string {
	if n == 0 || n%1024 != 0 {
		return strconv.FormatInt(n, 10)
	}
	units := []string{"", "KiB", "MiB", "GiB", "TiB"}
	i := 0
	for i < len(units)-1 && n%1024 == 0 {
		n, i = n/1024, i+1
	}
	return strconv.FormatInt(n, 10) + units[i]
}

func bound(t reflect.Type, n float64) string {
	if t == durationType {
		return Duration(time.Duration(n))
	}
	if n == math.Trunc(n) && math.Abs(n) < 1<<53 {
		return fmt.Sprint(int64(n))
	}
	return fmt.Sprint(n)
}

// Text returns x as a person would write it in the file.
func Text(x reflect.Value) string {
	if x.Type() == durationType {
		return Duration(time.Duration(x.Int()))
	}
	return fmt.Sprint(x.Interface())
}

// Duration writes 2m0s as 2m.
func Duration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-2]
	}
	return s
}

func quoted(x reflect.Value, text string) string {
	if x.Kind() == reflect.String {
		return fmt.Sprintf("%.80q", text)
	}
	return text
}

// nearest suggests the accepted word that is nearest to text.
func (r *Rule) nearest(text string) string {
	if w := Nearest(text, r.OneOf); w != "" {
		return fmt.Sprintf("did you mean %q?", w)
	}
	return ""
}

// Wanted says in words what the field f of type t accepts, for a reader that could
// make nothing of a value.
func Wanted(f reflect.StructField, t reflect.Type) string {
	if f.Type == nil {
		return kindWord(t)
	}
	if f.Tag.Get("oneof") == "*" {
		return kindWord(t)
	}
	r := rule(reflect.Value{}, f)
	if s := r.Accepts(t); r.Ranged || r.OneOf != nil {
		if t == durationType {
			return s + ", as 30s or 5m"
		}
		return s
	}
	return kindWord(t)
}
