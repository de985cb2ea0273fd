package sched

import (
	"slices"
	"testing"

	"kvasir/fleet"
	"kvasir/kv"
)

// A prompt is hashed once for each size of chain that its model's replicas need: 4 and
// 8 are collected into 16, so those three need one.
func TestChains(t *testing.T) {
	h := newHouse(t, 5, "least_load")
	for i, size := range []int{4, 8, 16, 24, 0} {
		if err := h.table.Update(i, func(r *fleet.Replica) { r.BlockSize = size }); err != nil {
			t.Fatal(err)
		}
	}
	tokens := ids(100, 1)
	var p kv.Prompt
	h.Chains(&p, "m", tokens, kv.Key{LoRA: "adapter"}, nil)
	if p.Tokens != 100 || len(p.Chains) != 2 {
		t.Fatalf("%d tokens, %d chains; want 100 in chains of 16 and 24", p.Tokens, len(p.Chains))
	}
	for i, size := range []int{16, 24} {
		want := kv.Seed(5).Extend(nil, kv.Seed(5).Root(kv.Key{LoRA: "adapter"}, size), tokens, size, nil)
		if c := p.Chains[i]; c.BlockSize != size || !slices.Equal(c.Hashes, want) {
			t.Errorf("chain %d has %d blocks of %d, want %d of %d", i, len(c.Hashes), c.BlockSize, len(want), size)
		}
	}
	h.Chains(&p, "nobody", tokens, kv.Key{}, nil)
	if p.Tokens != 100 || len(p.Chains) != 0 {
		t.Errorf("a model that nobody serves: %+v", p)
	}
}

// What tokens don't show is asked for each size of chain, and is part of its hashes.
func TestChainsWithExtras(t *testing.T) {
	h := newHouse(t, 2, "least_load")
	if err := h.table.Update(1, func(r *fleet.Replica) { r.BlockSize = 32 }); err != nil {
		t.Fatal(err)
	}
	tokens := ids(64, 1)
	var plain, image kv.Prompt
	var asked []int
	h.Chains(&plain, "m", tokens, kv.Key{}, nil)
	h.Chains(&image, "m", tokens, kv.Key{}, func(size int) []kv.Extra {
		asked = append(asked, size)
		return []kv.Extra{{Block: 1, Digest: 7}}
	})
	if !slices.Equal(asked, []int{16, 32}) {
		t.Errorf("asked for extras of blocks of %v, want 16 and 32", asked)
	}
	for i := range plain.Chains {
		a, b := plain.Chains[i].Hashes, image.Chains[i].Hashes
		if a[0] != b[0] || a[1] == b[1] {
			t.Errorf("chain %d: %x and %x, want the same first block and another second one", i, a, b)
		}
	}
}

// A caller that keeps its prompt has its memory used again.
func TestChainsReuseMemory(t *testing.T) {
	h := newHouse(t, 2, "least_load")
	if err := h.table.Update(1, func(r *fleet.Replica) { r.BlockSize = 32 }); err != nil {
		t.Fatal(err)
	}
	long, short := ids(640, 1), ids(64, 2)
	var p kv.Prompt
	h.Chains(&p, "m", long, kv.Key{}, nil)
	if n := testing.AllocsPerRun(10, func() {
		h.Chains(&p, "m", long, kv.Key{}, nil)
		h.Chains(&p, "m", short, kv.Key{}, nil)
	}); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
	if len(p.Chains) != 2 || len(p.Chains[0].Hashes) != 4 || len(p.Chains[1].Hashes) != 2 {
		t.Errorf("%+v, want 4 blocks of 16 and 2 of 32", p)
	}
}

// Predictions are a queue: in order, and its memory follows what is in it, not what
// has ever been in it.
func TestPredictionsAreAQueue(t *testing.T) {
	var p predictions
	made := 0
	add := func() {
		p.add(prediction{until: t0, target: kv.Target(made % kv.MaxTargets), hashes: []kv.Hash{1}})
		made++
	}
	for range 100 {
		add()
	}
	for i := range 5000 {
		add()
		x, ok := p.next(t0)
		if want := kv.Target(i % kv.MaxTargets); !ok || x.target != want {
			t.Fatalf("%d: target %d (%v), want %d", i, x.target, ok, want)
		}
		if len(p.q) > 4*100 {
			t.Fatalf("%d: %d places for 100 predictions", i, len(p.q))
		}
		for _, y := range p.q[:p.head] {
			if y.hashes != nil {
				t.Fatalf("%d: the hashes of one that is over are kept", i)
			}
		}
	}
	left := 0
	for ok := true; ok; left++ {
		_, ok = p.next(t0)
	}
	if left-1 != 100 {
		t.Errorf("%d are left, want 100", left-1)
	}
}
