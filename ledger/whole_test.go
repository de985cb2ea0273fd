package ledger

import (
	"testing"
	"time"

	"kvasir/kv"
)

// TestWholeLife compares every field that a request shows from its booking to its end,
// beside another that was there before and one that comes after.
func TestWholeLife(t *testing.T) {
	l := New(Config{OutputBlocks: true})
	load := func(s float64, hashes []kv.Hash, want kv.Load) {
		t.Helper()
		if got := l.View(3, at(s), hashes); got != want {
			t.Errorf("at %v: %+v, want %+v", s, got, want)
		}
	}
	load(0, chain(5), kv.Load{NewBlocks: 5})
	a := l.Admit(at(10), &Admission{Target: 3, Hashes: chain(4), BlockSize: 16, Prompt: 70, Uncached: 40, Prefill: 2 * time.Second})
	load(11, chain(5), kv.Load{Requests: 1, Prefilling: 1, Prefill: 40, Prompt: 70, DecodeBlocks: 5, NewBlocks: 1, Wait: time.Second})
	if f, ok := l.FirstToken(a, at(12)); !ok || f != (kv.FirstToken{
		Now: at(12), Target: 3, Prompt: 70, Cached: 30, Latency: 2 * time.Second, Alone: true,
		Busy: kv.BusyPeriod{For: 2 * time.Second, Admitted: 1},
	}) {
		t.Errorf("a's first token: %+v, %v", f, ok)
	}
	l.Progress(a, at(14), 20) // 90 tokens are 6 blocks
	load(14, nil, kv.Load{Requests: 1, Prompt: 70, DecodeBlocks: 6, Decode: 70, Output: 20})

	b := l.Admit(at(20), &Admission{Target: 3, Hashes: chain(6), BlockSize: 16, Prompt: 100, Uncached: 36, Prefill: 4 * time.Second})
	c := l.Admit(at(22), &Admission{Target: 3, Hashes: chain(4, 2), BlockSize: 16, Prompt: 64, Uncached: 64, Prefill: time.Second})
	// a has 4 blocks that b shares, and 2 of its own; b 2 more and a tail; c 2 of its own.
	load(22, chain(7), kv.Load{Requests: 3, Prefilling: 2, Prefill: 100, Prompt: 234, DecodeBlocks: 11, NewBlocks: 1, Decode: 70, Output: 20, Wait: 3 * time.Second})
	if f, ok := l.FirstToken(b, at(24)); !ok || f != (kv.FirstToken{
		Now: at(24), Target: 3, Prompt: 100, Cached: 64, Latency: 4 * time.Second, Alone: true, Joined: 64, Decoding: 1, Context: 90,
		Busy: kv.BusyPeriod{For: 4 * time.Second, Admitted: 2, Owing: 1},
	}) {
		t.Errorf("b's first token: %+v, %v", f, ok)
	}
	if f, ok := l.FirstToken(c, at(24)); !ok || f != (kv.FirstToken{
		Now: at(24), Target: 3, Prompt: 64, Latency: 2 * time.Second, Decoding: 1, Context: 90,
		Busy: kv.BusyPeriod{For: 4 * time.Second, Admitted: 2},
	}) {
		t.Errorf("c's first token: %+v, %v", f, ok)
	}
	l.Progress(b, at(26), 10)
	// From 24 on three decode: 90+100+64 tokens for 2 s, 10 more for the next 2.
	if f, ok := l.Done(b, at(28)); !ok || f != (kv.Done{
		Now: at(28), Target: 3, Prompt: 100, Output: 10, Streaming: 4 * time.Second, Requests: 3, Tokens: 259, Prefills: 1, Stalled: time.Second,
	}) {
		t.Errorf("b's end: %+v, %v", f, ok)
	}
	// a has streamed for 20 s: alone for 12 (70, from 14 on 90 tokens), with two more for
	// 4, with one for 4.
	if f, ok := l.Done(a, at(32)); !ok || f != (kv.Done{
		Now: at(32), Target: 3, Prompt: 70, Output: 20, Streaming: 20 * time.Second,
		Requests: (12 + 3*4 + 2*4) / 20., Tokens: (2*70 + 10*90 + 4*259 + 4*154) / 20., Prefills: 2, Stalled: 5 * time.Second,
	}) {
		t.Errorf("a's end: %+v, %v", f, ok)
	}
	load(32, chain(7), kv.Load{Requests: 1, Prompt: 64, DecodeBlocks: 4, NewBlocks: 5, Decode: 64})
	if l.Requests() != 1 || l.Expired() != 0 {
		t.Errorf("%d requests, %d expired; want 1 and none", l.Requests(), l.Expired())
	}
}

// The first token of a request that says nothing else is its first output.
func TestProgressIsAFirstToken(t *testing.T) {
	l := New(Config{})
	l.Admit(at(0), &Admission{Prompt: 9, Uncached: 9, Prefill: 7 * time.Second})
	a := l.Admit(at(0), &Admission{Prompt: 100, Uncached: 80, Prefill: time.Second})
	if !l.Progress(a, at(1), 0) {
		t.Error("a sign of life is refused")
	}
	if v := l.View(0, at(1), nil); v.Prefilling != 2 {
		t.Errorf("%+v after a mere sign of life, want 2 in prefill", v)
	}
	l.Progress(a, at(2), 3)
	if v := l.View(0, at(2), nil); v != (kv.Load{Requests: 2, Prefilling: 1, Prefill: 9, Prompt: 109, Decode: 100, Output: 3, Wait: 7 * time.Second}) {
		t.Errorf("%+v, want one in decode with 3 tokens, and the other's prefill still owed", v)
	}
	if _, ok := l.FirstToken(a, at(3)); ok {
		t.Error("a first token is taken after an output")
	}
	if f, ok := l.Done(a, at(5)); !ok || f.Streaming != 3*time.Second || f.Tokens != 103 || f.Requests != 1 || f.Output != 3 {
		t.Errorf("%+v, want 3 s of streaming, with 103 tokens", f)
	}
	if l.Progress(a, at(6), 1) {
		t.Error("progress of a request that has ended is taken")
	}
}

// Clocks that step back count no time twice.
func TestTimeRunsBackwards(t *testing.T) {
	l := New(Config{})
	a := l.Admit(at(0), &Admission{Prompt: 100})
	b := l.Admit(at(0), &Admission{Prompt: 100})
	l.FirstToken(a, at(0))
	l.View(0, at(10), nil)
	if f, ok := l.FirstToken(b, at(5)); !ok || f.Latency != 5*time.Second {
		t.Errorf("%+v, %v", f, ok)
	}
	// One alone until 10, as was seen; then both.
	if f, ok := l.Done(a, at(20)); !ok || f.Requests != 1.5 || f.Tokens != 150 {
		t.Errorf("%+v, want 1.5 requests with 150 tokens", f)
	}
	if f, ok := l.FirstToken(l.Admit(at(30), &Admission{Prompt: 1, Prefill: time.Second}), at(29)); !ok || f.Latency != 0 || f.Busy.For != 0 {
		t.Errorf("%+v, want no time at all", f)
	}
}

// A token begins a block of size 1, and silent requests leave their list from anywhere.
func TestSmallAndSilent(t *testing.T) {
	l := New(Config{OutputBlocks: true})
	a := l.Admit(t0, &Admission{BlockSize: 1, Prompt: 2})
	l.Progress(a, t0, 3)
	if v := l.View(0, t0, nil); v.DecodeBlocks != 5 {
		t.Errorf("%d blocks of one token, want 5", v.DecodeBlocks)
	}
	var ids []ID
	for range 4 {
		ids = append(ids, l.Admit(t0, &Admission{Target: 1, Prompt: 10, Uncached: 10, Silent: true}))
	}
	l.check()
	for n, i := range []int{2, 0, 3, 1} {
		if _, ok := l.Done(ids[i], t0); !ok {
			t.Errorf("request %d is unknown", i)
		}
		l.check()
		if v := l.View(1, t0, nil); v.Prefilling != 3-n || v.Prefill != 10*(3-n) {
			t.Errorf("%+v with %d left", v, 3-n)
		}
	}
}
