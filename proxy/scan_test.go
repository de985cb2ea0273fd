package proxy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestReadFields(t *testing.T) {
	for _, c := range []struct {
		name, body string
		want       fields
	}{
		{"all", `{"model":"m","stream":true,"max_tokens":7,"n":2,"user":"u"}`, fields{model: "m", hasModel: true, stream: true, output: 14, session: "user=u"}},
		{"spaces", " { \"model\" : \"m\" ,\n\t\"stream\" : true }\n", fields{model: "m", hasModel: true, stream: true}},
		{"the last of a name wins", `{"model":"a","stream":true,"max_tokens":1,"stream":false,"model":"b","max_tokens":2}`, fields{model: "b", hasModel: true, output: 2}},
		{"the last wins even if null", `{"model":"a","model":null,"max_tokens":5,"max_tokens":null}`, fields{}},
		{"a name in escapes", `{"\u006dodel":"\u006d\/x","str\u0065am":true}`, fields{model: "m/x", hasModel: true, stream: true}},
		{"names deeper down don't count", `{"x":{"model":"no","stream":true},"messages":[{"model":"no"}],"model":"m"}`, fields{model: "m", hasModel: true}},
		{"names in strings don't count", `{"x":"\"model\":\"no\"","y":"\\","model":"m"}`, fields{model: "m", hasModel: true}},
		{"max_completion_tokens goes first", `{"max_tokens":7,"max_completion_tokens":3}`, fields{output: 3}},
		{"stream options", `{"stream_options":{"include_usage":false}}`, fields{options: true}},
		{"no stream options", `{"stream_options":null,"x":{"stream_options":{}}}`, fields{}},
		{"a stored answer", `{"previous_response_id":"resp_1","store":false}`, fields{previous: "resp_1", unstored: true}},
		{"stored", `{"previous_response_id":null,"store":true}`, fields{}},
		{"too long an id", `{"previous_response_id":"` + strings.Repeat("x", maxStoredID+1) + `"}`, fields{}},
		{"max_output_tokens", `{"max_output_tokens":3}`, fields{output: 3}},
		{"0, negative, float, text", `{"max_completion_tokens":0,"max_tokens":-4,"max_output_tokens":1.5}`, fields{}},
		{"huge", `{"max_tokens":99999999999999999999999,"n":1}`, fields{}},
		{"large times many", `{"max_tokens":999999999999,"n":999999999999}`, fields{output: 1 << 30 * 128}},
		{"priority", `{"priority":5,"priority":-7,"nvext":{"priority":1}}`, fields{priority: said{true, -7}}},
		{"no priority", `{"priority":"5","nvext":{"agent_hints":{"priority":1.5,"osl":"7"}}}`, fields{}},
		{"extreme priorities", `{"priority":-999999999999999999,"nvext":{"agent_hints":{"priority":999999999999999999}}}`, fields{priority: said{true, -2147483647}, hint: said{true, 2147483647}}},
		{"agent hints", `{"n":2,"nvext":{"agent_hints":{"priority":3,"osl":40,"speculative_prefill":true},"x":[1]}}`, fields{hint: said{true, 3}, expected: 80}},
		{"the last agent hints win", `{"nvext":{"agent_hints":{"priority":3,"osl":40},"agent_hints":{"osl":-2}}}`, fields{}},
		{"no agent hints", `{"nvext":{"agent_hints":[1,{"osl":2}]}, "agent_hints":{"osl":3}}`, fields{}},
		{"the last nvext wins", `{"nvext":{"agent_hints":{"osl":3}},"nvext":null}`, fields{}},
		{"Python's own", `{"a":NaN,"b":-Infinity,"c":Infinity,"d":1e400,"e":"\ud83d","model":"m"}`, fields{model: "m", hasModel: true}},
		{"no text", "{\"x\":\"a\xff\xfeb\x01\",\"model\":\"m\"}", fields{model: "m", hasModel: true}},
		{"byte order mark", "\xef\xbb\xbf{\"model\":\"m\"}", fields{model: "m", hasModel: true}},
		{"empty", `{}`, fields{}},
		{"500 deep", `{"x":` + strings.Repeat("[", 500) + strings.Repeat("]", 500) + `,"model":"m"}`, fields{model: "m", hasModel: true}},
		{"4096 deep", `{"x":` + strings.Repeat(`[`, 2048) + strings.Repeat(`{"a":`, 2048) + "1" + strings.Repeat("}", 2048) + strings.Repeat("]", 2048) + `,"model":"m"}`, fields{model: "m", hasModel: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, isObject, err := readFields([]byte(c.body))
			f.answer, f.cache = 0, cacheUse{} // see TestUnequalContexts of package router, and TestCacheUse
			if f != c.want || !isObject || err != nil {
				t.Errorf("%+v, %v, %v\nwant %+v", f, isObject, err, c.want)
			}
		})
	}
}

func TestReadFieldsRefuses(t *testing.T) {
	for _, body := range []string{
		"", " ", "{", "}", `{"a"}`, `{"a":}`, `{"a":1,}`, `{,}`, `{"a":1 "b":2}`, `{a:1}`, `{'a':1}`, `{"a":1}}`, `{"a":1}x`, `{"a":01}`, `{"a":1.}`, `{"a":.5}`, `{"a":+1}`, `{"a":1e}`,
		`{"a":tru}`, `{"a":truex}`, `{"a":[1,]}`, `{"a":[1 2]}`, `{"a":[}`, `{"a":{]}`, `{"a":"b}`, `{"a":"b\"}`, `{"model":"m"`, "{\"a\":1}\x00", "\x00{}", "[1", "nul",
		`{"x":` + strings.Repeat("[", 4097), strings.Repeat(`{"x":`, 100_000),
	} {
		if f, _, err := readFields([]byte(body)); err == nil {
			t.Errorf("%q: %+v, no error", clip(body, 40), f)
		} else if len(err.Error()) > 200 {
			t.Errorf("%q: %v", clip(body, 40), err)
		}
	}
}

// Hostile bodies of a megabyte and more (backslashes, quotes, brackets without end)
// overflow no stack, allocate next to nothing and are refused in few words. That the
// work stays in proportion to the length is counted with the tag invariants.
func TestHostileBodies(t *testing.T) {
	for _, unit := range []string{`\\`, `\"`, `"`, `[`, `{"a":`, `,`, ` `, `1`, `"a",`, `\\\"`} {
		for _, head := range []string{`{"x":"`, `{"x":`, ``} {
			c := cursor{b: []byte(head + strings.Repeat(unit, 1<<20))}
			_, isObject, err := c.fields()
			if head+unit == "1" {
				if isObject || err != nil {
					t.Errorf("a long number: %v, %v; want no object and no error", isObject, err)
				}
			} else if err == nil || len(err.Error()) > 200 {
				t.Errorf("%s%s…: %.300v, want a short error", head, unit, err)
			}
			if invariants && (c.work == 0 || c.work > 4*len(c.b)) {
				t.Errorf("%s%s…: %d steps over %d bytes", head, unit, c.work, len(c.b))
			}
			c = cursor{b: c.b}
			if n := testing.AllocsPerRun(1, func() { c.i, c.err = 0, ""; c.fields() }); n > 10 {
				t.Errorf("%s%s…: %v allocations", head, unit, n)
			}
		}
	}
}

// FuzzReadFields compares the scanner with encoding/json: what that one takes we
// take, and read the same from it.
func FuzzReadFields(f *testing.F) {
	for _, r := range recordings(f) {
		if len(r.Body) < 2000 {
			f.Add([]byte(r.Body))
		}
	}
	for _, s := range []string{`{"model":"a","model":"b"}`, `{"mod\u0065l":"\ud83d\ude00"}`, `{"x":"\\","stream":true}`, `{"metadata":{"user_id":"u"}}`, `[[]]`, `{"a":-0.5e+3}`, `{"max_tokens":1e2}`, strings.Repeat("[", 64)} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		got, isObject, err := readFields(b)
		if !json.Valid(b) {
			return // we may be more generous
		}
		if err != nil {
			if strings.Contains(err.Error(), "deeper") {
				return
			}
			t.Fatalf("%q: %v", b, err)
		}
		var m map[string]json.RawMessage
		if json.Unmarshal(b, &m) != nil || m == nil {
			if isObject {
				t.Fatalf("%q is no object", b)
			}
			return
		}
		var model string
		isText := json.Unmarshal(m["model"], &model) == nil && len(m["model"]) > 0 && m["model"][0] == '"'
		if got.hasModel != isText || isText && len(m["model"]) < maxModel && utf8.Valid(m["model"]) && got.model != model {
			t.Fatalf("%q: model %q %v, want %q %v", b, got.model, got.hasModel, model, isText)
		}
		if stream := bytes.Equal(m["stream"], []byte("true")); got.stream != stream {
			t.Fatalf("%q: stream %v", b, got.stream)
		}
	})
}

func BenchmarkReadFields(b *testing.B) {
	for _, size := range []int{2 << 10, 256 << 10} {
		for name, text := range map[string]string{"plain": "word ", "escapes": `li\n\"ne `} {
			body := []byte(`{"model":"m","messages":[{"role":"user","content":"` + strings.Repeat(text, size/len(text)) + `"}],"stream":true,"max_tokens":8}`)
			b.Run(fmt.Sprintf("%s_%dKB", name, size>>10), func(b *testing.B) {
				b.SetBytes(int64(len(body)))
				b.ReportAllocs()
				for b.Loop() {
					readFields(body)
				}
			})
		}
	}
}
