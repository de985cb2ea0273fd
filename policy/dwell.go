package policy

import (
	"time"

	"kvasir/kv"
)

// Dwell configures the minimum stay of a session on a target.
type Dwell struct {
	// Enabled keeps a session where it is, unless a move is worth it.
	Enabled bool `yaml:"enabled"`
	// For is how long after a placement it holds.
	For time.Duration `yaml:"for" default:"10s" range:"0s..1h"`
	// Gain: a move must be cheaper by this share of the cost,
	Gain float64 `yaml:"gain" default:"0.1" range:"0..1"`
	// Step: and by this much, where costs are seconds.
	Step float64 `yaml:"step" default:"0.01" range:"0..60" unit:"s"`
	// MaxWait: no session stays where it would wait longer.
	MaxWait time.Duration `yaml:"max_wait" default:"2s" range:"0s..1h"`
}

// dwell keeps a session where it was placed last unless there is a reason to
// move: after an autoscale event, or between two targets that cost about the
// same, sessions would go back and forth and leave their cache behind each time.
// Sessions are remembered in a table of fixed size. One that has fallen out of it may
// move at its next request; nothing else is lost.
type dwell struct {
	Policy
	cfg     Dwell
	seconds bool
	seat    seats
	table   [][4]stay // by the low bits of the session's hash; 4 sessions each
}

type stay struct {
	session uint64
	since   time.Time
	target  kv.Target
}

const dwellSets = 1 << 14 // 65,536 sessions, 2.6 MB

func newDwell(cfg Dwell, inner Policy) *dwell {
	return &dwell{Policy: inner, cfg: cfg, seconds: inSeconds(inner), table: make([][4]stay, dwellSets)}
}

func (p *dwell) find(session uint64) *stay {
	set := &p.table[h64(session)%dwellSets]
	for i := range set {
		if set[i].session == session {
			return &set[i]
		}
	}
	return nil
}

func (p *dwell) Pick(req *Request, cands []Candidate) int {
	best := p.Policy.Pick(req, cands)
	if req.SessionHash == 0 {
		return best
	}
	s := p.find(req.SessionHash)
	if s == nil || req.Now.Sub(s.since) >= p.cfg.For || s.target == cands[best].Target {
		return best
	}
	p.seat.set(cands)
	home := p.seat.of(s.target)
	if home < 0 || cands[home].Cost == infinity || cands[home].Load.Wait > p.cfg.MaxWait {
		return best
	}
	c := cands[home].Cost
	limit := c - p.cfg.Gain*max(c, -c)
	if p.seconds {
		limit -= p.cfg.Step
	}
	if cands[best].Cost < limit {
		return best
	}
	req.Branch = "dwell"
	return home
}

func (p *dwell) Placed(req *Request, cands []Candidate, i int) {
	p.Policy.Placed(req, cands, i)
	if req.SessionHash == 0 {
		return
	}
	s := p.find(req.SessionHash)
	if s == nil {
		set := &p.table[h64(req.SessionHash)%dwellSets]
		s = &set[0]
		for k := range set {
			if set[k].since.Before(s.since) {
				s = &set[k]
			}
		}
	}
	*s = stay{req.SessionHash, req.Now, cands[i].Target}
}

func (p *dwell) Forget(t kv.Target) {
	for i := range p.table {
		for k := range p.table[i] {
			if p.table[i][k].target == t {
				p.table[i][k] = stay{}
			}
		}
	}
	p.Policy.Forget(t)
}
