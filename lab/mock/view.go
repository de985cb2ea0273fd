package mock

import "kvasir/kv"

// The methods below show an engine's inside to a simulator. Most have no
// counterpart in a real one.

// Waiting returns the number of requests in the queue.
func (e *Engine) Waiting() int { return e.waiting.len() }

// MatchOnHost returns how many leading blocks the host tier holds.
func (e *Engine) MatchOnHost(blocks []kv.Hash) int {
	if e.host == nil {
		return 0
	}
	return e.host.find(blocks)
}

// Running returns the number of requests in the batch.
func (e *Engine) Running() int { return len(e.pref) + len(e.fin) + e.nd }

// SetProfile changes the engine's speed from its next step on. Size and limits
// (KVTokens, Budget, MaxSeqs) stay as they were.
func (e *Engine) SetProfile(p Profile) {
	old := e.cfg.Profile
	p.KVTokens, p.Budget, p.MaxSeqs = old.KVTokens, old.Budget, old.MaxSeqs
	e.cfg.Profile = p
}

// Context returns the context tokens of the decoding sequences.
func (e *Engine) Context() int { return e.kv }

// Usage returns the share of the pool that running requests refer to.
func (e *Engine) Usage() float64 { return float64(e.pool.used()) / float64(len(e.pool.blocks)) }

// Held returns the number of physical blocks with findable content.
func (e *Engine) Held() int { return e.pool.held }

// Holds reports whether h is findable.
func (e *Engine) Holds(h kv.Hash) bool {
	_, ok := e.pool.first[h]
	return ok
}

// Backlog returns the prefill seconds ahead of a request that would arrive now:
// the rest of the step in progress if it computes prompt tokens, the prompts
// admitted and not finished, and the queue, for whose cached tokens estimate is
// asked (docs/mock.md, "Metrics", POOL).
func (e *Engine) Backlog(now float64, estimate func(r *Request) (uncached, hit int)) float64 {
	w := 0.0
	for _, s := range e.pref {
		w += e.cfg.Profile.Prefill(s.left, s.pos, e.kv, e.nd)
	}
	for _, s := range e.waiting.all() {
		u, hit := estimate(s.r)
		w += e.cfg.Profile.Prefill(u, hit, e.kv, e.nd)
	}
	if e.busy && e.mixed && e.end > now {
		w += e.end - now
	}
	return w
}

// Warm fills an idle engine's cache with a prompt's blocks, as if requests had
// left them there. Blocks beyond the pool's free ones are left out. The event
// comes with the next step, or with Drain.
func (e *Engine) Warm(blocks []kv.Hash) {
	n := 0
	var slots []int32
	for n < len(blocks) && e.pool.free > 0 && !e.Holds(blocks[n]) {
		i := e.take()
		e.pool.name(i, blocks[n])
		slots = append(slots, i)
		n++
	}
	for k := len(slots) - 1; k >= 0; k-- {
		e.pool.release(slots[k], false)
	}
	if n > 0 {
		e.events = append(e.events, Event{Kind: kv.Stored, N: n, Hashes: blocks[:n]})
	}
}
