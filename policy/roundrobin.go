package policy

import "kvasir/kv"

// roundRobin takes the target that has waited longest for its turn, the first of
// those that never had one. On a constant set of candidates that is strict
// rotation; and where sets differ from request to request (several models,
// retries that exclude a target) no target misses its turn, as it can with a
// counter modulo the set's size.
type roundRobin struct {
	Basic
	turns uint64
	last  [kv.MaxTargets]uint64
}

func (p *roundRobin) Pick(_ *Request, cands []Candidate) int {
	best := 0
	for i := range cands {
		c := &cands[i]
		c.Cost = float64(p.last[c.Target])
		if c.Cost < cands[best].Cost {
			best = i
		}
	}
	return best
}

func (p *roundRobin) Placed(_ *Request, cands []Candidate, i int) {
	p.turns++
	p.last[cands[i].Target] = p.turns
}

func (p *roundRobin) Forget(t kv.Target) { p.last[t] = 0 }
