package learn

import (
	"math"
	"slices"
)

// A Fit learns three coefficients of a sum from noisy samples: y = k0*x0 + k1*x1
// + k2*x2, all of them positive. It is a ridge regression on relative errors
// with exponential forgetting, drawn towards a prior and kept within a factor of
// it, so that a few bad samples, or many that all look alike, can't send it
// astray:
//
//	minimise sum f^age * (y/pred - sum(k_i*x_i/pred))^2 + ridge * sum (k_i/prior_i - 1)^2
//	subject to prior_i/bound <= k_i <= prior_i*bound
//
// Samples off the prediction by more than half weigh less (Huber's loss), as they
// mostly waited for something unseen; those far off are dropped. If these
// keep coming it is the fit that is wrong, and it starts again from the samples
// themselves.
//
// Without a prior the first samples make one: the shape of a known engine, times
// the median of the samples' ratios to it.
type Fit struct {
	prior [3]float64 // zero while there is none
	k     [3]float64 // coefficients in use
	n     int        // samples since the prior
	drops int        // in a row

	// The normal equations in units of the prior.
	a [3][3]float64
	b [3]float64

	ratios [primeSamples]float64
	primed int
}

const (
	forgetting   = 0.999 // weight of all before, with each sample
	ridge        = 3.0   // the prior is worth as many samples as this
	bound        = 4.0   // factor from the prior
	minSamples   = 50    // before the samples replace the prior
	primeSamples = 16    // before they make one
	farOff       = 5.0   // a sample off by this factor is dropped
	huber        = 0.5   // one off by more than this share weighs less
	maxDrops     = 50    // in a row, before the fit starts again
)

// Known reports whether the coefficients mean anything.
func (f *Fit) Known() bool { return f.prior[0] > 0 }

// Start gives the fit a prior.
func (f *Fit) Start(prior [3]float64) {
	*f = Fit{prior: prior, k: prior}
}

// Predict returns y at x.
func (f *Fit) Predict(x [3]float64) float64 {
	return f.k[0]*x[0] + f.k[1]*x[1] + f.k[2]*x[2]
}

// Observe learns from y at x. While there is no prior, shape is a known engine's
// coefficients, and over how many times too much the first estimate is to be.
func (f *Fit) Observe(x [3]float64, y float64, shape [3]float64, over float64) {
	if !(y > 0) || math.IsInf(y, 0) {
		return
	}
	if !f.Known() {
		f.prime(x, y, shape, over)
		return
	}
	pred := f.Predict(x)
	if !(pred > 0) {
		return
	}
	if y > farOff*pred || y < pred/farOff {
		if f.drops++; f.drops >= maxDrops {
			*f = Fit{}
		}
		return
	}
	f.drops = 0
	f.n++
	w := 1.0
	if r := math.Abs(y/pred - 1); r > huber {
		w = huber / r
	}
	var z [3]float64
	for i := range z {
		z[i] = x[i] * f.prior[i] / pred
	}
	for i := range z {
		for j := range z {
			f.a[i][j] = f.a[i][j]*forgetting + w*z[i]*z[j]
		}
		f.b[i] = f.b[i]*forgetting + w*z[i]*y/pred
	}
	f.solve()
}

// prime collects ratios of samples to the shape, and makes their median the
// scale of the prior.
func (f *Fit) prime(x [3]float64, y float64, shape [3]float64, over float64) {
	s := shape[0]*x[0] + shape[1]*x[1] + shape[2]*x[2]
	if !(s > 0) {
		return
	}
	f.ratios[f.primed] = y / s
	if f.primed++; f.primed < primeSamples {
		return
	}
	r := f.ratios
	slices.Sort(r[:])
	scale := over * r[primeSamples/2]
	f.Start([3]float64{shape[0] * scale, shape[1] * scale, shape[2] * scale})
}

// Coefficients returns what is in use: zeros before Known.
func (f *Fit) Coefficients() [3]float64 { return f.k }

// Samples returns how many have been learned from since the prior.
func (f *Fit) Samples() int { return f.n }

// solve minimises within the bounds by going through the coordinates. The matrix
// is positive definite thanks to the ridge, so that converges; a dozen rounds
// are plenty, as the start is the last solution.
func (f *Fit) solve() {
	if f.n < minSamples {
		return
	}
	var t [3]float64
	for i := range t {
		t[i] = f.k[i] / f.prior[i]
	}
	for range 12 {
		for i := range t {
			r := f.b[i] + ridge
			for j := range t {
				if j != i {
					r -= f.a[i][j] * t[j]
				}
			}
			t[i] = min(max(r/(f.a[i][i]+ridge), 1/bound), bound)
		}
	}
	for i := range t {
		f.k[i] = t[i] * f.prior[i]
	}
}
