package setting

import (
	"reflect"
	"slices"
)

// Unread returns the keys of the structs in *p, a pointer to a struct, that differ from
// those in *defaults, and that are not among read, pointers to some of them.
func Unread(p, defaults any, read []any) []string {
	var keys []string
	is, was := reflect.ValueOf(p).Elem(), reflect.ValueOf(defaults).Elem()
	for i := range is.NumField() {
		f := is.Type().Field(i)
		said := !reflect.DeepEqual(is.Field(i).Interface(), was.Field(i).Interface())
		if f.Type.Kind() == reflect.Struct && said && !slices.Contains(read, is.Field(i).Addr().Interface()) {
			keys = append(keys, key(f))
		}
	}
	return keys
}
