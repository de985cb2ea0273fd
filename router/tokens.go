package router

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"kvasir/config"
	"kvasir/engine"
	"kvasir/token"
	"kvasir/token/bpe"
	"kvasir/token/chat"
	"kvasir/token/files"
	"kvasir/token/jinja"
)

// retryFiles is how long after a failure a model's files are looked for again.
const retryFiles = 10 * time.Minute

// A library keeps the tokenizers of the models that the fleet serves.
type library struct {
	r     *Router
	local *token.Local

	mu      sync.Mutex
	known   map[string]string    // guarded by mu; model name -> where its files are
	asked   map[string]time.Time // guarded by mu; model name -> when a look began
	running sync.WaitGroup
}

// newSource returns where tokens come from, by the configured mode.
func (r *Router) newSource() token.Source {
	switch r.cfg.Tokens.Mode {
	case "off":
		return token.None
	case "remote":
		return token.IDs(r.remote)
	}
	r.library = &library{r: r, known: map[string]string{}, asked: map[string]time.Time{}}
	r.library.local = token.NewLocal(r.cfg.Tokens.Local, r.remote, r.mismatch)
	return token.IDs(r.library.local)
}

// learn looks for the files of models that are new, beside everything else.
func (b *library) learn(ctx context.Context, models []engine.Model) {
	for _, m := range models {
		b.mu.Lock()
		since, asked := b.asked[m.ID]
		if asked && (b.known[m.ID] != "" || time.Since(since) < retryFiles) {
			b.mu.Unlock()
			continue
		}
		b.asked[m.ID] = time.Now()
		b.mu.Unlock()
		base := m
		if m.Parent != "" { // adapters use their base model's tokenizer
			for _, x := range models {
				if x.ID == m.Parent {
					base = x
				}
			}
		}
		b.running.Go(func() { b.load(ctx, m.ID, base) })
	}
}

func (b *library) load(ctx context.Context, name string, base engine.Model) {
	began := time.Now()
	m, place, err := OpenModel(ctx, b.r.cfg.Tokens, base.ID, base.Root, base.MaxLen)
	if err != nil {
		b.r.log.Info("tokens of this model come from its engines", "model", name, "why", err)
		return
	}
	b.local.Set(name, m)
	b.mu.Lock()
	b.known[name] = place.Dir
	b.mu.Unlock()
	b.r.log.Info("tokens of this model are made here", "model", name, "files", place.Dir, "found", place.How,
		"chats", orYes(m.NoChat()), "took", time.Since(began).Round(time.Millisecond))
}

func orYes(why string) string {
	if why == "" {
		return "yes"
	}
	return "by its engines: " + why
}

// OpenModel finds and loads what tokenizes the model that engines serve as name.
func OpenModel(ctx context.Context, cfg config.Tokens, name, root string, maxLen int) (*token.Model, files.Place, error) {
	place, err := files.Find(ctx, cfg.Files, name, root)
	if err != nil {
		return nil, place, err
	}
	t := cfg.Template
	chatCfg, chatErr := chat.Open(os.DirFS(place.Dir), t.TokenizerMode, place.Files)
	load := bpe.Load
	if chatErr == nil && chatCfg.Kind == chat.KindTekken {
		load = bpe.LoadTekken
	}
	tok, err := load(place.Dir)
	if err != nil {
		return nil, place, fmt.Errorf("%s: %w", place.Dir, err)
	}
	renderer, err := newRenderer(chatCfg, chatErr, t)
	if err != nil {
		return token.NewModel(tok, nil, err.Error(), maxLen), place, nil
	}
	return token.NewModel(tok, renderer, "", maxLen), place, nil
}

func newRenderer(cfg chat.Config, err error, t config.Template) (*chat.Renderer, error) {
	if err != nil {
		return nil, err
	}
	zone := time.Local
	if t.Zone != "" {
		if zone, err = time.LoadLocation(t.Zone); err != nil {
			return nil, err
		}
	}
	cfg.Now = func() time.Time { return time.Now().In(zone) }
	cfg.Format, cfg.TrustRequestTemplate, cfg.ExcludeToolsWhenNone = t.Format, t.TrustRequest, t.ExcludeToolsWhenNone
	cfg.HarmonyRecipientLast = t.HarmonyRecipientLast
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

// mismatch is told when we and an engine disagree about tokens.
func (r *Router) mismatch(x token.Mismatch) {
	switch {
	case x.Restored:
		r.log.Info("tokens of this model are made here again: the latest were all equal", "model", x.Model)
	case x.Demoted:
		r.log.Error("tokens of this model differ from the engine's: they come from its engines from now on", "model", x.Model, "at", x.At, "ours", x.Ours, "theirs", x.Theirs, "body", x.Body)
	default:
		r.log.Warn("tokens differ from the engine's", "model", x.Model, "at", x.At, "ours", x.Ours, "theirs", x.Theirs, "body", x.Body)
	}
}
