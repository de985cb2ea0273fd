package policy

import "kvasir/kv"

// Session configures `session`.
type Session struct {
	// VirtualNodes is how many places each target has on the ring.
	VirtualNodes int `yaml:"virtual_nodes" default:"100" range:"1..1000"`
	// Fallback is the policy for requests without a session key.
	Fallback string `yaml:"fallback" default:"least_load" oneof:"least_load|random|round_robin"`
}

// session keeps a session on one target by consistent hashing: the first virtual
// node clockwise of the key's hash whose target is a candidate. A target that is
// excluded or gone loses its keys to its successors, of which there are as many
// as it has nodes, and gets them back. (Ray Serve's ConsistentHashRouter, 100
// nodes; it stops after two fallbacks, we try all.) It sees no load: sessions
// that are heavy or collide stay where they are.
type session struct {
	Basic
	ring ring
	none Policy
}

func newSession(cfg Session, none Policy) *session {
	return &session{ring: ring{nodes: cfg.VirtualNodes}, none: none}
}

func (p *session) Pick(req *Request, cands []Candidate) int {
	if req.SessionHash == 0 {
		req.Branch = "no key"
		return p.none.Pick(req, cands)
	}
	p.ring.prepare(cands)
	i := p.ring.start(h64(req.SessionHash))
	for range p.ring.points {
		if s := p.ring.seat.of(p.ring.points[i].target); s >= 0 {
			return s
		}
		if i++; i == len(p.ring.points) {
			i = 0
		}
	}
	return 0 // can't be: every candidate is on the ring
}

func (p *session) Placed(req *Request, cands []Candidate, i int) {
	if req.SessionHash == 0 {
		p.none.Placed(req, cands, i)
	}
}

func (p *session) Forget(t kv.Target) {
	p.ring.remove(t)
	p.none.Forget(t)
}
