package policy

import (
	"kvasir/kv"
	"kvasir/policy/learn"
)

// A chain is what combinators have in common: everything but Pick goes to the
// policy inside, so that a scheduler that asks the outermost one for its optional
// interfaces gets the answers of all.
type chain struct{ inner Policy }

func (c *chain) Placed(req *Request, cands []Candidate, i int) { placed(c.inner, req, cands, i) }
func (c *chain) Forget(t kv.Target)                            { forget(c.inner, t) }

func (c *chain) FirstToken(o *kv.FirstToken) {
	if p, ok := c.inner.(Observer); ok {
		p.FirstToken(o)
	}
}

func (c *chain) Done(o *kv.Done) {
	if p, ok := c.inner.(Observer); ok {
		p.Done(o)
	}
}

func (c *chain) Terms() ([]string, string) {
	if p, ok := c.inner.(Explainer); ok {
		return p.Terms()
	}
	return nil, "points"
}

func (c *chain) AppendState(dst []byte) []byte {
	if p, ok := c.inner.(Keeper); ok {
		return p.AppendState(dst)
	}
	return dst
}

func (c *chain) LoadState(src []byte) error {
	if p, ok := c.inner.(Keeper); ok {
		return p.LoadState(src)
	}
	return nil
}

func (c *chain) Learned(t kv.Target) (learn.Learned, bool) {
	if p, ok := c.inner.(Learner); ok {
		return p.Learned(t)
	}
	return learn.Learned{}, false
}

// inSeconds reports whether the costs that p writes are durations.
func inSeconds(p Policy) bool {
	if e, ok := p.(Explainer); ok {
		_, unit := e.Terms()
		return unit == "s"
	}
	return false
}

// combine wraps p in the combinators that are enabled, the ones that know more
// about a request inside, the ones that protect the fleet outside.
func combine(cfg *Config, p Policy, intn func(int) int) Policy {
	if cfg.HotPrefix.Enabled {
		p = newHotPrefix(cfg.HotPrefix, p)
	}
	if cfg.Dwell.Enabled {
		p = newDwell(cfg.Dwell, p)
	}
	if cfg.MinSpread.Enabled {
		p = &minSpread{chain: chain{p}, cfg: cfg.MinSpread, intn: intn}
	}
	if cfg.Explore.Enabled {
		p = &explore{chain: chain{p}, cfg: cfg.Explore, seconds: inSeconds(p), intn: intn}
	}
	if cfg.Guard.Enabled {
		p = &guard{chain: chain{p}, cfg: cfg.Guard, intn: intn}
	}
	if cfg.Shed.Enabled {
		p = &shed{chain: chain{p}, cfg: cfg.Shed}
	}
	return p
}
