package engine

import (
	"fmt"
	"maps"
	"time"

	"kvasir/kv"
)

// When an adapter (LoRA) is unloaded, or loaded again under its name, no engine
// announces what happens to the blocks that were computed with it; they may even
// stay. They must not count for the next adapter of that name. The index can't
// tell a target's blocks by adapter, so the whole target is emptied; what a replay
// brings back is filtered. Loading and unloading through the engine's own
// routes doesn't pass through us: we see the list of models, so an adapter that is
// unloaded and loaded again from the same place between two looks is not seen.

// gone returns the adapters of was that now lacks, or has from elsewhere.
func gone(was, now []kv.Model) (names []string) {
	for _, old := range was {
		if old.Parent == "" {
			continue
		}
		same := false
		for _, m := range now {
			same = same || m.ID == old.ID && m.Root == old.Root && m.Parent != ""
		}
		if !same {
			names = append(names, old.ID)
		}
	}
	return names
}

// adaptersGone tells the streams of every rank, also those to come: what waits to
// be gone on with is of no use either.
func (r *Replica) adaptersGone(names []string, now time.Time) {
	r.mu.Lock()
	for _, name := range names {
		r.tombs.add(name, float64(now.UnixNano())/1e9)
	}
	for _, f := range r.streams {
		f.ask(func(q *requests) { q.gone = append(q.gone, names...) })
	}
	rest := r.marks
	r.marks = map[int]StreamMark{}
	r.mu.Unlock()
	for _, k := range rest {
		r.disown(k, goneWhy(names))
	}
}

// Forget drops what is known of every rank, now, and has it filled again by replay
// where the engine has one; without what adapter has stored until now, unless it is
// "". It does not wait.
func (r *Replica) Forget(adapter, why string) {
	if adapter != "" {
		r.adaptersGone([]string{adapter}, time.Now())
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range r.streams {
		f.ask(func(q *requests) { q.discard = why })
	}
}

func goneWhy(names []string) string {
	if n := len(names) - 1; n > 0 {
		return fmt.Sprintf("adapters %q and %d more were unloaded or replaced, and the engine doesn't announce what happens to their blocks", names[0], n)
	}
	return fmt.Sprintf("adapter %q was unloaded or replaced, and the engine doesn't announce what happens to its blocks", names[0])
}

// maxGone bounds the adapters that are remembered one by one.
const maxGone = 1024

// tombs are adapters that are no more: what was stored with them up to a time, by
// the engine's clock, doesn't count.
type tombs struct {
	until map[string]float64
	all   float64 // of all adapters: more than maxGone have gone by then
}

func (t *tombs) add(name string, at float64) {
	if t.until == nil {
		t.until = map[string]float64{}
	}
	if len(t.until) >= maxGone {
		clear(t.until)
		t.all = at
	}
	t.until[name] = at
}

func (t tombs) clone() tombs {
	t.until = maps.Clone(t.until)
	return t
}

// buried reports whether what e stored at that time is of an adapter that has gone.
func (t *tombs) buried(e *kv.Event, at float64) bool {
	return e.Kind == kv.Stored && e.Key.LoRA != "" && (at <= t.all || at <= t.until[e.Key.LoRA])
}

// drop empties the target and remembers which adapters' blocks must not come back.
func (s *stream) drop(names []string, now time.Time) {
	at := s.machine.LastTime()
	if at == 0 { // nothing was applied yet: by our clock
		at = float64(now.UnixNano()) / 1e9
	}
	for _, name := range names {
		s.tombs.add(name, at)
	}
	s.machine.Discard(goneWhy(names), now)
}
