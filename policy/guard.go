package policy

// Guard configures the hard switch around any policy.
type Guard struct {
	// Enabled sends requests to the least loaded target while loads are imbalanced.
	Enabled bool `yaml:"enabled"`
	// By is what is counted as load: requests, or prompt tokens in flight.
	By string `yaml:"by" default:"tokens" oneof:"requests|tokens"`
	// Abs: imbalanced is when the most loaded exceeds the least by more than this,
	Abs int `yaml:"abs" default:"100000" range:"0..1Ti"`
	// Rel: and is more than this many times as loaded.
	Rel float64 `yaml:"rel" default:"2" range:"1..1e6"`
}

// guard goes to the least loaded target while loads are out of balance, and leaves
// the choice to the policy inside otherwise. It prevents that an affinity policy
// buries one target. Once it has tripped it holds until the difference is half of
// what tripped it, or it would flap at the threshold.
type guard struct {
	Policy
	cfg  Guard
	on   bool
	intn func(int) int
}

func (p *guard) load(c *Candidate) int {
	if p.cfg.By == "requests" {
		return c.Load.Requests
	}
	return c.Load.Prefill + c.Load.Prompt
}

func (p *guard) tripped(cands []Candidate) bool {
	lo, hi := p.load(&cands[0]), 0
	for i := range cands {
		l := p.load(&cands[i])
		lo, hi = min(lo, l), max(hi, l)
	}
	limit := p.cfg.Abs
	if p.on {
		limit /= 2
	}
	return hi-lo > limit && float64(hi) > p.cfg.Rel*float64(lo)
}

func (p *guard) Pick(req *Request, cands []Candidate) int {
	// The inner policy prices the candidates in any case: the receipt shows
	// what the guard overruled, and the ledger books its predictions.
	i := p.Policy.Pick(req, cands)
	if !p.tripped(cands) {
		return i
	}
	req.Branch = "guard"
	best, n := 0, 0
	for k := range cands {
		switch l, b := p.load(&cands[k]), p.load(&cands[best]); {
		case l < b:
			best, n = k, 1
		case l == b:
			n++
		}
	}
	if n <= 1 {
		return best
	}
	k := p.intn(n)
	for i := best; ; i++ {
		if p.load(&cands[i]) == p.load(&cands[best]) {
			if k == 0 {
				return i
			}
			k--
		}
	}
}

func (p *guard) Placed(req *Request, cands []Candidate, i int) {
	p.on = p.tripped(cands)
	p.Policy.Placed(req, cands, i)
}
