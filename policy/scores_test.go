package policy

import (
	"math"
	"testing"
	"time"

	"kvasir/kv"
)

func TestP2C(t *testing.T) {
	cands := fleet(4)
	for i, n := range []int{5, 3, 3, 9} {
		cands[i].Load.Requests = n
	}
	for _, c := range []struct{ draws, want []int }{
		{[]int{0, 0}, []int{1}}, // 0 and 1: 1 has less
		{[]int{1, 1}, []int{1}}, // 1 and 2: equal, the first drawn
		{[]int{2, 1}, []int{2}}, // 2 and 1: equal, the first drawn
		{[]int{3, 2}, []int{2}},
	} {
		k := 0
		p := must(t, named("p2c"), func(n int) int { k++; return c.draws[k-1] })
		if got := p.Pick(&Request{}, cands); got != c.want[0] || k != 2 {
			t.Errorf("draws %v: %d after %d draws, want %v", c.draws, got, k, c.want)
		}
	}
	if got := must(t, named("p2c"), nil).Pick(&Request{}, fleet(1)); got != 0 {
		t.Error(got)
	}
}

// It herds, and is meant to: all with the system prompt go where it is.
func TestPureAffinityHerds(t *testing.T) {
	cands := fleet(4)
	cands[2].Overlap.GPU = 64
	if got := burst(must(t, named("pure_affinity"), seeded(1)), &Request{Tokens: 1000}, cands, 144); got[2] != 144 {
		t.Errorf("placed %v, want all on 2", got)
	}
	// Without a match: fewest requests, or the lowest index.
	cold := fleet(3)
	cold[0].Load.Requests, cold[1].Load.Requests = 2, 1
	cold[2].Load.Requests = 1
	hits := [3]int{}
	p := must(t, named("pure_affinity"), seeded(1))
	for range 1000 {
		hits[p.Pick(&Request{Tokens: 10}, cold)]++
	}
	if hits[0] != 0 || hits[1] < 400 || hits[2] < 400 {
		t.Errorf("ties by load: %v", hits)
	}
	cfg := named("pure_affinity")
	cfg.PureAffinity.Ties = "lowest"
	if got := must(t, cfg, seeded(1)).Pick(&Request{Tokens: 10}, cold); got != 0 {
		t.Errorf("ties by index: %d", got)
	}
}

func TestLMetric(t *testing.T) {
	cands := fleet(3)
	cands[0].Overlap.GPU, cands[0].Load = 9000, kv.Load{Requests: 4, Prefill: 500}
	cands[1].Overlap.GPU, cands[1].Load = 2000, kv.Load{Requests: 1}
	req := &Request{Tokens: 10000}
	cfg := named("lmetric")
	if got := must(t, cfg, lowestIndex).Pick(req, cands); got != 0 {
		t.Errorf("picked %d, want 0", got)
	}
	for i, want := range []float64{1500 * 5, 8000 * 2, 10000} {
		if cands[i].Cost != want {
			t.Errorf("cost of %d is %v, want %v", i, cands[i].Cost, want)
		}
	}
	cfg.LMetric.Backlog = false
	must(t, cfg, lowestIndex).Pick(req, cands)
	if cands[0].Cost != 5000 {
		t.Errorf("without backlog: %v, want 5000", cands[0].Cost)
	}
	// A prompt that is held whole still counts one token, so load decides.
	whole := fleet(2)
	whole[0].Overlap.GPU, whole[1].Overlap.GPU = 9999, 9999
	whole[0].Load.Requests = 3
	if got := must(t, cfg, lowestIndex).Pick(req, whole); got != 1 {
		t.Errorf("both hold all: %d, want the idle one", got)
	}
}

func TestLLMD(t *testing.T) {
	cands := fleet(3)
	set := func(i, held, waiting int, kvUse float64) {
		cands[i].Overlap.GPU = int32(held * 16)
		cands[i].Engine = kv.Gauge{At: t0, Waiting: waiting, KVUsage: kvUse}
	}
	set(0, 80, 4, .9)
	set(1, 20, 0, .5)
	set(2, 0, 2, 0)
	req := &Request{Tokens: 1600} // 100 blocks
	if got := must(t, named("llmd_precise"), lowestIndex).Pick(req, cands); got != 1 {
		t.Errorf("picked %d, want 1", got)
	}
	for i, want := range []float64{0 + .2 + 2.4, 2 + 1 + .6, 1 + 2 + 0} {
		if got := 7 - cands[i].Cost; math.Abs(got-want) > 1e-9 {
			t.Errorf("score of %d is %v, want %v", i, got, want)
		}
	}
	// All queues equal: everyone gets the full score, not 0/0.
	for i := range cands {
		cands[i].Engine.Waiting = 3
	}
	must(t, named("llmd_precise"), lowestIndex).Pick(req, cands)
	for i := range cands {
		if cands[i].Terms[0] != 2 {
			t.Errorf("queue score of %d is %v, want 2", i, cands[i].Terms[0])
		}
	}
	// Stale figures are unknown, not 0: the ledger stands in.
	cands[2].Engine.At = time.Time{}
	cands[2].Load = kv.Load{Prefilling: 7, DecodeBlocks: 5000}
	must(t, named("llmd_precise"), lowestIndex).Pick(req, cands)
	if cands[2].Terms[0] != 0 || math.Abs(cands[2].Terms[1]-1) > 1e-9 {
		t.Errorf("stale: terms %v, want queue 0 and kv 2*.5", cands[2].Terms)
	}
	// Only the approximate one believes its own dispatches.
	guess := fleet(1)
	guess[0].Overlap = kv.Overlap{Predicted: 800}
	must(t, named("llmd_precise"), lowestIndex).Pick(req, guess)
	if guess[0].Terms[2] != 0 {
		t.Errorf("precise: prefix score %v, want 0", guess[0].Terms[2])
	}
	must(t, named("llmd_approx"), lowestIndex).Pick(req, guess)
	if guess[0].Terms[2] != 1.5 {
		t.Errorf("approx: prefix score %v, want 1.5", guess[0].Terms[2])
	}
	// matchLengthWeight: min(1, 4096/8192)^2.
	cfg := named("llmd_precise")
	cfg.LLMD.LengthWeight = 1
	guess[0].Overlap = kv.Overlap{GPU: 4096}
	must(t, cfg, lowestIndex).Pick(&Request{Tokens: 160000}, guess)
	if guess[0].Terms[2] != .75 {
		t.Errorf("by length: %v, want 3*.25", guess[0].Terms[2])
	}
}

func TestWeighted(t *testing.T) {
	cfg := named("weighted")
	cfg.Weighted = Weighted{Alpha: 1, Beta: 500, Gamma: 10000}
	cands := fleet(3)
	cands[0].Overlap.GPU = 2000
	cands[0].Engine = kv.Gauge{At: t0, Waiting: 3, KVUsage: .5}
	cands[1].Overlap.GPU = 4000
	cands[1].Engine = kv.Gauge{At: t0, KVUsage: .95}
	cands[2].Load = kv.Load{Prefilling: 1, DecodeBlocks: 2000}
	if got := must(t, cfg, lowestIndex).Pick(&Request{Tokens: 8000}, cands); got != 0 {
		t.Errorf("picked %d, want 0", got)
	}
	for i, want := range []float64{-2000 + 1500, -4000 + 7500, 500} {
		if math.Abs(cands[i].Cost-want) > 1e-6 {
			t.Errorf("cost of %d is %v, want %v", i, cands[i].Cost, want)
		}
	}
	// By default a queued request outweighs an average prefill.
	p := must(t, named("weighted"), lowestIndex).(*weighted)
	idle := fleet(2)
	for range 400 {
		run(p, &Request{Tokens: 3000}, idle)
	}
	idle[0].Load.Prefilling = 1
	if p.Pick(&Request{Tokens: 3000}, idle); math.Abs(idle[0].Terms[1]-3000) > 1 {
		t.Errorf("a queued request costs %v, want 3000", idle[0].Terms[1])
	}
}
