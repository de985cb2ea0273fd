package chat

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"kvasir/token/jinja"
)

// The files in testdata were made by running the reference on random input of ours:
// requests.jsonl.gz with the request models and parse_chat_messages of vLLM 0.32.0, deepseek_v4 with its
// encoder, harmony_tools with openai-harmony 0.0.8, harmony_tools_oss with oss-harmony 0.0.11, tekken_versions with mistral-common 1.13.1. They
// need nothing but this folder.
func testdata(t testing.TB, name string, f func(d *jinja.Dict)) {
	t.Helper()
	for _, line := range lines(t, filepath.Join("testdata", name)) {
		v, err := jinja.ParseJSON(line)
		if err != nil {
			continue // a lone surrogate
		}
		d, _ := v.AsDict()
		f(d)
	}
}

// TestRequests: what vLLM makes of a request we make of it, in both content formats, or we say that we
// don't know. What vLLM refuses is never rendered.
func TestRequests(t *testing.T) {
	all, local := 0, 0
	testdata(t, "requests.jsonl.gz", func(d *jinja.Dict) {
		body := []byte(asJSON(d.Get("body")))
		want, _ := d.Get("vllm").AsDict()
		req := newRequest()
		err := req.parse(body)
		if err == nil {
			_, err = req.conversation(jinja.StringContent)
		}
		refused := !want.Get("error").IsMissing()
		if refused {
			if err == nil {
				t.Errorf("accepted %s\nvLLM says %s", body, asJSON(want.Get("message")))
			}
			return
		}
		all++
		var rem *NeedsRemote
		if errors.As(err, &rem) {
			return
		}
		local++
		if err != nil {
			t.Errorf("%v\nfor %s", err, body)
			return
		}
		for _, format := range []jinja.ContentFormat{jinja.StringContent, jinja.PartsContent} {
			req := newRequest()
			if err := req.parse(body); err != nil {
				t.Fatal(err)
			}
			conv, err := req.conversation(format)
			if err != nil {
				t.Fatal(err)
			}
			if got, want := asJSON(jinja.ListOf(conv)), asJSON(want.Get(format.String())); got != want {
				t.Errorf("%s\n got %s\nwant %s\n for %s", format, got, want, body)
			}
			tools := jinja.None
			if req.tools != nil {
				tools = jinja.ListOf(req.tools)
			}
			if got, want := asJSON(tools), asJSON(want.Get("tools")); got != want {
				t.Errorf("tools\n got %s\nwant %s\n for %s", got, want, body)
			}
		}
	})
	t.Logf("%d of %d odd requests that vLLM takes are read here", local, all)
	if local*2 < all {
		t.Errorf("only %d of %d requests are read here", local, all)
	}
}

// TestHarmonyTools writes random JSON schemas as gpt-oss reads them, by either library: numbers of any
// size, lines that end in \r among them.
func TestHarmonyTools(t *testing.T) {
	for lib, name := range map[HarmonyLibrary]string{OSSHarmony: "harmony_tools_oss.jsonl.gz", OpenAIHarmony: "harmony_tools.jsonl.gz"} {
		testHarmonyTools(t, lib, name)
	}
}

func testHarmonyTools(t *testing.T, lib HarmonyLibrary, name string) {
	testdata(t, name, func(d *jinja.Dict) {
		want, _ := d.Get("out").AsString()
		want = strings.TrimSuffix(strings.TrimPrefix(want, "<|start|>developer<|message|>"), "<|end|>")
		list, _ := d.Get("tools").AsList()
		var tools []jinja.Value
		for _, f := range list {
			tool := jinja.NewDict(1)
			tool.Set("function", f)
			tools = append(tools, jinja.DictOf(tool))
		}
		if got := harmonyTools(tools, lib); got != want {
			t.Errorf("for %s\n got %q\nwant %q", asJSON(d.Get("tools")), got, want)
		}
	})
}

// TestTekkenVersions renders random requests for each version of Mistral's tokenizer.
func TestTekkenVersions(t *testing.T) {
	for _, version := range []int{3, 7, 11, 13} {
		r, err := New(Config{Kind: KindTekken, TekkenVersion: version, Now: func() time.Time { return frozen }})
		if err != nil {
			t.Fatal(err)
		}
		testdata(t, "tekken_versions.jsonl.gz", func(d *jinja.Dict) {
			body := []byte(asJSON(d.Get("body")))
			p, err := r.Chat(body)
			var rem *NeedsRemote
			if errors.As(err, &rem) {
				return
			}
			want, ok := d.Get(strconv.Itoa(version)).AsString()
			if ok != (err == nil) || ok && p.Text != want {
				t.Errorf("v%d for %s\n got %q %v\nwant %q", version, body, p.Text, err, want)
			}
		})
	}
}

// TestDeepSeekRequests renders random requests for DeepSeek-V4.
func TestDeepSeekRequests(t *testing.T) {
	r, err := New(Config{Kind: KindDeepSeekV4, Now: func() time.Time { return frozen }})
	if err != nil {
		t.Fatal(err)
	}
	exact := 0
	testdata(t, "deepseek_v4.jsonl.gz", func(d *jinja.Dict) {
		body := []byte(asJSON(d.Get("body")))
		p, err := r.Chat(body)
		var rem *NeedsRemote
		if errors.As(err, &rem) {
			return
		}
		want, ok := d.Get("out").AsString()
		if ok != (err == nil) || ok && p.Text != want {
			t.Errorf("for %s\n got %q %v\nwant %q", body, p.Text, err, want)
			return
		}
		exact++
	})
	if exact < 100 {
		t.Errorf("only %d cases were rendered here", exact)
	}
}

// TestOpen checks what a repository is taken for.
func TestOpen(t *testing.T) {
	const plain = `{"chat_template":"{{ messages[0].content }}{{ bos_token }}","bos_token":"<s>","pad_token":null,"eos_token":{"content":"</s>"}}`
	file := func(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s)} }
	for _, c := range []struct {
		name, mode string
		dir        fstest.MapFS
		kind       Kind
		why        string // part of the reason for remote rendering
	}{
		{"template", "", fstest.MapFS{"config.json": file(`{"model_type":"qwen3","architectures":["Qwen3ForCausalLM"]}`), "tokenizer_config.json": file(plain)}, KindTemplate, ""},
		{"gpt-oss", "", fstest.MapFS{"config.json": file(`{"model_type":"gpt_oss"}`)}, KindHarmony, ""},
		{"deepseek v4", "", fstest.MapFS{"config.json": file(`{"architectures":["DeepseekV4ForCausalLM"]}`)}, KindDeepSeekV4, ""},
		{"deepseek v3.2", "", fstest.MapFS{"config.json": file(`{"architectures":["DeepseekV32ForCausalLM"]}`)}, 0, "DeepseekV32ForCausalLM"},
		{"kimi k3", "", fstest.MapFS{"config.json": file(`{"architectures":["KimiK3ForConditionalGeneration"]}`)}, 0, "KimiK3"},
		{"mistral", "", fstest.MapFS{"tekken.json": file(`{"config":{"version":"v7"}}`), "consolidated-00001.safetensors": file("")}, KindTekken, ""},
		{"mistral, hf weights", "", fstest.MapFS{"tekken.json": file(`{"config":{"version":"v7"}}`), "model.safetensors": file(""), "tokenizer_config.json": file(plain)}, KindTemplate, ""},
		{"mistral, no weights", "", fstest.MapFS{"tekken.json": file(`{"config":{"version":"v7"}}`)}, 0, "consolidated"},
		{"mistral by mode", "mistral", fstest.MapFS{"tekken.json": file(`{"config":{"version":"v11"}}`)}, KindTekken, ""},
		{"sentencepiece", "", fstest.MapFS{"tokenizer.model.v3": file(""), "consolidated.safetensors": file("")}, 0, "SentencePiece"},
		{"unknown version", "mistral", fstest.MapFS{"tekken.json": file(`{"config":{"version":"new"}}`)}, 0, "config.version"},
		{"no template", "", fstest.MapFS{"tokenizer_config.json": file(`{}`)}, 0, "no chat template"},
		{"broken template", "", fstest.MapFS{"chat_template.jinja": file("{% if %}")}, 0, "chat template"},
		{"broken json", "", fstest.MapFS{"tokenizer_config.json": file(`{`)}, 0, "tokenizer_config.json"},
		{"another processor template", "", fstest.MapFS{"tokenizer_config.json": file(plain), "chat_template.json": file(`{"chat_template":"x"}`)}, 0, "chat_template.json"},
		{"mode", "kimi_k3", fstest.MapFS{}, 0, "kimi_k3"},
	} {
		cfg, err := Open(c.dir, c.mode, nil)
		if c.why != "" {
			var rem *NeedsRemote
			if !errors.As(err, &rem) || !strings.Contains(rem.Reason, c.why) {
				t.Errorf("%s: got %v, want a reason with %q", c.name, err, c.why)
			}
			continue
		}
		if err != nil || cfg.Kind != c.kind {
			t.Errorf("%s: got %v, %v; want %v", c.name, cfg.Kind, err, c.kind)
		}
	}
	cfg, err := Open(fstest.MapFS{"tokenizer_config.json": file(`{"chat_template":[{"name":"default","template":"D"},{"name":"tool_use","template":"T{{ tools|length }}"}]}`)}, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Now = func() time.Time { return frozen }
	r, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for body, want := range map[string]string{
		`{"messages":[{"role":"user","content":"x"}]}`:                                                       "D",
		`{"messages":[{"role":"user","content":"x"}],"tools":[{"type":"function","function":{"name":"f"}}]}`: "T1",
	} {
		if p, err := r.Chat([]byte(body)); err != nil || p.Text != want {
			t.Errorf("%s: got %q, %v; want %q", body, p.Text, err, want)
		}
	}
}

// TestOptions checks the engine's options and what goes round the template.
func TestOptions(t *testing.T) {
	compile := func(s string) *jinja.Template {
		tpl, err := jinja.Compile(s)
		if err != nil {
			t.Fatal(err)
		}
		return tpl
	}
	defaults := jinja.NewDict(2)
	defaults.Set("enable_thinking", jinja.Bool(false))
	defaults.Set("color", jinja.Str("red"))
	base := Config{Template: compile("{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}{{ enable_thinking }}{{ color }}{{ tools is none }}{{ add_generation_prompt }}"),
		Now: func() time.Time { return frozen }}
	for _, c := range []struct {
		name, body, want string
		change           func(*Config)
		remote           bool
	}{
		{name: "plain", body: `{"messages":[{"role":"user","content":"x"}]}`, want: "user:x;TrueTrue"},
		{name: "server defaults", body: `{"messages":[{"role":"user","content":"x"}]}`, want: "user:x;FalseredTrueTrue",
			change: func(c *Config) { c.DefaultKwargs = defaults }},
		{name: "the request wins", body: `{"messages":[{"role":"user","content":"x"}],"chat_template_kwargs":{"color":"blue","enable_thinking":null}}`,
			want: "user:x;FalseblueTrueTrue", change: func(c *Config) { c.DefaultKwargs = defaults }},
		{name: "tools shown", body: `{"messages":[{"role":"user","content":"x"}],"tool_choice":"none","tools":[{"type":"function","function":{"name":"f"}}]}`, want: "user:x;FalseTrue"},
		{name: "tools hidden", body: `{"messages":[{"role":"user","content":"x"}],"tool_choice":"none","tools":[{"type":"function","function":{"name":"f"}}]}`,
			want: "user:x;TrueTrue", change: func(c *Config) { c.ExcludeToolsWhenNone = true }},
		{name: "untrusted template", body: `{"messages":[{"role":"user","content":"x"}],"chat_template":"{{ 1 }}"}`},
		{name: "trusted template", body: `{"messages":[{"role":"user","content":"x"}],"chat_template":"{{ messages[0].content }}!"}`,
			want: "x!", change: func(c *Config) { c.TrustRequestTemplate = true }},
		{name: "a template that loops", body: `{"messages":[{"role":"user","content":"x"}],"chat_template":"{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"}`,
			remote: true, change: func(c *Config) {
				c.TrustRequestTemplate = true
				c.Limits = jinja.Limits{Steps: 10000, Output: 1000, Memory: 1 << 20, Depth: 9}
			}},
		{name: "forced format", body: `{"messages":[{"role":"user","content":"x"}]}`, want: "user:[{'type': 'text', 'text': 'x'}];TrueTrue",
			change: func(c *Config) { c.Format = "openai" }},
		{name: "image", body: `{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"a"}}]}]}`, remote: true},
		{name: "echo", body: `{"messages":[{"role":"user","content":"x"}],"echo":true}`, remote: true},
		{name: "ids given", body: `{"messages":[{"role":"user","content":"x"}],"kv_transfer_params":{"prompt_token_ids":[1]}}`, remote: true},
		{name: "lone surrogate", body: `{"messages":[{"role":"user","content":"\ud800"}]}`, remote: true},
		{name: "not JSON", body: `{"messages"`},
		{name: "no messages", body: `{}`},
	} {
		cfg := base
		if c.change != nil {
			c.change(&cfg)
		}
		r, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		p, err := r.Chat([]byte(c.body))
		var rem *NeedsRemote
		var ref *Refused
		switch {
		case c.want != "":
			if err != nil || p.Text != c.want {
				t.Errorf("%s: got %q, %v; want %q", c.name, p.Text, err, c.want)
			}
		case c.remote && !errors.As(err, &rem), !c.remote && !errors.As(err, &ref):
			t.Errorf("%s: got %q, %v", c.name, p.Text, err)
		}
	}
}

// TestTruncation cuts as vLLM does.
func TestTruncation(t *testing.T) {
	ids := []uint32{1, 2, 3, 4, 5}
	for _, c := range []struct {
		tr      Truncation
		context int
		want    []uint32
	}{
		{Truncation{}, 5, ids},
		{Truncation{}, 4, nil},
		{Truncation{Set: true, Keep: 2}, 9, []uint32{4, 5}},
		{Truncation{Set: true, Keep: 2, Side: "right"}, 9, []uint32{1, 2}},
		{Truncation{Set: true, Keep: 0}, 9, []uint32{}},
		{Truncation{Set: true, Keep: -1}, 3, []uint32{3, 4, 5}},
		{Truncation{Set: true, Keep: -1, Output: 7}, 3, []uint32{4, 5}},
		{Truncation{Set: true, Keep: 4}, 3, nil},
	} {
		got, err := c.tr.Apply(ids, c.context)
		if (err != nil) != (c.want == nil) || err == nil && !slices.Equal(got, c.want) {
			t.Errorf("%+v in %d: got %v, %v; want %v", c.tr, c.context, got, err, c.want)
		}
	}
}

// TestAllocations: a warm request of the usual kind allocates by its text and its template, not by its
// messages.
func TestAllocations(t *testing.T) {
	count := func(turns int) float64 {
		body := conversationBody(turns)
		return testing.AllocsPerRun(20, func() {
			req := newRequest()
			if err := req.parse(body); err != nil {
				t.Fatal(err)
			}
			if _, err := req.conversation(jinja.StringContent); err != nil {
				t.Fatal(err)
			}
			req.release()
		})
	}
	// strings with escapes are copied: one a turn here, two where a tool is called
	if n := count(60); n > 60*3 {
		t.Errorf("%v allocations for 60 turns", n)
	}
}

// FuzzChat: no body may do more than be refused, be sent to the engine, or be rendered.
func FuzzChat(f *testing.F) {
	f.Add(conversationBody(2))
	data, err := os.ReadFile(filepath.Join("testdata", "requests.jsonl.gz"))
	if err == nil && len(data) > 0 {
		n := 0
		testdata(f, "requests.jsonl.gz", func(d *jinja.Dict) {
			if n++; n%20 == 0 {
				f.Add([]byte(asJSON(d.Get("body"))))
			}
		})
	}
	tpl, err := jinja.Compile("{% for m in messages %}{{ m.role }}{{ m.content }}{% for c in m.tool_calls or [] %}{{ c.function.arguments|tojson }}{% endfor %}{% endfor %}{{ tools|tojson }}")
	if err != nil {
		f.Fatal(err)
	}
	var renderers []*Renderer
	for _, cfg := range []Config{{Template: tpl}, {Template: tpl, Format: "openai"}, {Kind: KindHarmony}, {Kind: KindDeepSeekV4},
		{Kind: KindTekken, TekkenVersion: 3}, {Kind: KindTekken, TekkenVersion: 13}} {
		cfg.Now = func() time.Time { return frozen }
		r, err := New(cfg)
		if err != nil {
			f.Fatal(err)
		}
		renderers = append(renderers, r)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, r := range renderers {
			p, err := r.Chat(body)
			var ref *Refused
			var rem *NeedsRemote
			if err != nil && !errors.As(err, &ref) && !errors.As(err, &rem) {
				t.Fatalf("%v", err)
			}
			if errors.As(err, &rem) && strings.Contains(rem.Reason, "engine bug") {
				t.Fatalf("%v", err)
			}
			if err == nil && p.Parts != nil {
				var all strings.Builder
				for _, part := range p.Parts {
					all.WriteString(part.Text)
				}
				if all.String() != p.Text {
					t.Fatalf("the parts are %q, the text %q", all.String(), p.Text)
				}
			}
		}
	})
}

// A tool call of type custom is refused by parse_chat_messages, which vLLM doesn't run for gpt-oss
// (online_renderer, _make_request_with_harmony, vLLM 0.32): there the engine renders something.
func TestCustomToolCall(t *testing.T) {
	body := []byte(`{"model":"m","messages":[{"role":"user","content":"hi"},{"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"custom","custom":{"name":"f","input":"x"}}]}]}`)
	for kind, remote := range map[Kind]bool{KindHarmony: true, KindDeepSeekV4: false, KindTekken: false} {
		r, err := New(Config{Kind: kind, TekkenVersion: 11, Now: func() time.Time { return frozen }})
		if err != nil {
			t.Fatal(err)
		}
		_, err = r.Chat(body)
		var needs *NeedsRemote
		var refused *Refused
		if errors.As(err, &needs) != remote || errors.As(err, &refused) == remote {
			t.Errorf("%s: %v; left to the engine: want %v", kind, err, remote)
		}
	}
}
