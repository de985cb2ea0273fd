package chat

import (
	"math"
	"strconv"
	"strings"

	"kvasir/token/jinja"
)

// harmonyTools writes tools as the TypeScript-like declarations that gpt-oss reads. The form was
// worked out from what the openai-harmony library 0.0.8 prints.
func harmonyTools(tools []jinja.Value) string {
	var b strings.Builder
	b.WriteString("# Tools\n\n## functions\n\nnamespace functions {\n\n")
	for _, v := range tools {
		t, _ := v.AsDict()
		f, _ := t.Get("function").AsDict()
		name, _ := f.Get("name").AsString()
		desc, _ := f.Get("description").AsString()
		comment(&b, desc)
		b.WriteString("type " + name + " = (")
		if params := f.Get("parameters"); !params.IsNone() {
			b.WriteString("_: " + typeScript(params, ""))
		}
		b.WriteString(") => any;\n\n")
	}
	b.WriteString("} // namespace functions")
	return b.String()
}

// comment writes each line of text behind "// ". Lines end with \n or \r\n.
func comment(b *strings.Builder, text string) {
	for text != "" {
		line, rest, _ := strings.Cut(text, "\n")
		b.WriteString("// " + strings.TrimSuffix(line, "\r") + "\n")
		text = rest
	}
}

// note writes a schema's description; unlike a tool's it is not taken apart into lines.
func note(b *strings.Builder, indent, text string) { b.WriteString(indent + "// " + text + "\n") }

func schemaString(d *jinja.Dict, key string) (string, bool) { return d.Get(key).AsString() }

// hasEnum reports an enum with values.
func hasEnum(d *jinja.Dict) bool {
	l, _ := d.Get("enum").AsList()
	return len(l) > 0
}

// defaultText is "default: x" for a schema that has one.
func defaultText(d *jinja.Dict) (string, bool) {
	v := d.Get("default")
	if v.IsMissing() {
		return "", false
	}
	if s, ok := v.AsString(); ok {
		if hasEnum(d) {
			return "default: " + s, true
		}
		return "default: \"" + s + "\"", true
	}
	return "default: " + string(compactJSON(nil, v)), true
}

// nullable marks a type as one that may be null.
func nullable(d *jinja.Dict, typ string) string {
	if n, _ := d.Get("nullable").AsBool(); n && !strings.Contains(typ, "null") {
		return typ + " | null"
	}
	return typ
}

// typeScript writes the type of a JSON schema; indent is that of its closing brace.
func typeScript(v jinja.Value, indent string) string {
	d, ok := v.AsDict()
	if !ok {
		return "any"
	}
	if variants, ok := d.Get("oneOf").AsList(); ok {
		return oneOf(variants, indent)
	}
	if types, ok := d.Get("type").AsList(); ok {
		var names []string
		for _, t := range types {
			if s, ok := t.AsString(); ok {
				if s == "integer" {
					s = "number"
				}
				names = append(names, s)
			}
		}
		if len(names) > 0 {
			return strings.Join(names, " | ")
		}
	}
	kind, _ := schemaString(d, "type")
	switch kind {
	case "object":
		return objectType(d, indent)
	case "string":
		values, _ := d.Get("enum").AsList()
		var names []string
		for _, e := range values {
			if s, ok := e.AsString(); ok {
				names = append(names, "\""+s+"\"")
			}
		}
		if len(names) > 0 {
			return strings.Join(names, " | ")
		}
		return "string"
	case "number", "integer":
		return "number"
	case "boolean":
		return "boolean"
	case "array":
		if items := d.Get("items"); !items.IsMissing() {
			return typeScript(items, indent) + "[]"
		}
		return "Array<any>"
	}
	return "any"
}

// oneOf writes the variants of a type that is not a property's.
func oneOf(variants []jinja.Value, indent string) string {
	var b strings.Builder
	for _, v := range variants {
		d, _ := v.AsDict()
		if d == nil {
			d = jinja.NewDict(0)
		}
		b.WriteString("\n" + indent + " | " + nullable(d, typeScript(v, indent+"   ")))
		var notes []string
		if s, ok := schemaString(d, "description"); ok {
			notes = append(notes, s)
		}
		if s, ok := schemaString(d, "default"); ok { // quoted, an enum or not
			notes = append(notes, "default: \""+s+"\"")
		} else if s, ok := defaultText(d); ok {
			notes = append(notes, s)
		}
		if len(notes) > 0 {
			b.WriteString(" // " + strings.Join(notes, " "))
		}
	}
	return b.String()
}

func objectType(d *jinja.Dict, indent string) string {
	var b strings.Builder
	if desc, ok := schemaString(d, "description"); ok {
		note(&b, indent, desc)
	}
	b.WriteString("{\n")
	required := map[string]bool{}
	list, _ := d.Get("required").AsList()
	for _, k := range list {
		if s, ok := k.AsString(); ok {
			required[s] = true
		}
	}
	props, _ := d.Get("properties").AsDict()
	for i := 0; props != nil && i < props.Len(); i++ {
		key, v := props.At(i)
		if !required[key] {
			key += "?"
		}
		property(&b, indent, key, v)
	}
	b.WriteString(indent + "}")
	return b.String()
}

// property writes one property with the comments above and behind it.
func property(b *strings.Builder, indent, key string, v jinja.Value) {
	d, ok := v.AsDict()
	if !ok {
		d = jinja.NewDict(0)
	}
	if s, ok := schemaString(d, "title"); ok {
		b.WriteString(indent + "// " + s + "\n" + indent + "//\n")
	}
	variants, isOneOf := d.Get("oneOf").AsList()
	desc, hasDesc := schemaString(d, "description")
	if d.Get("oneOf").IsMissing() && hasDesc {
		note(b, indent, desc)
	}
	if examples, _ := d.Get("examples").AsList(); len(examples) > 0 {
		b.WriteString(indent + "// Examples:\n")
		for _, e := range examples {
			if s, ok := e.AsString(); ok {
				b.WriteString(indent + "// - \"" + s + "\"\n")
			}
		}
	}
	if isOneOf {
		oneOfProperty(b, indent, key, d, variants)
		return
	}
	b.WriteString(indent + key + ": " + nullable(d, typeScript(v, indent+"    ")) + ",")
	if s, ok := defaultText(d); ok && d.Get("oneOf").IsMissing() {
		b.WriteString(" // " + s)
	}
	b.WriteString("\n")
}

// oneOfProperty writes the variants of a property, one a line. A description that the property shares
// with its first variant stands at the variant.
func oneOfProperty(b *strings.Builder, indent, key string, d *jinja.Dict, variants []jinja.Value) {
	desc, hasDesc := schemaString(d, "description")
	above := false
	if hasDesc {
		shared := false
		if len(variants) > 0 {
			if first, ok := variants[0].AsDict(); ok {
				s, is := schemaString(first, "description")
				shared = is && s == desc
			}
		}
		if !shared {
			note(b, indent, desc)
			above = true
		}
	}
	if s, ok := defaultText(d); ok {
		b.WriteString(indent + "// " + s + "\n")
	}
	b.WriteString(indent + key + ":\n")
	for i, v := range variants {
		vd, ok := v.AsDict()
		if !ok {
			vd = jinja.NewDict(0)
		}
		b.WriteString(indent + " | " + nullable(vd, typeScript(v, indent+"   ")))
		var notes []string
		if s, ok := schemaString(vd, "description"); ok && !(i == 0 && above) && !(hasDesc && s == desc) {
			notes = append(notes, s)
		}
		if s, ok := defaultText(vd); ok {
			notes = append(notes, s)
		}
		if len(notes) > 0 {
			b.WriteString(" // " + strings.Join(notes, " "))
		}
		b.WriteString("\n")
	}
	b.WriteString(indent + ",\n")
}

// compactJSON prints a value as Rust's serde_json does: no blanks, 1e-6 for 1e-06, integers beyond 64
// bits as floats.
func compactJSON(dst []byte, v jinja.Value) []byte {
	switch v.Kind() {
	case jinja.KindList:
		list, _ := v.AsList()
		dst = append(dst, '[')
		for i, x := range list {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = compactJSON(dst, x)
		}
		return append(dst, ']')
	case jinja.KindDict:
		d, _ := v.AsDict()
		dst = append(dst, '{')
		for i := range d.Len() {
			if i > 0 {
				dst = append(dst, ',')
			}
			k, x := d.At(i)
			dst, _ = jinja.AppendJSON(dst, jinja.Str(k))
			dst = compactJSON(append(dst, ':'), x)
		}
		return append(dst, '}')
	case jinja.KindFloat:
		f, _ := v.AsFloat()
		return rustFloat(dst, f)
	case jinja.KindInt:
		text, _ := jinja.AppendJSON(nil, v)
		if _, small := v.AsInt(); !small {
			if _, err := strconv.ParseUint(string(text), 10, 64); err != nil {
				f, _ := strconv.ParseFloat(string(text), 64)
				return rustFloat(dst, f)
			}
		}
		return append(dst, text...)
	}
	dst, _ = jinja.AppendJSON(dst, v)
	return dst
}

// rustFloat is the shortest form that reads back: plain between 1e-5 and 1e16.
func rustFloat(dst []byte, f float64) []byte {
	if math.IsInf(f, 0) || math.IsNaN(f) {
		return append(dst, "null"...)
	}
	if a := math.Abs(f); a == 0 || a >= 1e-5 && a < 1e16 {
		s := strconv.FormatFloat(f, 'f', -1, 64)
		if !strings.Contains(s, ".") {
			s += ".0"
		}
		return append(dst, s...)
	}
	mant, exp, _ := strings.Cut(strconv.FormatFloat(f, 'e', -1, 64), "e")
	n, _ := strconv.Atoi(exp)
	return append(dst, mant+"e"+strconv.Itoa(n)...)
}
