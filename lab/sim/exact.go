package sim

import (
	"kvasir/kv"
	"kvasir/lab/mock"
)

// exact is the router's view and ledger of the reference simulator
// (docs/mock.md, "The reference's view"): it sees the engines' caches as they are, at
// once, and adds up in floating-point seconds.
type exact struct {
	engines []*mock.Engine
	profile mock.Profile
	size    int // tokens per block
	pick    twin
	live    map[uint64]*request
	intn    func(int) int
	unit    func() float64

	reps    []account
	m       []int // by replica: leading blocks held, for the request at hand
	predict bool  // m counts predicted blocks
	blocks  bool  // active blocks are counted
	tied    []int
	scores  []float64
	outSum  float64
	outN    int
	rho     float64 // booked prefill seconds per replica second, 60 s average
	rhoAt   float64
}

// An account is what one replica owes.
type account struct {
	prefill  int // P: tokens to compute before a first token
	requests int // n
	prompt   int // T: prompt tokens of all requests
	context  int // KV: prompt tokens of those past their first token
	decoding int // ND
	partial  int // blocks that no hash names
	active   map[kv.Hash]int32
	pending  map[kv.Hash]int32
	drains   float64 // V: when the booked prefills will be done
	out      []*request
}

func newExact(engines []*mock.Engine, size int, pick twin) *exact {
	x := &exact{engines: engines, profile: engines[0].Config().Profile, size: size, pick: pick,
		reps: make([]account, len(engines)), m: make([]int, len(engines)), scores: make([]float64, len(engines)),
		predict: pick.predict, blocks: pick.blocks}
	for i := range x.reps {
		x.reps[i].active = map[kv.Hash]int32{}
		x.reps[i].pending = map[kv.Hash]int32{}
	}
	return x
}

func (x *exact) route(q *request, now float64) (int, error) {
	if !x.pick.blind {
		for r := range x.reps {
			x.m[r] = x.matched(r, q.blocks())
		}
	}
	r := x.pick.pick(x, q, now)
	a := &x.reps[r]
	if x.pick.blind {
		x.m[r] = x.matched(r, q.blocks())
	}
	q.match = x.m[r]
	q.est = max(1, q.Prompt-q.match*x.size)
	q.replica = r
	if x.pick.book {
		x.book(a, r, q, now)
	}
	a.prefill += q.est
	a.requests++
	a.prompt += q.Prompt
	if x.blocks {
		for _, h := range q.blocks() {
			a.active[h]++
		}
	}
	a.partial += (q.Prompt+x.size-1)/x.size - len(q.blocks())
	if x.predict {
		for _, h := range q.blocks() {
			a.pending[h]++
		}
	}
	return r, nil
}

func (x *exact) matched(r int, blocks []kv.Hash) int {
	n := x.engines[r].Match(blocks)
	if !x.predict || len(x.reps[r].pending) == 0 {
		return n
	}
	p := x.reps[r].pending
	for n < len(blocks) {
		if p[blocks[n]] == 0 && !x.engines[r].Holds(blocks[n]) {
			break
		}
		n++
	}
	return n
}

func (x *exact) admitted(q *request) {
	if x.predict {
		unbook(x.reps[q.replica].pending, q.blocks())
	}
}

func unbook(m map[kv.Hash]int32, blocks []kv.Hash) {
	for _, h := range blocks {
		if n := m[h]; n <= 1 {
			delete(m, h)
		} else {
			m[h] = n - 1
		}
	}
}

func (x *exact) first(q *request, now float64) {
	a := &x.reps[q.replica]
	a.prefill -= q.est
	a.context += q.Prompt
	a.decoding++
	if x.pick.book {
		for i, o := range a.out {
			if o == q {
				a.out = append(a.out[:i], a.out[i+1:]...)
				break
			}
		}
		sum := 0.0
		for _, o := range a.out {
			sum += o.booked
		}
		a.drains = now + sum
	}
}

func (x *exact) done(q *request, now float64) {
	a := &x.reps[q.replica]
	a.requests--
	a.prompt -= q.Prompt
	a.context -= q.Prompt
	a.decoding--
	a.partial -= (q.Prompt+x.size-1)/x.size - len(q.blocks())
	if x.blocks {
		unbook(a.active, q.blocks())
	}
	x.outSum += float64(q.Output)
	x.outN++
}

func (x *exact) progress(*request, int, float64) {}

func (x *exact) failed(*request, float64) {} // faults don't reach twins

func (x *exact) events(int, float64, []mock.Event) {}

// hit is the prompt tokens of q that r is thought to hold, at most all but one.
func (x *exact) hit(r int, q *request) int { return min(x.m[r]*x.size, q.Prompt-1) }

// ownPrefill is what q takes alone on r (docs/mock.md, "The reference's view").
func (x *exact) ownPrefill(r int, q *request) float64 {
	h := x.hit(r, q)
	return x.profile.Prefill(q.Prompt-h, h, x.reps[r].context, x.reps[r].decoding)
}

// book enters q's own prefill into r's virtual clock (docs/mock.md, "The reference's view").
func (x *exact) book(a *account, r int, q *request, now float64) {
	q.booked = x.ownPrefill(r, q)
	a.out = append(a.out, q)
	a.drains = max(a.drains, now) + q.booked
}

func (x *exact) wait(r int, now float64) float64 { return max(0, x.reps[r].drains-now) }

func (x *exact) expected() float64 {
	if x.outN == 0 {
		return 200
	}
	return x.outSum / float64(x.outN)
}

// argmin returns the lowest score; ties within 1e-12 are drawn (docs/mock.md, "The reference's view").
func (x *exact) argmin(score func(r int) float64) int {
	best := 0.0
	for r := range x.reps {
		s := score(r)
		x.scores[r] = s
		if r == 0 || s < best {
			best = s
		}
	}
	x.tied = x.tied[:0]
	for r, s := range x.scores {
		if s <= best+1e-12 {
			x.tied = append(x.tied, r)
		}
	}
	return x.draw()
}

func (x *exact) draw() int {
	if len(x.tied) == 1 {
		return x.tied[0]
	}
	return x.tied[x.intn(len(x.tied))]
}
