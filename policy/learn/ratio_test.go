package learn

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestRatio(t *testing.T) {
	var r Ratio
	for i := range firstRatios - 1 {
		r.Observe(3)
		if r.Median() != 1 || r.Factor() != 1 || r.Error() != 0 {
			t.Fatalf("says something after %d", i+1)
		}
	}
	for _, bad := range []float64{0, -1, math.NaN(), math.Inf(1)} {
		r.Observe(bad)
	}
	if r.Samples() != firstRatios-1 {
		t.Errorf("%d samples: nonsense counts", r.Samples())
	}
	r.Observe(3)
	if math.Abs(r.Median()-3) > 1e-9 || r.Clear() {
		t.Errorf("median %v after 16 times 3, clear %v; want 3, and not clear yet", r.Median(), r.Clear())
	}
	for r.Samples() < minSamples-1 {
		r.Observe(3)
	}
	if r.Factor() != 1 {
		t.Errorf("factor %v after %d samples, want 1 before %d", r.Factor(), r.Samples(), minSamples)
	}
	r.Observe(3)
	if math.Abs(r.Factor()-3) > 1e-9 || !r.Clear() {
		t.Errorf("factor %v, want 3", r.Factor())
	}
}

// A difference counts from a factor of 1.25 on, and until it is below 1.15: in between
// it stays what it was, or a target at the edge would flap.
func TestRatioIsClearWithHysteresis(t *testing.T) {
	at := func(r *Ratio, x float64) bool {
		for range 400 {
			r.Observe(x)
		}
		return r.Clear()
	}
	var r Ratio
	for _, c := range []struct {
		ratio float64
		clear bool
	}{{1.2, false}, {1.3, true}, {1.2, true}, {1.16, true}, {1.14, false}, {1.2, false}, {1 / 1.3, true}, {1 / 1.2, true}, {1 / 1.1, false}} {
		if got := at(&r, c.ratio); got != c.clear {
			t.Errorf("at %.3f clear is %v", c.ratio, got)
		}
	}
}

// It is a median: a fifth of wild ratios hardly moves it, and it follows a change.
func TestRatioIsRobustAndFollows(t *testing.T) {
	var r Ratio
	rng := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		x := 2 * math.Exp(.1*rng.NormFloat64())
		if rng.IntN(5) == 0 {
			x = 100
		}
		r.Observe(x)
	}
	if m := r.Median(); m < 1.9 || m > 2.4 {
		t.Errorf("median %v with a fifth of strays, want about 2.1", m)
	}
	n := 0
	for ; r.Median() > 1.05; n++ {
		r.Observe(1)
	}
	if n < 20 || n > 120 {
		t.Errorf("%d samples until it follows, want some 60", n)
	}
}

// The error is what it says: medians of many runs scatter by about as much.
func TestRatioError(t *testing.T) {
	for _, spread := range []float64{.05, .3} {
		var sum, errors float64
		const runs = 400
		for run := range runs {
			rng := rand.New(rand.NewPCG(uint64(run), 3))
			var r Ratio
			for range 300 {
				r.Observe(math.Exp(spread * rng.NormFloat64()))
			}
			d := math.Log(r.Median())
			sum += d * d
			errors += r.Error()
		}
		if got, want := errors/runs, math.Sqrt(sum/runs); got < want*.7 || got > want*1.6 {
			t.Errorf("spread %v: an error of %.4f is told, and medians scatter by %.4f", spread, got, want)
		}
	}
}
