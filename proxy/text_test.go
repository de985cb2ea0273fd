package proxy

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"kvasir/token"
)

func TestPromptText(t *testing.T) {
	for _, c := range []struct {
		name        string
		kind        token.Endpoint
		body        string
		ray, sglang string
	}{
		{"messages", token.Chat, `{"model":"m","messages":[{"role":"system","content":"be brief"},{"role":"user","name":"bob","content":"hi"}],"tools":[{"text":"no"}]}`,
			"be briefhi", "be brief hi"},
		{"parts", token.Chat, `{"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"data:x"}},{"type":"text","text":"b"}]}]}`,
			"ab", "a b"},
		{"nothing said", token.Chat, `{"messages":[{"role":"assistant","content":null},{"role":"user","content":""},{"role":"user","content":"x"},{"role":"tool","content":[]}]}`,
			"x", "x"},
		{"reasoning, before the content in the body", token.Chat, `{"messages":[{"role":"user","content":"q"},{"role":"assistant","reasoning_content":"because","content":"so"},{"role":"user","content":"why"}]}`,
			"qsowhy", "q so because why"},
		{"reasoning only", token.Chat, `{"messages":[{"role":"assistant","content":null,"reasoning_content":"because"}]}`, "", "because"},
		{"escapes", token.Chat, `{"messages":[{"content":"\u00e9\ud83d\ude00\n\"\\\/\t\r\b\f\ud83d!"}]}`, "é😀\n\"\\/\t\r\b\f\ufffd!", "é😀\n\"\\/\t\r\b\f\ufffd!"},
		{"no escapes of JSON", token.Chat, "{\"messages\":[{\"content\":\"\\x\\u12\xff\"}]}", "\\x\\u12\xff", "\\x\\u12\xff"},
		{"the last of a name wins", token.Chat, `{"messages":[{"content":"no"}],"m\u0065ssages":[{"content":"no","content":"yes"}]}`, "yes", "yes"},
		{"text is a string, or the content counts", token.Chat, `{"messages":[{"content":[{"text":{"x":1},"content":"inner"},{"text":"t","content":"no"}]}]}`, "innert", "inner t"},
		{"images only", token.Chat, `{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"u"}}]}]}`, "", ""},
		{"messages as one string", token.Chat, `{"messages":"hi"}`, "hi", "hi"},
		{"a prompt", token.Completions, "\xef\xbb\xbf" + `{"prompt":"one","messages":[{"content":"no"}]}`, "one", "one"},
		{"prompts", token.Completions, `{"prompt":["one","","two"]}`, "onetwo", "one two"},
		{"ids", token.Completions, `{"prompt":[1,2,3]}`, "", ""},
		{"lists of ids", token.Completions, `{"prompt":[[1,2],[3]]}`, "", ""},
		{"embeddings", token.Embeddings, `{"input":["a","b"]}`, "ab", "a b"},
		{"an embedding of ids", token.Embeddings, `{"input":[1]}`, "", ""},
		{"an embedding of messages", token.Embeddings, `{"messages":[{"content":"a"}]}`, "a", "a"},
		{"Anthropic's", token.Messages, `{"messages":[{"role":"user","content":[{"type":"tool_result","content":[{"type":"text","text":"42"}]},{"type":"text","text":"so?"}]}],"system":[{"type":"text","text":"sys"}]}`,
			"sys42so?", "sys 42 so?"},
		{"Responses", token.Responses, `{"instructions":"not in it","input":[{"role":"user","content":"a"},{"type":"message","content":[{"type":"input_text","text":"b"}]},{"type":"reasoning","summary":[{"text":"no"}],"content":[{"type":"reasoning_text","text":"c"}]},{"type":"function_call_output","output":"no"}]}`,
			"abc", "a b c"},
		{"Responses of a string", token.Responses, `{"input":"a"}`, "a", "a"},
		{"deep, but not too deep", token.Chat, `{"messages":` + strings.Repeat("[", 8) + `"x"` + strings.Repeat("]", 8) + `}`, "x", "x"},
		{"too deep", token.Chat, `{"messages":` + strings.Repeat("[", 9) + `"x"` + strings.Repeat("]", 9) + `}`, "", ""},
		{"no prompt", token.Other, `{"messages":[{"content":"x"}]}`, "", ""},
		{"no object", token.Chat, `[{"content":"x"}]`, "", ""},
		{"broken", token.Chat, `{"messages":[{"content":"x"}],`, "", ""},
	} {
		for between, want := range map[string]string{"": c.ray, " ": c.sglang} {
			got := promptText([]byte(c.body), c.kind, between)
			if string(got) != want || (got == nil) != (want == "") {
				t.Errorf("%s, between %q: %q, want %q", c.name, between, got, want)
			}
		}
	}
}

// A prompt of any length costs no more than the bound, and what is cut off doesn't
// change what is before.
func TestPromptTextIsBounded(t *testing.T) {
	for _, unit := range []string{"word ", `\n`, `\ud83d\ude00`} {
		body := `{"messages":[{"content":"start"},{"content":"` + strings.Repeat(unit, 2*maxText/len(unit)) + `"},{"content":"end"}]}`
		body = strings.Replace(body, "end", strings.Repeat(unit, 2*maxText/len(unit))+"end", 1)
		got := promptText([]byte(body), token.Chat, "")
		if len(got) == 0 || len(got) > maxText || !strings.HasPrefix(string(got), "start") {
			t.Errorf("%q: %d bytes, want at most %d", unit, len(got), maxText)
		}
		if strings.HasSuffix(string(got), "end") && len(got) == maxText {
			t.Errorf("%q: the end is in it", unit)
		}
	}
	hostile := `{"messages":` + strings.Repeat(`[{"content":`, maxDepth/2-1) + `"x"` + strings.Repeat("}]", maxDepth/2-1) + `}`
	if got := promptText([]byte(hostile), token.Chat, " "); got != nil {
		t.Errorf("%q out of the deep", got)
	}
}

// FuzzPromptText compares with what encoding/json reads: of any body, the text of
// either join is that of a plain walk over the decoded document.
func FuzzPromptText(f *testing.F) {
	for _, s := range []string{
		`{"messages":[{"content":"a"},{"content":[{"text":"\u00e9"},{"text":3,"content":"\ud83d\ude00"}],"reasoning_content":"r"}]}`,
		`{"prompt":["a",1,"\\"]}`, `{"input":[{"content":[{"text":"x"}]}],"system":"s"}`, `{"messages":"\n"}`, `{"messages":[[["\/"]]]}`,
	} {
		for kind := token.Other; kind <= token.Tokenize; kind++ {
			f.Add([]byte(s), uint8(kind), true)
		}
	}
	f.Fuzz(func(t *testing.T, body []byte, kind uint8, spaced bool) {
		between := ""
		if spaced {
			between = " "
		}
		got := promptText(body, token.Endpoint(kind), between)
		if len(got) > maxText {
			t.Fatalf("%d bytes", len(got))
		}
		var doc map[string]any
		if !json.Valid(body) || json.Unmarshal(body, &doc) != nil {
			return // no panic is all we ask
		}
		if want := plainText(doc, token.Endpoint(kind), between); strings.ToValidUTF8(string(got), "\ufffd") != strings.ToValidUTF8(want, "\ufffd") && len(want) <= maxText {
			if !strings.Contains(want, "\ufffd") { // encoding/json has put those in
				t.Fatalf("%q: %q, want %q", body, got, want)
			}
		}
	})
}

func plainText(doc map[string]any, kind token.Endpoint, between string) string {
	var all []string
	var walk func(v any, depth int)
	walk = func(v any, depth int) {
		if depth > maxNest {
			return
		}
		switch v := v.(type) {
		case string:
			if v != "" {
				all = append(all, v)
			}
		case []any:
			for _, x := range v {
				walk(x, depth+1)
			}
		case map[string]any:
			if s, ok := v["text"].(string); ok {
				walk(s, depth+1)
			} else {
				walk(v["content"], depth+1)
			}
			if s, ok := v["reasoning_content"].(string); ok && between != "" {
				walk(s, depth+1)
			}
		}
	}
	for _, name := range promptFields(kind) {
		walk(doc[name], 0)
	}
	return strings.Join(all, between)
}

// Policies with a text tree see what the prompts say and not the JSON around it:
// three short prompts in equal bodies have nothing in common. (As long as they got
// bodies, the second and the third matched the first.) What was sent before matches.
func TestTextPoliciesSeeThePromptOnly(t *testing.T) {
	for _, c := range []struct{ policy, cold, warm string }{
		{"ray_prefix", "least text", "match"},
		{"sglang_cache_aware", "no match", "match"},
	} {
		for path, body := range map[string]string{
			chatPath:          `{"model":"m","messages":[{"role":"user","content":%q}],"max_tokens":4,"temperature":0.5}`,
			"/v1/completions": `{"model":"m","prompt":%q,"max_tokens":4,"temperature":0.5}`,
		} {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, setup{policy: c.policy})
				defer w.close()
				for _, name := range []string{"a:80", "b:80"} {
					w.engine(name)
					w.serve(name, answerJSON(200, `{"choices":[{"message":{"content":"x"},"text":"x"}]}`))
				}
				var branches, replicas []string
				for _, prompt := range []string{"alpha beta gamma", "zulu yankee xray", "one two three", "zulu yankee xray and more"} {
					if code, _, answer := w.do("POST", path, fmt.Sprintf(body, prompt)); code != 200 {
						t.Fatalf("%d %s", code, answer)
					}
					synctest.Wait()
					r := w.lastReceipt()
					branches, replicas = append(branches, r.Branch), append(replicas, r.Replica)
				}
				if want := fmt.Sprint([]string{c.cold, c.cold, c.cold, c.warm}); fmt.Sprint(branches) != want {
					t.Errorf("%s %s: branches %v, want %v", c.policy, path, branches, want)
				}
				if replicas[3] != replicas[1] || replicas[0] == replicas[1] {
					t.Errorf("%s %s: on %v, want the last where the second was, and the first elsewhere", c.policy, path, replicas)
				}
			})
		}
	}
}

// A policy that reads no text gets none; one that does gets it as its original joins it.
func TestTextByNeed(t *testing.T) {
	const two = `{"model":"m","messages":[{"content":"a"},{"content":"b"}]}`
	for name, want := range map[string]string{"ray_prefix": "ab", "sglang_cache_aware": "a b", "auto": "", "round_robin": ""} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, setup{policy: name})
			defer w.close()
			w.engine("a:80")
			w.serve("a:80", answerJSON(200, "{}"))
			c := &call{p: w.proxy, rt: routes[chatPath], body: &body{b: []byte(two)}}
			c.r = httptest.NewRequest("POST", chatPath, strings.NewReader(two))
			if e := c.read(); e != nil {
				t.Fatal(e.message)
			}
			c.prepare()
			if got := string(c.route.Text); got != want || (c.route.Text == nil) != (want == "") {
				t.Errorf("%s: text %q, want %q", name, c.route.Text, want)
			}
		})
	}
}

func BenchmarkPromptText(b *testing.B) {
	for _, size := range []int{2 << 10, 256 << 10} {
		for name, text := range map[string]string{"plain": "word ", "escapes": `li\n\"ne `} {
			body := []byte(`{"model":"m","messages":[{"role":"user","content":"` + strings.Repeat(text, size/len(text)) + `"}],"stream":true,"max_tokens":8}`)
			b.Run(fmt.Sprintf("%s_%dKB", name, size>>10), func(b *testing.B) {
				b.SetBytes(int64(len(body)))
				b.ReportAllocs()
				for b.Loop() {
					promptText(body, token.Chat, " ")
				}
			})
		}
	}
}
