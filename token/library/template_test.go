package library

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"kvasir/kv"
	"kvasir/token/files"
)

// shown is a template that shows all that an engine's flags change.
const shown = `{% for m in messages %}{{ m.content }}{% endfor %};thinks {{ enable_thinking }};tools {{ tools is not none }};{{ strftime_now("%H") }}h`

// shownChat has each thing that a flag is about.
const shownChat = `{"messages":[{"role":"user","content":"x"}],"tool_choice":"none","tools":[{"type":"function","function":{"name":"f"}}]}`

// calledChat has a tool's result, which gpt-oss's libraries write each in its own way.
const calledChat = `{"messages":[{"role":"user","content":"x"},{"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c","content":"y"}],"tools":[{"type":"function","function":{"name":"f"}}]}`

// prompt opens the model in dir under t's flags and returns what becomes of a chat.
func prompt(tb testing.TB, dir string, t Template, body string) string {
	tb.Helper()
	m, _, err := Open(context.Background(), files.Config{Dirs: map[string]string{"m": dir}}, t, Engine{}, kv.Model{ID: "m"})
	if err != nil {
		tb.Fatal(err)
	}
	if m.Renderer() == nil {
		return "not here: " + m.NoChat()
	}
	p, err := m.Renderer().Chat([]byte(body))
	if err != nil {
		return "error: " + err.Error()
	}
	return p.Text
}

// What is said of the engines' flags changes the prompts as the flags do.
func TestTemplateFollowsTheFlags(t *testing.T) {
	tokenizer, err := os.ReadFile("../bpe/testdata/small/roberta.json")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"tokenizer.json": string(tokenizer), "config.json": "{}", "tokenizer_config.json": "{}", "chat_template.jinja": shown} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	gptOss := t.TempDir()
	for name, text := range map[string]string{"tokenizer.json": string(tokenizer), "config.json": `{"model_type":"gpt_oss"}`} {
		if err := os.WriteFile(filepath.Join(gptOss, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for library, want := range map[string]string{"oss": "<|channel|>commentary to=assistant", "openai": " to=assistant<|channel|>commentary"} {
		if got := prompt(t, gptOss, Template{Harmony: library}, calledChat); !strings.Contains(got, want) {
			t.Errorf("harmony: %s: %q, want %q in it", library, got, want)
		}
	}
	brings := strings.TrimSuffix(shownChat, "}") + `,"chat_template":"theirs"}`
	for _, c := range []struct {
		name, body, want string
		edit             func(*Template)
	}{
		{"defaults", shownChat, "x;thinks ;tools True;00h", nil},
		{"content_format", shownChat, "[{'type': 'text', 'text': 'x'}];thinks ;tools True;00h", func(to *Template) { to.Format = "openai" }},
		{"default_kwargs", shownChat, "x;thinks False;tools True;00h", func(to *Template) { to.Kwargs = map[string]any{"enable_thinking": false} }},
		{"a template of the request's", brings, "error: ", nil},
		{"trust_request", brings, "theirs", func(to *Template) { to.TrustRequest = true }},
		{"exclude_tools_when_none", shownChat, "x;thinks ;tools False;00h", func(to *Template) { to.ExcludeToolsWhenNone = true }},
		{"tokenizer_mode", shownChat, "not here: ", func(to *Template) { to.TokenizerMode = "mistral" }}, // there is no tekken.json
		{"tokenizer_mode of code", shownChat, "<｜begin▁of▁sentence｜>", func(to *Template) { to.TokenizerMode = "deepseek_v4" }},
		{"zone", shownChat, "x;thinks ;tools True;09h", func(to *Template) { to.Zone = "Asia/Tokyo" }},
	} {
		synctest.Test(t, func(t *testing.T) { // where it is midnight in UTC
			tpl := Template{Zone: "UTC"}
			if c.edit != nil {
				c.edit(&tpl)
			}
			if got := prompt(t, dir, tpl, c.body); !strings.HasPrefix(got, c.want) || c.want[0] == 'x' && got != c.want {
				t.Errorf("%s: %q, want %q", c.name, got, c.want)
			}
		})
	}
}
