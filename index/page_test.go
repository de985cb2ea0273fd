package index

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"kvasir/kv"
)

// TestTwinPages plays random tapes with small pages on the index and on plain
// maps: all sizes, tiers, copies, branches, changes of the size.
func TestTwinPages(t *testing.T) {
	n := 300
	if testing.Short() {
		n = 30
	}
	for seed := range uint64(n) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			data := randomTape(5000+seed, 6000)
			data[0] = byte(8 + seed%8) // see play
			play(t, data, seed%5 == 4)
		})
		if t.Failed() {
			return
		}
	}
}

func FuzzTwinPages(f *testing.F) {
	for seed := range uint64(16) {
		f.Add(randomTape(seed, 500), uint8(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte, which uint8) {
		if len(data) == 0 || len(data) > 20000 {
			return
		}
		data = slices.Clone(data)
		data[0] = 8 + which%8
		play(t, data, false)
	})
}

// TestPageMemory: what pages take is what the index says that they take, little,
// and the heap follows what is held.
func TestPageMemory(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector takes memory of its own")
	}
	for size, most := range map[int]float64{1: 420, 2: 270, 4: 200, 8: 160} {
		ix := New(Config{Seed: testSeed})
		before := heap()
		g := newPageLoad(size, 1000, 500)
		g.begin(ix, 0)
		const requests = 600
		var held [][]kv.Handle
		for range requests {
			held = append(held, g.request(ix, 0))
		}
		names := int64(requests * 1000 * 8)
		g.ev = kv.Event{}
		full := heap() - before - names
		tokens := float64((requests*1000 + 500) * size)
		if per := float64(full) / tokens * 16; per > most {
			t.Errorf("pages of %d: %.0f bytes for 16 tokens, want %.0f", size, per, most)
		}
		if s := ix.Stats(); float64(s.Bytes) < 0.85*float64(full) || float64(s.Bytes) > 1.2*float64(full) {
			t.Errorf("pages of %d: %d bytes, the index says %d", size, full, s.Bytes)
		}
		ev := kv.Event{Kind: kv.Removed}
		for _, hs := range held {
			slices.Reverse(hs)
			ev.Handles = hs
			if r := ix.Apply(&ev); r.Removed != 1000 {
				t.Fatalf("%+v", r)
			}
		}
		ix.tidy()
		ix.tidy()
		ix.mustHold(t)
		s := ix.Stats()
		left := heap() - before - names
		if s.Pages > 200<<10 || left > full/8 {
			t.Errorf("pages of %d: after all requests have gone %d bytes are left of %d; %d of pages", size, left, full, s.Pages)
		}
		runtime.KeepAlive(held)
		ix.Forget(0)
		if s := ix.Stats(); s.Pages != 0 {
			t.Errorf("pages of %d: %d bytes of a target that was forgotten", size, s.Pages)
		}
	}
}

// TestPageChurn: requests come and go for a long time, in any order; memory stays
// what the standing population needs.
func TestPageChurn(t *testing.T) {
	ix := New(Config{Seed: testSeed})
	g := newPageLoad(1, 90, 64)
	g.begin(ix, 0)
	var held [][]kv.Handle
	rounds := 30000
	if testing.Short() {
		rounds = 5000
	}
	var settled int64
	for i := range rounds {
		held = append(held, g.request(ix, 0))
		if len(held) > 300 {
			k := g.r.IntN(len(held))
			hs := held[k]
			held[k] = held[len(held)-1]
			held = held[:len(held)-1]
			switch i % 3 {
			case 0:
				slices.Reverse(hs)
			case 1:
				g.r.Shuffle(len(hs), func(a, b int) { hs[a], hs[b] = hs[b], hs[a] })
			}
			if r := ix.Apply(&kv.Event{Kind: kv.Removed, Handles: hs}); r.Removed != 90 {
				t.Fatalf("round %d: %+v", i, r)
			}
		}
		if i == rounds/5 {
			settled = ix.Stats().Pages
		}
	}
	ix.mustHold(t)
	p := ix.targets[0].lanes[0].pages
	if end := ix.Stats().Pages; end > settled*11/10 || len(p.strips.slabs) > p.strips.used/slabStrips*3/2+4 {
		t.Errorf("%d bytes of pages, once it was %d; %d slabs for %d strips", end, settled, len(p.strips.slabs), p.strips.used)
	}
}

// TestManyForks: thousands of branches after one page, inside a chunk and at its
// end, cost as much each as a few.
func TestManyForks(t *testing.T) {
	for _, at := range []int{7, 15} {
		ix := New(Config{Seed: testSeed})
		var root []kv.Handle
		for i := range 32 {
			root = append(root, kv.Handle(i+1))
		}
		ix.Apply(&kv.Event{BlockSize: 1, Root: true, Handles: root, Tokens: make([]uint32, 32)})
		const n = 20000
		ev := kv.Event{BlockSize: 1, Parent: root[at], Handles: make([]kv.Handle, 9), Tokens: make([]uint32, 9)}
		for i := range n {
			for k := range ev.Handles {
				ev.Handles[k] = kv.Handle(1000 + i*9 + k)
			}
			ev.Tokens[0] = uint32(i + 1)
			if r := ix.Apply(&ev); r.Stored != 9 {
				t.Fatalf("fork %d: %+v", i, r)
			}
		}
		chunks := ix.Stats().Memberships[kv.GPU]
		if want := map[int]int64{7: n + 2, 15: 2}[at]; chunks != want {
			t.Errorf("forks after page %d: %d chunks are held, want %d", at, chunks, want)
		}
		ix.mustHold(t)
		// a page that all chunks share goes, and comes back
		if r := ix.Apply(&kv.Event{Kind: kv.Removed, Handles: root[3:4]}); r.Removed != 1 {
			t.Errorf("%+v", r)
		}
		if got := ix.Stats().Memberships[kv.GPU]; got != map[int]int64{7: 1, 15: 1}[at] {
			t.Errorf("forks after page %d: %d chunks are held without a page of all", at, got)
		}
		ix.Apply(&kv.Event{BlockSize: 1, Parent: root[2], Handles: root[3:4], Tokens: make([]uint32, 1)})
		if got := ix.Stats().Memberships[kv.GPU]; got != chunks {
			t.Errorf("forks after page %d: %d chunks are held after it came back, want %d", at, got, chunks)
		}
		ix.Apply(&kv.Event{Kind: kv.Cleared, AllTiers: true})
		if s := ix.Stats(); s.Pages != 0 || s.Blocks != 0 {
			t.Errorf("%d bytes of pages, %d blocks after a clear", s.Pages, s.Blocks)
		}
		ix.mustHold(t)
	}
}

// TestPageBound: pages that don't fit push out others of the lane that has most,
// also where no chunk is complete; what is in use and other targets' stay.
func TestPageBound(t *testing.T) {
	const limit = 4 << 20
	ix := New(Config{Seed: testSeed, MaxBytes: limit})
	s := newSequences(1, 100)
	ix.Apply(s.store(1, 0, 0, 100))
	small := newPageLoad(1, 100, 160)
	small.begin(ix, 2)
	over := make([]kv.Overlap, 5)
	g := newPageLoad(1, 200, 64)
	g.r = rand.New(rand.NewPCG(7, 7))
	for id := range kv.Target(2) {
		g.begin(ix, 3+id)
	}
	for i := range 6000 {
		hs := g.request(ix, 3)
		if i%2 == 0 { // holes: most chunks are not complete
			for k := 0; k < len(hs); k += 10 {
				ix.Apply(&kv.Event{Kind: kv.Removed, Target: 3, Handles: hs[k : k+1]})
			}
		}
		if i%10 == 0 {
			ix.Match(s.prompt(0), over)
			if b := ix.Stats(); b.Bytes > limit || over[1].GPU != 1600 || b.Totals.Skipped != [NumReasons]uint64{} {
				t.Fatalf("round %d: %d bytes of %d, %d of 1600 tokens of another target are left, skipped %v", i, b.Bytes, limit, over[1].GPU, b.Totals.Skipped)
			}
		}
		if i%500 == 0 {
			ix.mustHold(t)
		}
	}
	ix.mustHold(t)
	st := ix.Stats()
	if st.Evicted == 0 || st.Pages < limit/2*8/10 {
		t.Errorf("%d evicted, %d bytes of pages", st.Evicted, st.Pages)
	}
	if n := ix.TargetStats(2).Blocks[kv.GPU]; n != 10 {
		t.Errorf("a target with few pages has %d of its 10 chunks", n)
	}
	last := g.request(ix, 3)
	p := ix.targets[3].lanes[0].pages
	for _, h := range last {
		if p.named(ix.keyOf(h), h) == 0 {
			t.Fatal("a page just stored has gone")
		}
	}
	if r := ix.Apply(&kv.Event{Target: 3, BlockSize: 1, Root: true, Handles: make([]kv.Handle, 1), Tokens: []uint32{1}}); r.Stored != 1 {
		t.Errorf("%+v", r)
	}
	big := &kv.Event{Target: 3, BlockSize: 1, Root: true, Handles: make([]kv.Handle, 200000), Tokens: make([]uint32, 200000)}
	for i := range big.Handles {
		big.Handles[i] = kv.Handle(1<<40 + i)
	}
	if r := ix.Apply(big); r.Reason != Full || r.Skipped != 200000 {
		t.Errorf("an event larger than the bound: %+v", r)
	}
}

// TestPageBoundOneChain: where nothing but the parent's own strip could go, a store
// is refused, and looking for room is not repeated.
func TestPageBoundOneChain(t *testing.T) {
	ix := New(Config{Seed: testSeed, MaxBytes: minBytes})
	ev := kv.Event{BlockSize: 1, Root: true, Handles: make([]kv.Handle, 100), Tokens: make([]uint32, 100)}
	var r Result
	for n := 0; r.Reason != Full; n += 100 {
		for i := range ev.Handles {
			ev.Handles[i] = kv.Handle(n + i + 1)
		}
		if r = ix.Apply(&ev); n > 1<<20 {
			t.Fatal("no bound")
		}
		ev.Root, ev.Parent = false, ev.Handles[99]
		if r.Reason == Full {
			ev.Parent = kv.Handle(n)
		}
	}
	p := ix.targets[0].lanes[0].pages
	hand, used := p.hand, p.strips.used
	p.hand = 7
	if r := ix.Apply(&ev); r.Reason != Full || r.Skipped != 100 || p.hand != 7 || p.strips.used != used {
		t.Errorf("%+v, hand from 7 (%d) to %d, %d strips of %d", r, hand, p.hand, p.strips.used, used)
	}
	ev.Root, ev.Parent = true, 0 // any part of the chain may go
	ev.Tokens[0] = 9
	if r := ix.Apply(&ev); r.Stored != 100 {
		t.Errorf("%+v", r)
	}
	ix.mustHold(t)
}

// TestPageKeysMeet: entries of other things under the same key are not taken for
// what is looked for.
func TestPageKeysMeet(t *testing.T) {
	ix := New(Config{Seed: testSeed})
	ix.Apply(&kv.Event{BlockSize: 1, Root: true, Handles: []kv.Handle{1, 2, 3}, Tokens: []uint32{1, 2, 3}})
	ix.Apply(&kv.Event{BlockSize: 1, Parent: 1, Handles: []kv.Handle{4}, Tokens: []uint32{9}})
	ix.Apply(&kv.Event{BlockSize: 1, Root: true, Key: kv.Key{Salt: "a"}, Handles: []kv.Handle{5}, Tokens: []uint32{1}})
	p := ix.targets[0].lanes[0].pages
	page := p.named(ix.keyOf(1), 1)
	for key, find := range map[uint32]func() bool{
		ix.keyOf(7):                        func() bool { return p.named(ix.keyOf(7), 7) != 0 },
		p.rootKey(7):                       func() bool { return p.root(7) != 0 },
		p.rowKey(7):                        func() bool { return p.rowEnd(7) != 0 },
		p.forkKey(page):                    func() bool { return p.fork(page) != p.named(ix.keyOf(4), 4).strip() },
		p.childKey(page, []uint32{8}, nil): func() bool { return p.next(page, []uint32{8}, nil) != 0 },
	} {
		for n := range uint32(slabStrips) {
			if s := p.peek(n); s != nil {
				p.index.Insert(key, uint32(refAt(n, 0)))
				p.index.Insert(key, uint32(refAt(n, uint8(p.per-1))))
			}
		}
		if find() {
			t.Errorf("key %x: what was found belongs to something else", key)
		}
	}
}
