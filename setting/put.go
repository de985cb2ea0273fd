package setting

import (
	"fmt"
	"reflect"
	"strings"
)

// Put sets the setting at path, as "dynamo.router_temperature", of the struct that p
// points to. text is as a tag has it.
func Put(p any, path, text string) error {
	v := reflect.ValueOf(p).Elem()
next:
	for _, k := range strings.Split(path, ".") {
		if v.Kind() != reflect.Struct {
			return fmt.Errorf("setting: %s: %s is in no struct", path, k)
		}
		for i := range v.NumField() {
			if key(v.Type().Field(i)) == k {
				v = v.Field(i)
				continue next
			}
		}
		return fmt.Errorf("setting: %s: no key %s", path, k)
	}
	return set(v, text)
}

// Values returns values of the setting that are worth trying: another than the
// default, the bounds, each word.
func (s *Setting) Values() []string {
	out := append([]string{s.Other()}, s.Rule.OneOf...)
	t := s.Field.Type
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if s.Rule.Ranged {
		out = append(out, bound(t, s.Rule.Lo))
		if s.Rule.Hi < 1e300 {
			out = append(out, bound(t, s.Rule.Hi))
		}
	}
	if s.Rule.Or != "" {
		out = append(out, s.Rule.Or)
	}
	return out
}
