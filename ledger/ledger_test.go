package ledger

import (
	"testing"
	"time"

	"kvasir/kv"
)

var t0 = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func at(seconds float64) time.Time {
	return t0.Add(time.Duration(seconds * float64(time.Second)))
}

// chain makes n hashes of a chain that is common up to branch.
func chain(n int, branches ...int) []kv.Hash {
	h := make([]kv.Hash, n)
	x := kv.Hash(1)
	for i := range h {
		for _, b := range branches {
			if b == i {
				x ^= kv.Hash(b+1) << 32
			}
		}
		x = x*6364136223846793005 + 1442695040888963407
		h[i] = x
	}
	return h
}

// What Dynamo 1.6.1's selection service answered to the same sequence
// (/loads after each step; shared/fixtures/dynamo_http 25 to 42).
func TestDynamoCapture(t *testing.T) {
	l := New(Config{OutputBlocks: true})
	prompt := chain(10)
	book := func() ID {
		return l.Admit(t0, &Admission{Target: 1, Hashes: prompt, BlockSize: 16, Prompt: 160, Uncached: 32})
	}
	check := func(step string, prefill, blocks, requests int) {
		t.Helper()
		v := l.View(1, t0, prompt)
		if v.Prefill != prefill || v.DecodeBlocks != blocks || v.Requests != requests {
			t.Errorf("%s: %d tokens, %d blocks, %d requests, Dynamo says %d, %d, %d", step, v.Prefill, v.DecodeBlocks, v.Requests, prefill, blocks, requests)
		}
	}
	if v := l.View(1, t0, prompt); v.NewBlocks != 10 {
		t.Errorf("idle: %d new blocks, want 10", v.NewBlocks)
	}
	first := book()
	check("27 reserved", 32, 10, 1)
	if v := l.View(1, t0, prompt); v.NewBlocks != 0 {
		t.Errorf("booked: %d new blocks, want 0", v.NewBlocks)
	}
	if _, ok := l.FirstToken(first, t0); !ok {
		t.Error("28: first token refused")
	}
	if _, ok := l.FirstToken(first, t0); ok {
		t.Error("29: second first token accepted")
	}
	check("28 prefill complete", 0, 10, 1)
	if _, ok := l.Done(first, t0); !ok {
		t.Error("33: done refused")
	}
	if _, ok := l.Done(first, t0); ok {
		t.Error("34: done twice accepted")
	}
	check("33 freed", 0, 0, 0)
	for range 3 {
		book()
	}
	check("42 three booked", 96, 10, 3)
}

// Weights of blocks as the output grows (Dynamo: fraction = max(0, 1 -
// produced/expected) for blocks that the request alone has, at each new block).
func TestOutputBlocks(t *testing.T) {
	l := New(Config{OutputBlocks: true})
	a := l.Admit(t0, &Admission{Hashes: chain(10), BlockSize: 16, Prompt: 160, Uncached: 160, Output: 64})
	blocks := func(want int) {
		t.Helper()
		if got := l.View(0, t0, nil).DecodeBlocks; got != want {
			t.Errorf("%d blocks, want %d", got, want)
		}
	}
	l.FirstToken(a, t0)
	l.Progress(a, t0, 1) // begins block 11: weight 63/64 each
	blocks(11)
	l.Progress(a, t0, 15) // in the same block: the weight stays
	blocks(11)
	l.Progress(a, t0, 16) // 32 of 64, in block 12: weight 1/2 each
	blocks(6)
	l.Progress(a, t0, 100) // more than expected: 17 blocks of weight 0
	blocks(0)
	l.Done(a, t0)
	blocks(0)
}

// Two requests share a prefix: it weighs 1, whatever the outputs have come to,
// and falls to the one who is left.
func TestSharedBlocksDoNotFade(t *testing.T) {
	l := New(Config{OutputBlocks: true})
	a := l.Admit(t0, &Admission{Hashes: chain(8), BlockSize: 16, Prompt: 128, Output: 32})
	b := l.Admit(t0, &Admission{Hashes: chain(10, 4), BlockSize: 16, Prompt: 160})
	l.Progress(a, t0, 32) // a: 4 shared, 4 + 2 own with weight 0
	if got := l.View(0, t0, nil).DecodeBlocks; got != 10 {
		t.Errorf("%d blocks, want 10: 4 shared and 6 of b", got)
	}
	l.Done(b, t0) // now all are a's own, and its output is complete
	if got := l.View(0, t0, nil).DecodeBlocks; got != 0 {
		t.Errorf("%d blocks, want 0", got)
	}
	l.Done(a, t0)
}

// The clock of docs/mock.md, "The reference's view", and what cancellation does to it.
func TestClock(t *testing.T) {
	l := New(Config{})
	sec := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
	wait := func(now, want float64) {
		t.Helper()
		if got := l.View(0, at(now), nil).Wait; (got - sec(want)).Abs() > 2 {
			t.Errorf("at %v: wait %v, want %v", now, got, sec(want))
		}
	}
	l.Admit(at(0), &Admission{}) // starts the ledger's time
	earlier := l.Admit(at(100), &Admission{Prefill: sec(.060)})
	x := l.Admit(at(100), &Admission{Prefill: sec(.172558)})
	wait(100, .232558)
	l.FirstToken(earlier, at(100.060))
	wait(100.060, .172558)
	y := l.Admit(at(100.10), &Admission{Prefill: sec(.05)})
	wait(100.10, .182558)
	if f, ok := l.FirstToken(x, at(100.30)); !ok || f.Latency != sec(.30) || f.Alone {
		t.Errorf("first token of x: %+v, %v", f, ok)
	}
	wait(100.30, .05) // seen late: the clock moves forward
	z := l.Admit(at(100.30), &Admission{Prefill: sec(.4)})
	wait(100.30, .45)
	l.Done(z, at(100.31)) // cancelled before its first token
	wait(100.31, .04)
	l.FirstToken(y, at(100.32)) // early: the clock moves back
	wait(100.32, 0)
}

// What is admitted behind a request before its first token may have been computed
// with it; what is admitted afterwards, or elsewhere, not.
func TestJoined(t *testing.T) {
	l := New(Config{})
	l.Admit(at(0), &Admission{Prompt: 900, Uncached: 700})
	x := l.Admit(at(1), &Admission{Target: 1, Prompt: 900, Uncached: 500})
	y := l.Admit(at(1), &Admission{Target: 1, Prompt: 900, Uncached: 300})
	z := l.Admit(at(1), &Admission{Target: 1, Prompt: 900, Uncached: 20})
	l.Admit(at(1), &Admission{Target: 2, Prompt: 900, Uncached: 4000})
	l.Done(z, at(1.5)) // cancelled: it may have been computed all the same
	for _, c := range []struct {
		id           ID
		want, cached int
	}{{x, 320, 400}, {y, 20, 600}} {
		f, ok := l.FirstToken(c.id, at(2))
		if !ok || f.Joined != c.want {
			t.Errorf("%d joined, want %d", f.Joined, c.want)
		}
		if f.Target != 1 || f.Prompt != 900 || f.Cached != c.cached || !f.Now.Equal(at(2)) {
			t.Errorf("%+v, want 900 tokens on target 1 at %v, of which %d cached", f, at(2), c.cached)
		}
	}
	w := l.Admit(at(3), &Admission{Target: 1, Prompt: 10, Uncached: 10})
	if f, ok := l.FirstToken(w, at(4)); !ok || f.Joined != 0 || !f.Alone {
		t.Errorf("nobody behind it: %+v", f)
	}
}

// While prefill is owed without a pause, a first token says for how long, of how many
// requests, and how many of them still owe.
func TestBusyPeriod(t *testing.T) {
	l := New(Config{})
	first := func(id ID, now, busy float64, admitted, owing int) {
		t.Helper()
		if f, ok := l.FirstToken(id, at(now)); !ok || (f.Busy.For-time.Duration(busy*1e9)).Abs() > 2 || f.Busy.Admitted != admitted || f.Busy.Owing != owing {
			t.Errorf("busy for %v, %d admitted, %d owing, %v; want %v s, %d, %d", f.Busy.For, f.Busy.Admitted, f.Busy.Owing, ok, busy, admitted, owing)
		}
	}
	l.Admit(at(0), &Admission{Target: 1})
	a := l.Admit(at(10), &Admission{})
	b := l.Admit(at(11), &Admission{})
	first(a, 12, 2, 2, 1)
	c := l.Admit(at(12.5), &Admission{})
	d := l.Admit(at(12.5), &Admission{})
	l.Done(d, at(13)) // cancelled before its first token: admitted, and not owing
	first(c, 14, 4, 4, 1)
	first(b, 14, 4, 4, 0)
	e := l.Admit(at(20), &Admission{}) // a new one, though the others still decode
	first(e, 21, 1, 1, 0)
	f := l.Admit(at(30), &Admission{})
	l.Done(f, at(31))
	first(l.Admit(at(40), &Admission{}), 41, 1, 1, 0)
}

// An answer that comes whole shows no first token: its prefill is over when it
// should be, or when someone behind it in the queue has begun.
func TestSilent(t *testing.T) {
	l := New(Config{})
	owed := func(s float64, tokens int, wait time.Duration) {
		t.Helper()
		if v := l.View(0, at(s), nil); v.Prefill != tokens || v.Wait != wait {
			t.Errorf("at %v: %d tokens and %v owed, want %d and %v", s, v.Prefill, v.Wait, tokens, wait)
		}
	}
	a := l.Admit(at(0), &Admission{Prompt: 100, Uncached: 100, Prefill: time.Second, Silent: true})
	owed(.5, 100, time.Second/2)
	owed(1.5, 0, 0) // its prefill should be over
	b := l.Admit(at(2), &Admission{Prompt: 1000, Uncached: 1000, Prefill: 4 * time.Second, Silent: true})
	c := l.Admit(at(2), &Admission{Prompt: 10, Uncached: 10, Prefill: time.Second})
	d := l.Admit(at(2), &Admission{Prompt: 7, Uncached: 7, Prefill: time.Second, Silent: true})
	owed(3, 1017, 5*time.Second)
	l.FirstToken(c, at(4)) // early: b went first, d is still to come
	owed(4, 7, time.Second)
	if _, ok := l.FirstToken(d, at(20)); ok {
		t.Error("a silent request's first token says something about prefill")
	}
	for _, id := range []ID{a, b, d} {
		if f, ok := l.Done(id, at(30)); !ok || f.Streaming != 0 {
			t.Errorf("%+v, %v", f, ok)
		}
	}
	l.Done(c, at(30))
	owed(30, 0, 0)
	// Without a prediction it is owed until someone else's token, or the end.
	e := l.Admit(at(40), &Admission{Prompt: 5, Uncached: 5, Silent: true})
	owed(99, 5, 0)
	l.FirstToken(l.Admit(at(100), &Admission{}), at(101))
	owed(101, 0, 0)
	l.Done(e, at(102))
}

func TestDone(t *testing.T) {
	l := New(Config{})
	a := l.Admit(at(0), &Admission{Prompt: 100})
	l.FirstToken(a, at(1))
	b := l.Admit(at(3), &Admission{Prompt: 50, Prefill: 2 * time.Second})
	l.Progress(a, at(3), 10)
	l.FirstToken(b, at(4)) // early: it is computed all the same
	l.Admit(at(4), &Admission{Prompt: 1000, Prefill: 3 * time.Second})
	f, ok := l.Done(a, at(5))
	// 3 s with 1 request of 100 tokens, then 110; 1 s with 2 of 160.
	if !ok || f.Streaming != 4*time.Second || f.Requests != 1.25 || f.Tokens != (2*100+110+160)/4. || f.Output != 10 || !f.Now.Equal(at(5)) || f.Prompt != 100 {
		t.Errorf("%+v, %v", f, ok)
	}
	// All of b's prefill, and 1 s of the next one's.
	if f.Prefills != 1 || f.Stalled != 3*time.Second {
		t.Errorf("%d prefills, %v stalled", f.Prefills, f.Stalled)
	}
	if f, ok := l.Done(b, at(4)); !ok || f.Streaming != 0 {
		t.Errorf("%+v, %v", f, ok)
	}
}

// An endpoint leaves and comes back while requests are in flight
// (llm-d-router#1739: a negative load, so the replica looked idle for ever).
func TestForgetKeepsGenerationsApart(t *testing.T) {
	l := New(Config{})
	a := l.Admit(t0, &Admission{Target: 3, Hashes: chain(5), Prompt: 80, Uncached: 80})
	if n := l.Forget(3); n != 1 {
		t.Fatalf("forgot %d requests, want 1", n)
	}
	b := l.Admit(t0, &Admission{Target: 3, Hashes: chain(5), Prompt: 80, Uncached: 80})
	if a == b {
		t.Fatal("an ID was used twice")
	}
	if _, ok := l.Done(a, t0); ok || l.View(3, t0, nil).Requests != 1 {
		t.Error("the late end of a forgotten request changed the new owner's load")
	}
	l.Progress(a, t0, 5)
	l.FirstToken(a, t0)
	if v := l.View(3, t0, nil); v.Prefill != 80 || v.Output != 0 {
		t.Errorf("late news of a forgotten request counted: %+v", v)
	}
	l.Done(b, t0)
	if v := l.View(3, t0, nil); v != (kv.Load{}) || l.Requests() != 0 {
		t.Errorf("%+v left", v)
	}
	if _, ok := l.Done(0, t0); ok {
		t.Error("the zero ID names a request")
	}
}

// A stream of 1 token per 20 s for 12 minutes is alive (llm-d-router#2295: the
// reaper ate requests that were merely long).
func TestExpire(t *testing.T) {
	l := New(Config{})
	slow := l.Admit(at(0), &Admission{Target: 1})
	dead := l.Admit(at(0), &Admission{Target: 1})
	held := l.Admit(at(0), &Admission{Target: 1, Connected: true})
	const ttl = 300 * time.Second
	for s := 20.; s <= 720; s += 20 {
		l.Progress(slow, at(s), 1)
		gone := l.Expire(nil, at(s), ttl)
		want := 3
		if s >= 300 {
			want = 2
		}
		if s == 300 && (len(gone) != 1 || gone[0] != dead) || s != 300 && len(gone) != 0 {
			t.Fatalf("at %v s expired %v", s, gone)
		}
		if got := l.View(1, at(s), nil).Requests; got != want {
			t.Fatalf("at %v s %d requests, want %d", s, got, want)
		}
	}
	l.Done(slow, at(721))
	l.Done(held, at(721))
	if l.Requests() != 0 || l.Expired() != 1 {
		t.Errorf("%d requests, %d expired", l.Requests(), l.Expired())
	}
}

// A partial tail is a block, and a prompt without known tokens is as many as it
// has tokens for (Dynamo 1.6.1 answers 1 for 3 tokens: dynamo_http 50).
func TestBlocksWithoutHash(t *testing.T) {
	l := New(Config{OutputBlocks: true})
	blocks := func(want int) {
		t.Helper()
		if got := l.View(0, t0, nil).DecodeBlocks; got != want {
			t.Errorf("%d blocks, want %d", got, want)
		}
	}
	a := l.Admit(t0, &Admission{Hashes: chain(10), BlockSize: 16, Prompt: 163})
	blocks(11)
	l.Progress(a, t0, 13) // fills the tail
	blocks(11)
	l.Progress(a, t0, 1)
	blocks(12)
	b := l.Admit(t0, &Admission{BlockSize: 16, Prompt: 100})
	blocks(19)
	l.Done(a, t0)
	blocks(7)
	l.Done(b, t0)
	blocks(0)
}

func TestPrivate(t *testing.T) {
	l := New(Config{Private: true})
	a := l.Admit(t0, &Admission{Hashes: chain(4)})
	b := l.Admit(t0, &Admission{Hashes: chain(4)})
	if v := l.View(0, t0, chain(4)); v.DecodeBlocks != 8 || v.NewBlocks != 4 {
		t.Errorf("%+v, want 8 and 4", v)
	}
	l.Done(a, t0)
	l.Done(b, t0)
	if v := l.View(0, t0, nil); v.DecodeBlocks != 0 {
		t.Errorf("%+v", v)
	}
}

func TestHostileAdmission(t *testing.T) {
	l := New(Config{OutputBlocks: true})
	if id := l.Admit(t0, &Admission{Target: kv.NoTarget}); id != 0 {
		t.Error("admitted no target")
	}
	a := l.Admit(t0, &Admission{Prompt: -5, Uncached: 1000, Output: -1, BlockSize: -3, Prefill: -1})
	l.Progress(a, t0, -7)
	l.Progress(a, t0, 7)
	l.check()
	l.Done(a, t0)
	l.check()
}
