package learn

import (
	"math"
	"slices"
)

// A Ratio is the running median of the ratios of measured times to predicted ones.
//
// One says how far the fleet's fit is off its samples' median, as a regression
// follows the mean, and times that are off are mostly too long. And one for each
// target says how much slower or faster it is than the fleet. That is one number
// and not a regression, because engines of one kind are alike: separate fits
// differ by noise and by how they are loaded, and a target that is thought slower
// by mistake gets less to do for it (in the simulator, 8 % more TTFT on the
// Mooncake synthetic trace). So a target's difference counts only when it is
// clear.
type Ratio struct {
	log   float64 // natural logarithm of the ratio
	n     int
	clear bool // the difference counts

	med, fac float64 // median and factor, 0 for 1: exponentials are too slow to take for every candidate
	spread   float64 // mean distance of the logarithms from the median, about

	first [firstRatios]float64
}

const (
	firstRatios = 16
	ratioStep   = .05 // of the way to each new ratio,
	ratioPull   = .3  // none pulling farther than this: a tenth of strays hardly matters
	ratioEnter  = .22 // a factor of 1.25
	ratioLeave  = .14 // and 1.15
	ratioFar    = 1.  // nothing adds more than this to the spread
)

// Observe learns from one ratio of a measured time to a predicted one.
func (r *Ratio) Observe(ratio float64) {
	if !(ratio > 0) || math.IsInf(ratio, 0) {
		return
	}
	l := math.Log(ratio)
	if r.n < firstRatios {
		r.first[r.n] = l
		r.n++
		f := r.first
		slices.Sort(f[:r.n])
		r.log, r.spread = f[r.n/2], 0
		for _, x := range f[:r.n] {
			r.spread += min(math.Abs(x-r.log), ratioFar) / float64(r.n)
		}
		r.tell()
		return
	}
	r.n++
	r.spread += ratioStep * (min(math.Abs(l-r.log), ratioFar) - r.spread)
	r.log += ratioStep * min(max(l-r.log, -ratioPull), ratioPull)
	d := math.Abs(r.log)
	if r.clear {
		r.clear = d > ratioLeave
	} else {
		r.clear = r.n >= minSamples && d > ratioEnter
	}
	r.tell()
}

func (r *Ratio) tell() {
	r.med, r.fac = 0, 0
	if r.n >= firstRatios {
		r.med = math.Exp(r.log)
	}
	if r.clear {
		r.fac = math.Exp(r.log)
	}
}

// Factor returns the median, 1 while the difference isn't clear.
func (r *Ratio) Factor() float64 {
	if r.fac == 0 {
		return 1
	}
	return r.fac
}

// Median returns the median, 1 before there are samples enough to tell.
func (r *Ratio) Median() float64 {
	if r.med == 0 {
		return 1
	}
	return r.med
}

// Samples returns how many ratios there have been.
func (r *Ratio) Samples() int { return r.n }

// Clear reports whether the difference counts.
func (r *Ratio) Clear() bool { return r.clear }

// Error returns the standard error of the median, as a share of it: .05 is 5 %. It is 0
// while there are not samples enough to tell. Afterwards it is about right: as if ratios
// were log-normal and independent, and as if the running median were one of the last 39
// (with steps of .05, older ones have lost their weight).
func (r *Ratio) Error() float64 {
	if r.n < firstRatios {
		return 0
	}
	const recent = 2/ratioStep - 1
	const perSpread = math.Pi / 2 // sqrt(pi/2) from mean to standard deviation, and once more from a mean's error to a median's
	return perSpread * r.spread / math.Sqrt(min(float64(r.n), recent))
}
