package policy

import (
	"math/rand/v2"
	"testing"
)

// TestCalibrationBeginsUnderLoad: on a small fleet under load every request is
// joined by others. The first sixteen are enough to know the engine's speed, and
// the tokens that joined are no slowness of it.
func TestCalibrationBeginsUnderLoad(t *testing.T) {
	slow := scaled(60)
	p := must(t, named("marginal"), seeded(1)).(*marginal)
	p.Placed(&Request{}, fleet(1), 0)
	r := rand.New(rand.NewPCG(1, 9))
	for range primeSamples {
		if p.Calibration(0).Known {
			t.Fatal("known too soon")
		}
		u, joined := 200+r.IntN(100), 500
		y := slow.prefill(u+joined, 0, 2048, 0, 0)
		p.FirstToken(&FirstToken{Prompt: 1000 + u, Cached: 1000, Alone: true, Joined: joined, Latency: seconds(y), MaxBatch: 2048})
	}
	c := p.Calibration(0)
	if f := c.PrefillToken / slow.PrefillToken; !c.Known || f < .7 || f > 1.6 {
		t.Errorf("known %v, prefill %.2f times the truth; want about %.1f", c.Known, f, over)
	}
}

// TestUnknownPricesAreOfOneEngine: steps that are measured already don't stand
// beside a guessed prefill, which they would outweigh: seen on real engines that
// prefill 80 times slower than the guess, where sessions moved to save decode.
func TestUnknownPricesAreOfOneEngine(t *testing.T) {
	w := &watched{scaled(20), rand.New(rand.NewPCG(1, 3))}
	p := must(t, named("marginal"), seeded(1)).(*marginal)
	p.Placed(&Request{}, fleet(1), 0)
	for range 200 {
		w.done(p, 0)
	}
	if c := p.Calibration(0); c.Known || c.DecodeStep != nominal.DecodeStep || c.PrefillToken != nominal.PrefillToken {
		t.Errorf("known %v: a step of %v s beside %v s a token, want those of the known engine", c.Known, c.DecodeStep, c.PrefillToken)
	}
	for range 200 {
		w.first(p, 0, 0)
	}
	c := p.Calibration(0)
	if pre, step := worst(c.Coefficients, w.Coefficients); !c.Known || pre > 1.5 || step > 1.5 {
		t.Errorf("known %v, prefill off by %.2f, step by %.2f", c.Known, pre, step)
	}
}
