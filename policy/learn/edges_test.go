package learn

import (
	"math"
	"testing"
	"time"

	"kvasir/kv"
)

// withSpeed returns a fleet that knows the known engine and has seen target 0.
func withSpeed() *Fleet {
	f := NewFleet(known, true)
	f.Seen(0, 1)
	return f
}

// A short answer, and one that others' prefills have held up for most of its time, say
// nothing about a decode step.
func TestWhichAnswersCount(t *testing.T) {
	for _, c := range []struct {
		why  string
		done kv.Done
		want int
	}{
		{"eight gaps", kv.Done{Output: 9, Streaming: time.Second, Requests: 1}, 1},
		{"seven gaps", kv.Done{Output: 8, Streaming: time.Second, Requests: 1}, 0},
		{"eight gaps, one of them a prefill", kv.Done{Output: 9, Prefills: 1, Streaming: time.Second, Requests: 1}, 0},
		{"stalled for 80 %", kv.Done{Output: 9, Streaming: time.Second, Stalled: 800 * time.Millisecond, Requests: 1}, 1},
		{"stalled for more", kv.Done{Output: 9, Streaming: time.Second, Stalled: 801 * time.Millisecond, Requests: 1}, 0},
		{"no first token", kv.Done{Output: 9, Requests: 1}, 0},
		{"failed", kv.Done{Output: 9, Streaming: time.Second, Requests: 1, Failed: true}, 0},
		{"nothing said", kv.Done{Streaming: time.Second, Requests: 1}, 0},
	} {
		f := withSpeed()
		c.done.Streaming /= 10 // near to what is known, so not dropped
		c.done.Stalled /= 10
		f.Done(&c.done)
		if got := f.Learned(0).Decode.Fleet; got != c.want {
			t.Errorf("%s: %d samples, want %d", c.why, got, c.want)
		}
	}
}

// Where every prompt is joined by others and their busy periods are never whole, one of
// twenty-one teaches.
func TestOneInManyThatWereJoined(t *testing.T) {
	f := withSpeed()
	for n := range 63 {
		f.FirstToken(&kv.FirstToken{Now: t0.Add(time.Duration(n) * time.Minute), Prompt: 1000, Alone: true, Joined: 201, Latency: seconds(.07),
			Busy: kv.BusyPeriod{For: time.Second, Admitted: 9, Owing: 3}}, 8192)
	}
	if got := f.Learned(0).Prefill.Fleet; got != 3 {
		t.Errorf("%d samples of 63, want 3", got)
	}
	// A fifth of its own tokens doesn't matter.
	f.FirstToken(&kv.FirstToken{Now: t0, Prompt: 1000, Alone: true, Joined: 200, Latency: seconds(.07)}, 8192)
	if got := f.Learned(0).Prefill.Fleet; got != 4 {
		t.Errorf("%d samples, want one more", got)
	}
}

// What decodes holds up the steps of a prefill. That time is not the prefill's.
func TestDecodeIsTakenOff(t *testing.T) {
	f := NewFleet(known, true) // not seen: no ratio of its own
	const n, context = 100, 1_000_000
	for u := 1000; u < 9000; u += 10 {
		y := known.PrefillTime(u, 0, 2048, n, context) // 29 ms a step for those that decode
		f.FirstToken(&kv.FirstToken{Prompt: u, Alone: true, Decoding: n, Context: context, Latency: seconds(y)}, 2048)
	}
	got, want := f.Of(0), known
	if x := got.PrefillTime(4000, 0, 2048, 0, 0) / want.PrefillTime(4000, 0, 2048, 0, 0); math.Abs(x-1) > .05 {
		t.Errorf("prefill is %.3f times the truth", x)
	}
	// But at least half of what was measured is.
	f = NewFleet(known, true)
	before := f.Of(0).PrefillToken
	for range 200 {
		f.FirstToken(&kv.FirstToken{Prompt: 1000, Alone: true, Decoding: 1 << 20, Context: 1 << 30, Latency: seconds(.06)}, 2048)
	}
	if x := f.Of(0).PrefillToken / before; !(x > .25 && x < 1) {
		t.Errorf("a prompt token takes %.3f times what it took: want less, and not next to nothing", x)
	}
}
