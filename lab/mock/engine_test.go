package mock

import (
	"math"
	"testing"
	"time"

	"kvasir/kv"
)

// A life is what became of one request.
type life struct {
	first, done float64
	cached      int
}

// An arrival is a request and its time.
type arrival struct {
	at float64
	r  Request
}

// play runs arrivals, which are in order of time, through e until it is idle.
func play(t *testing.T, e *Engine, arrivals []arrival, each func(now float64, out *Outcome)) map[uint64]life {
	t.Helper()
	lives := map[uint64]life{}
	var out Outcome
	for n := 0; ; {
		at, busy := e.NextAt()
		if n < len(arrivals) && (!busy || arrivals[n].at <= at) {
			if err := e.SubmitAt(&arrivals[n].r, arrivals[n].at); err != nil {
				t.Fatal(err)
			}
			n++
			check(t, e)
			continue
		}
		if !busy {
			break
		}
		e.AdvanceAt(at, &out)
		check(t, e)
		for _, p := range out.Progress {
			l := lives[p.ID]
			if p.First {
				l.first, l.cached = at, p.Cached
			}
			if p.Done {
				l.done = at
			}
			lives[p.ID] = l
		}
		if each != nil {
			each(at, &out)
		}
	}
	if got := e.pool.used(); got != 0 {
		t.Errorf("%d blocks in use after the last request", got)
	}
	if e.nd != 0 || e.kv != 0 || len(e.seqs) != 0 {
		t.Errorf("after drain: %d decoding, %d context tokens, %d sequences", e.nd, e.kv, len(e.seqs))
	}
	return lives
}

// check recomputes what the engine keeps incrementally.
func check(t *testing.T, e *Engine) {
	t.Helper()
	p := e.pool
	free, held, last := 0, 0, none
	for i := p.head; i != none; i = p.blocks[i].next {
		if p.blocks[i].refs != 0 || p.blocks[i].prev != last {
			t.Fatalf("block %d in the queue: %d references, prev %d, want 0 and %d", i, p.blocks[i].refs, p.blocks[i].prev, last)
		}
		last = i
		free++
	}
	if free != p.free || last != p.tail {
		t.Fatalf("queue has %d blocks and ends with %d, counted %d and %d", free, last, p.free, p.tail)
	}
	seen := 0
	for h, i := range p.first {
		if p.blocks[i].back != none {
			t.Fatalf("block %d is first for its hash and has one before it", i)
		}
		for ; i != none; i = p.blocks[i].same {
			if !p.blocks[i].full || p.blocks[i].hash != h {
				t.Fatalf("block %d is listed under hash %d, but holds %d (full %v)", i, h, p.blocks[i].hash, p.blocks[i].full)
			}
			seen++
		}
	}
	refs := map[int32]int32{}
	for _, s := range e.seqs {
		for _, i := range s.slots {
			refs[i]++
		}
	}
	for i := range p.blocks {
		if p.blocks[i].full {
			held++
		}
		if e.cfg.Pool == nil && p.blocks[i].refs != refs[int32(i)] {
			t.Fatalf("block %d has %d references, sequences hold %d", i, p.blocks[i].refs, refs[int32(i)])
		}
	}
	if seen != held || held != p.held {
		t.Fatalf("%d blocks with content, %d findable, %d counted", held, seen, p.held)
	}
}

func ids(from, n int) []kv.Hash {
	h := make([]kv.Hash, n)
	for i := range h {
		h[i] = kv.Hash(from + i)
	}
	return h
}

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-9*math.Max(1, math.Abs(b)) }

// The vectors of docs/mock.md, "Engine constants".
func TestPrefill(t *testing.T) {
	for _, c := range []struct {
		p             Profile
		u, hit, kv, n int
		want          float64
	}{
		{Profile70B, 3000, 0, 0, 0, .1672},
		{Profile70B, 2400, 9600, 38000, 3, .172558},
		{Profile70B, 20000, 0, 0, 0, 1.35},
		{Profile70B, 1, 2559, 0, 0, .010054095},
		{Profile70B, 8192, 0, 0, 0, .473287091},
		{Profile70B, 8193, 0, 0, 0, .483350199},
		{Profile8B, 3000, 0, 0, 0, .08685},
		{Profile8B, 2400, 9600, 38000, 3, .101413},
		{Profile8B, 20000, 0, 0, 0, .778},
	} {
		if got := c.p.Prefill(c.u, c.hit, c.kv, c.n); math.Abs(got-c.want) > 5e-10 {
			t.Errorf("%s Prefill(%d, %d, %d, %d) = %.12f s, want %.12f", c.p.Name, c.u, c.hit, c.kv, c.n, got, c.want)
		}
	}
}

func reserved(t *testing.T, c Config) *Engine {
	t.Helper()
	c.Admission = Reserved
	if c.Profile.Name == "" {
		c.Profile = Profile70B
	}
	if c.BlockSize == 0 {
		c.BlockSize = 512
	}
	e, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// What the reference says of lone requests and of shared blocks (docs/mock.md), in strides and token by token.
func TestLoneRequests(t *testing.T) {
	for _, stream := range []bool{false, true} {
		got := play(t, reserved(t, Config{Stream: stream}), []arrival{{0, Request{ID: 0, Prompt: 3000, Output: 100, Blocks: ids(0, 5)}}}, nil)
		if l := got[0]; !near(l.first, .1672) || !near(l.done, 1.16733265) {
			t.Errorf("stream %v: lone request first %.9f done %.9f, want .1672 and 1.16733265", stream, l.first, l.done)
		}
	}
	got := play(t, reserved(t, Config{}), []arrival{
		{0, Request{ID: 0, Prompt: 3000, Output: 100, Blocks: ids(0, 5)}},
		{9, Request{ID: 1, Prompt: 3000, Output: 100, Blocks: ids(0, 5)}},
		{20, Request{ID: 2, Prompt: 2560, Output: 100, Blocks: ids(0, 5)}},
	}, nil)
	for id, want := range []int{0, 2560, 2048} {
		if got[uint64(id)].cached != want {
			t.Errorf("request %d: %d cached tokens, want %d", id, got[uint64(id)].cached, want)
		}
	}
}

// Decode strides that arrivals cut end when single steps end.
func TestCutConservesWork(t *testing.T) {
	var arrivals []arrival
	for i := range 40 {
		arrivals = append(arrivals, arrival{float64(i) * .137, Request{ID: uint64(i), Prompt: 300 + 17*i, Output: 5 + 13*(i%7)}})
	}
	strides := play(t, reserved(t, Config{}), arrivals, nil)
	steps := play(t, reserved(t, Config{Stream: true}), arrivals, nil)
	for i := range arrivals {
		a, b := strides[uint64(i)], steps[uint64(i)]
		if !near(a.first, b.first) || !near(a.done, b.done) {
			t.Errorf("request %d: strides %.12f %.12f, steps %.12f %.12f", i, a.first, a.done, b.first, b.done)
		}
	}
}

// Time as a Duration leads to the same lives, a nanosecond a step apart, even if
// the caller is late.
func TestRealTime(t *testing.T) {
	e := reserved(t, Config{Stream: true})
	if err := e.Submit(&Request{ID: 7, Prompt: 3000, Output: 100}, 5*time.Second); err != nil {
		t.Fatal(err)
	}
	var out Outcome
	tokens, end := 0, time.Duration(0)
	for at, busy := e.Next(); busy; at, busy = e.Next() {
		e.Advance(at-1, &out)
		if len(out.Progress) > 0 {
			t.Fatalf("progress %v before the step ended", out.Progress)
		}
		e.Advance(at+time.Millisecond, &out)
		for _, p := range out.Progress {
			tokens += p.Tokens
			end = at
		}
	}
	if tokens != 100 {
		t.Errorf("%d tokens, want 100", tokens)
	}
	if got := end.Seconds() - 5; math.Abs(got-1.16733265) > 1e-6 {
		t.Errorf("done after %.9f s, want 1.16733265: lateness adds up", got)
	}
}
