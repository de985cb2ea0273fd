package reference

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"

	"kvasir/setting"
)

const head = `# Configuration

<!-- Made from the source by config/reference (make docs): edit the comments and tags of the fields there. -->

` + "`kvasir serve --config FILE`" + ` reads one YAML (or JSON) file. Only ` + "`engines`" + ` is needed, and flags win over the file:

` + "```yaml" + `
# yaml-language-server: $schema=kvasir.schema.json
engines:
  - url: http://10.0.0.1:8000
  - url: http://10.0.0.2:8000
` + "```" + `

Each of the %d keys below has its default, what is accepted, an example, and its meaning. A key that isn't here is an error that names the line. What is left empty
keeps its default. Durations are written ` + "`500ms`, `30s`, `5m` or `1h30m`" + `; sizes in bytes, or as ` + "`64MiB`" + `. ` + "`kvasir check`" + ` prints what is in force: it is a
file that ` + "`serve`" + ` accepts. For editors there is [kvasir.schema.json](kvasir.schema.json), which ` + "`kvasir check --schema`" + ` prints as well.
`

// writePage writes the reference: a heading for each group, its keys below it.
func writePage(w *bytes.Buffer, list []setting.Setting, words comments) {
	keys := 0
	for _, s := range list {
		if !setting.Group(s.Field.Type) {
			keys++
		}
	}
	fmt.Fprintf(w, head, keys)
	fmt.Fprintf(w, "\n## At the top\n")
	writeGroup(w, "", list, words)
	for _, s := range list {
		if setting.Group(s.Field.Type) {
			path := s.Path
			if s.Field.Type.Kind() == reflect.Slice {
				path += "[]"
			}
			fmt.Fprintf(w, "\n## %s\n\n%s\n", path, wrap(words.meaning(s, list), ""))
			writeGroup(w, path+".", list, words)
		}
	}
}

func writeGroup(w *bytes.Buffer, prefix string, list []setting.Setting, words comments) {
	for i := range list {
		s := &list[i]
		if rest, ok := strings.CutPrefix(s.Path, prefix); !ok || strings.ContainsAny(rest, ".[") || setting.Group(s.Field.Type) {
			continue
		}
		facts := []string{"default " + code(shown(s)), accepts(s)}
		if ex := s.Other(); ex != "" {
			facts = append(facts, "example "+code(key(s.Path)+": "+yamlText(s, ex)))
		}
		fmt.Fprintf(w, "\n- **%s**: %s<br>\n%s\n", key(s.Path), strings.Join(facts, "; "), wrap(words.meaning(*s, list), "  "))
	}
}

// accepts says what s may be, in words and with the unit.
func accepts(s *setting.Setting) string {
	t := s.Field.Type
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	text := s.Rule.Accepts(t)
	if s.Rule.Unit != "" {
		text += " " + s.Rule.Unit
	}
	return text
}

// shown is the default as the file would have it.
func shown(s *setting.Setting) string {
	switch x := s.Default; x.Kind() {
	case reflect.Pointer:
		return "none"
	case reflect.Slice:
		if texts, ok := x.Interface().([]string); ok {
			return "[" + strings.Join(texts, ", ") + "]"
		}
		return "[]"
	case reflect.Map:
		return "{}"
	case reflect.String:
		return yamlText(s, x.String())
	default:
		if s.Rule.Unit == "bytes" {
			return setting.Bytes(x.Int())
		}
		return setting.Text(x)
	}
}

// yamlText quotes a text where YAML needs it.
func yamlText(s *setting.Setting, text string) string {
	if s.Field.Type.Kind() == reflect.String && (text == "" || strings.ContainsAny(text, "*#")) {
		return `"` + text + `"`
	}
	return text
}

func code(text string) string { return "`" + text + "`" }

// wrap breaks text into lines of about 160 characters.
func wrap(text, indent string) string {
	var out strings.Builder
	n := 0
	for i, word := range strings.Fields(text) {
		switch {
		case i == 0:
			out.WriteString(indent)
		case n+len(word) > 160:
			out.WriteString("\n" + indent)
			n = 0
		default:
			out.WriteByte(' ')
		}
		out.WriteString(word)
		n += len(word) + 1
	}
	return out.String()
}
