package token

import (
	"context"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"
)

// A Mismatch says that we and an engine disagree about a request's tokens.
type Mismatch struct {
	Model        string
	At           int    // first id that differs; -1: only the numbers are known
	Ours, Theirs int    // numbers of ids
	Body         string // hash of the request's body: no content
	Demoted      bool   // the model goes to the engine from now on
	Restored     bool   // no mismatch: the model is trusted again
}

// A proof watches one model: is what we make what the engine makes? A model with
// demoteAfter mismatches among its latest 64 comparisons is demoted: the engine
// renders its requests until restoreAfter comparisons in a row were equal.
type proof struct {
	mu                   sync.Mutex
	latest               uint64 // a bit for each comparison, the newest lowest: 1 is a mismatch
	run                  int    // equal comparisons in a row
	down                 atomic.Bool
	compared, mismatched uint64
}

const (
	demoteAfter  = 3
	restoreAfter = 50
)

func (p *proof) demoted() bool { return p.down.Load() }

// add takes one comparison and reports a change of state.
func (p *proof) add(equal bool) (demoted, restored bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.compared++
	p.latest <<= 1
	p.run++
	if !equal {
		p.latest |= 1
		p.mismatched++
		p.run = 0
	}
	switch {
	case !p.down.Load() && bits.OnesCount64(p.latest) >= demoteAfter:
		p.down.Store(true)
		return true, false
	case p.down.Load() && p.run >= restoreAfter:
		p.latest = 0
		p.down.Store(false)
		return false, true
	}
	return false, false
}

func (p *proof) snapshot() ModelStats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return ModelStats{Compared: p.compared, Mismatched: p.mismatched, Demoted: p.down.Load()}
}

// Served takes what an engine reported of a request whose tokens we made: the
// length of its prompt, against ours.
func (l *Local) Served(model string, ours, theirs int) {
	m := l.model(model)
	if m == nil || theirs <= 0 {
		return
	}
	l.tell(m, Mismatch{Model: model, At: -1, Ours: ours, Theirs: theirs}, ours == theirs)
}

// verify asks the engine for the tokens of r and compares, while the request goes
// on. One comparison at a time; if one is under way this one is left out.
func (l *Local) verify(ctx context.Context, m *Model, r *Request, ours Result) {
	select {
	case l.asking <- struct{}{}:
	default:
		return
	}
	q := *r
	q.Body = append([]byte(nil), r.Body...) // the request's buffer is reused when it ends
	go func() {
		defer func() { <-l.asking }()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		l.equal(m, &q, ours, l.next.Tokens(ctx, &q))
	}()
}

// compare makes r's tokens here as well, and compares them with the engine's.
func (l *Local) compare(m *Model, r *Request, theirs Result) {
	if len(theirs.Prompts) == 0 {
		return
	}
	if ours, err := l.safely(context.Background(), m, r); err == nil {
		l.equal(m, r, ours, theirs)
	}
}

func (l *Local) equal(m *Model, r *Request, ours, theirs Result) {
	if len(theirs.Prompts) == 0 {
		return // nothing to compare with
	}
	if len(ours.Prompts) != len(theirs.Prompts) {
		l.tell(m, Mismatch{Model: r.Model, At: -1, Ours: len(ours.Prompts), Theirs: len(theirs.Prompts), Body: textHash(r.Body)}, false)
		return
	}
	for i := range ours.Prompts {
		a, b := ours.Prompts[i].IDs, theirs.Prompts[i].IDs
		at := 0
		for at < len(a) && at < len(b) && a[at] == b[at] {
			at++
		}
		if at < len(a) || at < len(b) {
			l.tell(m, Mismatch{Model: r.Model, At: at, Ours: len(a), Theirs: len(b), Body: textHash(r.Body)}, false)
			return
		}
	}
	l.tell(m, Mismatch{Model: r.Model}, true)
}

func (l *Local) tell(m *Model, x Mismatch, equal bool) {
	x.Demoted, x.Restored = m.proof.add(equal)
	if l.report != nil && (!equal || x.Restored) {
		l.report(x)
	}
}
