package policy

import (
	"math"
	"slices"
)

// A skew is the running median of the ratios of measured times to predicted ones.
//
// One says how far the fleet's fit is off its samples' median, as a regression
// follows the mean, and times that are off are mostly too long. And one for each
// target says how much slower or faster it is than the fleet. That is one number
// and not a regression, because engines of one kind are alike: separate fits
// differ by noise and by how they are loaded, and a target that is thought slower
// by mistake gets less to do for it (in the simulator, 8 % more TTFT on the
// Mooncake synthetic trace). So a target's difference counts only when it is
// clear.
type skew struct {
	log   float64 // natural logarithm of the ratio
	n     int
	clear bool // the difference counts

	med, fac float64 // median and factor, 0 for 1: exponentials are too slow to take for every candidate

	first [firstSkews]float64
}

const (
	firstSkews = 16
	skewStep   = .05 // of the way to each new ratio,
	skewPull   = .3  // none pulling farther than this: a tenth of strays hardly matters
	skewEnter  = .22 // a factor of 1.25
	skewLeave  = .14 // and 1.15
)

func (s *skew) observe(ratio float64) {
	if !(ratio > 0) || math.IsInf(ratio, 0) {
		return
	}
	l := math.Log(ratio)
	if s.n < firstSkews {
		s.first[s.n] = l
		s.n++
		f := s.first
		slices.Sort(f[:s.n])
		s.log = f[s.n/2]
		s.tell()
		return
	}
	s.n++
	s.log += skewStep * min(max(l-s.log, -skewPull), skewPull)
	d := math.Abs(s.log)
	if s.clear {
		s.clear = d > skewLeave
	} else {
		s.clear = s.n >= minSamples && d > skewEnter
	}
	s.tell()
}

func (s *skew) tell() {
	s.med, s.fac = 0, 0
	if s.n >= firstSkews {
		s.med = math.Exp(s.log)
	}
	if s.clear {
		s.fac = math.Exp(s.log)
	}
}

// factor returns the median, 1 while the difference isn't clear.
func (s *skew) factor() float64 {
	if s.fac == 0 {
		return 1
	}
	return s.fac
}

// median returns the median, 1 before there are samples enough to tell.
func (s *skew) median() float64 {
	if s.med == 0 {
		return 1
	}
	return s.med
}
