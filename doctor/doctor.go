// Package doctor asks engines what they are and what they lack for routing by their
// caches, and says how to mend it.
package doctor

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"kvasir/config"
	"kvasir/engine"
	"kvasir/kv"
	"kvasir/policy"
	"kvasir/proxy"
	"kvasir/token"
	"kvasir/token/library"
)

// A Finding is what a look at one engine brought.
type Finding struct {
	Engine string `json:"engine"` // its URL; or a setting with its value
	Lines  []Line `json:"lines"`
}

// A Line is one thing that was looked at.
type Line struct {
	What string `json:"what"`
	Says string `json:"says"`
	Bad  bool   `json:"bad,omitempty"`
	Fix  string `json:"fix,omitempty"` // what to do about it
}

// CheckPolicy looks for settings that the policy doesn't read.
func CheckPolicy(cfg config.Config) []Finding {
	idle := policy.Idle(cfg.Policy)
	if len(idle) == 0 {
		return nil
	}
	f := Finding{Engine: "policy: " + cfg.Policy.Name}
	for _, key := range idle {
		f.Lines = append(f.Lines, Line{
			What: key, Says: "policy." + key + " is set, and nothing reads it",
			Fix: "name the policy that it belongs to, enable it if it can be, or leave it out",
		})
	}
	return []Finding{f}
}

// Check looks at each configured engine as serve would, and says what is missing
// and how to mend it.
func Check(ctx context.Context, cfg config.Config) []Finding {
	out := make([]Finding, len(cfg.Engines))
	for i, e := range cfg.Engines {
		c, cancel := context.WithTimeout(ctx, 15*time.Second)
		out[i] = Finding{e.URL, checkEngine(c, cfg, e)}
		cancel()
	}
	return out
}

func checkEngine(ctx context.Context, cfg config.Config, e config.Engine) (lines []Line) {
	say := func(what, fix, format string, args ...any) {
		lines = append(lines, Line{What: what, Says: fmt.Sprintf(format, args...), Fix: fix})
	}
	info, err := Look(ctx, engine.Config{URL: e.URL, Events: e.Events, Replay: e.Replay, Ranks: e.Ranks, Poll: 200 * time.Millisecond})
	if err != nil {
		return []Line{{What: "health", Says: err.Error(), Bad: true, Fix: "is it running, and is this its address? It may start later: serve takes it in when it answers"}}
	}
	say("health", "", "%s %s, %d rank(s)", info.Kind, info.Version, max(len(info.Ranks), 1))
	var names []string
	for _, m := range info.Models {
		n := m.ID
		if m.Parent != "" {
			n += " (LoRA on " + m.Parent + ")"
		}
		names = append(names, n)
	}
	say("models", "", "%s", strings.Join(names, ", "))
	if info.BlockSize > 0 {
		say("cache", "", "%d blocks of %d tokens a rank", info.Blocks, info.BlockSize)
	} else {
		say("cache", "let /metrics answer without a key; the first event tells the block size all the same", "block size is not told")
	}
	if len(info.Sources) == 0 {
		say("events", `--kv-events-config '{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"tcp://*:5557","replay_endpoint":"tcp://*:6557"}', or give events=tcp://… here`,
			"none: requests go there by load and by what was sent there before")
	}
	for _, s := range info.Sources {
		fix := ""
		if s.Replay == "" {
			fix = `add "replay_endpoint":"tcp://*:6557" to --kv-events-config: without it a lost event is lost for good`
		}
		say("events", fix, "rank %d at %s, replay %s", s.Rank, s.Events, orNone(s.Replay))
	}
	return append(append(lines, checkTokens(ctx, cfg, e, info)), checkFiles(ctx, cfg, info)...)
}

// Look follows an engine until it has said what it is, or does not answer.
func Look(ctx context.Context, cfg engine.Config) (engine.Info, error) {
	ctx, cancel := context.WithCancel(ctx)
	infos, errs := make(chan engine.Info, 1), make(chan error, 1)
	r, err := engine.New(cfg, engine.Hooks{
		Target: func(int) kv.Target { return kv.NoTarget },
		Apply:  func(*kv.Event) {},
		Info: func(i engine.Info) {
			select {
			case infos <- i:
			default:
			}
		},
		Down: func(err error) {
			select {
			case errs <- err:
			default:
			}
		},
	})
	if err != nil {
		cancel()
		return engine.Info{}, err
	}
	done := make(chan struct{})
	go func() { r.Run(ctx); close(done) }()
	defer func() { cancel(); <-done }()
	select {
	case i := <-infos:
		return i, nil
	case err := <-errs:
		return engine.Info{}, err
	case <-ctx.Done():
		return engine.Info{}, context.Cause(ctx)
	}
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// checkTokens asks the engine for the tokens of a short chat.
func checkTokens(ctx context.Context, cfg config.Config, e config.Engine, info engine.Info) Line {
	if len(info.Models) == 0 {
		return Line{What: "tokens", Says: "no model to ask about", Bad: true}
	}
	model := info.Models[0].ID
	src := token.NewRemote(cfg.Tokens.Remote, &http.Client{Transport: proxy.Transport(cfg.Proxy)}, 0,
		func(string) []string { return []string{strings.TrimRight(e.URL, "/")} }, time.Now)
	res := src.Tokens(ctx, &token.Request{Endpoint: token.Chat, Model: model,
		Body: fmt.Appendf(nil, `{"model":%q,"messages":[{"role":"user","content":"hello"}],"max_tokens":1}`, model)})
	switch res.Source {
	case "render":
		return Line{What: "tokens", Says: fmt.Sprintf("exact, from the engine's render endpoint (%d for a short chat)", len(res.Prompts[0].IDs))}
	case "tokenize":
		return Line{What: "tokens", Says: "from /tokenize, for requests that it renders exactly", Fix: "start vLLM with --enable-scale-out for its render endpoints"}
	}
	return Line{What: "tokens", Says: "none: " + res.Why, Fix: "start vLLM with --enable-scale-out; without tokens requests are routed by load"}
}

// checkFiles says of each base model whether its tokens are made here.
func checkFiles(ctx context.Context, cfg config.Config, info engine.Info) (lines []Line) {
	if cfg.Tokens.Mode != "auto" {
		return []Line{{What: "local", Says: "not made here: tokens.mode is " + cfg.Tokens.Mode}}
	}
	for _, m := range info.Models {
		if m.Parent != "" {
			continue
		}
		got, place, err := library.Open(ctx, cfg.Tokens.Files, cfg.Tokens.Template, library.Engine{Kind: info.Kind, Version: info.Version},
			kv.Model{ID: m.ID, Root: m.Root, MaxLen: m.MaxLen})
		switch {
		case err != nil:
			lines = append(lines, Line{What: "local", Says: "tokens come from the engine: " + strings.ReplaceAll(err.Error(), "\n", "; "),
				Fix: "tokens.files.dirs: {" + m.ID + ": DIRECTORY}, or --tokenizer " + m.ID + "=DIRECTORY: made here they cost microseconds"})
		case got.NoChat() != "":
			lines = append(lines, Line{What: "local", Says: fmt.Sprintf("%s: completions are made here (%s), chats by the engine: %s", m.ID, place.How, got.NoChat())})
		default:
			lines = append(lines, Line{What: "local", Says: fmt.Sprintf("%s: made here, from %s (%s)", m.ID, place.Dir, place.How)})
		}
	}
	return lines
}
