package index

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"kvasir/kv"
)

// A world of sequences whose blocks are known by number, for tests with many
// goroutines.
type sequences struct {
	hashes  [][]kv.Hash
	handles [][]kv.Handle
	tokens  [][]uint32
}

func newSequences(n, blocks int) *sequences {
	s := &sequences{}
	for i := range n {
		var tokens []uint32
		for b := range blocks {
			label := i*1000 + b
			if b < blocks/3 {
				label = b // a common prefix
			}
			tokens = append(tokens, content([]int{label}, 16)...)
		}
		hs := testSeed.Extend(nil, testSeed.Root(kv.Key{}, 16), tokens, 16, nil)
		var names []kv.Handle
		for _, h := range hs {
			names = append(names, kv.Handle(h)^0x5555)
		}
		s.hashes, s.handles, s.tokens = append(s.hashes, hs), append(s.handles, names), append(s.tokens, tokens)
	}
	return s
}

func (s *sequences) store(t kv.Target, i, from, to int) *kv.Event {
	ev := &kv.Event{Target: t, BlockSize: 16, Root: from == 0, Handles: s.handles[i][from:to], Tokens: s.tokens[i][from*16 : to*16]}
	if from > 0 {
		ev.Parent = s.handles[i][from-1]
	}
	return ev
}

func (s *sequences) prompt(i int) *kv.Prompt {
	return &kv.Prompt{Tokens: 16*len(s.hashes[i]) + 1, Chains: []kv.Chain{{BlockSize: 16, Hashes: s.hashes[i]}}}
}

// TestNoOverbeliefBesideWriters: while every target stores, removes, is cleared
// and forgotten at once, no reader ever sees more than a target can have held
// since the reader began. Each target's writer announces, before it applies a
// store, how much of each sequence it may come to hold, and after a removal was
// applied, how much at most is left; a reader compares with the largest of what
// was announced while it was reading. Run it with -race.
func TestNoOverbeliefBesideWriters(t *testing.T) {
	const targets, seqs, blocks = 8, 12, 70
	s := newSequences(seqs, blocks)
	ix := New(Config{Seed: testSeed, MaxBytes: 2 << 20})
	// bound[t][i] is version<<32 | blocks: even versions are settled
	var bound [targets][seqs]atomic.Uint64
	var stop, failed atomic.Bool
	var looked atomic.Int64
	const enough = 1000 // comparisons: a busy machine may not run a reader until the writers have long been through
	var writers, readers sync.WaitGroup
	steps := 120
	if testing.Short() {
		steps = 60
	}
	for id := range kv.Target(targets) {
		writers.Add(1)
		go func() {
			defer writers.Done()
			r := rand.New(rand.NewPCG(uint64(id), 9))
			var held [seqs]int // of the suffix, from the root on
			announce := func(i, n int, raise bool) {
				v := bound[id][i].Load()
				if raise {
					bound[id][i].Store((v>>32+1)<<32 | uint64(max(n, int(uint32(v)))))
				} else {
					bound[id][i].Store((v>>32+1)<<32 | uint64(n))
				}
			}
			settle := func() {
				common := 0
				for i := range held {
					common = max(common, min(held[i], blocks/3))
				}
				for i := range held {
					announce(i, max(held[i], min(common, blocks/3)), false)
				}
			}
			for n := 0; n < steps || looked.Load() < enough && !failed.Load(); n++ {
				i := r.IntN(seqs)
				switch r.IntN(8) {
				case 0, 1, 2, 3:
					to := blocks/3 + r.IntN(blocks-blocks/3) + 1
					for j := range held {
						announce(j, max(min(to, blocks/3), held[j]), true)
					}
					announce(i, max(to, held[i]), true)
					ix.Apply(s.store(id, i, 0, to))
					held[i] = max(held[i], to)
				case 4, 5:
					if to := blocks/3 + r.IntN(blocks/2); held[i] > to { // the suffix, last block first, all copies
						ev := &kv.Event{Kind: kv.Removed, Target: id}
						for b := held[i] - 1; b >= to; b-- {
							ev.Handles = append(ev.Handles, s.handles[i][b])
							ev.Copies = append(ev.Copies, 0)
						}
						ix.Apply(ev)
						held[i] = to
					}
				case 6:
					if r.IntN(4) == 0 {
						ix.Apply(&kv.Event{Kind: kv.Cleared, Target: id})
						held = [seqs]int{}
					}
				case 7:
					if r.IntN(8) == 0 {
						ix.Forget(id)
						held = [seqs]int{}
					}
				}
				settle()
				if r.IntN(3) == 0 {
					ix.Apply(&kv.Event{Source: kv.Dispatch, Target: id, Hashes: s.hashes[i]})
					ix.Apply(&kv.Event{Source: kv.Dispatch, Kind: kv.Removed, Target: id, Hashes: s.hashes[i]})
				}
			}
		}()
	}
	for k := range 4 {
		readers.Add(1)
		go func() {
			defer readers.Done()
			r := rand.New(rand.NewPCG(uint64(k), 10))
			over := make([]kv.Overlap, targets)
			var before [targets]uint64
			for !stop.Load() {
				i := r.IntN(seqs)
				for id := range before {
					before[id] = bound[id][i].Load()
				}
				ix.Match(s.prompt(i), over)
				for id := range before {
					after := bound[id][i].Load()
					if after>>32 != before[id]>>32 {
						continue // something happened meanwhile
					}
					looked.Add(1)
					if got := int(over[id].GPU) / 16; got > int(uint32(after)) {
						t.Errorf("target %d, sequence %d: %d blocks, it holds at most %d", id, i, got, uint32(after))
						failed.Store(true)
						return
					}
				}
			}
		}()
	}
	writers.Wait()
	stop.Store(true)
	readers.Wait()
	ix.tidy()
	ix.mustHold(t)
	for id := range kv.Target(targets) {
		ix.Forget(id)
	}
	ix.tidy()
	ix.tidy()
	ix.mustHold(t)
	if ix.blocks != 0 || ix.rows.inUse != 0 {
		t.Errorf("%d blocks, %d rows left", ix.blocks, ix.rows.inUse)
	}
}

// TestReadersSurviveReuse: rows, details, sets and segments are reused as fast as
// possible while readers walk them: what they answer about a chain that is held
// all the time is never less than its first block, nor about one that is never
// held more than nothing.
func TestReadersSurviveReuse(t *testing.T) {
	s := newSequences(40, 40)
	other := newSequences(1, 40)
	for i := range other.tokens[0] {
		other.tokens[0][i] += 1 << 20
	}
	never := testSeed.Extend(nil, testSeed.Root(kv.Key{}, 16), other.tokens[0], 16, nil)
	ix := New(Config{Seed: testSeed})
	ix.Apply(s.store(7, 0, 0, 40))
	var stop atomic.Bool
	var wg sync.WaitGroup
	for k := range 3 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			over := make([]kv.Overlap, 8)
			q := &kv.Prompt{Tokens: 641, Chains: []kv.Chain{{BlockSize: 16, Hashes: never}}}
			for i := k; !stop.Load(); i++ {
				ix.Match(s.prompt(0), over)
				if over[7].GPU != 640 {
					t.Errorf("target 7 holds all 640 tokens, index says %+v", over[7])
					return
				}
				ix.Match(q, over)
				for id, o := range over {
					if o != (kv.Overlap{}) {
						t.Errorf("target %d holds nothing of it, index says %+v", id, o)
						return
					}
				}
				ix.Match(s.prompt(i%40), over)
			}
		}()
	}
	rounds := 50
	if testing.Short() {
		rounds = 20
	}
	for n := range rounds {
		for i := 1; i < 40; i++ {
			ix.Apply(s.store(kv.Target(n%6), i, 0, 40))
		}
		ix.Apply(&kv.Event{Kind: kv.Cleared, Target: kv.Target(n % 6)})
	}
	stop.Store(true)
	wg.Wait()
	ix.mustHold(t)
}
