// Package index knows which target holds which blocks. It is fed by the engines'
// own events, names blocks by our chained hash of their content, and answers for
// a prompt what each target holds of it from the first token on.
package index

import (
	"sync"

	"kvasir/kv"
)

// An Index is safe for concurrent use. Events of one target must be applied in
// their order, by one goroutine at a time.
type Index struct {
	mu sync.RWMutex
	w  *twin
}

// New returns an empty index; it panics if c is invalid (see Config.Validate).
func New(c Config) *Index {
	if err := c.Validate(); err != nil {
		panic(err)
	}
	return &Index{w: newTwin(c)}
}

// SetTarget says how to read the events of t from now on.
func (ix *Index) SetTarget(t kv.Target, c TargetConfig) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	ix.w.SetTarget(t, c)
}

// Apply takes one event in. It keeps nothing of ev.
func (ix *Index) Apply(ev *kv.Event) Result {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	return ix.w.Apply(ev)
}

// Match fills over, indexed by target, with what each target holds of p.
func (ix *Index) Match(p *kv.Prompt, over []kv.Overlap) {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	ix.w.Match(p, over)
}

// Forget drops everything of target t: its number may then be used again.
func (ix *Index) Forget(t kv.Target) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	ix.w.Forget(t)
}
