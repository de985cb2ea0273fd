package chat

import (
	"math"
	"strconv"
	"strings"

	"kvasir/token/jinja"
)

// harmonyTools writes tools as the TypeScript-like declarations that gpt-oss reads. The form was
// worked out from what openai-harmony 0.0.8 and oss-harmony 0.0.11 print.
func harmonyTools(tools []jinja.Value, lib HarmonyLibrary) string {
	b := schemaWriter{lib: lib}
	b.WriteString("# Tools\n\n## functions\n\nnamespace functions {\n\n")
	for _, v := range tools {
		t, _ := v.AsDict()
		f, _ := t.Get("function").AsDict()
		name, _ := f.Get("name").AsString()
		desc, _ := f.Get("description").AsString()
		b.comment(desc)
		b.WriteString("type " + name + " = (")
		if params := f.Get("parameters"); !params.IsNone() {
			b.WriteString("_: " + b.typeScript(params, ""))
		}
		b.WriteString(") => any;\n\n")
	}
	b.WriteString("} // namespace functions")
	return b.String()
}

// A schemaWriter writes what the library of the engine would.
type schemaWriter struct {
	strings.Builder
	lib HarmonyLibrary
}

// comment writes each line of text behind "// ". Lines end with \n or \r\n; a \r at the end of the
// text is part of its last line (Rust's str::lines).
func (b *schemaWriter) comment(text string) {
	for text != "" {
		line, rest, ended := strings.Cut(text, "\n")
		if ended {
			line = strings.TrimSuffix(line, "\r")
		}
		b.WriteString("// " + line + "\n")
		text = rest
	}
}

// note writes a schema's description; unlike a tool's it is not taken apart into lines.
func (b *schemaWriter) note(indent, text string) { b.WriteString(indent + "// " + text + "\n") }

func schemaString(d *jinja.Dict, key string) (string, bool) { return d.Get(key).AsString() }

// hasEnum reports an enum with values.
func hasEnum(d *jinja.Dict) bool {
	l, _ := d.Get("enum").AsList()
	return len(l) > 0
}

// defaultText is "default: x" for a schema that has one.
func (w *schemaWriter) defaultText(d *jinja.Dict) (string, bool) {
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
	return "default: " + string(w.lib.compactJSON(nil, v)), true
}

// nullable marks a type as one that may be null.
func nullable(d *jinja.Dict, typ string) string {
	if n, _ := d.Get("nullable").AsBool(); n && !strings.Contains(typ, "null") {
		return typ + " | null"
	}
	return typ
}

// typeScript writes the type of a JSON schema; indent is that of its closing brace.
func (w *schemaWriter) typeScript(v jinja.Value, indent string) string {
	d, ok := v.AsDict()
	if !ok {
		return "any"
	}
	if variants, ok := d.Get("oneOf").AsList(); ok {
		return w.oneOf(variants, indent)
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
		return w.objectType(d, indent)
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
			return w.typeScript(items, indent) + "[]"
		}
		return "Array<any>"
	}
	return "any"
}

// oneOf writes the variants of a type that is not a property's.
func (w *schemaWriter) oneOf(variants []jinja.Value, indent string) string {
	b := schemaWriter{lib: w.lib}
	for _, v := range variants {
		d, _ := v.AsDict()
		if d == nil {
			d = jinja.NewDict(0)
		}
		b.WriteString("\n" + indent + " | " + nullable(d, b.typeScript(v, indent+"   ")))
		var notes []string
		if s, ok := schemaString(d, "description"); ok {
			notes = append(notes, s)
		}
		if s, ok := schemaString(d, "default"); ok { // quoted, an enum or not
			notes = append(notes, "default: \""+s+"\"")
		} else if s, ok := b.defaultText(d); ok {
			notes = append(notes, s)
		}
		if len(notes) > 0 {
			b.WriteString(" // " + strings.Join(notes, " "))
		}
	}
	return b.String()
}

func (w *schemaWriter) objectType(d *jinja.Dict, indent string) string {
	b := schemaWriter{lib: w.lib}
	if desc, ok := schemaString(d, "description"); ok {
		b.note(indent, desc)
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
		b.property(indent, key, v)
	}
	b.WriteString(indent + "}")
	return b.String()
}

// property writes one property with the comments above and behind it.
func (b *schemaWriter) property(indent, key string, v jinja.Value) {
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
		b.note(indent, desc)
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
		b.oneOfProperty(indent, key, d, variants)
		return
	}
	b.WriteString(indent + key + ": " + nullable(d, b.typeScript(v, indent+"    ")) + ",")
	if s, ok := b.defaultText(d); ok && d.Get("oneOf").IsMissing() {
		b.WriteString(" // " + s)
	}
	b.WriteString("\n")
}

// oneOfProperty writes the variants of a property, one a line. A description that the property shares
// with its first variant stands at the variant.
func (b *schemaWriter) oneOfProperty(indent, key string, d *jinja.Dict, variants []jinja.Value) {
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
			b.note(indent, desc)
			above = true
		}
	}
	if s, ok := b.defaultText(d); ok {
		b.WriteString(indent + "// " + s + "\n")
	}
	b.WriteString(indent + key + ":\n")
	for i, v := range variants {
		vd, ok := v.AsDict()
		if !ok {
			vd = jinja.NewDict(0)
		}
		b.WriteString(indent + " | " + nullable(vd, b.typeScript(v, indent+"   ")))
		var notes []string
		if s, ok := schemaString(vd, "description"); ok && !(i == 0 && above) && !(hasDesc && s == desc) {
			notes = append(notes, s)
		}
		if s, ok := b.defaultText(vd); ok {
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
func (lib HarmonyLibrary) compactJSON(dst []byte, v jinja.Value) []byte {
	switch v.Kind() {
	case jinja.KindList:
		list, _ := v.AsList()
		dst = append(dst, '[')
		for i, x := range list {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = lib.compactJSON(dst, x)
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
			dst = lib.compactJSON(append(dst, ':'), x)
		}
		return append(dst, '}')
	case jinja.KindFloat:
		text, _ := jinja.AppendJSON(nil, v)
		return lib.rustFloat(dst, serdeFloat(text))
	case jinja.KindInt:
		text, _ := jinja.AppendJSON(nil, v)
		if _, small := v.AsInt(); !small {
			if _, err := strconv.ParseUint(string(text), 10, 64); err != nil {
				return lib.rustFloat(dst, serdeFloat(text))
			}
		}
		return append(dst, text...)
	}
	dst, _ = jinja.AppendJSON(dst, v)
	return dst
}

// serdeFloat reads a JSON number as Rust's serde_json does without its feature float_roundtrip: the
// digits as one integer, as far as they fit 64 bits, times or over a power of ten, each rounded. So
// 1.5e-300 is 15/1e301, which is 1.4999999999999998e-300. Seen in what both libraries print.
func serdeFloat(text []byte) float64 {
	var digits uint64
	exp, full, point := 0, false, false
	i := 0
	negative := len(text) > 0 && text[0] == '-'
	if negative {
		i++
	}
	for ; i < len(text) && text[i] != 'e' && text[i] != 'E'; i++ {
		c := text[i]
		if c == '.' {
			point = true
			continue
		}
		d := uint64(c - '0')
		if full = full || digits > (math.MaxUint64-d)/10; full {
			if !point {
				exp++ // what no longer fits counts as zeros
			}
			continue
		}
		digits = 10*digits + d
		if point {
			exp--
		}
	}
	if i < len(text) {
		n, _ := strconv.Atoi(string(text[i+1:]))
		exp += n
	}
	f := float64(digits)
	for ; exp < -308 && f != 0; exp += 308 {
		f /= 1e308
	}
	if exp < 0 {
		f /= pow10(-exp)
	} else {
		f *= pow10(exp)
	}
	if negative {
		return -f
	}
	return f
}

// pow10 is the nearest float to a power of ten.
func pow10(n int) float64 {
	f, _ := strconv.ParseFloat("1e"+strconv.Itoa(n), 64)
	return f
}

// rustFloat is the shortest form that reads back: plain between 1e-5 and 1e16.
func (lib HarmonyLibrary) rustFloat(dst []byte, f float64) []byte {
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
	sign := ""
	if n > 0 && lib == OSSHarmony {
		sign = "+"
	}
	return append(dst, mant+"e"+sign+strconv.Itoa(n)...)
}
