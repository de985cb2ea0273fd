package learn

import (
	"bytes"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"kvasir/kv"
)

var t0 = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func seconds(s float64) time.Duration { return time.Duration(math.Round(s * 1e9)) }

// An engine of other speed than anything we know, watched through noise.
type watched struct {
	Coefficients
	r   *rand.Rand
	now time.Time
}

func (w *watched) first(f *Fleet, t kv.Target, stray float64) {
	prompt := 50 + int(math.Exp(w.r.Float64()*7+3))
	hit := w.r.IntN(prompt)
	n := w.r.IntN(10)
	o := &kv.FirstToken{Now: w.now, Target: t, Prompt: prompt, Cached: hit, Alone: true, Decoding: n, Context: n * 2000, MaxBatch: 8192}
	y := w.PrefillTime(prompt-hit, hit, 8192, n, n*2000) * (.9 + .2*w.r.Float64())
	if w.r.Float64() < stray {
		y *= 3 + 60*w.r.Float64() // behind somebody else's prompt
	}
	o.Latency = seconds(y)
	f.FirstToken(o, 8192)
}

func (w *watched) done(f *Fleet, t kv.Target) {
	n, ctx, out := 1+w.r.Float64()*30, w.r.Float64()*200000, 20+w.r.IntN(400)
	gap := (w.DecodeStep + n*w.DecodeRequest + ctx*w.DecodeToken) * (.9 + .2*w.r.Float64())
	stream := seconds(gap * float64(out-1))
	f.Done(&kv.Done{Now: w.now, Target: t, Prompt: 1000, Output: out, Requests: n, Tokens: ctx, Streaming: 2 * stream, Stalled: stream})
}

func scaled(f float64) Coefficients {
	c := known
	c.PrefillToken *= f
	c.Attention *= f * 1.7
	c.Step *= f * .6
	c.DecodeStep *= f * 1.5
	c.DecodeRequest *= f
	c.DecodeToken *= f * .7
	return c
}

// worst returns the worst ratio between learned and true prefill times, and
// between steps.
func worst(got, want Coefficients) (prefill, step float64) {
	off := func(a, b float64) float64 { return max(a/b, b/a) }
	prefill, step = 1, 1
	for _, x := range [][2]int{{100, 0}, {1000, 5000}, {8000, 0}, {500, 60000}, {30000, 2000}} {
		prefill = max(prefill, off(got.PrefillTime(x[0], x[1], 8192, 0, 0), want.PrefillTime(x[0], x[1], 8192, 0, 0)))
	}
	for _, x := range [][2]float64{{1, 1000}, {10, 50000}, {30, 200000}} {
		f := func(c Coefficients) float64 { return c.DecodeStep + x[0]*c.DecodeRequest + x[1]*c.DecodeToken }
		step = max(step, off(f(got), f(want)))
	}
	return prefill, step
}

func TestFleet(t *testing.T) {
	for _, speed := range []float64{.05, 1, 40} {
		f := NewFleet(Coefficients{}, true)
		w := &watched{Coefficients: scaled(speed), r: rand.New(rand.NewPCG(4, uint64(speed*100)))}
		if f.Learned(0).Known || f.Of(0) != known {
			t.Fatal("claims to know what it has not seen")
		}
		f.Seen(0, 1)
		for range 16 {
			w.first(f, 0, .1)
		}
		// The start errs on the safe side.
		early := f.Learned(0)
		got, want := early.PrefillTime(1000, 0, 8192, 0, 0), w.PrefillTime(1000, 0, 8192, 0, 0)
		if !early.Known || got < want || got > 2*want {
			t.Errorf("speed %v: after 16 samples %v s for 1,000 tokens, true %v: want too much rather than too little", speed, got, want)
		}
		for range 600 {
			w.first(f, 0, .1)
			w.done(f, 0)
		}
		prefill, step := worst(f.Learned(0).Coefficients, w.Coefficients)
		if prefill > 1.35 || step > 1.1 {
			t.Errorf("speed %v: prefill off by %.2f, step by %.2f with 10 %% strays", speed, prefill, step)
		}
		// A new target of the fleet starts with what the fleet knows.
		if prefill, _ := worst(f.Learned(1).Coefficients, w.Coefficients); prefill > 1.35 {
			t.Errorf("speed %v: a new target is off by %.2f", speed, prefill)
		}
	}
}

// The engine becomes 12 times slower (a neighbour on its GPU): every sample is
// far off, and must not be dropped for ever.
func TestFleetFollows(t *testing.T) {
	f := NewFleet(Coefficients{}, true)
	f.Seen(0, 1)
	f.Seen(1, 2)
	w := &watched{Coefficients: scaled(1), r: rand.New(rand.NewPCG(1, 1))}
	for range 200 {
		w.first(f, 0, 0)
		w.first(f, 1, 0)
	}
	slow := &watched{Coefficients: scaled(12), r: w.r}
	for range 800 {
		slow.first(f, 0, 0)
		w.first(f, 1, 0)
	}
	if off, _ := worst(f.Learned(0).Coefficients, slow.Coefficients); off > 1.5 {
		t.Errorf("the slow target is off by %.2f", off)
	}
	if off, _ := worst(f.Learned(1).Coefficients, w.Coefficients); off > 1.5 {
		t.Errorf("the other target is off by %.2f", off)
	}
}

// In a burst, requests are computed together with those that come right behind
// them. The target that gets the most of these isn't slower for it.
func TestFleetLeavesOutJoined(t *testing.T) {
	f := NewFleet(Coefficients{}, true)
	f.Seen(0, 1)
	f.Seen(1, 2)
	r := rand.New(rand.NewPCG(5, 5))
	first := func(target kv.Target, joined int) {
		u := 500 + r.IntN(1500)
		y := known.PrefillTime(u+joined, 0, 8192, 0, 0) * (.9 + .2*r.Float64())
		f.FirstToken(&kv.FirstToken{Target: target, Prompt: u, Alone: true, Joined: joined, Latency: seconds(y), MaxBatch: 8192}, 8192)
	}
	for range 300 {
		first(0, 0)
		first(1, 1500)
		first(1, 50) // next to nothing
	}
	c := f.Learned(1)
	if c.Prefill.Clear || c.Prefill.Samples > 300 {
		t.Errorf("%d samples, clear %v; want at most the 300 that nobody joined, and no difference", c.Prefill.Samples, c.Prefill.Clear)
	}
	if off, _ := worst(c.Coefficients, known); off > 1.35 {
		t.Errorf("prefill off by %.2f", off)
	}
	// Where all are joined, a too long time is better than none.
	f = NewFleet(Coefficients{}, true)
	f.Seen(1, 2)
	for range primeSamples * (maxJoined + 1) {
		first(1, 1500)
	}
	if c := f.Learned(1); !c.Known {
		t.Errorf("knows nothing after %d first tokens", primeSamples*(maxJoined+1))
	}
}

// News of what other routers have placed teaches nothing: it comes when they
// choose to tell.
func TestFleetIgnoresNews(t *testing.T) {
	f := NewFleet(Coefficients{}, true)
	f.Seen(0, 1)
	w := &watched{Coefficients: scaled(1), r: rand.New(rand.NewPCG(3, 3))}
	for range 100 {
		w.first(f, 0, 0)
		w.done(f, 0)
	}
	before := f.AppendState(nil)
	for range 500 {
		f.FirstToken(&kv.FirstToken{Prompt: 1000, Alone: true, Latency: time.Second / 2, MaxBatch: 8192, FromPeer: true}, 8192)
		f.Done(&kv.Done{Prompt: 1000, Output: 100, Streaming: time.Minute, Requests: 1, Tokens: 1000, FromPeer: true})
	}
	if got := f.AppendState(nil); !bytes.Equal(got, before) {
		t.Errorf("has learned from news:\n%s\nbefore\n%s", got, before)
	}
}

// Samples that say nothing (all alike) or nonsense leave the coefficients
// bounded and positive.
func TestFleetIsBounded(t *testing.T) {
	f := NewFleet(Coefficients{}, true)
	f.Seen(0, 1)
	r := rand.New(rand.NewPCG(2, 2))
	for k := range 5000 {
		o := &kv.FirstToken{Prompt: 1000, Cached: 0, Alone: true, Latency: time.Second, MaxBatch: 8192}
		switch {
		case k%7 == 0:
			*o = kv.FirstToken{Prompt: r.IntN(1 << 30), Cached: -r.IntN(1 << 30), Alone: true, Latency: time.Duration(r.Int64()), MaxBatch: -1, Decoding: 1 << 30, Context: 1 << 40, Joined: r.IntN(3)*(1<<40) - 1<<40,
				Now: t0.Add(time.Duration(r.Int64())), Busy: kv.BusyPeriod{For: time.Duration(r.Int64()), Admitted: r.IntN(4), Owing: r.IntN(4) - 1}}
		case k%11 == 0:
			o.Latency = time.Duration(r.Int64N(1e9))
		}
		f.FirstToken(o, 8192)
		f.Done(&kv.Done{Output: r.IntN(1000), Streaming: time.Duration(r.Int64()), Requests: r.Float64() * 100, Tokens: r.Float64() * 1e9, Stalled: time.Duration(r.Int64())})
		checkFinite(t, f.Learned(0))
	}
}

// What is learned of a target can be seen: how it compares with the fleet, how sure
// that is, and how old.
func TestLearned(t *testing.T) {
	f := NewFleet(Coefficients{}, true)
	f.Seen(0, 1)
	f.Seen(1, 2)
	if l := f.Learned(0); l != (Learned{Coefficients: known, Prefill: Evidence{Ratio: 1}, Decode: Evidence{Ratio: 1}}) {
		t.Errorf("before the first sample: %+v", l)
	}
	fast, slow := &watched{Coefficients: scaled(1), r: rand.New(rand.NewPCG(8, 1))}, &watched{Coefficients: scaled(2), r: rand.New(rand.NewPCG(8, 2))}
	for k := range 600 {
		fast.now, slow.now = t0.Add(time.Duration(k)*time.Second), t0.Add(time.Duration(k)*time.Minute)
		for range 3 { // of the fleet, most are like the first
			fast.first(f, 0, 0)
			fast.done(f, 0)
		}
		slow.first(f, 1, 0)
		slow.done(f, 1)
	}
	a, b, c := f.Learned(0), f.Learned(1), f.Learned(2)
	if !b.Known || !b.Prefill.Clear || a.Prefill.Clear || c.Prefill.Clear || c.Prefill.Samples != 0 || !c.Prefill.Last.IsZero() {
		t.Errorf("only the second is clearly slower, and nothing is known of the third:\n%+v\n%+v\n%+v", a, b, c)
	}
	// The ratio says what the coefficients have.
	if x := b.PrefillToken / a.PrefillToken; math.Abs(x-b.Prefill.Ratio) > 1e-9 || x < 1.7 || x > 2.3 {
		t.Errorf("%.3f times slower, ratio %.3f; want about 2, and both the same", x, b.Prefill.Ratio)
	}
	if x := b.DecodeStep / a.DecodeStep; math.Abs(x-b.Decode.Ratio) > 1e-9 || !b.Decode.Clear {
		t.Errorf("a step is %.3f times slower, ratio %.3f, clear %v", x, b.Decode.Ratio, b.Decode.Clear)
	}
	if n := b.Prefill.Samples; n < 500 || n > 600 || b.Prefill.Fleet < 4*500 || b.Decode.Samples != n {
		t.Errorf("%+v and %+v: want nearly all of 600 samples, and 2,400 of the fleet", b.Prefill, b.Decode)
	}
	// Times that are off by up to 10 % either way: a median of 39 is off by some 2 %.
	if e := b.Prefill.Error; e < .005 || e > .05 {
		t.Errorf("error %.4f, want about .02", e)
	}
	if !a.Prefill.Last.Equal(fast.now) || !b.Decode.Last.Equal(slow.now) {
		t.Errorf("last samples at %v and %v, want %v and %v", a.Prefill.Last, b.Decode.Last, fast.now, slow.now)
	}
	if a.Output < 200 || a.Output > 240 || a.Output != c.Output {
		t.Errorf("answers of %.0f tokens, want about 220", a.Output)
	}
}

// What is configured is known, and learned on from; without learning it stays.
func TestConfigured(t *testing.T) {
	given := scaled(3)
	for _, learns := range []bool{true, false} {
		f := NewFleet(given, learns)
		if l := f.Learned(0); !l.Known || l.Coefficients != given || l.Prefill.Fleet != 0 {
			t.Errorf("%+v, want what was given", l)
		}
		f.Seen(0, 1)
		w := &watched{Coefficients: scaled(6), r: rand.New(rand.NewPCG(9, 9))}
		for range 300 {
			w.first(f, 0, 0)
			w.done(f, 0)
		}
		if l := f.Learned(0); (l.Coefficients == given) == learns || l.Output == 0 {
			t.Errorf("learns %v: %+v", learns, l)
		}
	}
}
