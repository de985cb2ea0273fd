package token

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"kvasir/token/chat"
	"kvasir/token/jinja"
)

// template is ours, with what real ones do.
const template = `{%- if tools %}{{ '# Tools\n' }}{% for t in tools %}{{ t | tojson }}{{ '\n' }}{% endfor %}{% endif -%}
{%- for m in messages %}{{ '<' + m.role + '>' }}{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content or [] %}{{ p.text }}{% endfor %}{% endif %}
{%- if m.tool_calls %}{% for c in m.tool_calls %}{{ c.function.name }}{{ c.function.arguments | tojson }}{% endfor %}{% endif %}{{ '\n' }}{% endfor -%}
{%- if add_generation_prompt %}{{ '<assistant>' }}{% endif %}`

func templateModel(t testing.TB) *Model {
	t.Helper()
	tpl, err := jinja.Compile(template)
	if err != nil {
		t.Fatal(err)
	}
	r, err := chat.New(chat.Config{Template: tpl, Now: func() time.Time { return time.Unix(0, 0) }})
	if err != nil {
		t.Fatal(err)
	}
	return NewModel(small(t), r, "", 1000)
}

// FuzzLocal: whatever the body, there are tokens or a reason, no panic, and a kept
// beginning changes no id.
func FuzzLocal(f *testing.F) {
	for _, s := range []string{
		`{"messages":[{"role":"user","content":"hello there, how are you"}]}`,
		`{"messages":[{"role":"user","content":[{"type":"text","text":"a"}]},{"role":"assistant","tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}}]}],"tools":[{"type":"function","function":{"name":"f"}}]}`,
		`{"messages":[{"role":"user","content":"x"}],"truncate_prompt_tokens":-1,"add_special_tokens":true}`,
		`{"messages":[{"role":"user","content":"\ud800"}]}`, `{"messages":7}`, `{"messages":[`, `[]`, ``, "\xef\xbb\xbf{}", `{"messages":[{"role":"user","content":null}]}`,
		`{"prompt":"hello","cache_salt":"s"}`, `{"prompt":["a","b"],"add_special_tokens":false}`, `{"prompt":["a",1]}`, `{"prompt":"a","prompt":"b"}`, `{"prompt":"\u0000"}`, `{"prompt":{"a":1}}`, `{"prompt":"a"}}`,
		`{"messages":[{"role":"user","content":"` + strings.Repeat("word ", 1000) + `"}]}`,
		`{"prompt":"` + strings.Repeat("x", 5000) + `"}`,
	} {
		f.Add([]byte(s))
	}
	l := NewLocal(LocalConfig{CacheBytes: 1 << 20}, None, nil)
	m := templateModel(f)
	l.Set("m", m)
	bare := &Local{}
	f.Fuzz(func(t *testing.T, body []byte) {
		before := slices.Clone(body)
		for _, ep := range []Endpoint{Chat, Completions} {
			q := &Request{Endpoint: ep, Model: "m", Body: body}
			for range 2 {
				got := l.Tokens(context.Background(), q)
				if (len(got.Prompts) == 0) == (got.Why == "") {
					t.Fatalf("%d prompts, and the reason for none is %q", len(got.Prompts), got.Why)
				}
				want, err := bare.make(context.Background(), m, q)
				if (err != nil) != (len(got.Prompts) == 0) {
					t.Fatalf("%v without kept beginnings, %q with", err, got.Why)
				}
				if len(got.Prompts) != len(want.Prompts) || got.Salt != want.Salt {
					t.Fatalf("%d prompts, salt %q; want %d, %q", len(got.Prompts), got.Salt, len(want.Prompts), want.Salt)
				}
				for i := range want.Prompts {
					if !slices.Equal(got.Prompts[i].IDs, want.Prompts[i].IDs) {
						t.Fatal("kept beginnings change the ids")
					}
				}
			}
			m.Explain(q)
		}
		if !slices.Equal(before, body) {
			t.Fatal("the body was changed")
		}
	})
}

// A chat that the engine will refuse has no tokens, says so, and nobody is asked.
func TestRefusedChatIsNotAsked(t *testing.T) {
	asked := 0
	l := NewLocal(unverified(), SourceFunc(func(context.Context, *Request) Result { asked++; return Result{Why: "next"} }), nil)
	l.Set("m", templateModel(t))
	for body, refused := range map[string]bool{
		`{"messages":[{"content":"x"}]}`:                true,
		`{"messages":[]}`:                               true,
		`{"messages":[{"role":"user","content":null}]}`: true,
		`not json`: true,
		`{"messages":[{"role":"user","content":[{"type":"image_url","image_url":""}]}]}`: false,
	} {
		asked = 0
		res := l.Tokens(context.Background(), &Request{Endpoint: Chat, Model: "m", Body: []byte(body)})
		if len(res.Prompts) != 0 || res.Refused != refused || (asked == 0) != refused || res.Why == "" {
			t.Errorf("%s: %+v after %d questions, want refused: %v", body, res, asked, refused)
		}
	}
}

// Nothing in a result lies in the body or in memory that the next request uses:
// the body is overwritten as soon as there is a result, while others are read.
func TestResultsLieInNoOtherMemory(t *testing.T) {
	l := NewLocal(LocalConfig{CacheBytes: 1 << 20}, None, nil)
	m := templateModel(t)
	l.Set("m", m)
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := range 100 {
				text := fmt.Sprintf(`%d\n\"%d\" é %s`, w, i, strings.Repeat(`some words, `, (i*7+w)%500))
				salt := fmt.Sprintf("salt-%d-%d", w, i)
				for ep, body := range map[Endpoint]string{
					Chat:        fmt.Sprintf(`{"messages":[{"role":"user","content":"%s"}],"cache_salt":"%s"}`, text, salt),
					Completions: fmt.Sprintf(`{"prompt":["%s"],"cache_salt":"%s"}`, text, salt),
				} {
					b := []byte(body)
					got := l.Tokens(context.Background(), &Request{Endpoint: ep, Model: "m", Body: b})
					for i := range b {
						b[i] = '#'
					}
					plain := strings.NewReplacer(`\n`, "\n", `\"`, `"`).Replace(text)
					if ep == Chat {
						plain = "<user>" + plain + "\n<assistant>"
					}
					want := m.tok.EncodeString(nil, plain, ep == Completions)
					if len(got.Prompts) != 1 || !slices.Equal(got.Prompts[0].IDs, want) || got.Salt != salt {
						t.Errorf("endpoint %d: %+v, want %v", ep, got, want)
						return
					}
				}
			}
		})
	}
	wg.Wait()
}

// A bug of ours costs the request a question to the engine, and is counted.
func TestBugGoesToTheEngine(t *testing.T) {
	l := NewLocal(unverified(), SourceFunc(func(context.Context, *Request) Result {
		return Result{Prompts: []Prompt{{IDs: []uint32{7}}}, Source: "render"}
	}), nil)
	l.Set("m", &Model{}) // a tokenizer that panics
	res := l.Tokens(context.Background(), &Request{Endpoint: Completions, Model: "m", Body: []byte(`{"prompt":"x"}`)})
	if res.Source != "render" || l.Stats().Panics != 1 {
		t.Errorf("%+v, %+v; want the engine's tokens and a count", res, l.Stats())
	}
}
