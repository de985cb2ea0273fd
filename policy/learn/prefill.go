package learn

import (
	"time"

	"kvasir/kv"
)

// over is how much prefill is overestimated at the start. Too little costs up to a
// third of TTFT, but twice the truth costs only 4 % even where memory is scarce, and
// the first samples err on the long side by themselves.
const over = 1.3

// Engines compute several prompts in one step, so the latency of a prompt that others
// have joined may be theirs too. An example: A is dispatched to an idle engine, and B
// and C while it computes. A's first token comes after A's own prefill or after all
// three, and nobody can tell. But when the third first token has come, all three have
// been computed since A was dispatched. So the three are learned from together, as one
// busy period. Where one of them shows no first token (it failed, or its answer comes
// whole), it isn't known what was computed. Then A teaches nothing, unless there is
// nothing else to learn from: one in maxJoined does, and each while nothing is known,
// with B and C counted as computed before it.
const (
	joinedShare = .2 // of its own tokens: fewer don't matter
	maxJoined   = 20 // left out in a row
)

// longPeriod is how many first tokens are enough for a sample, where prefill is always
// owed. One that is half computed then hardly matters.
const longPeriod = 32

// FirstToken learns from a prefill that had none before it in the engine's queue, or
// from a whole busy period when that ends. budget is how many tokens the engine computes
// per step where o doesn't say.
func (f *Fleet) FirstToken(o *kv.FirstToken, budget int) {
	if !f.learn || o.FromPeer || o.Prompt <= 0 || o.Latency <= 0 {
		return
	}
	if o.MaxBatch > 0 {
		budget = o.MaxBatch
	}
	hit := min(max(o.Cached, 0), o.Prompt-1)
	own := o.Prompt - hit
	whole := f.inPeriod(o, prefillTerms(own, hit, budget))
	if !o.Alone {
		return
	}
	if float64(o.Joined) > joinedShare*float64(own) {
		switch {
		case whole:
			return
		case !f.Known():
			own += min(o.Joined, budget)
		default:
			if f.joined++; f.joined <= maxJoined {
				return
			}
		}
	}
	f.joined = 0
	x := prefillTerms(own, hit, budget)
	f.prefilled(o, x, o.Latency.Seconds(), f.slowed(o, x), 1)
}

// slowed is how long what decodes has held up the steps of x, by what decoding tells.
func (f *Fleet) slowed(o *kv.FirstToken, x [3]float64) float64 {
	k := f.Of(o.Target)
	return x[2] * (float64(o.Decoding)*k.DecodeRequest + float64(o.Context)*k.DecodeToken)
}

// prefilled takes n prefills on o's target that took y seconds for x altogether. Their
// sum is more exact than each would be, but a few of one kind must not outweigh all
// others.
func (f *Fleet) prefilled(o *kv.FirstToken, x [3]float64, y, slowed float64, n int) {
	y -= min(y/2, slowed)
	var own *Ratio
	if t := f.target(o.Target); t != nil {
		own, t.prefillAt = &t.prefill, o.Now
	}
	if f.Known() {
		n = min(n, 4)
	}
	for range n {
		f.prefill.observe(x, y, own, known.prefillPart(), over)
	}
	f.refresh()
}

// A period is a busy period of a target (kv.BusyPeriod), or the rest of a long one.
type period struct {
	began, from time.Time // from: since when the sums run
	last        time.Time // first token
	pace        float64   // s per token so far
	x           [3]float64
	slowed      float64 // s that what decodes has added, about
	n, all      int     // first tokens since from, and since it began, with those missed before from
}

// inPeriod adds a first token to the target's busy period, and learns from that at its
// end. It reports whether all first tokens of it so far have been seen, so that there
// will be something to learn.
func (f *Fleet) inPeriod(o *kv.FirstToken, x [3]float64) bool {
	t := f.target(o.Target)
	if t == nil {
		return false
	}
	p := &t.busy
	if began := o.Now.Add(-o.Busy.For); !p.began.Equal(began) {
		*p = period{began: began, from: began}
	}
	// A first token that came sooner after the last one than half its prefill takes, at
	// the pace of the period, was computed in the same steps.
	if p.n > 0 {
		p.pace = p.last.Sub(p.from).Seconds() / p.x[0]
	}
	if p.all > 0 && o.Now.Sub(p.last).Seconds() < p.pace*x[0]/2 {
		x[2]--
	}
	for i := range x {
		p.x[i] += x[i]
	}
	p.slowed += f.slowed(o, x)
	p.n++
	p.all++
	p.last = o.Now
	whole := p.all == o.Busy.Admitted-o.Busy.Owing
	if o.Busy.Owing > 0 && p.n < longPeriod {
		return whole
	}
	// A single one is for FirstToken. Waiting for memory says nothing of prefill.
	if whole && p.n > 1 && t.short.Before(p.from) {
		f.prefilled(o, p.x, o.Now.Sub(p.from).Seconds(), p.slowed, p.n)
	}
	*p = period{began: p.began, from: o.Now, last: o.Now, pace: p.pace, all: o.Busy.Admitted - o.Busy.Owing}
	return whole
}
