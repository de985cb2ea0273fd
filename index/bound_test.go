package index

import (
	"math/rand/v2"
	"testing"

	"kvasir/kv"
)

// TestChurnLeavesNothing: unique suffixes of 8 blocks at random depths of
// a base of 128, stored and removed, a great many times.
func TestChurnLeavesNothing(t *testing.T) {
	n := 100000
	if testing.Short() {
		n = 10000
	}
	ix := New(Config{Seed: testSeed})
	r := rand.New(rand.NewPCG(1, 2))
	tokens := make([]uint32, 128*16)
	for i := range tokens {
		tokens[i] = uint32(i)
	}
	var base []kv.Handle
	for i := range 128 {
		base = append(base, kv.Handle(i+1))
	}
	ix.Apply(&kv.Event{BlockSize: 16, Root: true, Handles: base, Tokens: tokens})
	ev := &kv.Event{BlockSize: 16, Handles: make([]kv.Handle, 8), Tokens: make([]uint32, 128)}
	var settled Stats
	for i := range n {
		for k := range ev.Tokens {
			ev.Tokens[k] = r.Uint32()
		}
		for k := range ev.Handles {
			ev.Handles[k] = kv.Handle(1000 + i*8 + k)
		}
		ev.Kind, ev.Parent = kv.Stored, base[r.IntN(128)]
		if res := ix.Apply(ev); res.Stored != 8 {
			t.Fatalf("round %d: %+v", i, res)
		}
		ev.Kind = kv.Removed
		if i%2 == 0 { // parents first
			for k := range 4 {
				ev.Handles[k], ev.Handles[7-k] = ev.Handles[7-k], ev.Handles[k]
			}
		}
		if res := ix.Apply(ev); res.Removed != 8 {
			t.Fatalf("round %d: %+v", i, res)
		}
		if i == n/10 {
			settled = ix.Stats()
		}
	}
	ix.tidy()
	ix.tidy()
	end := ix.Stats()
	if end.Blocks != 128 || ix.rows.inUse > 9 || end.Bytes > settled.Bytes*6/5 {
		t.Errorf("%d blocks in %d rows, %d bytes; after a tenth of the rounds %d bytes", end.Blocks, ix.rows.inUse, end.Bytes, settled.Bytes)
	}
	ix.mustHold(t)
}

// TestMemoryReturns: slabs that have become free go back to the heap.
func TestMemoryReturns(t *testing.T) {
	ix := New(Config{Seed: testSeed})
	const seqs, blocks = 40, 4000
	ev := &kv.Event{BlockSize: 16, Root: true, Handles: make([]kv.Handle, blocks), Tokens: make([]uint32, 16*blocks)}
	for s := range seqs {
		for i := range ev.Tokens {
			ev.Tokens[i] = uint32(s*len(ev.Tokens) + i)
		}
		for i := range ev.Handles {
			ev.Handles[i] = kv.Handle(s*blocks + i)
		}
		ix.Apply(ev)
	}
	full := ix.rows.slabsIn
	ix.Apply(&kv.Event{Kind: kv.Cleared})
	ix.tidy()
	ix.tidy()
	if ix.blocks != 0 || ix.rows.slabsIn > 3 || full < 9 {
		t.Errorf("%d blocks, %d slabs of %d left", ix.blocks, ix.rows.slabsIn, full)
	}
	ix.Apply(ev)
	ix.mustHold(t)
}

// TestBound: a stream of unique chains stays within MaxBytes; the chain that is
// asked for all the time stays, at least its beginning, and nobody is believed to
// hold more than what is counted.
func TestBound(t *testing.T) {
	const limit = 2 << 20
	ix := New(Config{Seed: testSeed, MaxBytes: limit})
	hot := newSequences(1, 60)
	ix.Apply(hot.store(1, 0, 0, 60))
	over := make([]kv.Overlap, 4)
	ev := &kv.Event{Target: 2, BlockSize: 16, Root: true, Handles: make([]kv.Handle, 50), Tokens: make([]uint32, 800)}
	for n := range 4000 {
		for i := range ev.Tokens {
			ev.Tokens[i] = uint32(1<<24 + n*800 + i)
		}
		for i := range ev.Handles {
			ev.Handles[i] = kv.Handle(n*50 + i + 1)
		}
		ix.Apply(ev)
		ix.Match(hot.prompt(0), over)
		if over[1].GPU != 960 {
			t.Fatalf("round %d: of 960 hot tokens %d are left", n, over[1].GPU)
		}
		if b := ix.Stats().Bytes; b > limit {
			t.Fatalf("round %d: %d bytes, bound %d", n, b, limit)
		}
	}
	s := ix.Stats()
	if s.Evicted < 100000 || s.Blocks < 20000 || s.Totals.Skipped != [NumReasons]uint64{} {
		t.Errorf("%d evicted, %d blocks in %d bytes, skipped %v", s.Evicted, s.Blocks, limit, s.Totals.Skipped)
	}
	// the newest chain: what is left of it is a beginning, its end went first
	q := &kv.Prompt{Tokens: 801, Chains: []kv.Chain{{BlockSize: 16, Hashes: testSeed.Extend(nil, testSeed.Root(kv.Key{}, 16), ev.Tokens, 16, nil)}}}
	ix.Match(q, over)
	if over[2].GPU != 800 {
		t.Errorf("the newest chain has %d of 800 tokens", over[2].GPU)
	}
	ix.mustHold(t)
	// more than half of the bound in one event is refused, with a reason
	big := &kv.Event{Target: 3, BlockSize: 16, Root: true, Handles: make([]kv.Handle, 60000), Tokens: make([]uint32, 960000)}
	for i := range big.Handles {
		big.Handles[i] = kv.Handle(1<<40 + i)
	}
	if r := ix.Apply(big); r.Reason != Full || r.Skipped != 60000 {
		t.Errorf("an event larger than the bound: %+v", r)
	}
}

// TestAllocations: lookups allocate nothing; events nothing in the long run.
func TestAllocations(t *testing.T) {
	ix := New(Config{Seed: testSeed})
	s := newSequences(8, 200)
	for i := range 8 {
		ix.Apply(s.store(kv.Target(i), i, 0, 200))
		ix.Apply(s.store(kv.Target(i), 0, 0, 90))
	}
	host := s.store(3, 3, 0, 200)
	host.Tier = kv.Host
	ix.Apply(host)
	ix.Apply(&kv.Event{Source: kv.Dispatch, Target: 4, Hashes: s.hashes[5]})
	over := make([]kv.Overlap, 64)
	p := s.prompt(3)
	if n := testing.AllocsPerRun(100, func() { ix.Match(p, over) }); n != 0 && !raceEnabled && !invariants {
		t.Errorf("a lookup allocates %v times", n)
	}
	store, remove := s.store(1, 7, 0, 200), &kv.Event{Kind: kv.Removed, Target: 1, Handles: s.handles[7][100:]}
	predict := &kv.Event{Source: kv.Dispatch, Target: 6, Hashes: s.hashes[2]}
	unpredict := &kv.Event{Source: kv.Dispatch, Kind: kv.Removed, Target: 6, Hashes: s.hashes[2]}
	alone, again := &kv.Event{Kind: kv.Removed, Target: 6, Handles: s.handles[6][90:]}, s.store(6, 6, 90, 200) // rows go and come
	cycle := func() {
		ix.Apply(alone)
		ix.Apply(again)
		ix.Apply(store)
		ix.Apply(remove)
		ix.Apply(predict)
		ix.Apply(unpredict)
	}
	for range 10 {
		cycle()
	}
	if n := testing.AllocsPerRun(100, cycle); n > 1 && !raceEnabled && !invariants {
		t.Errorf("storing, removing and predicting allocates %v times", n)
	}
}

// TestForget: of many targets that share blocks each is forgotten and comes again;
// only what it stored since then is believed.
func TestForget(t *testing.T) {
	ix := New(Config{Seed: testSeed})
	s := newSequences(20, 60)
	for id := range kv.Target(200) {
		for i := range 5 {
			ix.Apply(s.store(id, (int(id)+i)%20, 0, 60))
		}
	}
	for id := range kv.Target(200) {
		ix.Forget(id)
		ix.Apply(s.store(id, 0, 0, 60))
	}
	ix.mustHold(t)
	over := make([]kv.Overlap, 200)
	ix.Match(s.prompt(0), over)
	for id, o := range over {
		if o.GPU != 960 {
			t.Fatalf("target %d: %+v", id, o)
		}
	}
	ix.Match(s.prompt(1), over)
	for id, o := range over {
		if o.GPU != 320 {
			t.Fatalf("target %d holds only the common prefix of 20 blocks: %+v", id, o)
		}
	}
}

// TestEvictsTheDeepest: of rows that nobody asked for lately the deepest in its chain
// goes, whose blocks are of use to the fewest prompts, but not the one to be kept.
func TestEvictsTheDeepest(t *testing.T) {
	ix := New(Config{Seed: testSeed})
	s := newSequences(1, 100)
	ix.Apply(s.store(1, 0, 0, 100))
	over := make([]kv.Overlap, 2)
	last := ix.resolve(ix.targets[1].lanes[0], s.handles[0][79]).row()
	for i, c := range []struct {
		keep uint32
		want int32
	}{{0, 96}, {0, 80}, {last, 48}} {
		ix.mu.Lock()
		if !ix.evict(c.keep) {
			t.Fatalf("round %d: nothing to evict", i)
		}
		ix.mu.Unlock()
		if ix.Match(s.prompt(0), over); over[1].GPU != 16*c.want {
			t.Fatalf("round %d: %d tokens are left, want %d", i, over[1].GPU, 16*c.want)
		}
		ix.mustHold(t)
	}
}

// TestRemovalOfSeveralOrphans: two stores that wait name one block. A removal takes
// the copy of one of them, or both where an engine removes only the last copy.
func TestRemovalOfSeveralOrphans(t *testing.T) {
	for mode, want := range map[CopyMode]int32{Auto: 1, Refcount: 1, LastCopy: 2, FirstRemove: 2} {
		ix := New(Config{Seed: testSeed, Target: TargetConfig{Copies: mode}})
		ix.Apply(newSequences(1, 2).store(0, 0, 0, 2))
		for _, parent := range []kv.Handle{77, 78} {
			ev := &kv.Event{BlockSize: 16, Parent: parent, Handles: []kv.Handle{5, kv.Handle(parent) + 10}, Tokens: make([]uint32, 32)}
			if r := ix.Apply(ev); r.Orphaned != 2 {
				t.Fatalf("%v: %+v", mode, r)
			}
		}
		if r := ix.Apply(&kv.Event{Kind: kv.Removed, Handles: []kv.Handle{5}}); r.Dropped != want || r.Unknown != 0 {
			t.Errorf("%v: a removal drops %d of 2 orphans, want %d: %+v", mode, r.Dropped, want, r)
		}
		ix.mustHold(t)
	}
}
