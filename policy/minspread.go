package policy

import (
	"time"

	"kvasir/kv"
)

// MinSpread configures the floor under each target's share of cold requests.
type MinSpread struct {
	// Enabled gives each target a floor of the cold requests.
	Enabled bool `yaml:"enabled"`
	// Floor is the least share of a target, in equal shares; .6 keeps serial agents from
	// piling up on one target of two.
	Floor float64 `yaml:"floor" default:"0.6" range:"0..1"`
	// Window is how far back cold requests are counted.
	Window time.Duration `yaml:"window" default:"1m" range:"1s..1h"`
	// Cold: a request is cold if no target holds this many of its tokens.
	Cold int `yaml:"cold" default:"1024" range:"1..1Gi" unit:"tokens"`
}

// minSpread sees to it that no target stays idle for ever at low load, where a policy
// finds no reason to leave the targets that it knows: without it, 10,000 requests went
// to four targets as 8410, 1590, 0 and 0. Each target gets at least Floor/N of the
// requests that are cold wherever they go. Those with affinity are never diverted.
// Nothing goes to a target that is busier than the one picked or has prompts to compute:
// this is for low load. (Without that, a floor of .6 costs a third of TTFT on the
// Mooncake conversation trace.)
type minSpread struct {
	Policy
	cfg  MinSpread
	intn func(int) int

	// Cold requests by target in this half of the window and in the one before.
	half      time.Time
	now, then [kv.MaxTargets]uint32
}

func (p *minSpread) Pick(req *Request, cands []Candidate) int {
	pick := p.Policy.Pick(req, cands)
	if !p.cold(cands) {
		return pick
	}
	all := 0
	for i := range cands {
		all += p.count(cands[i].Target)
	}
	floor := p.cfg.Floor * float64(all) / float64(len(cands))
	best, n := -1, 0
	for i := range cands {
		c := &cands[i]
		got := p.count(c.Target)
		if float64(got) >= floor || c.Load.Prefilling > 0 || c.Load.Requests > cands[pick].Load.Requests || c.Cost == infinity {
			continue
		}
		switch {
		case best < 0 || got < p.count(cands[best].Target):
			best, n = i, 1
		case got == p.count(cands[best].Target):
			if n++; p.intn(n) == 0 {
				best = i
			}
		}
	}
	if best < 0 || best == pick {
		return pick
	}
	req.Branch = "spread"
	return best
}

func (p *minSpread) count(t kv.Target) int { return int(p.now[t] + p.then[t]) }

func (p *minSpread) cold(cands []Candidate) bool {
	for i := range cands {
		gpu, host, disk := heldBy(&cands[i], true)
		if gpu+host+disk >= p.cfg.Cold {
			return false
		}
	}
	return true
}

func (p *minSpread) Placed(req *Request, cands []Candidate, i int) {
	switch age := req.Now.Sub(p.half); {
	case age >= p.cfg.Window:
		p.now, p.then = [kv.MaxTargets]uint32{}, [kv.MaxTargets]uint32{}
		p.half = req.Now
	case age >= p.cfg.Window/2:
		p.then, p.now = p.now, [kv.MaxTargets]uint32{}
		p.half = req.Now
	}
	if p.cold(cands) {
		p.now[cands[i].Target]++
	}
	p.Policy.Placed(req, cands, i)
}

func (p *minSpread) Forget(t kv.Target) {
	p.now[t], p.then[t] = 0, 0
	p.Policy.Forget(t)
}
