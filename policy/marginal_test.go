package policy

import (
	"bytes"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"kvasir/kv"
)

func seconds(s float64) time.Duration { return time.Duration(math.Round(s * 1e9)) }

// The worked example of policies.md 8.4, computed with the reference simulator.
func TestMarginalWorkedExample(t *testing.T) {
	cfg := named("marginal")
	cfg.Marginal.Coefficients = nominal
	cfg.Marginal.Output = 300
	p := must(t, cfg, lowestIndex)
	cands := fleet(3)
	cands[0].Overlap.GPU = 600 * 16
	cands[0].Load = kv.Load{Requests: 4, Prefilling: 1, Prompt: 50000, Decode: 38000, Wait: 60 * time.Millisecond}
	cands[1].Overlap.GPU = 100 * 16
	cands[1].Load = kv.Load{Requests: 2, Prompt: 16000, Decode: 16000}
	if i := p.Pick(&Request{Tokens: 12000, Known: true}, cands); i != 0 {
		t.Errorf("picked %d, want 0", i)
	}
	for i, want := range []struct{ own, delta, omega, cost float64 }{
		{.172558, .1287, .12384, .657656}, {.654096, .04248, .06192, 1.412592}, {.7352, 0, 0, 1.4704},
	} {
		c := &cands[i]
		for _, f := range []struct {
			name      string
			got, want float64
		}{{"own", c.Terms[1], want.own}, {"delta", c.Terms[3], want.delta}, {"omega", c.Terms[4], want.omega}, {"cost", c.Cost, want.cost}, {"booked", c.Prefill.Seconds(), want.own}} {
			if math.Abs(f.got-f.want) > 5e-7 {
				t.Errorf("%d: %s is %.6f, want %.6f", i, f.name, f.got, f.want)
			}
		}
	}
}

// Prefill times of experiments.md 2.1.
func TestPrefillSeconds(t *testing.T) {
	for _, c := range []struct {
		u, hit, kv, n int
		want          float64
	}{{3000, 0, 0, 0, .1672}, {2400, 9600, 38000, 3, .172558}, {20000, 0, 0, 0, 1.35}, {1, 2559, 0, 0, .010054095}, {8192, 0, 0, 0, .473287091}, {8193, 0, 0, 0, .483350199}} {
		if got := nominal.prefill(c.u, c.hit, 8192, c.n, c.kv); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("prefill(%d, %d): %.9f, want %.9f", c.u, c.hit, got, c.want)
		}
	}
}

// An engine of other speed than anything we know, watched through noise.
type watched struct {
	Coefficients
	r *rand.Rand
}

func (w *watched) first(p Observer, t kv.Target, stray float64) {
	prompt := 50 + int(math.Exp(w.r.Float64()*7+3))
	hit := w.r.IntN(prompt)
	n := w.r.IntN(10)
	o := &kv.FirstToken{Target: t, Prompt: prompt, Cached: hit, Alone: true, Decoding: n, Context: n * 2000, MaxBatch: 8192}
	y := w.prefill(prompt-hit, hit, 8192, n, n*2000) * (.9 + .2*w.r.Float64())
	if w.r.Float64() < stray {
		y *= 3 + 60*w.r.Float64() // behind somebody else's prompt
	}
	o.Latency = seconds(y)
	p.FirstToken(o)
}

func (w *watched) done(p Observer, t kv.Target) {
	n, ctx, out := 1+w.r.Float64()*30, w.r.Float64()*200000, 20+w.r.IntN(400)
	gap := (w.DecodeStep + n*w.DecodeRequest + ctx*w.DecodeToken) * (.9 + .2*w.r.Float64())
	stream := seconds(gap * float64(out-1))
	p.Done(&kv.Done{Target: t, Prompt: 1000, Output: out, Requests: n, Tokens: ctx, Streaming: 2 * stream, Stalled: stream})
}

func scaled(f float64) Coefficients {
	c := nominal
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
		prefill = max(prefill, off(got.prefill(x[0], x[1], 8192, 0, 0), want.prefill(x[0], x[1], 8192, 0, 0)))
	}
	for _, x := range [][2]float64{{1, 1000}, {10, 50000}, {30, 200000}} {
		f := func(c Coefficients) float64 { return c.DecodeStep + x[0]*c.DecodeRequest + x[1]*c.DecodeToken }
		step = max(step, off(f(got), f(want)))
	}
	return prefill, step
}

func TestCalibration(t *testing.T) {
	for _, speed := range []float64{.05, 1, 40} {
		p := must(t, named("marginal"), seeded(1)).(*marginal)
		w := &watched{scaled(speed), rand.New(rand.NewPCG(4, uint64(speed*100)))}
		cands := fleet(2)
		if p.Pick(&Request{Tokens: 500}, cands); p.Calibration(0).Known || cands[0].Prefill != 0 {
			t.Fatal("claims to know what it has not seen")
		}
		p.Placed(&Request{}, cands, 0)
		for range 16 {
			w.first(p, 0, .1)
		}
		// The start errs on the safe side.
		early := p.Calibration(0)
		got, want := early.prefill(1000, 0, 8192, 0, 0), w.prefill(1000, 0, 8192, 0, 0)
		if !early.Known || got < want || got > 2*want {
			t.Errorf("speed %v: after 16 samples %v s for 1,000 tokens, true %v: want too much rather than too little", speed, got, want)
		}
		for range 600 {
			w.first(p, 0, .1)
			w.done(p, 0)
		}
		prefill, step := worst(p.Calibration(0).Coefficients, w.Coefficients)
		if prefill > 1.35 || step > 1.1 {
			t.Errorf("speed %v: prefill off by %.2f, step by %.2f with 10 %% strays", speed, prefill, step)
		}
		// A new target of the fleet starts with what the fleet knows.
		if prefill, _ := worst(p.Calibration(1).Coefficients, w.Coefficients); prefill > 1.35 {
			t.Errorf("speed %v: a new target is off by %.2f", speed, prefill)
		}
	}
}

// The engine becomes 12 times slower (a neighbour on its GPU): every sample is
// far off, and must not be dropped for ever.
func TestCalibrationFollows(t *testing.T) {
	p := must(t, named("marginal"), seeded(1)).(*marginal)
	cands := fleet(2)
	p.Placed(&Request{}, cands, 0)
	p.Placed(&Request{}, cands, 1)
	w := &watched{scaled(1), rand.New(rand.NewPCG(1, 1))}
	for range 200 {
		w.first(p, 0, 0)
		w.first(p, 1, 0)
	}
	slow := &watched{scaled(12), w.r}
	for range 800 {
		slow.first(p, 0, 0)
		w.first(p, 1, 0)
	}
	if off, _ := worst(p.Calibration(0).Coefficients, slow.Coefficients); off > 1.5 {
		t.Errorf("the slow target is off by %.2f", off)
	}
	if off, _ := worst(p.Calibration(1).Coefficients, w.Coefficients); off > 1.5 {
		t.Errorf("the other target is off by %.2f", off)
	}
}

// In a burst, requests are computed together with those that come right behind
// them. The target that gets the most of these isn't slower for it.
func TestCalibrationLeavesOutJoined(t *testing.T) {
	p := must(t, named("marginal"), seeded(1)).(*marginal)
	cands := fleet(2)
	p.Placed(&Request{}, cands, 0)
	p.Placed(&Request{}, cands, 1)
	r := rand.New(rand.NewPCG(5, 5))
	first := func(target kv.Target, joined int) {
		u := 500 + r.IntN(1500)
		y := nominal.prefill(u+joined, 0, 8192, 0, 0) * (.9 + .2*r.Float64())
		p.FirstToken(&kv.FirstToken{Target: target, Prompt: u, Alone: true, Joined: joined, Latency: seconds(y), MaxBatch: 8192})
	}
	for range 300 {
		first(0, 0)
		first(1, 1500)
		first(1, 50) // next to nothing
	}
	c := p.Calibration(1)
	if c.PrefillFactor != 1 || c.PrefillSamples > 300 {
		t.Errorf("%d samples, factor %.2f; want at most the 300 that nobody joined, and no difference", c.PrefillSamples, c.PrefillFactor)
	}
	if off, _ := worst(c.Coefficients, nominal); off > 1.35 {
		t.Errorf("prefill off by %.2f", off)
	}
	// Where all are joined, a too long time is better than none.
	p = must(t, named("marginal"), seeded(1)).(*marginal)
	p.Placed(&Request{}, cands, 1)
	for range primeSamples * (maxJoined + 1) {
		first(1, 1500)
	}
	if c := p.Calibration(1); !c.Known {
		t.Errorf("knows nothing after %d first tokens", primeSamples*(maxJoined+1))
	}
}

// News of what other routers have placed teaches nothing: it comes when they
// choose to tell.
func TestCalibrationIgnoresNews(t *testing.T) {
	p := must(t, named("marginal"), seeded(1)).(*marginal)
	p.Placed(&Request{}, fleet(1), 0)
	w := &watched{scaled(1), rand.New(rand.NewPCG(3, 3))}
	for range 100 {
		w.first(p, 0, 0)
		w.done(p, 0)
	}
	before := p.AppendState(nil)
	for range 500 {
		p.FirstToken(&kv.FirstToken{Prompt: 1000, Alone: true, Latency: time.Second / 2, MaxBatch: 8192, FromPeer: true})
		p.Done(&kv.Done{Prompt: 1000, Output: 100, Streaming: time.Minute, Requests: 1, Tokens: 1000, FromPeer: true})
	}
	if got := p.AppendState(nil); !bytes.Equal(got, before) {
		t.Errorf("has learned from news:\n%s\nbefore\n%s", got, before)
	}
}

// Samples that say nothing (all alike) or nonsense leave the coefficients
// bounded and positive.
func TestCalibrationIsBounded(t *testing.T) {
	p := must(t, named("marginal"), seeded(1)).(*marginal)
	p.Placed(&Request{}, fleet(1), 0)
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
		p.FirstToken(o)
		p.Done(&kv.Done{Output: r.IntN(1000), Streaming: time.Duration(r.Int64()), Requests: r.Float64() * 100, Tokens: r.Float64() * 1e9, Stalled: time.Duration(r.Int64())})
		c := p.Calibration(0).Coefficients
		for _, v := range []float64{c.PrefillToken, c.Attention, c.Step, c.DecodeStep, c.DecodeRequest, c.DecodeToken} {
			if !(v > 0) || math.IsInf(v, 0) {
				t.Fatalf("after %d samples: %+v", k, c)
			}
		}
	}
}

// While nothing is known the cost is one of tokens: the holder wins until what
// it owes outweighs what it holds.
func TestMarginalUncalibrated(t *testing.T) {
	p := must(t, named("marginal"), lowestIndex)
	cands := fleet(2)
	cands[1].Overlap.GPU = 4000
	req := &Request{Tokens: 5000, Known: true}
	if i := p.Pick(req, cands); i != 1 {
		t.Errorf("idle: picked %d, want the holder", i)
	}
	cands[1].Load = kv.Load{Requests: 3, Prefilling: 3, Prefill: 30000, Prompt: 30000}
	if i := p.Pick(req, cands); i != 0 {
		t.Errorf("30,000 tokens owed: picked %d, want the idle one", i)
	}
}

func TestMarginalState(t *testing.T) {
	a := must(t, named("marginal"), seeded(1)).(*marginal)
	cands := fleet(3)
	w := &watched{scaled(3), rand.New(rand.NewPCG(7, 7))}
	for i := range cands {
		a.Placed(&Request{}, cands, i)
	}
	for range 200 {
		w.first(a, 0, 0)
		w.first(a, 2, 0)
		w.done(a, 2)
	}
	a.Forget(2) // parked, and saved all the same
	state := a.AppendState(nil)
	b := must(t, named("marginal"), seeded(1)).(*marginal)
	if err := b.LoadState(state); err != nil {
		t.Fatal(err)
	}
	// After the restart the same replicas have other numbers.
	moved := fleet(3)
	moved[0].Target, moved[2].Target = 2, 0
	for i := range moved {
		b.Placed(&Request{}, moved, i)
	}
	a.Placed(&Request{}, cands, 2)
	if got, want := b.Calibration(0), a.Calibration(2); got != want {
		t.Errorf("%+v after the restart, want %+v", got, want)
	}
	if got := b.AppendState(nil); !bytes.Contains(got, []byte(`"version":1`)) {
		t.Errorf("%s", got)
	}
	before := b.Calibration(0)
	for _, bad := range []string{
		"", "{", `{"kind":"x","version":1}`, `{"kind":"kvasir-calibration","version":2}`,
		strings.Replace(string(state), `"coefficients":[`, `"coefficients":[9`, 1),
		strings.Replace(string(state), `"prior":[`, `"prior":[-`, 1),
		strings.Replace(string(state), `"samples":`, `"samples":-`, 1),
	} {
		if err := b.LoadState([]byte(bad)); err == nil {
			t.Errorf("accepted %.80s", bad)
		}
	}
	if b.Calibration(0) != before {
		t.Error("a refused state has changed something")
	}
}

func FuzzLoadState(f *testing.F) {
	p, _ := New(named("marginal"), seeded(1))
	f.Add([]byte(`{"kind":"kvasir-calibration","version":1,"output":[1000,5],"prefill":{},"decode":{},"targets":[{"identity":1,"prefill":{"log":1,"samples":99,"clear":true},"decode":{}}]}`))
	f.Add(p.(Keeper).AppendState(nil))
	f.Fuzz(func(t *testing.T, src []byte) {
		p, _ := New(named("marginal"), lowestIndex)
		if p.(Keeper).LoadState(src) != nil {
			return
		}
		cands := fleet(3)
		run(p, &Request{Tokens: 1000, Known: true}, cands)
		for k := range 60 {
			p.(Observer).FirstToken(&kv.FirstToken{Prompt: 1000 + k, Alone: true, Latency: time.Second, MaxBatch: 8192})
		}
		run(p, &Request{Tokens: 1000, Known: true}, cands)
		for i := range cands {
			if !(cands[i].Cost >= 0) {
				t.Errorf("cost %v", cands[i].Cost)
			}
		}
	})
}
