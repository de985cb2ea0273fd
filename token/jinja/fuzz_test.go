package jinja

import (
	"encoding/json"
	"strings"
	"testing"
)

// FuzzTemplate: no template and no value may do more than fail with an *Error that is no bug of ours.
func FuzzTemplate(f *testing.F) {
	for _, row := range readLines(f, "testdata/jinja_unit.jsonl.gz")[1:] {
		var c struct{ Template string }
		if json.Unmarshal(row, &c) == nil {
			f.Add(c.Template, `{"l":[1,"a",null],"s":"é x","d":{"a":{"b":1}}}`)
		}
	}
	f.Add("{% for m in messages %}{{ m.role ~ m['content']|trim }}{% endfor %}", `{"messages":[{"role":"user","content":" x "}]}`)
	f.Fuzz(func(t *testing.T, src, ctx string) {
		v, err := ParseJSON([]byte(ctx))
		if err != nil {
			v = DictOf(NewDict(0))
		}
		vars, ok := v.AsDict()
		if !ok {
			vars = NewDict(0)
		}
		tpl, err := Compile(src)
		if err == nil {
			tpl.ContentFormat()
			tpl.Variables()
			_, err = tpl.Render(vars, Env{Now: frozen, Limits: Limits{Steps: 100_000, Output: 1 << 20, Memory: 16 << 20, Depth: 20}})
		}
		if e, ok := err.(*Error); err != nil && (!ok || strings.HasPrefix(e.Message, "engine bug")) {
			t.Fatalf("%q: %v", src, err)
		}
	})
}

// FuzzJSON: what we read, encoding/json reads too (but for NaN and the like), and what we print we read
// again as the same.
func FuzzJSON(f *testing.F) {
	for _, s := range []string{`{"a":[1,2.50,1E5,-0,1e400],"b":{"a":null,"a":true}}`, `"\ud83d\ude00\u0000\/"`, `[NaN,-Infinity]`,
		`123456789012345678901234567890`, `"\ud800"`, `[[[[]]]]`, ` {"k" : "v\n"} `, `{"":0}`, "\xef\xbb\xbf[]", `01`, `"a`, "\"\x01\""} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		v, err := ParseJSON(data)
		if err != nil {
			if _, ok := err.(*JSONError); !ok {
				t.Fatalf("%v is not a *JSONError", err)
			}
			return
		}
		out, err := AppendJSON(nil, v)
		if err != nil {
			t.Fatal(err)
		}
		again, err := ParseJSON(out)
		if err != nil {
			t.Fatalf("%s: %v", out, err)
		}
		out2, err := AppendJSON(nil, again)
		if err != nil || string(out) != string(out2) {
			t.Fatalf("%s became %s, %v", out, out2, err)
		}
		if s := string(out); !json.Valid(out) && !strings.Contains(s, "NaN") && !strings.Contains(s, "Infinity") {
			t.Fatalf("%s is not JSON", s)
		}
	})
}
