package learn

import (
	"math"
	"math/rand/v2"
	"testing"
)

var shape = [3]float64{1, .1, 10}

// sample returns terms that say something about each coefficient.
func sample(r *rand.Rand) [3]float64 {
	return [3]float64{1 + 100*r.Float64(), 2000 * r.Float64(), float64(1 + r.IntN(9))}
}

func dot(k, x [3]float64) float64 { return k[0]*x[0] + k[1]*x[1] + k[2]*x[2] }

// The first samples make a prior of the shape: the median of their ratios, times over.
func TestFitPrimes(t *testing.T) {
	var f Fit
	r := rand.New(rand.NewPCG(1, 1))
	for i := range primeSamples {
		if f.Known() || f.Coefficients() != ([3]float64{}) {
			t.Fatalf("known after %d samples", i)
		}
		x := sample(r)
		y := 2 * dot(shape, x)
		if i%3 == 0 {
			y *= 50 // a third of strays is no harm to a median
		}
		f.Observe(x, y, shape, 1.5)
	}
	if k := f.Coefficients(); !f.Known() || math.Abs(k[0]-3) > 1e-9 || math.Abs(k[2]-30) > 1e-9 || f.Samples() != 0 {
		t.Errorf("%v, want 3 times the shape", k)
	}
}

// Each coefficient is found, within what the noise leaves open.
func TestFitLearns(t *testing.T) {
	want := [3]float64{2, .05, 25}
	var f Fit
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 3000 {
		x := sample(r)
		f.Observe(x, dot(want, x)*(.9+.2*r.Float64()), shape, 1.3)
		if i == primeSamples+minSamples-2 {
			if prior := f.prior; f.Coefficients() != prior {
				t.Errorf("after %d samples %v: the prior %v is given up too soon", f.Samples(), f.Coefficients(), prior)
			}
		}
	}
	for i, k := range f.Coefficients() {
		if math.Abs(k/want[i]-1) > .05 {
			t.Errorf("coefficient %d is %.4f, want %.4f", i, k, want[i])
		}
	}
}

// Samples far off are dropped; those off by less, but by more than half, weigh less, so
// that a tenth of them bends the fit by less than their mean says.
func TestFitIsRobust(t *testing.T) {
	for _, c := range []struct {
		off      float64
		lo, hi   float64
		whatever string
	}{
		{20, .97, 1.03, "dropped"},
		{4, 1, 1.12, "a tenth at 4 times would be 1.3 on average"},
	} {
		var f Fit
		f.Start(shape)
		r := rand.New(rand.NewPCG(1, 3))
		for range 3000 {
			x := sample(r)
			y := dot(shape, x)
			if r.IntN(10) == 0 {
				y *= c.off
			}
			f.Observe(x, y, shape, 1)
		}
		x := [3]float64{50, 1000, 5}
		if got := f.Predict(x) / dot(shape, x); got < c.lo || got > c.hi {
			t.Errorf("with a tenth off by %v: %.3f times the truth, want %v to %v: %s", c.off, got, c.lo, c.hi, c.whatever)
		}
	}
}

// Where all samples are far off it is the fit that is wrong: it starts again, from them.
func TestFitStartsAgain(t *testing.T) {
	var f Fit
	f.Start(shape)
	r := rand.New(rand.NewPCG(1, 4))
	far := func(n int) {
		for range n {
			x := sample(r)
			f.Observe(x, 100*dot(shape, x), shape, 1)
		}
	}
	far(maxDrops - 1)
	x := sample(r)
	f.Observe(x, dot(shape, x), shape, 1) // one that fits: they aren't in a row
	far(maxDrops - 1)
	if !f.Known() {
		t.Fatal("given up though a sample fitted in between")
	}
	far(1)
	if f.Known() {
		t.Fatal("not given up")
	}
	far(primeSamples)
	if k := f.Coefficients(); math.Abs(k[0]/100-1) > 1e-9 {
		t.Errorf("%v, want a hundred times the shape", k)
	}
}

// Coefficients stay within a factor of four of the prior, whatever is fed.
func TestFitIsBounded(t *testing.T) {
	var f Fit
	f.Start(shape)
	r := rand.New(rand.NewPCG(1, 5))
	for range 2000 {
		x := sample(r)
		f.Observe(x, 4.9*shape[0]*x[0], shape, 1) // nothing but the first term
	}
	k := f.Coefficients()
	for i := range k {
		if x := k[i] / shape[i]; x < 1/bound-1e-9 || x > bound+1e-9 {
			t.Errorf("coefficient %d is %v times its prior", i, x)
		}
	}
	before := f
	for _, y := range []float64{0, -1, math.NaN(), math.Inf(1)} {
		f.Observe(sample(r), y, shape, 1)
	}
	if f != before {
		t.Error("has learned from nonsense")
	}
}
