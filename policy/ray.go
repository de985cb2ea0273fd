package policy

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"kvasir/kv"
	"kvasir/setting"
)

// RayPrefix configures `ray_prefix`.
type RayPrefix struct {
	// Imbalance is the difference between the longest and the shortest queue above which the
	// match is ignored. Ray's default was 10 before 2025-12.
	Imbalance int `yaml:"imbalanced_threshold" default:"-1" range:"0..1Gi" or:"-1: never" unit:"requests"`
	// MatchRate is the share of the prompt that must match.
	MatchRate float64 `yaml:"match_rate_threshold" default:"0.1" range:"0..1"`
	// Evict keeps the tree small. Ray's default is false, with which it grows for ever.
	Evict bool `yaml:"do_eviction" default:"true"`
	// EvictThreshold is the size of the tree above which it is cut.
	EvictThreshold int `yaml:"eviction_threshold_chars" default:"400000" range:"1..1Gi" unit:"bytes"`
	// EvictTarget is what it is cut to; at most EvictThreshold.
	EvictTarget int `yaml:"eviction_target_chars" default:"360000" range:"1..1Gi" unit:"bytes"`
	// EvictInterval is how often the size is looked at.
	EvictInterval time.Duration `yaml:"eviction_interval" default:"10s" range:"1ms..1h"`
	// Match is "text": its own tree, and the index without text; or "index": what the index has.
	Match string `yaml:"match" default:"text" oneof:"text|index"`
}

// Check accepts what fits together.
func (c *RayPrefix) Check() error {
	if c.EvictTarget > c.EvictThreshold {
		return &setting.Error{Key: "eviction_target_chars", Value: strconv.Itoa(c.EvictTarget), Want: fmt.Sprintf("at most eviction_threshold_chars, %d", c.EvictThreshold)}
	}
	return nil
}

// rayPrefix is Ray Serve's PrefixCacheAffinityRouter (ray
// llm/_internal/serve/routing_policies/prefix_aware), in four branches:
//
//  1. queues differ by more than Imbalance: power of two choices
//  2. at least MatchRate of the prompt was sent to some target before: of those
//     sent the longest part, the one with the shortest queue
//  3. less: of the targets that were sent the least text, the one with the
//     shortest queue
//  4. no text: power of two choices
//
// At its default Imbalance it herds as pure affinity does.
type rayPrefix struct {
	Basic
	cfg     RayPrefix
	two     p2c
	tree    *textTree // nil: by the index
	seat    seats
	evicted time.Time
	intn    func(int) int
}

func newRayPrefix(cfg RayPrefix, intn func(int) int) *rayPrefix {
	p := &rayPrefix{cfg: cfg, two: p2c{intn: intn}, intn: intn}
	if cfg.Match == "text" {
		p.tree = newTextTree()
	}
	return p
}

func (p *rayPrefix) Terms() ([]string, string) {
	return []string{"match", "queue", "text"}, "requests"
}

// Pick sets the Cost of targets outside of the group of its branch to infinity.
func (p *rayPrefix) Pick(req *Request, cands []Candidate) int {
	fallback := p.two.Pick(req, cands)
	lo, hi := cands[0].Load.Requests, 0
	for i := range cands {
		lo, hi = min(lo, cands[i].Load.Requests), max(hi, cands[i].Load.Requests)
	}
	if p.cfg.Imbalance >= 0 && hi-lo > p.cfg.Imbalance {
		req.Branch = "imbalanced"
		return fallback
	}
	req.Branch = "no text"
	if p.tree != nil && req.Text != nil {
		if len(req.Text) == 0 {
			return fallback
		}
		text := p.clip(req.Text)
		p.seat.set(cands)
		matched, at := p.tree.match(text, &p.seat)
		known := at != nil && float64(matched) >= p.cfg.MatchRate*float64(len(text))
		for i := range cands {
			c := &cands[i]
			m := 0
			if at != nil && at.place(c.Target) != nil {
				m = matched
			}
			c.Terms = [MaxTerms]float64{float64(m), float64(c.Load.Requests), float64(p.tree.size[c.Target])}
		}
		return p.group(req, cands, known)
	}
	if len(req.Hashes) == 0 && req.Tokens == 0 {
		return fallback
	}
	best := 0
	for i := range cands {
		c := &cands[i]
		m := cachedOn(req, c, true)
		best = max(best, m)
		c.Terms = [MaxTerms]float64{float64(m), float64(c.Load.Requests), float64(c.Held)}
	}
	return p.group(req, cands, best > 0 && float64(best) >= p.cfg.MatchRate*float64(tokensOf(req)))
}

// group picks the shortest queue among the longest matches, or among those with
// the least text.
func (p *rayPrefix) group(req *Request, cands []Candidate, match bool) int {
	req.Branch = "least text"
	if match {
		req.Branch = "match"
	}
	top, least := cands[0].Terms[0], cands[0].Terms[2]
	for i := range cands {
		top, least = max(top, cands[i].Terms[0]), min(least, cands[i].Terms[2])
	}
	for i := range cands {
		c := &cands[i]
		if match && c.Terms[0] == top || !match && c.Terms[2] == least {
			c.Cost = c.Terms[1]
		} else {
			c.Cost = infinity
		}
	}
	return lowest(cands, 0, p.intn)
}

// clip bounds what one prompt can put into the tree.
func (p *rayPrefix) clip(text []byte) []byte { return text[:min(len(text), p.cfg.EvictTarget)] }

func (p *rayPrefix) Placed(req *Request, cands []Candidate, i int) {
	if p.tree == nil {
		return
	}
	p.tree.insert(p.clip(req.Text), cands[i].Target, req.Now)
	switch {
	case p.cfg.Evict && req.Now.Sub(p.evicted) >= p.cfg.EvictInterval:
		p.evicted = req.Now
		p.tree.trim(p.cfg.EvictThreshold, p.cfg.EvictTarget, true)
	case p.tree.full():
		p.tree.trim(math.MaxInt, math.MaxInt, true)
	}
}

func (p *rayPrefix) Forget(t kv.Target) {
	if p.tree != nil {
		p.tree.forget(t)
	}
}
