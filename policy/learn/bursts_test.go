package learn

import (
	"math/rand/v2"
	"testing"
	"time"

	"kvasir/kv"
)

// TestFleetBeginsUnderLoad: on a small fleet under load every request is
// joined by others. The first sixteen are enough to know the engine's speed, and
// the tokens that joined are no slowness of it.
func TestFleetBeginsUnderLoad(t *testing.T) {
	slow := scaled(60)
	f := NewFleet(Coefficients{}, true)
	f.Seen(0, 1)
	r := rand.New(rand.NewPCG(1, 9))
	for range primeSamples {
		if f.Learned(0).Known {
			t.Fatal("known too soon")
		}
		u, joined := 200+r.IntN(100), 500
		y := slow.PrefillTime(u+joined, 0, 2048, 0, 0)
		f.FirstToken(&kv.FirstToken{Prompt: 1000 + u, Cached: 1000, Alone: true, Joined: joined, Latency: seconds(y), MaxBatch: 2048}, 8192)
	}
	c := f.Learned(0)
	if f := c.PrefillToken / slow.PrefillToken; !c.Known || f < .7 || f > 1.6 {
		t.Errorf("known %v, prefill %.2f times the truth; want about %.1f", c.Known, f, over)
	}
}

// volley is a request that an engine computes alone, as it is idle, and n more that come
// meanwhile and that it computes in one step. It tells f of their first tokens, of all
// but the last lost ones.
func volley(f *Fleet, w *watched, at float64, n, lost int) (end float64) {
	admitted := n + 1
	first := func(u int, since, now float64, alone bool, joined, left int) {
		f.FirstToken(&kv.FirstToken{Now: t0.Add(seconds(now)), Prompt: 1000 + u, Cached: 1000, Latency: seconds(now - since), Alone: alone, Joined: joined,
			Busy: kv.BusyPeriod{For: seconds(now) - seconds(at), Admitted: admitted, Owing: left}}, 2048)
	}
	own, sum, told := 200+w.r.IntN(100), 0, 0
	more := make([]int, n)
	for i := range more {
		more[i] = 200 + w.r.IntN(100)
		sum += more[i]
	}
	end = at + w.PrefillTime(own, 1000, 2048, 0, 0)
	first(own, at, end, true, sum, n)
	come, room := at+.1*(end-at), 2048
	for i, u := range more {
		if u > room { // an engine's step is full
			end += w.PrefillTime(2048-room, 1000, 2048, 0, 0)
			room = 2048
		}
		room -= u
		if next := i + 1; next == n || more[next] > room {
			now := end + w.PrefillTime(2048-room, 1000, 2048, 0, 0)
			for ; told <= i; told++ {
				if told < n-lost {
					first(more[told], come, now, false, 0, n-1-told)
				}
			}
		}
	}
	end += w.PrefillTime(2048-room, 1000, 2048, 0, 0)
	return end
}

// TestFleetLearnsFromBursts: a burst finds an idle engine. Whom the others joined was
// computed without them, and the others together: only the whole tells the speed.
// Measured on a real CPU engine, where the first one's time over all their tokens had
// made prefill look 1.6 times too fast.
func TestFleetLearnsFromBursts(t *testing.T) {
	w := &watched{Coefficients: scaled(60), r: rand.New(rand.NewPCG(1, 11))}
	learn := func(n, bursts, lost int) Learned {
		f := NewFleet(Coefficients{}, true)
		f.Seen(0, 1)
		at := 0.
		for range bursts {
			at = volley(f, w, at+1, n, lost)
		}
		return f.Learned(0)
	}
	off := func(c Learned, tokens int) float64 {
		return c.Coefficients.PrefillTime(tokens, 1000, 2048, 0, 0) / w.PrefillTime(tokens, 1000, 2048, 0, 0)
	}
	if c := learn(3, primeSamples/4, 0); !c.Known || off(c, 500) < 1 || off(c, 500) > 1.3*over {
		t.Errorf("after %d first tokens known %v, prefill %.2f times the truth; want about %.1f", primeSamples, c.Known, off(c, 500), over)
	}
	// In the last ones the engine hardly ever pauses: samples are cut out of the busy period.
	// What one step computes is what can be known.
	for _, x := range []struct{ n, tokens int }{{3, 500}, {12, 1600}, {200, 2000}} {
		if c := learn(x.n, 2000/x.n, 0); off(c, x.tokens) < .9 || off(c, x.tokens) > 1.1 {
			t.Errorf("bursts of %d: prefill %.2f times the truth", x.n+1, off(c, x.tokens))
		}
	}
	// One that ended without a first token, or that another router sent: it isn't known
	// what has been computed. Then one in a while must do.
	if c := learn(3, 40, 1); c.Prefill.Fleet > 40/maxJoined {
		t.Errorf("%d samples from 40 bursts of which one request is missing", c.Prefill.Fleet)
	}
}

// TestFleetLearnsFromAnEndlessBusyPeriod: the engine owes prefill for ever. A request that ends
// without a first token spoils the sample that it falls into, and no other.
func TestFleetLearnsFromAnEndlessBusyPeriod(t *testing.T) {
	w := &watched{Coefficients: scaled(60), r: rand.New(rand.NewPCG(1, 13))}
	f := NewFleet(Coefficients{}, true)
	f.Seen(0, 1)
	now, admitted := time.Duration(0), 1
	first := func(n int) {
		for range n {
			u := 200 + w.r.IntN(100)
			took := seconds(w.PrefillTime(u, 1000, 2048, 0, 0))
			now += took
			admitted++ // there is always one behind it
			f.FirstToken(&kv.FirstToken{Now: t0.Add(now), Prompt: 1000 + u, Cached: 1000, Latency: took, MaxBatch: 2048, Busy: kv.BusyPeriod{For: now, Admitted: admitted, Owing: 1}}, 8192)
		}
	}
	samples := func() int { return f.prefill.fit.Samples() }
	first(longPeriod)
	if !f.Known() {
		t.Fatalf("knows nothing after %d first tokens", longPeriod)
	}
	first(longPeriod / 2)
	admitted++ // it went away
	before := samples()
	first(longPeriod / 2)
	if n := samples() - before; n != 0 {
		t.Errorf("%d samples from a busy period of which a request is missing", n)
	}
	first(longPeriod)
	if n := samples() - before; n == 0 {
		t.Error("nothing is learned any more")
	}
}

// TestFleetLeavesOutWaitsForMemory: where memory is short, a busy period is longer than
// its prefills take.
func TestFleetLeavesOutWaitsForMemory(t *testing.T) {
	w := &watched{Coefficients: scaled(60), r: rand.New(rand.NewPCG(1, 12))}
	f := NewFleet(Coefficients{}, true)
	f.Seen(0, 1)
	at := 0.
	for range 30 {
		at = volley(f, w, at+1, 3, 0)
	}
	before := f.Learned(0).Prefill.Fleet
	for range 5 {
		f.Short(0, t0.Add(seconds(at+1.05)))
		at = volley(f, w, at+1, 3, 0)
	}
	if got := f.Learned(0).Prefill.Fleet; got != before {
		t.Errorf("%d samples though memory was short", got-before)
	}
	volley(f, w, at+1, 3, 0)
	if got := f.Learned(0).Prefill.Fleet; got != before+4 {
		t.Errorf("%d samples afterwards, want 4", got-before)
	}
}

// TestUnknownPricesAreOfOneEngine: steps that are measured already don't stand
// beside a guessed prefill, which they would outweigh: seen on real engines that
// prefill 80 times slower than the guess, where sessions moved to save decode.
func TestUnknownPricesAreOfOneEngine(t *testing.T) {
	w := &watched{Coefficients: scaled(20), r: rand.New(rand.NewPCG(1, 3))}
	f := NewFleet(Coefficients{}, true)
	f.Seen(0, 1)
	for range 200 {
		w.done(f, 0)
	}
	if c := f.Learned(0); c.Known || c.DecodeStep != known.DecodeStep || c.PrefillToken != known.PrefillToken {
		t.Errorf("known %v: a step of %v s beside %v s a token, want those of the known engine", c.Known, c.DecodeStep, c.PrefillToken)
	}
	for range 200 {
		w.first(f, 0, 0)
	}
	c := f.Learned(0)
	if pre, step := worst(c.Coefficients, w.Coefficients); !c.Known || pre > 1.5 || step > 1.5 {
		t.Errorf("known %v, prefill off by %.2f, step by %.2f", c.Known, pre, step)
	}
}
