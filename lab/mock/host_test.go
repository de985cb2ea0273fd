package mock

import (
	"math/rand/v2"
	"testing"

	"kvasir/kv"
)

// A prompt that has left the GPU comes back from the host in transfer time; it
// waits alone.
func TestHostLoads(t *testing.T) {
	p := Profile{Name: "t", C0: .01, CP: 1e-3, CH: 1e-4, Budget: 512, MaxSeqs: 8}
	e, err := New(Config{Profile: p, BlockSize: 16, Blocks: 10, HostBlocks: 100})
	if err != nil {
		t.Fatal(err)
	}
	host := map[uint64]int{}
	lives := play(t, e, []arrival{
		{0, Request{ID: 1, Prompt: 100, Output: 1, Blocks: ids(0, 6)}},
		{1, Request{ID: 2, Prompt: 150, Output: 1, Blocks: ids(50, 9)}}, // takes every block
		{2, Request{ID: 3, Prompt: 100, Output: 1, Blocks: ids(0, 6)}},  // 6 blocks from the host
		{2.001, Request{ID: 4, Prompt: 20, Output: 1}},                  // needs none and doesn't wait
	}, func(_ float64, out *Outcome) {
		for _, p := range out.Progress {
			if p.First {
				host[p.ID] = p.Host
			}
		}
	})
	if lives[3].cached != 96 || host[3] != 96 {
		t.Errorf("%d cached tokens, %d of them from the host, want 96 and 96", lives[3].cached, host[3])
	}
	// Blocks come at 2 + 96*1e-4; a step of request 4 is under way then.
	if want := 2.001 + .01 + 20e-3 + .01 + 4e-3; !near(lives[3].first, want) {
		t.Errorf("first token at %.6f s, want %.6f", lives[3].first, want)
	}
	if want := 2.001 + .01 + 20e-3; !near(lives[4].first, want) {
		t.Errorf("the request behind it: first token at %.6f s, want %.6f", lives[4].first, want)
	}
	if s := e.Stats(); s.HostHits != 96 || s.HostHeld != 15 {
		t.Errorf("stats %+v, want 96 tokens loaded and 15 blocks held", s)
	}
}

// Both tiers' events, applied in order, say what the tiers hold.
func TestHostBelief(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 3))
		e, err := New(Config{Profile: Profile{Name: "t", C0: .01, CP: 1e-4, CKV: 1e-6, CH: 1e-3, Budget: 96, MaxSeqs: 6},
			BlockSize: 8, Blocks: 30, HostBlocks: 20 + rng.IntN(80), Stream: true})
		if err != nil {
			t.Fatal(err)
		}
		gpu, host := book{}, book{}
		var out Outcome
		now, done, loads := 0.0, 0, 0
		step := func() bool {
			at, busy := e.NextAt()
			if !busy {
				return false
			}
			now = at
			e.AdvanceAt(at, &out)
			for _, ev := range out.Events {
				if ev.Kind == kv.Cleared || ev.Tier == kv.GPU {
					gpu.apply(t, []Event{ev})
				}
				if ev.Kind == kv.Cleared || ev.Tier == kv.Host {
					host.apply(t, []Event{ev})
				}
			}
			for _, p := range out.Progress {
				loads += p.Host
				if p.Done {
					done++
				}
			}
			return true
		}
		aborted := 0
		for id := range uint64(150) {
			family := rng.IntN(5)
			r := &Request{ID: id, Prompt: 40 + rng.IntN(100), Output: 1 + rng.IntN(20)}
			for k := range r.Prompt / 8 {
				r.Blocks = append(r.Blocks, kv.Hash(family*1000+k))
			}
			if err := e.SubmitAt(r, now); err != nil {
				t.Fatal(err)
			}
			if rng.IntN(9) == 0 {
				e.AbortAt(id, now)
				aborted++
			}
			for range rng.IntN(10) {
				step()
			}
		}
		for step() {
		}
		if done+aborted < 150 || len(e.seqs) != 0 || e.pool.used() != 0 || e.host.pool.used() != 0 || len(e.host.loads) != 0 {
			t.Fatalf("after drain: %d done and %d aborted, %d sequences, %d and %d blocks in use", done, aborted, len(e.seqs), e.pool.used(), e.host.pool.used())
		}
		gpu.equal(t, e)
		truth := e.TruthOnHost(nil)
		for _, h := range truth {
			if host[h] != 1 {
				t.Fatalf("host holds %d, events say %d times", h, host[h])
			}
		}
		if len(truth) != len(host) {
			t.Fatalf("host holds %d hashes, events say %d", len(truth), len(host))
		}
		if loads == 0 {
			t.Error("nothing was ever loaded")
		}
		if !e.Reset() || len(e.TruthOnHost(nil)) != 0 {
			t.Error("a reset leaves something on the host")
		}
	}
	if _, err := New(Config{Profile: Profile8B, BlockSize: 16, HostBlocks: 4, Admission: Reserved}); err == nil {
		t.Error("a host tier with Reserved was accepted")
	}
}
