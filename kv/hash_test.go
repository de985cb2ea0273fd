package kv

import (
	"math/bits"
	"slices"
	"testing"
)

func ramp(n int) []uint32 {
	t := make([]uint32, n)
	for i := range t {
		t[i] = uint32(i)
	}
	return t
}

// TestExtendChains: extending in pieces is extending at once, a partial tail has
// no hash, and every block depends on all before it.
func TestExtendChains(t *testing.T) {
	s := Seed(7)
	tokens := ramp(16*20 + 5)
	root := s.Root(Key{Model: "m"}, 16)
	all := s.Extend(nil, root, tokens, 16, nil)
	if len(all) != 20 {
		t.Fatalf("%d hashes of 20 full blocks and a tail", len(all))
	}
	first := s.Extend(nil, root, tokens[:16*7], 16, nil)
	rest := s.Extend(first, first[6], tokens[16*7:], 16, nil)
	if !slices.Equal(all, rest) {
		t.Error("a chain in two pieces differs from the chain")
	}
	for i := range 20 {
		changed := slices.Clone(tokens)
		changed[i*16+i%16]++
		for j, h := range s.Extend(nil, root, changed, 16, nil) {
			if same := h == all[j]; same != (j < i) {
				t.Fatalf("token of block %d changed: block %d equal: %v", i, j, same)
			}
		}
	}
}

// TestDomains: whatever differs in meaning differs in hash.
func TestDomains(t *testing.T) {
	seen := map[Hash]string{}
	add := func(h Hash, what string) {
		t.Helper()
		if old, ok := seen[h]; ok {
			t.Errorf("%s and %s have the same hash", what, old)
		}
		seen[h] = what
	}
	for _, s := range []Seed{0, 1, 2, 1 << 63, m0, m1, m2, m3, ^Seed(0)} {
		for _, bs := range []int{1, 16, 32, 64, 1600} {
			for _, k := range []Key{{}, {Model: "a"}, {LoRA: "a"}, {Salt: "a"}, {LoRA: "ab", Salt: "c"}, {LoRA: "a", Salt: "bc"},
				{LoRA: "abcdefgh"}, {LoRA: "abcdefgh\x00"}, {Salt: "abcdefgh"}, {LoRA: "\x00"}, {LoRA: "\x00\x00"}} {
				add(s.Root(k, bs), "a root")
			}
		}
		for _, off := range []int{-3, 0, 3} {
			add(Hash(s.Extra("x", off)), "an extra")
			add(Hash(s.Extra("y", off)), "an extra")
		}
	}
}

func TestExtras(t *testing.T) {
	s := Seed(3)
	tokens := ramp(64)
	root := s.Root(Key{}, 16)
	plain := s.Extend(nil, root, tokens, 16, nil)
	a := s.Extend(nil, root, tokens, 16, []Extra{{1, s.Extra("a", 3)}})
	moved := s.Extend(nil, root, tokens, 16, []Extra{{1, s.Extra("a", 4)}})
	two := s.Extend(nil, root, tokens, 16, []Extra{{1, s.Extra("a", 3)}, {1, s.Extra("b", 9)}})
	for i, want := range []bool{true, false, false, false} {
		for _, other := range [][]Hash{a, moved, two} {
			if (other[i] == plain[i]) != want {
				t.Errorf("block %d: equal to plain is %v", i, !want)
			}
		}
	}
	if a[1] == moved[1] || a[1] == two[1] || moved[1] == two[1] {
		t.Error("extras in other places, or more of them, have the same hash")
	}
	// out of range: no block, no effect, no panic
	if odd := s.Extend(nil, root, tokens, 16, []Extra{{-1, 5}, {99, 5}}); !slices.Equal(odd, plain) {
		t.Error("extras outside of the blocks change hashes")
	}
}

// TestNoZeroFactor: tokens that are the constants of the hash, which without
// secrets would cancel its state, make no two chains meet.
func TestNoZeroFactor(t *testing.T) {
	seen := map[Hash]int{}
	n := 0
	for _, s := range []Seed{0, 1, m0, m0 ^ 16, m1, m2, m3} {
		var own keys
		k := s.keys(&own)
		for _, w := range []uint64{0, m0, m1, m2, m3, m0 ^ 16, ^uint64(0), k.a, k.b, k.c, k.d, -k.n[0], -k.n[1], -k.n[6], -k.n[7]} {
			for at := 0; at < 8; at++ {
				for other := uint32(0); other < 4; other++ {
					tok := make([]uint32, 16)
					tok[(2*at+2)%16] = other
					tok[2*at], tok[2*at+1] = uint32(w), uint32(w>>32)
					if w == 0 && at > 0 && other == 0 {
						continue // all tokens 0 again
					}
					h := s.Extend(nil, s.Root(Key{}, 16), tok, 16, nil)[0]
					seen[h]++
					n++
				}
			}
		}
	}
	// equal inputs occur a few times (w = 0 beside other); nothing else may meet
	if len(seen) < n*9/10 {
		t.Errorf("%d distinct hashes of %d blocks", len(seen), n)
	}
}

// TestAvalanche: each bit of a token flips about half of the bits of its block.
func TestAvalanche(t *testing.T) {
	s := Seed(99)
	root := s.Root(Key{}, 16)
	rng := uint64(1)
	var sum, count int
	for round := range 20 {
		tok := make([]uint32, 16)
		for i := range tok {
			rng = rng*6364136223846793005 + 1442695040888963407
			tok[i] = uint32(rng>>33) >> (round % 16)
		}
		h := s.Extend(nil, root, tok, 16, nil)[0]
		for i := range tok {
			for bit := range 32 {
				tok[i] ^= 1 << bit
				d := bits.OnesCount64(uint64(h ^ s.Extend(nil, root, tok, 16, nil)[0]))
				tok[i] ^= 1 << bit
				if d < 8 || d > 56 {
					t.Fatalf("token %d bit %d flips %d of 64 bits", i, bit, d)
				}
				sum += d
				count++
			}
		}
	}
	if mean := float64(sum) / float64(count); mean < 31 || mean > 33 {
		t.Errorf("a bit flips %.2f of 64 bits on average", mean)
	}
}

func TestExtendAllocatesNothing(t *testing.T) {
	s := Seed(1)
	tokens := ramp(32768)
	dst := make([]Hash, 0, 2048)
	root := s.Root(Key{}, 16)
	if n := testing.AllocsPerRun(10, func() { dst = s.Extend(dst[:0], root, tokens, 16, nil) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if s.Extend(nil, root, tokens, 0, nil) != nil || s.Extend(nil, root, tokens, -1, nil) != nil {
		t.Error("a block size of 0 or less has hashes")
	}
}

// TestExtendPaths: the fast path for 16 tokens, and tails of any length, are the
// same function as the general one.
func TestExtendPaths(t *testing.T) {
	s := Seed(5)
	tokens := ramp(16 * 9)
	root := s.Root(Key{}, 16)
	never := []Extra{{Block: 1 << 20}} // takes the general path, changes nothing
	if !slices.Equal(s.Extend(nil, root, tokens, 16, nil), s.Extend(nil, root, tokens, 16, never)) {
		t.Error("blocks of 16: the fast path differs")
	}
	for bs := 1; bs < 70; bs++ {
		seen := map[Hash]bool{}
		for _, h := range s.Extend(nil, s.Root(Key{}, bs), tokens, bs, nil) {
			seen[h] = true
		}
		for i := range tokens { // every token counts
			c := slices.Clone(tokens)
			c[i] ^= 1 << 31
			if hs := s.Extend(nil, s.Root(Key{}, bs), c, bs, nil); i < len(hs)*bs && seen[hs[len(hs)-1]] {
				t.Fatalf("block size %d: token %d doesn't count", bs, i)
			}
		}
	}
}

// TestKeysOfAnySeed: seeds whose keys are kept hash as those whose keys are not.
func TestKeysOfAnySeed(t *testing.T) {
	Seed(1).Root(Key{}, 16) // at the latest now one is kept
	for _, s := range []Seed{0, 1, 2, first.Load().seed} {
		var kept, fresh keys
		k := s.keys(&kept)
		if fresh.expand(s); *k != fresh {
			t.Errorf("seed %d has other keys", s)
		}
	}
	if n := testing.AllocsPerRun(10, func() { Seed(3).Root(Key{Salt: "s"}, 16) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkExtend1 hashes one block, as most events while tokens are generated.
func BenchmarkExtend1(b *testing.B) {
	tokens, dst, s := ramp(16), make([]Hash, 0, 1), Seed(1)
	s.Root(Key{}, 16) // the first seed, if no test has run
	for b.Loop() {
		dst = s.Extend(dst[:0], 1, tokens, 16, nil)
	}
}

// BenchmarkExtend32768 hashes 32,768 tokens into 2,048 blocks of 16.
func BenchmarkExtend32768(b *testing.B) {
	s := Seed(1)
	tokens := ramp(32768)
	dst := make([]Hash, 0, 2048)
	root := s.Root(Key{}, 16)
	b.ReportAllocs()
	for b.Loop() {
		dst = s.Extend(dst[:0], root, tokens, 16, nil)
	}
}
