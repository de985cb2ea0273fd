package setting

import "reflect"

// A Setting is one key of the file: a leaf, or a list or mapping of its own.
type Setting struct {
	Path  string // policy.dynamo.preset; engines[].url for each element of a list
	Owner reflect.Type
	Field reflect.StructField
	Rule  Rule
	// Default is what Fill gives, "" for none. Optional says that the struct around
	// it may be left out.
	Default  reflect.Value
	Optional bool
}

// Group says that t is a struct, or a list of structs: something with keys inside.
func Group(t reflect.Type) bool {
	return t.Kind() == reflect.Struct || t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct
}

// List returns all settings of the struct that p points to, groups before what is in
// them, in the order of the fields.
func List(p any) []Setting { return list("", false, reflect.ValueOf(p).Elem()) }

func list(prefix string, optional bool, v reflect.Value) (out []Setting) {
	fill(v)
	for i := range v.NumField() {
		f, x := v.Type().Field(i), v.Field(i)
		if key(f) == "" {
			continue
		}
		opt := optional || f.Tag.Get("optional") == "true"
		out = append(out, Setting{Path: prefix + key(f), Owner: v.Type(), Field: f, Rule: rule(v, f), Default: x, Optional: opt})
		switch {
		case x.Kind() == reflect.Struct:
			out = append(out, list(prefix+key(f)+".", opt, x)...)
		case Group(x.Type()):
			out = append(out, list(prefix+key(f)+"[].", opt, reflect.New(x.Type().Elem()).Elem())...)
		}
	}
	return out
}
