package policy

import (
	"testing"

	"kvasir/kv"
)

// Vectors from another implementation (the reference simulator's, in Python).
func TestRendezvousVectors(t *testing.T) {
	for x, want := range map[uint64]uint64{0: 0xb3489138b22efa0c, 1: 0xe2bfe4475de381a9, 12345: 0x857f46d830dba4d6} {
		if got := h64(x); got != want {
			t.Errorf("h64(%d) = %x, want %x", x, got, want)
		}
	}
	want := []int{4, 3, 6, 0, 0, 0, 7, 1, 5, 1, 0, 7, 4, 6, 0, 3}
	for key, w := range want {
		if got := highestScore(h64(uint64(key)), fleet(8)); got != w {
			t.Errorf("key %d -> %d, want %d", key, got, w)
		}
	}
	p := must(t, named("hrw"), seeded(1))
	for key, w := range want[1:] {
		if got := run(p, &Request{SessionHash: uint64(key + 1)}, fleet(8)); got != w {
			t.Errorf("session %d -> %d, want %d", key+1, got, w)
		}
	}
}

func TestHRWMovesOnlyWhatItMust(t *testing.T) {
	p := must(t, named("hrw"), seeded(1))
	all := fleet(10)
	less := append(append([]Candidate(nil), all[:4]...), all[5:]...)
	moved := 0
	for k := range uint64(5000) {
		req := &Request{SessionHash: k*7919 + 1}
		a, b := all[p.Pick(req, all)].Target, less[p.Pick(req, less)].Target
		if a != 4 && a != b {
			t.Fatalf("key %d moved from %d to %d", k, a, b)
		}
		if a == 4 {
			moved++
		}
	}
	if moved < 400 || moved > 600 {
		t.Errorf("%d of 5000 keys were on one of ten", moved)
	}
}

func TestLoadBound(t *testing.T) {
	for _, c := range []struct {
		n, all int
		factor float64
		floor  int
		want   int
	}{
		{8, 0, 1.25, 1, 1}, {8, 7, 1.25, 1, 2}, {8, 47, 1.25, 1, 8}, {4, 15, 1.25, 1, 5},
		{200, 40, 1.25, 1, 1}, {200, 40, 1.25, 2, 2}, {10, 9, 1, 1, 1}, {3, 2, 1, 1, 1},
	} {
		cands := fleet(c.n)
		cands[0].Load.Requests = c.all
		if got := loadBound(cands, c.factor, c.floor); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}

// burst places n requests that don't end and returns where they went.
func burst(p Policy, req *Request, cands []Candidate, n int) []int {
	share := make([]int, len(cands))
	for range n {
		i := run(p, req, cands)
		cands[i].Load.Requests++
		cands[i].Load.Prefill += req.Tokens
		share[i]++
	}
	return share
}

func maxOf(s []int) int {
	m := 0
	for _, v := range s {
		m = max(m, v)
	}
	return m
}

// One hot session stays within the bound (kubeai#447: 200 replicas, a quarter of
// the traffic on one key); without one it takes everything.
func TestCHWBLBounds(t *testing.T) {
	req := &Request{SessionHash: 99, Tokens: 100}
	if got := maxOf(burst(must(t, named("session"), seeded(1)), req, fleet(8), 64)); got != 64 {
		t.Errorf("session hashing put %d of 64 on one: the test shows nothing", got)
	}
	// 8 targets, 64 requests: ceil(1.25*64/8) = 10.
	if got := maxOf(burst(must(t, named("chwbl"), seeded(1)), req, fleet(8), 64)); got != 10 {
		t.Errorf("the fullest has %d, want the bound of 10", got)
	}
	cands := fleet(200)
	p := must(t, named("chwbl"), seeded(1))
	if got := maxOf(burst(p, req, cands, 10)); got != 2 {
		t.Errorf("200 targets: the fullest has %d, want the floor of 2", got)
	}
	// Nobody has room: the first one, not the default of some list.
	full := fleet(3)
	home := p.Pick(req, full)
	for i := range full {
		full[i].Load.Requests = 50
	}
	full[home].Load.Requests = 60
	cfg := named("chwbl")
	cfg.CHWBL.LoadFactor = 1
	full[(home+1)%3].Load.Requests = 60
	full[(home+2)%3].Load.Requests = 60
	if got := must(t, cfg, seeded(1)).Pick(req, full); got != home {
		t.Errorf("all full: picked %d, want %d", got, home)
	}
}

func TestPrefixHash(t *testing.T) {
	hashes := make([]kv.Hash, 40)
	for i := range hashes {
		hashes[i] = kv.Hash(h64(uint64(i)))
	}
	req := func(tail uint64) *Request {
		h := append([]kv.Hash(nil), hashes...)
		h[20] = kv.Hash(tail) // the difference is behind 256 tokens
		return &Request{Hashes: h, BlockSize: 16, Tokens: 640}
	}
	cfg := named("prefix_hash")
	p := must(t, cfg, seeded(1))
	home := p.Pick(req(0), fleet(8))
	for k := range uint64(20) {
		if p.Pick(req(k), fleet(8)) != home {
			t.Fatal("equal beginnings are separated")
		}
	}
	// One system prompt for all: the bound is what keeps them from one target.
	if got := maxOf(burst(p, req(1), fleet(8), 64)); got != 10 {
		t.Errorf("the fullest has %d of 64, want the bound of 10", got)
	}
	cfg.PrefixHash.LoadFactor = 0
	if got := maxOf(burst(must(t, cfg, seeded(1)), req(1), fleet(8), 64)); got != 64 {
		t.Errorf("without a bound the fullest has %d of 64: the failure it prevents is not there", got)
	}
	// Longer than the prompt: all of it counts.
	cfg.PrefixHash.Tokens = 1 << 20
	q := must(t, cfg, seeded(1))
	places := map[int]bool{}
	for k := range uint64(40) {
		r := req(k)
		r.Hashes[39] = kv.Hash(h64(k + 1000))
		places[q.Pick(r, fleet(8))] = true
	}
	if len(places) < 6 {
		t.Errorf("40 different prompts went to %d of 8 targets", len(places))
	}
	// Without tokens: by load.
	cands := fleet(3)
	cands[0].Load.Requests, cands[1].Load.Requests = 4, 4
	if got := p.Pick(&Request{Tokens: 250}, cands); got != 2 {
		t.Errorf("without tokens: %d, want the least loaded", got)
	}
}
