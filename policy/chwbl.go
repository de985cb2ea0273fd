package policy

import "kvasir/kv"

// CHWBL configures `chwbl`.
type CHWBL struct {
	// VirtualNodes is how many places each target has on the ring.
	VirtualNodes int `yaml:"virtual_nodes" default:"100" range:"1..1000"`
	// LoadFactor bounds the requests in flight of a target, in means.
	LoadFactor float64 `yaml:"load_factor" default:"1.25" range:"1..100"`
	// Floor: the bound is never below this.
	Floor int `yaml:"floor" default:"2" range:"1..1Mi" unit:"requests"`
	// Key is what is hashed: the session key, or the first block of the prompt.
	Key string `yaml:"key" default:"session" oneof:"session|prefix"`
	// Fallback is the policy for requests without a key.
	Fallback string `yaml:"fallback" default:"least_load" oneof:"least_load|random|round_robin"`
}

// chwbl is consistent hashing with bounded loads: clockwise from the key's hash,
// the first target whose requests, this one included, are at most
// ceil(factor*(all+1)/N); the first one of all if none is. (Mirrokni, Thorup,
// Zadimoghaddam 2017; KubeAI's PrefixHash.) The bound counts requests, so a long
// one weighs as much as a short one.
type chwbl struct {
	Basic
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
		p.none.Placed(req, cands, i)
	}
}

func (p *chwbl) Forget(t kv.Target) {
	p.ring.remove(t)
	p.none.Forget(t)
}
