package mock

import (
	"math/rand/v2"
	"slices"
	"testing"

	"kvasir/kv"
)

func paged(t *testing.T, blocks, size int, p Profile) *Engine {
	t.Helper()
	e, err := New(Config{Profile: p, BlockSize: size, Blocks: blocks, Stream: true})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// A book is a cache as a subscriber to the events believes it to be.
type book map[kv.Hash]int

func (b book) apply(t *testing.T, ev []Event) {
	for _, e := range ev {
		switch e.Kind {
		case kv.Stored:
			if len(e.Hashes) != e.N || e.N == 0 {
				t.Fatalf("Stored with N %d and %d hashes", e.N, len(e.Hashes))
			}
			for _, h := range e.Hashes {
				b[h]++
			}
		case kv.Removed:
			if b[e.Hash]--; b[e.Hash] < 0 {
				t.Fatalf("Removed %d once more than stored", e.Hash)
			} else if b[e.Hash] == 0 {
				delete(b, e.Hash)
			}
		case kv.Cleared:
			clear(b)
		}
	}
}

func (b book) equal(t *testing.T, e *Engine) {
	t.Helper()
	truth := e.Truth(nil)
	for _, h := range truth {
		if b[h] != e.Copies(h) {
			t.Fatalf("hash %d: %d copies, events say %d", h, e.Copies(h), b[h])
		}
	}
	if len(truth) != len(b) {
		t.Fatalf("engine holds %d hashes, events say %d", len(truth), len(b))
	}
}

// Random conversations with shared prefixes on a pool that is too small for
// them: preemption, eviction, copies, resets and aborts. After every step what
// the events say is what the engine holds, up to the step in progress.
func TestBeliefEqualsTruth(t *testing.T) {
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 1))
		size := 1 + rng.IntN(16)
		e := paged(t, 24+rng.IntN(40), size, Profile{Name: "t", C0: .01, CP: 1e-4, CKV: 1e-6, Budget: 8 + rng.IntN(64), MaxSeqs: 6})
		believed := book{}
		got := map[uint64]int{}
		want := map[uint64]int{}
		prompts := map[uint64]int{}
		var out Outcome
		now := 0.0
		step := func() bool {
			at, busy := e.NextAt()
			if !busy {
				return false
			}
			now = at
			e.AdvanceAt(at, &out)
			check(t, e)
			believed.apply(t, out.Events)
			for _, p := range out.Progress {
				got[p.ID] += p.Tokens
				if p.First && (p.Cached%size != 0 || p.Cached >= prompts[p.ID]) {
					t.Fatalf("request %d: %d cached tokens with blocks of %d", p.ID, p.Cached, size)
				}
				if p.Done && got[p.ID] != want[p.ID] {
					t.Fatalf("request %d: %d tokens, want %d", p.ID, got[p.ID], want[p.ID])
				}
			}
			return true
		}
		total := e.cfg.Blocks * size
		for id := range uint64(120) {
			prompt := 1 + rng.IntN(total/3)
			output := 1 + rng.IntN(total/4)
			family := rng.IntN(3)
			r := &Request{ID: id, Prompt: prompt, Output: output}
			for k := range (prompt + output) / size {
				h := kv.Hash(family*100_000 + k)
				if k*size > prompt/2 { // the second half is its own, now and then
					h += kv.Hash(1000 * (1 + id%7))
				}
				r.Blocks = append(r.Blocks, h)
			}
			want[id], prompts[id] = output, prompt
			if err := e.SubmitAt(r, now); err != nil {
				t.Fatal(err)
			}
			for range rng.IntN(8) {
				step()
			}
			if rng.IntN(10) == 0 {
				victim := id - uint64(rng.IntN(4))
				if victim <= id && got[victim] != want[victim] {
					e.AbortAt(victim, now)
					check(t, e)
				}
			}
			if rng.IntN(12) == 0 {
				for step() {
				}
				believed.equal(t, e)
				if !e.Reset() {
					t.Fatal("an idle engine refused to reset")
				}
			}
		}
		for step() {
		}
		if len(e.seqs) != 0 || e.nd != 0 || e.kv != 0 || e.pool.used() != 0 {
			t.Fatalf("after drain: %d sequences, %d decoding, %d context, %d blocks", len(e.seqs), e.nd, e.kv, e.pool.used())
		}
		if s := e.Stats(); seed == 0 && s.Preemptions == 0 {
			t.Errorf("no preemption: the test doesn't test what it says")
		}
	}
}

// Tail first: the end of a chain is evicted before its start.
func TestEvictsTailFirst(t *testing.T) {
	e := paged(t, 8, 4, Profile8B)
	believed := book{}
	var removed []kv.Hash
	play(t, e, []arrival{
		{0, Request{ID: 1, Prompt: 16, Output: 1, Blocks: ids(10, 4)}},
		{1, Request{ID: 2, Prompt: 23, Output: 1, Blocks: ids(50, 6)}},
	}, func(_ float64, out *Outcome) {
		believed.apply(t, out.Events)
		for _, ev := range out.Events {
			if ev.Kind == kv.Removed {
				removed = append(removed, ev.Hash)
			}
		}
	})
	believed.equal(t, e)
	if want := []kv.Hash{13, 12}; !slices.Equal(removed, want) {
		t.Errorf("evicted %v, want %v", removed, want)
	}
}

// What the recording of a real vLLM shows (fixtures/vllm, events main_a3, b2, b4,
// d2): a repeat of an unaligned prompt stores nothing; a repeat of an aligned one
// computes and stores its last block again; output tokens fill blocks, but the
// last one is never fed back; a reset shows with the next request, before its
// blocks.
func TestEventsAsRecorded(t *testing.T) {
	e := paged(t, 47, 32, Profile8B)
	var out Outcome
	run := func(r Request) (kinds []kv.Kind, stored, cached int) {
		if err := e.SubmitAt(&r, e.now); err != nil {
			t.Fatal(err)
		}
		for at, busy := e.NextAt(); busy; at, busy = e.NextAt() {
			e.AdvanceAt(at, &out)
			for _, ev := range out.Events {
				kinds = append(kinds, ev.Kind)
				if ev.Kind == kv.Stored {
					stored += ev.N
				}
			}
			for _, p := range out.Progress {
				if p.First {
					cached = p.Cached
				}
			}
		}
		return kinds, stored, cached
	}
	for _, c := range []struct {
		name           string
		r              Request
		stored, cached int
	}{
		{"cold, 3 blocks and a tail", Request{ID: 1, Prompt: 100, Output: 1, Blocks: ids(0, 3)}, 3, 0},
		{"repeat", Request{ID: 2, Prompt: 100, Output: 1, Blocks: ids(0, 3)}, 0, 96},
		{"aligned", Request{ID: 3, Prompt: 96, Output: 1, Blocks: ids(0, 3)}, 1, 64},
		{"output fills a block", Request{ID: 4, Prompt: 30, Output: 4, Blocks: ids(100, 1)}, 1, 0},
		{"its last token is not fed back", Request{ID: 5, Prompt: 30, Output: 2, Blocks: ids(200, 1)}, 0, 0},
		{"shorter than a block", Request{ID: 6, Prompt: 5, Output: 4}, 0, 0},
	} {
		_, stored, cached := run(c.r)
		if stored != c.stored || cached != c.cached {
			t.Errorf("%s: %d blocks stored and %d tokens cached, want %d and %d", c.name, stored, cached, c.stored, c.cached)
		}
	}
	if got := e.Copies(2); got != 2 {
		t.Errorf("block computed twice has %d copies, want 2", got)
	}
	if !e.Reset() {
		t.Fatal("reset refused")
	}
	if len(e.Truth(nil)) != 0 {
		t.Error("something is held after a reset")
	}
	kinds, _, cached := run(Request{ID: 7, Prompt: 100, Output: 1, Blocks: ids(0, 3)})
	if want := []kv.Kind{kv.Cleared, kv.Stored}; !slices.Equal(kinds, want) || cached != 0 {
		t.Errorf("after a reset: events %v, %d cached, want %v and 0", kinds, cached, want)
	}
	if err := e.SubmitAt(&Request{ID: 8, Prompt: 100, Output: 3}, e.now); err != nil {
		t.Fatal(err)
	}
	if e.Reset() {
		t.Error("reset while a request runs")
	}
}

func TestBadConfigAndRequests(t *testing.T) {
	for _, c := range []Config{
		{Profile: Profile8B},
		{Profile: Profile8B, BlockSize: 16, Blocks: -1},
		{Profile: Profile{Name: "x", C0: 1, Budget: 4, MaxSeqs: 8}, BlockSize: 16, Blocks: 1},
		{Profile: Profile{Name: "x", C0: -1, Budget: 9, MaxSeqs: 8}, BlockSize: 16, Blocks: 1},
		{Profile: Profile{Name: "x", Budget: 9, MaxSeqs: 8}, BlockSize: 16, Blocks: 1},
		{Profile: Profile8B, BlockSize: 16, Blocks: 4, Admission: 9},
	} {
		if e, err := New(c); err == nil || e != nil {
			t.Errorf("New(%+v) succeeded", c)
		}
	}
	e := paged(t, 4, 16, Profile8B)
	for _, r := range []Request{
		{ID: 1, Prompt: 0, Output: 1}, {ID: 1, Prompt: 1, Output: 0}, {ID: 1, Prompt: 64, Output: 1}, {ID: 1, Prompt: 16, Output: 1, Blocks: ids(0, 2)},
	} {
		if err := e.Submit(&r, 0); err == nil {
			t.Errorf("Submit(%+v) succeeded", r)
		}
	}
	ok := Request{ID: 1, Prompt: 16, Output: 2}
	if err := e.Submit(&ok, 0); err != nil {
		t.Fatal(err)
	}
	if err := e.Submit(&ok, 0); err == nil {
		t.Error("the same ID twice was accepted")
	}
}

// A step allocates nothing once the engine has seen its peak.
func TestAllocations(t *testing.T) {
	e := paged(t, 512, 16, Profile8B)
	var out Outcome
	reqs := make([]Request, 64)
	round := func() {
		for i := range reqs {
			reqs[i] = Request{ID: uint64(i), Prompt: 100, Output: 8, Blocks: sharedBlocks}
			if err := e.SubmitAt(&reqs[i], e.now); err != nil {
				t.Fatal(err)
			}
		}
		for at, busy := e.NextAt(); busy; at, busy = e.NextAt() {
			e.AdvanceAt(at, &out)
		}
	}
	round()
	if n := testing.AllocsPerRun(20, round); n > 1 {
		t.Errorf("%v allocations for 64 requests, want none", n)
	}
}

var sharedBlocks = ids(1, 6)
