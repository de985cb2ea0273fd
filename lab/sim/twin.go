package sim

import (
	"math"
	"sort"

	"kvasir/lab/mock"
)

// A twin is a policy as the reference simulator has it (docs/mock.md, "The reference's view"):
// exact views, floating-point seconds. The twins are the yardstick for package
// policy, and what the reference's tables were made with.
type twin struct {
	name    string
	pick    func(x *exact, q *request, now float64) int
	predict bool // counts predicted blocks as held
	blocks  bool // needs active blocks
	book    bool // needs the virtual clock
	blind   bool // doesn't look at caches
	pool    bool // engines share one cache
}

// h64 is the mixing function of docs/mock.md, "The reference's view".
func h64(x uint64) uint64 {
	x = x*0x9E3779B97F4A7C15 + 0x7F4A7C15
	x ^= x >> 30
	x *= 0xBF58476D1CE4E5B9
	x ^= x >> 27
	x *= 0x94D049BB133111EB
	return x ^ x>>31
}

func rendezvous(key uint64, n int) int {
	best, at := uint64(0), 0
	for r := range n {
		if s := h64(key ^ h64(uint64(r)+1)); r == 0 || s > best {
			best, at = s, r
		}
	}
	return at
}

func twins() []twin {
	load := func(r *account) float64 { return float64(r.requests) }
	leastRequests := func(x *exact, _ *request, _ float64) int {
		return x.argmin(func(r int) float64 { return load(&x.reps[r]) })
	}
	next := 0
	list := []twin{
		{name: "random", blind: true, pick: func(x *exact, _ *request, _ float64) int { return x.intn(len(x.reps)) }},
		{name: "round_robin", blind: true, pick: func(x *exact, _ *request, _ float64) int {
			r := next % len(x.reps)
			next++
			return r
		}},
		{name: "p2c", blind: true, pick: func(x *exact, _ *request, _ float64) int {
			n := len(x.reps)
			i := x.intn(n)
			if n == 1 {
				return i
			}
			j := x.intn(n - 1)
			if j >= i {
				j++
			}
			if x.reps[j].requests < x.reps[i].requests {
				return j
			}
			return i
		}},
		{name: "least_requests", blind: true, pick: leastRequests},
		{name: "least_tokens", pick: func(x *exact, _ *request, _ float64) int {
			return x.argmin(func(r int) float64 { return float64(x.reps[r].prefill + x.reps[r].prompt) })
		}},
		{name: "session_hash", blind: true, pick: func(x *exact, q *request, _ float64) int {
			return rendezvous(h64(q.session), len(x.reps))
		}},
		prefixHash(1), prefixHash(4), chwbl(),
		{name: "pure_affinity_low", pick: func(x *exact, _ *request, _ float64) int {
			at := 0
			for r, m := range x.m {
				if m > x.m[at] {
					at = r
				}
			}
			return at
		}},
		{name: "pure_affinity_load", pick: func(x *exact, _ *request, _ float64) int {
			best, low := -1, 0
			for _, m := range x.m {
				best = max(best, m)
			}
			at, low, top := -1, 0, 0.0
			for r, m := range x.m {
				if m != best {
					continue
				}
				n, u := x.reps[r].requests, x.unit() // one draw per tied candidate
				if at < 0 || n < low || n == low && u < top {
					at, low, top = r, n, u
				}
			}
			return at
		}},
		sglang("sglang_cache_aware", .5, 32, 1.1, false),
		sglang("sgl_cli", .3, 64, 1.5, false),
		sglang("sgl_rand", .5, 32, 1.1, true),
		ray("ray_prefix_affinity", 10), ray("ray_inf", math.Inf(1)),
		{name: "llmd_3_2_2", pick: llmd},
		{name: "lmetric", predict: true, pick: lmetric(true)},
		{name: "lmetric_u", predict: true, pick: lmetric(false)},
		dynamoTwin("dynamo", 1, 0, 1, 0, false),
		dynamoTwin("dynamo_decay1", 1, 1, 1, 0, false),
		dynamoTwin("dynamo_prefill8", 1, 0, 8, 0, false),
		dynamoTwin("dyn_agentic", 2, 0, 4, 2, false),
		dynamoTwin("dynamo_credit0", 0, 0, 1, 0, false),
		dynamoTwin("dynamo_tie_low", 1, 0, 1, 0, true),
		timeTwin("time W+p", 0), timeTwin("time k1", 1),
		{name: "time static", predict: true, book: true, pick: func(x *exact, q *request, _ float64) int {
			// The backlog is not aged by the clock, and priced without decodes.
			return x.argmin(func(r int) float64 {
				sum := 0.0
				for _, o := range x.reps[r].out {
					sum += x.profile.Prefill(o.est, o.match*x.size, 0, 0)
				}
				return sum + x.ownPrefill(r, q)
			})
		}},
		marginTwin("marg 1/.3/.3", 1, .3, .3, 0),
		marginTwin("marg 0/.3/.3", 0, .3, .3, 0),
		marginTwin("marg 2/.3/.3", 2, .3, .3, 0),
		marginTwin("marg 1/.3/0", 1, .3, 0, 0),
		marginTwin("marg 1/1/1", 1, 1, 1, 0),
		{name: "marg kdyn/.3/0", predict: true, book: true, pick: func(x *exact, q *request, now float64) int {
			// The price of congestion follows the share of time that is booked.
			x.rho *= math.Exp(-(now - x.rhoAt) / 60)
			x.rhoAt = now
			kappa := min(8, x.rho/max(.1, 1-x.rho))
			p, e := &x.profile, x.expected()
			r := x.argmin(func(r int) float64 {
				a := &x.reps[r]
				return x.wait(r, now) + x.ownPrefill(r, q)*(1+kappa) + .3*e*(p.CKV*float64(a.prompt)+p.CD*float64(a.requests))
			})
			x.rho += x.ownPrefill(r, q) / (60 * float64(len(x.reps)))
			return r
		}},
		{name: "POOL", pool: true, predict: true, pick: func(x *exact, q *request, now float64) int {
			return x.argmin(func(r int) float64 { return x.truth(r, now) + x.ownPrefill(r, q) })
		}},
	}
	return list
}

// rate is the share of q's tokens in n matched blocks.
func (x *exact) rate(n int, q *request) float64 {
	return float64(n*x.size) / float64(q.Prompt)
}

// choice draws one of the replicas that hold n leading blocks, also if there is
// only one.
func (x *exact) choice(n int) int {
	x.tied = x.tied[:0]
	for r, m := range x.m {
		if m == n {
			x.tied = append(x.tied, r)
		}
	}
	return x.tied[x.intn(len(x.tied))]
}

func prefixHash(k int) twin {
	name := "prefix_hash_1"
	if k == 4 {
		name = "prefix_hash_4"
	}
	return twin{name: name, blind: true, pick: func(x *exact, q *request, _ float64) int {
		key := uint64(1469598103934665603)
		for _, b := range q.blocks()[:min(k, len(q.blocks()))] {
			key = h64(key ^ (uint64(b) + 1))
		}
		if len(q.blocks()) == 0 {
			key = h64(q.ID)
		}
		return rendezvous(key, len(x.reps))
	}}
}

func chwbl() twin {
	type point struct {
		at uint64
		r  int
	}
	var ring []point
	return twin{name: "chwbl", blind: true, pick: func(x *exact, q *request, _ float64) int {
		n := len(x.reps)
		if ring == nil {
			for r := range n {
				for i := range 100 {
					ring = append(ring, point{h64(uint64(r+1)*1000003 + uint64(i)), r})
				}
			}
			sort.Slice(ring, func(i, j int) bool { return ring[i].at < ring[j].at })
		}
		total := 0
		for r := range x.reps {
			total += x.reps[r].requests
		}
		bound := int(math.Ceil(1.25 * float64(total+1) / float64(n)))
		key := h64(q.session)
		start := sort.Search(len(ring), func(i int) bool { return ring[i].at >= key })
		for i := range ring {
			p := ring[(start+i)%len(ring)]
			if x.reps[p.r].requests+1 <= bound {
				return p.r
			}
		}
		return ring[start%len(ring)].r
	}}
}

func sglang(name string, threshold float64, abs int, rel float64, randomMatch bool) twin {
	return twin{name: name, predict: true, pick: func(x *exact, q *request, _ float64) int {
		low, high, best, at := x.reps[0].requests, 0, -1, 0
		for r := range x.reps {
			n := x.reps[r].requests
			low, high = min(low, n), max(high, n)
			if x.m[r] > best {
				best, at = x.m[r], r
			}
		}
		balanced := !(high-low > abs && float64(high) > rel*float64(low))
		if balanced && x.rate(best, q) > threshold {
			if randomMatch {
				return x.choice(best)
			}
			return at
		}
		return x.argmin(func(r int) float64 { return float64(x.reps[r].requests) })
	}}
}

func ray(name string, imbalance float64) twin {
	return twin{name: name, predict: true, pick: func(x *exact, q *request, _ float64) int {
		low, high, best := x.reps[0].requests, 0, 0
		for r := range x.reps {
			n := x.reps[r].requests
			low, high = min(low, n), max(high, n)
			best = max(best, x.m[r])
		}
		if float64(high-low) > imbalance {
			n := len(x.reps)
			i, j := x.intn(n), x.intn(n)
			if x.reps[j].requests < x.reps[i].requests {
				return j
			}
			return i
		}
		if x.rate(best, q) >= .1 {
			return x.choice(best)
		}
		return x.argmin(func(r int) float64 { return float64(x.engines[r].Held()) })
	}}
}

func llmd(x *exact, q *request, _ float64) int {
	low, high := math.MaxInt, 0
	for _, e := range x.engines {
		n := e.Waiting()
		low, high = min(low, n), max(high, n)
	}
	return x.argmin(func(r int) float64 {
		e := x.engines[r]
		queue := 1.0
		if high > low {
			queue = float64(high-e.Waiting()) / float64(high-low)
		}
		prefix := 0.0
		if len(q.blocks()) > 0 {
			prefix = float64(x.m[r]) / float64(len(q.blocks()))
		}
		return -(3*prefix + 2*queue + 2*(1-e.Usage()))
	})
}

func lmetric(pending bool) func(x *exact, q *request, _ float64) int {
	return func(x *exact, q *request, _ float64) int {
		score := func(r int) float64 {
			u := q.Prompt - x.hit(r, q)
			if pending {
				u += x.reps[r].prefill
			}
			return float64(u) * float64(x.reps[r].requests+1)
		}
		best, low := math.Inf(1), 0
		x.tied = x.tied[:0]
		for r := range x.reps {
			s, n := score(r), x.reps[r].requests
			switch {
			case s < best || s == best && n < low:
				best, low = s, n
				x.tied = append(x.tied[:0], r)
			case s == best && n == low:
				x.tied = append(x.tied, r)
			}
		}
		return x.draw()
	}
}

func dynamoTwin(name string, credit, decay, scale, weight float64, low bool) twin {
	return twin{name: name, blocks: true, pick: func(x *exact, q *request, _ float64) int {
		size := float64(x.size)
		least := math.MaxInt
		for r := range x.reps {
			least = min(least, x.reps[r].prefill)
		}
		own := float64(q.Prompt) / size
		partial := (q.Prompt+x.size-1)/x.size - len(q.blocks())
		cost := func(r int) float64 {
			a := &x.reps[r]
			fresh := partial
			for _, h := range q.blocks() {
				if a.active[h] == 0 {
					fresh++
				}
			}
			c := credit
			if decay > 0 {
				excess := float64(a.prefill-least) / size
				c /= 1 + decay*excess/own
			}
			raw := (float64(a.prefill) + float64(q.Prompt)) / size
			adjusted := max(0, raw-c*float64(x.m[r]))
			return scale*adjusted + float64(len(a.active)+a.partial+fresh) + weight*float64(a.requests)
		}
		if low {
			at, best := 0, math.Inf(1)
			for r := range x.reps {
				if c := cost(r); c < best {
					at, best = r, c
				}
			}
			return at
		}
		return x.argmin(cost)
	}}
}

func timeTwin(name string, kappa float64) twin {
	return twin{name: name, predict: true, book: true, pick: func(x *exact, q *request, now float64) int {
		return x.argmin(func(r int) float64 { return x.wait(r, now) + x.ownPrefill(r, q)*(1+kappa) })
	}}
}

func marginTwin(name string, kappa, delta, omega, sigma float64) twin {
	return twin{name: name, predict: true, book: true, pick: func(x *exact, q *request, now float64) int {
		p := &x.profile
		e := x.expected()
		return x.argmin(func(r int) float64 {
			a := &x.reps[r]
			n := float64(a.requests)
			return x.wait(r, now) + x.ownPrefill(r, q)*(1+kappa+sigma*n) +
				delta*e*(p.CKV*float64(a.prompt)+p.CD*n) + omega*e*n*(p.CKV*float64(q.Prompt)+p.CD)
		})
	}}
}

// truth is the work ahead of a newcomer on r, from the engine itself.
func (x *exact) truth(r int, now float64) float64 {
	return x.engines[r].Backlog(now, func(m *mock.Request) (uncached, hit int) {
		q := x.live[m.ID]
		return q.est, q.match * x.size
	})
}
