package policy

import (
	"time"

	"kvasir/kv"
)

// SGLang configures `sglang_cache_aware`. The defaults are those of the router's
// command line; its library has .5, 32, 1.1, 30 s and 10,000.
type SGLang struct {
	// CacheThreshold is the share of the prompt that must match.
	CacheThreshold float64 `yaml:"cache_threshold" default:"0.3" range:"0..1"`
	// BalanceAbs: imbalanced is when the most loaded has more requests than the least by this,
	BalanceAbs int `yaml:"balance_abs_threshold" default:"64" range:"0..1Gi" unit:"requests"`
	// BalanceRel: and more than this many times as many.
	BalanceRel float64 `yaml:"balance_rel_threshold" default:"1.5" range:"1..1e6"`
	// BalanceUsage: imbalanced too if the KV use of two targets differs by more than this share.
	BalanceUsage float64 `yaml:"balance_token_usage_threshold" default:"1" range:"0..1"`
	// OverloadUsage: imbalanced too if the KV use of a target is above this share.
	OverloadUsage float64 `yaml:"overload_token_usage_threshold" default:"1" range:"0..1"`
	// EvictInterval is how often the tree is cut back to MaxTree.
	EvictInterval time.Duration `yaml:"eviction_interval" default:"2m" range:"1ms..1h"`
	// MaxTree is how much text the tree keeps for a target.
	MaxTree int `yaml:"max_tree_size" default:"64Mi" range:"1..1Ti" unit:"bytes"`
	// Match is "text": its own tree, and the index where there is no text; "index": the same
	// rule with what the index has; "events": the rule for engines with cache events, which
	// has no threshold.
	Match string `yaml:"match" default:"text" oneof:"text|index|events"`
	// RandomTies draws between equally loaded targets; else the one that was given fewer
	// requests.
	RandomTies bool `yaml:"random_ties"`
}

// sglang is the hard switch of SGLang's router (sgl-model-gateway
// src/policies/cache_aware.rs, now smg): while loads are balanced it goes where
// the prompt matches, otherwise where the fewest requests are in flight.
//
//	imbalanced = max-min > abs AND max > rel*min, or KV use too high or too uneven
//	imbalanced             -> least loaded
//	match rate > threshold -> the target that matches
//	else                   -> least loaded
//
// Both halves of the first test must hold: that keeps a small fleet with tiny
// loads from flapping. When it trips, all locality is dropped at once.
type sglang struct {
	Basic
	cfg     SGLang
	tree    *textTree // nil: by the index
	given   [kv.MaxTargets]uint64
	seat    seats
	evicted time.Time
	intn    func(int) int
}

func newSGLang(cfg SGLang, intn func(int) int) *sglang {
	p := &sglang{cfg: cfg, intn: intn}
	if cfg.Match == "text" {
		p.tree = newTextTree()
	}
	return p
}

func (p *sglang) Terms() ([]string, string) {
	return []string{"match", "requests"}, "requests"
}

func (p *sglang) Pick(req *Request, cands []Candidate) int {
	for i := range cands {
		c := &cands[i]
		c.Cost = float64(c.Load.Requests)
		c.Terms = [MaxTerms]float64{0, c.Cost}
	}
	if p.imbalanced(cands) {
		req.Branch = "imbalanced"
		return p.leastLoaded(cands)
	}
	if p.tree != nil && req.Text != nil {
		return p.byText(req, cands)
	}
	return p.byIndex(req, cands)
}

func (p *sglang) imbalanced(cands []Candidate) bool {
	lo, hi := cands[0].Load.Requests, 0
	kvLo, kvHi := 1.0, 0.0
	for i := range cands {
		c := &cands[i]
		lo, hi = min(lo, c.Load.Requests), max(hi, c.Load.Requests)
		if c.Engine.Known() { // what isn't known never trips it
			kvLo, kvHi = min(kvLo, c.Engine.KVUsage), max(kvHi, c.Engine.KVUsage)
		}
	}
	return hi-lo > p.cfg.BalanceAbs && float64(hi) > p.cfg.BalanceRel*float64(lo) ||
		kvHi > p.cfg.OverloadUsage || kvHi-kvLo > p.cfg.BalanceUsage
}

// leastLoaded returns the candidate with the fewest requests in flight, of those
// the one that was given the fewest so far, of those the first.
func (p *sglang) leastLoaded(cands []Candidate) int {
	if p.cfg.RandomTies {
		return lowest(cands, 0, p.intn)
	}
	best := 0
	for i := range cands {
		c, b := &cands[i], &cands[best]
		if c.Cost < b.Cost || c.Cost == b.Cost && p.given[c.Target] < p.given[b.Target] {
			best = i
		}
	}
	return best
}

func (p *sglang) byText(req *Request, cands []Candidate) int {
	p.seat.set(cands)
	text := p.clip(req.Text)
	matched, at := p.tree.match(text, &p.seat)
	if at == nil || float64(matched) <= p.cfg.CacheThreshold*float64(len(text)) {
		req.Branch = "no match"
		return p.leastLoaded(cands)
	}
	req.Branch = "match"
	// Upstream takes any of the node's targets, by the order of a hash map; the
	// one that used it last is the likeliest to have it still.
	best := -1
	var used time.Time
	for _, q := range at.places {
		if i := p.seat.of(q.target); i >= 0 {
			cands[i].Terms[0] = float64(matched)
			if best < 0 || q.at.After(used) {
				best, used = i, q.at
			}
		}
	}
	return best
}

func (p *sglang) byIndex(req *Request, cands []Candidate) int {
	best := 0
	for i := range cands {
		c := &cands[i]
		gpu, _, _ := heldBy(c, p.cfg.Match != "events")
		c.Terms[0] = float64(gpu)
		b := &cands[best]
		switch {
		case c.Terms[0] > b.Terms[0]:
			best = i
		case c.Terms[0] == b.Terms[0] && p.cfg.Match == "events":
			if c.Cost < b.Cost || c.Cost == b.Cost && c.Held < b.Held {
				best = i
			}
		}
	}
	limit := p.cfg.CacheThreshold * float64(tokensOf(req))
	if p.cfg.Match == "events" {
		limit = 0
	}
	if cands[best].Terms[0] > limit {
		req.Branch = "match"
		return best
	}
	req.Branch = "no match"
	return p.leastLoaded(cands)
}

// clip bounds what one prompt can put into the tree.
func (p *sglang) clip(text []byte) []byte { return text[:min(len(text), p.cfg.MaxTree)] }

func (p *sglang) Placed(req *Request, cands []Candidate, i int) {
	p.given[cands[i].Target]++
	if p.tree == nil {
		return
	}
	p.tree.insert(p.clip(req.Text), cands[i].Target, req.Now)
	if req.Now.Sub(p.evicted) >= p.cfg.EvictInterval || p.tree.full() {
		p.evicted = req.Now
		p.tree.trim(p.cfg.MaxTree, p.cfg.MaxTree, false)
	}
}

func (p *sglang) Forget(t kv.Target) {
	p.given[t] = 0
	if p.tree != nil {
		p.tree.forget(t)
	}
}
