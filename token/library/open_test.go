package library

import (
	"testing"

	"kvasir/token/chat"
)

// gpt-oss is rendered as the engine's version does: vLLM's wheels before 0.31 ask
// for openai-harmony, later ones for oss-harmony. A setting wins.
func TestHarmonyFollowsTheEngine(t *testing.T) {
	for _, c := range []struct {
		set, kind, version string
		want               chat.HarmonyLibrary
	}{
		{"auto", "vllm", "0.30.2", chat.OpenAIHarmony},
		{"", "vllm", "0.9.1", chat.OpenAIHarmony},
		{"auto", "vllm", "0.30.1rc2.dev14+gabcdef", chat.OpenAIHarmony},
		{"auto", "vllm", "0.31.0", chat.OSSHarmony},
		{"auto", "vllm", "0.31rc1", chat.OSSHarmony},
		{"auto", "vllm", "1.0.0", chat.OSSHarmony},
		{"auto", "vllm", "v0.29.0", chat.OpenAIHarmony},
		{"auto", "vllm", "", chat.OSSHarmony},
		{"auto", "vllm", "dev", chat.OSSHarmony},
		{"auto", "", "0.1.0", chat.OSSHarmony}, // of an engine that we don't know
		{"oss", "vllm", "0.20.0", chat.OSSHarmony},
		{"openai", "vllm", "0.33.0", chat.OpenAIHarmony},
	} {
		tpl := Template{Harmony: c.set}
		if got := tpl.harmony(Engine{Kind: c.kind, Version: c.version}); got != c.want {
			t.Errorf("harmony: %q, %s %q: %v, want %v", c.set, c.kind, c.version, got, c.want)
		}
	}
}

// SGLang renders gpt-oss otherwise than vLLM: chats have no tokens rather than wrong ones.
func TestGptOssOnSGLang(t *testing.T) {
	for kind, ok := range map[string]bool{"vllm": true, "": true, "sglang": false} {
		r, err := newRenderer(chat.Config{Kind: chat.KindHarmony}, nil, Template{}, Engine{Kind: kind})
		if (r != nil && err == nil) != ok {
			t.Errorf("%q: %v, %v; rendered here: want %v", kind, r, err, ok)
		}
	}
}
