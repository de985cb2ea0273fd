package policy

import (
	"math"
	"time"

	"kvasir/kv"
)

// HotPrefix configures the replication of hot prefixes.
type HotPrefix struct {
	// Enabled brings hot prefixes to several targets. `auto` has it on.
	Enabled bool `yaml:"enabled"`
	// HalfLife is that of the popularity.
	HalfLife time.Duration `yaml:"half_life" default:"1m" range:"1s..24h"`
	// Hot: a prefix is hot if its requests are more than this many fair shares of a target.
	Hot float64 `yaml:"hot" default:"1.25" range:"0.1..1000"`
	// Fill: a hot prefix should be on enough targets that each has this many fair shares of
	// its requests.
	Fill float64 `yaml:"fill" default:"0.8" range:"0.1..1000"`
}

// hotPrefix brings the hottest prefixes to several targets. Popularity is counted
// at depths of 1, 2, 4, 8, ... blocks in a sketch of fixed size; the deepest hot
// prefix of a request should be held by
//
//	R = min(N, ceil(share * N / Fill))
//
// targets. While fewer hold it, a request that would have to wait at its holder
// goes to the cheapest target that doesn't: warming by routing, one at a time,
// without any transfer. What isn't hot any more is left to the engines' eviction.
type hotPrefix struct {
	Policy
	cfg    HotPrefix
	sketch sketch
}

func (p *hotPrefix) Pick(req *Request, cands []Candidate) int {
	best := p.Policy.Pick(req, cands)
	n := float64(len(cands))
	depth, share := 0, 0.0
	for d := 1; d <= len(req.Hashes); d *= 2 {
		s := p.sketch.share(req.Hashes[d-1])
		if s*n <= p.cfg.Hot {
			break // deeper ones are rarer
		}
		depth, share = d, s
	}
	if depth == 0 || !waiting(&cands[best]) {
		return best
	}
	tokens := min(depth*req.BlockSize, tokensOf(req)-1)
	want := min(len(cands), int(math.Ceil(share*n/p.cfg.Fill)))
	holders, other := 0, -1
	for i := range cands {
		c := &cands[i]
		if gpu, _, _ := heldBy(c, true); gpu >= tokens {
			holders++
		} else if c.Cost != infinity && (other < 0 || cheaper(c, &cands[other])) {
			other = i
		}
	}
	if gpu, _, _ := heldBy(&cands[best], true); gpu < tokens || holders >= want || other < 0 {
		return best
	}
	req.Branch = "hot prefix"
	return other
}

func waiting(c *Candidate) bool { return c.Load.Wait > 0 || c.Load.Prefilling > 0 }

func cheaper(a, b *Candidate) bool {
	return a.Cost < b.Cost || a.Cost == b.Cost && a.Load.Requests < b.Load.Requests
}

func (p *hotPrefix) Placed(req *Request, cands []Candidate, i int) {
	p.sketch.tick(req.Now, p.cfg.HalfLife)
	for d := 1; d <= len(req.Hashes); d *= 2 {
		p.sketch.add(req.Hashes[d-1])
	}
	p.Policy.Placed(req, cands, i)
}

// A sketch counts the most frequent hashes of a stream in a fixed number of
// counters (Metwally et al., Space-Saving 2005), older ones fading. A hash that
// has no counter takes over the smallest one, whose count is then its possible
// error; share takes the error off, so a newcomer is never hot by inheritance.
type sketch struct {
	hash  [sketchSize]kv.Hash
	count [sketchSize]float64
	error [sketchSize]float64
	n     int
	all   float64 // requests
	unit  float64 // what one request adds: grows, so that older ones fade
	last  time.Time
}

const sketchSize = 256

func (s *sketch) tick(now time.Time, halfLife time.Duration) {
	if s.unit == 0 {
		s.unit, s.last = 1, now
	}
	if dt := now.Sub(s.last); dt > 0 {
		s.last = now
		s.unit *= math.Exp2(min(dt.Seconds()/halfLife.Seconds(), 60))
		if s.unit > 1<<40 {
			for i := range s.n {
				s.count[i] /= s.unit
				s.error[i] /= s.unit
			}
			s.all /= s.unit
			s.unit = 1
		}
	}
	s.all += s.unit
}

func (s *sketch) add(h kv.Hash) {
	least := 0
	for i := range s.n {
		if s.hash[i] == h {
			s.count[i] += s.unit
			return
		}
		if s.count[i] < s.count[least] {
			least = i
		}
	}
	if s.n < sketchSize {
		s.hash[s.n], s.count[s.n], s.error[s.n] = h, s.unit, 0
		s.n++
		return
	}
	s.error[least] = s.count[least]
	s.hash[least] = h
	s.count[least] += s.unit
}

// share returns how much of the recent requests have h, at least; 0 until there
// are enough to tell.
func (s *sketch) share(h kv.Hash) float64 {
	if s.all < 8*s.unit {
		return 0
	}
	for i := range s.n {
		if s.hash[i] == h {
			return (s.count[i] - s.error[i]) / s.all
		}
	}
	return 0
}
