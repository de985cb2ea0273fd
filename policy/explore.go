package policy

// Explore configures exploration around any policy.
type Explore struct {
	// Enabled places a few requests elsewhere, to learn.
	Enabled bool `yaml:"enabled"`
	// Share of requests that are placed elsewhere.
	Share float64 `yaml:"share" default:"0.01" range:"0..0.5"`
	// Extra is the cost that it may be worse by; ignored for policies with another unit.
	Extra float64 `yaml:"max_extra" default:"2" range:"0..3600" unit:"s"`
}

// explore places a small share of requests on a target that isn't the best, to
// warm it: one that is new, or came back empty, never looks good to a policy that
// follows the cache. Such requests are marked by Request.Branch, so that figures
// about the policy can leave them out.
type explore struct {
	Policy
	cfg     Explore
	seconds bool
	intn    func(int) int
}

func (p *explore) Pick(req *Request, cands []Candidate) int {
	best := p.Policy.Pick(req, cands)
	if len(cands) < 2 || uniform(p.intn) >= p.cfg.Share {
		return best
	}
	i := p.intn(len(cands) - 1)
	if i >= best {
		i++
	}
	c := &cands[i]
	if c.Cost == infinity || p.seconds && c.Cost-cands[best].Cost > p.cfg.Extra {
		return best
	}
	req.Branch = "explore"
	return i
}
