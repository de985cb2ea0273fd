package policy

import (
	"math"
	"testing"

	"kvasir/kv"
)

func TestRoundRobin(t *testing.T) {
	p := must(t, named("round_robin"), nil)
	cands := fleet(3)
	for k := range 9 {
		if i := run(p, &Request{}, cands); i != k%3 {
			t.Fatalf("turn %d: %d", k, i)
		}
	}
	// Two models that take turns: a counter modulo the size of the set would
	// serve the same target of each for ever.
	four := fleet(4)
	var share [4]int
	for range 100 {
		share[four[run(p, &Request{}, four[:2])].Target]++
		share[four[2+run(p, &Request{}, four[2:])].Target]++
	}
	for i, n := range share {
		if n != 50 {
			t.Errorf("target %d got %d of 50: %v", i, n, share)
		}
	}
}

func TestRandom(t *testing.T) {
	p := must(t, named("random"), seeded(1))
	var share [4]int
	for range 4000 {
		share[p.Pick(&Request{}, fleet(4))]++
	}
	for _, n := range share {
		if n < 900 || n > 1100 {
			t.Errorf("shares %v of 4000", share)
		}
	}
}

func TestLeastLoad(t *testing.T) {
	cands := fleet(3)
	cands[0].Load = kv.Load{Requests: 1, Prefill: 0, Prompt: 100000}
	cands[1].Load = kv.Load{Requests: 3, Prefill: 10, Prompt: 900}
	cands[2].Load = kv.Load{Requests: 2, Prefill: 10, Prompt: 1000}
	cfg := named("least_load")
	if i := must(t, cfg, seeded(1)).Pick(&Request{}, cands); i != 0 {
		t.Errorf("by requests: %d", i)
	}
	cfg.LeastLoad.By = "tokens"
	if i := must(t, cfg, seeded(1)).Pick(&Request{}, cands); i != 1 {
		t.Errorf("by tokens: %d", i)
	}
	// AMD-AGI/Infera#103: serial agents leave nothing in flight, and a fixed
	// tie-break sends all to one replica.
	var share [4]int
	p := must(t, cfg, seeded(1))
	for range 400 {
		share[p.Pick(&Request{}, fleet(4))]++
	}
	for _, n := range share {
		if n > 140 {
			t.Errorf("idle fleet: %v of 400", share)
		}
	}
}

func TestSession(t *testing.T) {
	p := must(t, named("session"), seeded(1))
	cands := fleet(8)
	const keys = 4000
	home := make([]int, keys)
	var share [8]int
	for k := range home {
		req := &Request{SessionHash: h64(uint64(k) + 1)}
		home[k] = run(p, req, cands)
		share[home[k]]++
		if run(p, req, cands) != home[k] {
			t.Fatal("a session moved on an unchanged fleet")
		}
	}
	for i, n := range share {
		if math.Abs(float64(n)/keys*8-1) > .35 {
			t.Errorf("target %d has %d of %d sessions: 100 virtual nodes spread better", i, n, keys)
		}
	}
	// Without target 3 only its sessions move, and not all to one.
	less := append(append([]Candidate(nil), cands[:3]...), cands[4:]...)
	var heirs [8]int
	for k := range home {
		got := int(less[run(p, &Request{SessionHash: h64(uint64(k) + 1)}, less)].Target)
		if home[k] != 3 && got != home[k] {
			t.Fatalf("session %d moved from %d to %d, though only 3 left", k, home[k], got)
		}
		if home[k] == 3 {
			heirs[got]++
		}
	}
	for i, n := range heirs {
		if n > share[3]/2 {
			t.Errorf("target %d inherited %d of %d", i, n, share[3])
		}
	}
	for k := range home { // it comes back and has them again
		if run(p, &Request{SessionHash: h64(uint64(k) + 1)}, cands) != home[k] {
			t.Fatal("a session did not come home")
		}
	}
	// Another router with other target numbers agrees.
	q := must(t, named("session"), seeded(2))
	other := fleet(8)
	for i := range other {
		other[i].Target = kv.Target(100 - i)
	}
	for k := range home {
		if run(q, &Request{SessionHash: h64(uint64(k) + 1)}, other) != home[k] {
			t.Fatal("two routers disagree")
		}
	}
	// The number of a forgotten target is given to another replica.
	p.Forget(3)
	again := fleet(8)
	again[3].Identity = 4711
	moved := 0
	for k := range home {
		if run(p, &Request{SessionHash: h64(uint64(k) + 1)}, again) != home[k] {
			moved++
		}
	}
	if moved < keys/8 || moved > keys*35/100 {
		t.Errorf("%d of %d sessions moved for one new replica", moved, keys)
	}
}

// kubeai#534: without the header all requests would hash to one node.
func TestSessionWithoutKey(t *testing.T) {
	p := must(t, named("session"), seeded(1))
	cands := fleet(4)
	for i := range cands {
		cands[i].Load.Requests = 4 - i
	}
	if i := run(p, &Request{}, cands); i != 3 {
		t.Errorf("picked %d, want the least loaded", i)
	}
}
