package setting

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"time"
)

// Other returns another value than the default that the setting accepts, as the
// file has it; "" where only an example tag could say one.
func (s *Setting) Other() string {
	if s.Rule.Example != "" {
		return s.Rule.Example
	}
	t, x := s.Field.Type, s.Default
	if t.Kind() == reflect.Pointer {
		t, x = t.Elem(), reflect.Zero(t.Elem())
	}
	switch {
	case t.Kind() == reflect.Bool:
		return strconv.FormatBool(!x.Bool())
	case s.Rule.OneOf != nil:
		i := slices.IndexFunc(s.Rule.OneOf, func(w string) bool { return w != "" && w != Text(x) })
		return s.Rule.OneOf[i]
	case t.Kind() == reflect.Float64:
		return bound(t, s.Rule.another(x.Float(), false))
	case t.Kind() == reflect.Int, t.Kind() == reflect.Int64:
		return s.Rule.bound(t, s.Rule.another(float64(x.Int()), true))
	}
	return ""
}

// another returns a number within the range that isn't v.
func (r *Rule) another(v float64, whole bool) float64 {
	for _, n := range []float64{2 * v, v / 2, 1, float64(10 * time.Second), r.Lo, r.Hi} {
		if n != v && n >= r.Lo && n <= r.Hi && n != 0 && (!whole || n == math.Trunc(n)) {
			return n
		}
	}
	panic(fmt.Sprintf("setting: nothing but %v is within %v..%v", v, r.Lo, r.Hi))
}
