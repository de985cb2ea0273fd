package library

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"kvasir/kv"
	"kvasir/setting"
	"kvasir/token"
	"kvasir/token/bpe"
	"kvasir/token/chat"
	"kvasir/token/files"
	"kvasir/token/jinja"
)

// Template mirrors the engine's flags that change prompts. The defaults are vLLM's.
type Template struct {
	// Format is the engines' --chat-template-content-format.
	Format string `yaml:"content_format" default:"auto" oneof:"auto|string|openai"`
	// Kwargs are the engines' --default-chat-template-kwargs.
	Kwargs map[string]any `yaml:"default_kwargs" example:"{enable_thinking: false}"`
	// TrustRequest is the engines' --trust-request-chat-template.
	TrustRequest bool `yaml:"trust_request"`
	// ExcludeToolsWhenNone is the engines' --exclude-tools-when-tool-choice-none.
	ExcludeToolsWhenNone bool `yaml:"exclude_tools_when_none"`
	// TokenizerMode is the engines' --tokenizer-mode.
	TokenizerMode string `yaml:"tokenizer_mode" example:"mistral"`
	// Harmony is the library with which the engines render gpt-oss: openai (vLLM before
	// 0.31), oss (since then), or auto: by the engine's version. The two differ in tool
	// results and in some numbers.
	Harmony string `yaml:"harmony" default:"auto" oneof:"auto|oss|openai"`
	// Zone is the time zone of the engines, for prompts with a date; "" is ours.
	Zone string `yaml:"zone" want:"a time zone such as Europe/Berlin" example:"Europe/Berlin"`
}

// Check accepts what the tags can't say.
func (t *Template) Check() error {
	if _, err := time.LoadLocation(t.Zone); err != nil {
		return &setting.Error{Key: "zone", Value: strconv.Quote(t.Zone), Want: "a time zone such as Europe/Berlin", Hint: err.Error()}
	}
	return nil
}

// An Engine is what serves a model, as far as prompts depend on it. The zero Engine
// is one of which nothing is known; it is taken for the newest.
type Engine struct {
	Kind    string // "vllm", "sglang", ...
	Version string // "0.32.0"
}

// Open finds and loads what tokenizes the model that e serves as m.
func Open(ctx context.Context, f files.Config, t Template, e Engine, m kv.Model) (*token.Model, files.Place, error) {
	place, err := files.Find(ctx, f, m.ID, m.Root)
	if err != nil {
		return nil, place, err
	}
	chatCfg, chatErr := chat.Open(os.DirFS(place.Dir), t.TokenizerMode, place.Files)
	load := bpe.Load
	if chatErr == nil && chatCfg.Kind == chat.KindTekken {
		load = bpe.LoadTekken
	}
	tok, err := load(place.Dir)
	if err != nil {
		return nil, place, fmt.Errorf("%s: %w", place.Dir, err)
	}
	renderer, err := newRenderer(chatCfg, chatErr, t, e)
	if err != nil {
		return token.NewModel(tok, nil, err.Error(), m.MaxLen), place, nil
	}
	return token.NewModel(tok, renderer, "", m.MaxLen), place, nil
}

func newRenderer(cfg chat.Config, err error, t Template, e Engine) (*chat.Renderer, error) {
	if err != nil {
		return nil, err
	}
	zone := time.Local
	if t.Zone != "" {
		if zone, err = time.LoadLocation(t.Zone); err != nil {
			return nil, err
		}
	}
	if cfg.Kind == chat.KindHarmony && e.Kind == "sglang" {
		// 0.5.23, serving_chat.py: apply_chat_template, as for any model.
		return nil, errors.New("SGLang renders gpt-oss by its chat template, vLLM in code, and only that is done here")
	}
	cfg.Now = func() time.Time { return time.Now().In(zone) }
	cfg.Format, cfg.TrustRequestTemplate, cfg.ExcludeToolsWhenNone = t.Format, t.TrustRequest, t.ExcludeToolsWhenNone
	cfg.Harmony = t.harmony(e)
	if len(t.Kwargs) > 0 {
		b, err := json.Marshal(t.Kwargs)
		if err != nil {
			return nil, err
		}
		v, err := jinja.ParseJSON(b)
		if err != nil {
			return nil, err
		}
		d, ok := v.AsDict()
		if !ok {
			return nil, errors.New("tokens.template.default_kwargs: want a map")
		}
		cfg.DefaultKwargs = d
	}
	return chat.New(cfg)
}

// harmony returns which library renders gpt-oss on e. vLLM's wheels ask for
// openai-harmony up to 0.30 and for oss-harmony from 0.31.0 on (their metadata).
func (t *Template) harmony(e Engine) chat.HarmonyLibrary {
	switch t.Harmony {
	case "oss":
		return chat.OSSHarmony
	case "openai":
		return chat.OpenAIHarmony
	}
	if e.Kind == "vllm" && before(e.Version, 0, 31) {
		return chat.OpenAIHarmony
	}
	return chat.OSSHarmony
}

// before says that version is known and lower than major.minor.
func before(version string, major, minor int) bool {
	a, rest, ok := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	if !ok {
		return false
	}
	end := 0
	for end < len(rest) && rest[end] >= '0' && rest[end] <= '9' {
		end++
	}
	x, errX := strconv.Atoi(a)
	y, errY := strconv.Atoi(rest[:end])
	return errX == nil && errY == nil && (x < major || x == major && y < minor)
}
