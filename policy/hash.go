package policy

import (
	"math"

	"kvasir/kv"
)

// h64 mixes x: a linear step and the finaliser of splitmix64
// (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
func h64(x uint64) uint64 {
	x = x*0x9e3779b97f4a7c15 + 0x7f4a7c15
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// rendezvous is the score of a key (hashed) at a replica: the highest score wins
// the key. Adding or removing a replica moves only the keys that it wins or had.
func rendezvous(key, identity uint64) uint64 { return h64(key ^ h64(identity)) }

// highestScore returns the candidate that wins key, and writes each one's rank of
// preference, 0 for the winner's score, as its Cost.
func highestScore(key uint64, cands []Candidate) int {
	best, top := 0, uint64(0)
	for i := range cands {
		s := rendezvous(key, identity(&cands[i]))
		cands[i].Cost = float64(math.MaxUint64-s) / math.MaxUint64
		if i == 0 || s > top || s == top && cands[i].Identity < cands[best].Identity {
			best, top = i, s
		}
	}
	return best
}

// HRW configures `hrw`.
type HRW struct {
	// Fallback is the policy for requests without a session key.
	Fallback string `yaml:"fallback" default:"least_load" oneof:"least_load|random|round_robin"`
}

// hrw keeps a session on one target by rendezvous hashing. Without a key it
// leaves the choice to another.
type hrw struct {
	Basic
	none Policy
}

func (p *hrw) Terms() ([]string, string) { return nil, "points" }

func (p *hrw) Pick(req *Request, cands []Candidate) int {
	if req.SessionHash == 0 {
		req.Branch = "no key"
		return p.none.Pick(req, cands)
	}
	return highestScore(h64(req.SessionHash), cands)
}

func (p *hrw) Placed(req *Request, cands []Candidate, i int) {
	if req.SessionHash == 0 {
		p.none.Placed(req, cands, i)
	}
}

func (p *hrw) Forget(t kv.Target) { p.none.Forget(t) }

// PrefixHash configures `prefix_hash`.
type PrefixHash struct {
	// Tokens is how long a prefix is hashed, rounded down to whole blocks but at least one.
	Tokens int `yaml:"tokens" default:"256" range:"1..1Mi" unit:"tokens"`
	// LoadFactor bounds the requests in flight of a target, in means. Without a bound every
	// request with the same beginning goes to the same target.
	LoadFactor float64 `yaml:"load_factor" default:"1.25" range:"1..100" or:"0: no bound"`
	// Fallback is the policy for requests without tokens.
	Fallback string `yaml:"fallback" default:"least_load" oneof:"least_load|random|round_robin"`
}

// prefixHash sends equal beginnings to the same target: rendezvous hashing of the
// block hash at the end of the prefix. If the winner is over the bound, the next
// in order of preference that isn't takes the request, which has none of a ring's
// cascades to one neighbour. (SMG's prefix_hash: 256 tokens, factor 1.25, on a
// ring.) It doesn't look at caches, only makes them likely.
type prefixHash struct {
	Basic
	cfg  PrefixHash
	none Policy
}

func (p *prefixHash) Pick(req *Request, cands []Candidate) int {
	if len(req.Hashes) == 0 || req.BlockSize <= 0 {
		req.Branch = "no key"
		return p.none.Pick(req, cands)
	}
	k := min(max(1, p.cfg.Tokens/req.BlockSize), len(req.Hashes))
	// A hash covers all before it, so the last one is enough.
	best := highestScore(h64(uint64(req.Hashes[k-1])), cands)
	if p.cfg.LoadFactor == 0 {
		return best
	}
	return leastCostWithin(cands, loadBound(cands, p.cfg.LoadFactor, 1), best)
}

func (p *prefixHash) Placed(req *Request, cands []Candidate, i int) {
	if len(req.Hashes) == 0 || req.BlockSize <= 0 {
		p.none.Placed(req, cands, i)
	}
}

func (p *prefixHash) Forget(t kv.Target) { p.none.Forget(t) }

// loadBound returns how many requests a target may have, the new one included:
// ceil(factor * (all + 1) / N), but at least floor. Without the floor a big
// fleet with little load has a bound of 1, and any second request of a session is
// driven away (kubeai#447).
func loadBound(cands []Candidate, factor float64, floor int) int {
	all := 1
	for i := range cands {
		all += cands[i].Load.Requests
	}
	// Guard against 1.25*8/8 = 1.2500000000000002 and the like.
	return max(floor, int(math.Ceil(factor*float64(all)/float64(len(cands))-1e-9)))
}

// leastCostWithin returns the cheapest candidate that has room for one more under
// bound, or preferred if none has.
func leastCostWithin(cands []Candidate, bound, preferred int) int {
	best := -1
	for i := range cands {
		if cands[i].Load.Requests+1 <= bound && (best < 0 || cands[i].Cost < cands[best].Cost) {
			best = i
		}
	}
	if best < 0 {
		return preferred
	}
	return best
}
