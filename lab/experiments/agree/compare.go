package main

import (
	"fmt"
	"math"
)

// A comparison is one figure in runs that should differ by chance only.
//
// One run is one trajectory: two requests a millisecond apart that change places, or
// one that joins a step later, part it from all others at the next close decision,
// and from there on the fleet has another history. So the spread of the simulator's
// runs is the measure of what a run in real time may differ by.
type comparison struct{ sims, real []float64 }

// diff returns how far the mean in real time is above the simulator's, as a share.
func (c *comparison) diff() float64 { return mean(c.real)/mean(c.sims) - 1 }

// doubt is the standard error of diff, if both are drawn from what the simulator's
// runs show.
func (c *comparison) doubt() float64 {
	m, sum := mean(c.sims), 0.0
	for _, x := range c.sims {
		sum += (x - m) * (x - m)
	}
	variance := sum / float64(len(c.sims)-1)
	return math.Sqrt(variance*(1/float64(len(c.real))+1/float64(len(c.sims)))) / m
}

// judge returns an error if the difference is more than 10 %, and more than two
// standard errors.
func (c *comparison) judge() error {
	d, doubt := c.diff(), c.doubt()
	if math.Abs(d) <= max(.1, 2*doubt) {
		return nil
	}
	return fmt.Errorf("real time differs by %+.1f %%, want 10 %% at most, or two standard errors (%.1f %%)", 100*d, 200*doubt)
}

func mean(xs []float64) float64 {
	sum := 0.0
	for _, x := range xs {
		sum += x
	}
	return sum / float64(len(xs))
}

// over writes a mean and the range.
func over(xs []float64) string {
	lo, hi := math.Inf(1), math.Inf(-1)
	for _, x := range xs {
		lo, hi = min(lo, x), max(hi, x)
	}
	if len(xs) == 1 {
		return fmt.Sprintf("%.3f", lo)
	}
	return fmt.Sprintf("%.3f (%.3f to %.3f)", mean(xs), lo, hi)
}
