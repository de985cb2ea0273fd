// Package library finds and opens what tokenizes the models that a fleet serves:
// the files of a model, its tokenizer, its chat template, and what the engine's
// flags and version say about prompts.
package library

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"kvasir/kv"
	"kvasir/token"
	"kvasir/token/files"
)

// retry is how long after a failure a model's files are looked for again.
const retry = 10 * time.Minute

// A Library keeps the tokenizers of the models that the fleet serves.
type Library struct {
	Local *token.Local

	files    files.Config
	template Template
	log      *slog.Logger

	mu      sync.Mutex
	known   map[string]string    // guarded by mu; model name -> where its files are
	asked   map[string]time.Time // guarded by mu; model name -> when a look began
	running sync.WaitGroup
}

// New returns an empty library whose tokenizers local will use.
func New(local *token.Local, f files.Config, t Template, log *slog.Logger) *Library {
	return &Library{Local: local, files: f, template: t, log: log, known: map[string]string{}, asked: map[string]time.Time{}}
}

// Learn looks for the files of models that are new, beside everything else: it
// returns at once. e is the engine that serves them.
func (b *Library) Learn(ctx context.Context, e Engine, models []kv.Model) {
	for _, m := range models {
		b.mu.Lock()
		since, asked := b.asked[m.ID]
		if asked && (b.known[m.ID] != "" || time.Since(since) < retry) {
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
		b.running.Go(func() { b.load(ctx, m.ID, e, base) })
	}
}

// Wait returns when nothing is being looked for any more.
func (b *Library) Wait() { b.running.Wait() }

func (b *Library) load(ctx context.Context, name string, e Engine, base kv.Model) {
	began := time.Now()
	m, place, err := Open(ctx, b.files, b.template, e, base)
	if err != nil {
		b.log.Info("tokens of this model come from its engines", "model", name, "why", err)
		return
	}
	b.Local.Set(name, m)
	b.mu.Lock()
	b.known[name] = place.Dir
	b.mu.Unlock()
	b.log.Info("tokens of this model are made here", "model", name, "files", place.Dir, "found", place.How,
		"chats", orYes(m.NoChat()), "took", time.Since(began).Round(time.Millisecond))
}

func orYes(why string) string {
	if why == "" {
		return "yes"
	}
	return "by its engines: " + why
}
