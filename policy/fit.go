package policy

import (
	"math"
	"slices"
)

// A fit learns three coefficients of a sum from noisy samples: y = k0*x0 + k1*x1
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
type fit struct {
	prior [3]float64 // zero while there is none
	k     [3]float64 // coefficients in use
	n     int        // samples since the prior
	drops int        // in a row

	// Normal equations in units of the prior.
	a [3][3]float64
	b [3]float64

	ratios [primeSamples]float64
	primed int
}

const (
	memory       = 0.999
	ridge        = 3.0 // worth as many samples as this
	bound        = 4.0
	minSamples   = 50 // before the samples replace the prior
	primeSamples = 16 // before they make one
	farOff       = 5.0
	huber        = 0.5
	maxDrops     = 50
)

// known reports whether the coefficients mean anything.
func (f *fit) known() bool { return f.prior[0] > 0 }

// start gives the fit a prior.
func (f *fit) start(prior [3]float64) {
	*f = fit{prior: prior, k: prior}
}

func (f *fit) predict(x [3]float64) float64 {
	return f.k[0]*x[0] + f.k[1]*x[1] + f.k[2]*x[2]
}

// observe learns from y at x. shape is the known engine's coefficients, over how
// much its median is overestimated.
func (f *fit) observe(x [3]float64, y float64, shape [3]float64, over float64) {
	if !(y > 0) || math.IsInf(y, 0) {
		return
	}
	if !f.known() {
		f.prime(x, y, shape, over)
		return
	}
	pred := f.predict(x)
	if !(pred > 0) {
		return
	}
	if y > farOff*pred || y < pred/farOff {
		if f.drops++; f.drops >= maxDrops {
			*f = fit{}
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
			f.a[i][j] = f.a[i][j]*memory + w*z[i]*z[j]
		}
		f.b[i] = f.b[i]*memory + w*z[i]*y/pred
	}
	f.solve()
}

// prime collects ratios of samples to the shape, and makes their median the
// scale of the prior.
func (f *fit) prime(x [3]float64, y float64, shape [3]float64, over float64) {
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
	f.start([3]float64{shape[0] * scale, shape[1] * scale, shape[2] * scale})
}

// solve minimises within the bounds by going through the coordinates. The matrix
// is positive definite thanks to the ridge, so that converges; a dozen rounds
// are plenty, as the start is the last solution.
func (f *fit) solve() {
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
