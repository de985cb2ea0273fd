package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"kvasir/kv"
)

// talkParams are those of genTalks: what load clients for real engines take, in
// tokens, with blocks and contexts small enough for caches of a few thousand tokens.
var talkParams = []param{
	{"users", 7, 1, 1e6, "conversations at a time, in all; each ends before its user's next begins"},
	{"conversations", 24, 1, 1e6, "in all, each played once"},
	{"turns", 6, 1, 1e4, "of each"},
	{"groups", 6, 1, 1e6, "system prompts; conversations have them in turn"},
	{"system", 1000, 0, 1e7, "tokens of each system prompt"},
	{"input", 230, 1, 1e6, "new tokens per turn"},
	{"output", 16, 1, 1e6, "tokens per turn"},
	{"keep", 1, 0, 1, "1: an answer is part of the next prompt; 0: it isn't"},
	{"think_min", .05, 0, 1e6, "seconds between turns, uniform from here"},
	{"think_max", .3, 0, 1e6, "to here"},
	{"block", 32, 1, 4096, "tokens per block"},
	{"shuffle", 1, 0, 1, "1: those that begin at once arrive in any order, as they do on a network; 0: in turn"},
	{"seed", 1, 0, 1 << 52, "of think times and the order"},
}

// genTalks is a client that holds a number of conversations at a time, all of one
// shape: a closed loop, as clients play it against a few real engines.
func genTalks(p *params) (*Workload, error) {
	low, high := p.f("think_min"), p.f("think_max")
	if low > high {
		return nil, fmt.Errorf("sim: generator %s: think_min is %v, must not exceed think_max (%v)", p.name, low, high)
	}
	n, turns, size, groups := p.n("conversations"), p.n("turns"), p.n("block"), p.n("groups")
	last := p.f("system") + p.f("turns")*(p.f("input")+p.f("output"))
	if total := float64(n) * p.f("turns") * last / float64(size); total > 1e8 {
		return nil, fmt.Errorf("sim: generator %s: the prompts have %.2g blocks in all, must be at most 1e8: fewer conversations or turns, or larger blocks", p.name, total)
	}
	r, s := p.dice(), &ids{}
	systems := make([][]kv.Hash, groups)
	for g := range systems {
		systems[g] = s.fresh(p.n("system") / size)
	}
	list := make([]chat, n)
	for c := range list {
		blocks, prompt := slices.Clone(systems[c%groups]), p.n("system")
		for range turns {
			prompt += p.n("input")
			blocks = append(blocks, s.fresh(prompt/size-len(blocks))...)
			list[c].turns = append(list[c].turns, chatTurn{think: between(r, low, high), prompt: prompt, out: p.n("output"), blocks: blocks[:len(blocks):len(blocks)]})
			if p.f("keep") == 1 {
				prompt += p.n("output")
			}
		}
	}
	crowd := Crowd{Users: min(p.n("users"), n), Requests: n * turns}
	if first := list[:crowd.Users]; p.f("shuffle") == 1 {
		r.Shuffle(len(first), func(i, j int) { first[i], first[j] = first[j], first[i] })
	}
	crowd.Start = make([]float64, crowd.Users)
	keep := p.f("keep") == 1
	return &Workload{size: size, speed: 1, total: crowd.Requests, chats: list,
		closed: func(paged bool) source {
			return &crowdSource{chats: list, crowd: crowd, once: true, paged: paged && keep, size: size}
		}}, nil
}

func between(r *rand.Rand, low, high float64) float64 { return low + (high-low)*r.Float64() }
