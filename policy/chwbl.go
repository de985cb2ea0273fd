package policy

import "kvasir/kv"

// CHWBL configures `chwbl`.
type CHWBL struct {
	VirtualNodes int     `yaml:"virtual_nodes"` // per target, on the ring
	LoadFactor   float64 `yaml:"load_factor"`   // bound on a target's requests, in means
	Floor        int     `yaml:"floor"`         // the bound is never below this
	Key          string  `yaml:"key"`           // "session", or "prefix": the first block
	Fallback     string  `yaml:"fallback"`      // without a key
}

func (c *CHWBL) validate() error {
	if err := checkInt("policy.chwbl.virtual_nodes", c.VirtualNodes, 1, 1000); err != nil {
		return err
	}
	if err := checkRange("policy.chwbl.load_factor", c.LoadFactor, 1, 100); err != nil {
		return err
	}
	if err := checkInt("policy.chwbl.floor", c.Floor, 1, 1<<20); err != nil {
		return err
	}
	if err := checkName("policy.chwbl.key", c.Key, []string{"session", "prefix"}); err != nil {
		return err
	}
	return checkName("policy.chwbl.fallback", c.Fallback, plain)
}

// chwbl is consistent hashing with bounded loads: clockwise from the key's hash,
// the first target whose requests, this one included, are at most
// ceil(factor*(all+1)/N); the first one of all if none is. (Mirrokni, Thorup,
// Zadimoghaddam 2017; KubeAI's PrefixHash.) The bound counts requests, so a long
// one weighs as much as a short one.
type chwbl struct {
	cfg  CHWBL
	ring ring
	none Policy
}

func newCHWBL(cfg CHWBL, none Policy) *chwbl {
	return &chwbl{cfg: cfg, ring: ring{nodes: cfg.VirtualNodes}, none: none}
}

func (p *chwbl) key(req *Request) uint64 {
	if p.cfg.Key == "session" {
		return req.SessionHash
	}
	if len(req.Hashes) == 0 {
		return 0
	}
	return uint64(req.Hashes[0])
}

func (p *chwbl) Pick(req *Request, cands []Candidate) int {
	key := p.key(req)
	if key == 0 {
		req.Branch = "no key"
		return p.none.Pick(req, cands)
	}
	p.ring.prepare(cands)
	bound := loadBound(cands, p.cfg.LoadFactor, p.cfg.Floor)
	first := -1
	i := p.ring.start(h64(key))
	for range p.ring.points {
		if s := p.ring.seat.of(p.ring.points[i].target); s >= 0 {
			if first < 0 {
				first = s
			}
			if cands[s].Load.Requests+1 <= bound {
				return s
			}
		}
		if i++; i == len(p.ring.points) {
			i = 0
		}
	}
	return max(first, 0)
}

func (p *chwbl) Placed(req *Request, cands []Candidate, i int) {
	if p.key(req) == 0 {
		placed(p.none, req, cands, i)
	}
}

func (p *chwbl) Forget(t kv.Target) {
	p.ring.remove(t)
	forget(p.none, t)
}
