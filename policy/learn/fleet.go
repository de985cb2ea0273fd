// Package learn learns how fast engines compute from the times of their answers. It
// takes plain numbers and gives plain numbers, and knows nothing of policies:
//
//	Mean    a mean that follows
//	Ratio   a median of ratios that follows, and whether it differs from 1 clearly
//	Fit     three positive coefficients of a sum, from noisy samples
//	Fleet   all of these together: the coefficients of a fleet's engines, and how
//	        much slower or faster than that each one is
package learn

import (
	"time"

	"kvasir/kv"
)

// A Fleet learns the coefficients of a fleet, and how much slower or faster than that
// each target is. Use NewFleet. It is not safe for concurrent use.
type Fleet struct {
	learn   bool
	prefill fitted
	decode  fitted
	now     Coefficients // of the fleet
	targets [kv.MaxTargets]*target
	parked  []*target // of targets that are gone, or loaded and not yet seen
	output  Mean      // tokens of an answer
	joined  int       // prefills that others had joined, in a row
}

// A target is what is learned of one.
type target struct {
	identity        uint64
	prefill, decode Ratio
	prefillAt       time.Time // of the last sample; zero: none
	decodeAt        time.Time
	busy            period
	short           time.Time // when a request was last sent there though memory was short
}

// A fitted is a fit of the fleet, moved to the median of its samples.
type fitted struct {
	fit Fit
	off Ratio
}

func (f *fitted) known() bool { return f.fit.Known() }

func (f *fitted) predict(x [3]float64) float64 { return f.fit.Predict(x) * f.off.Median() }

func (f *fitted) coefficients() [3]float64 {
	k := f.fit.Coefficients()
	scale(&k, f.off.Median())
	return k
}

// observe learns from y at x on a target whose ratio is own (nil: not kept).
func (f *fitted) observe(x [3]float64, y float64, own *Ratio, shape [3]float64, over float64) {
	factor := 1.0
	if f.known() && f.fit.Samples() >= minSamples { // before that it is an overestimate on purpose
		if own != nil {
			own.Observe(y / f.predict(x))
			factor = own.Factor()
		}
		f.off.Observe(y / factor / f.fit.Predict(x))
	}
	f.fit.Observe(x, y/factor, shape, over)
	if !f.known() {
		f.off = Ratio{}
	}
}

// NewFleet starts from given, or from nothing if that is zero. Without learn it stays
// with given, and learns the length of answers only.
func NewFleet(given Coefficients, learn bool) *Fleet {
	f := &Fleet{learn: learn}
	if given != (Coefficients{}) {
		f.prefill.fit.Start(given.prefillPart())
		f.decode.fit.Start(given.decodePart())
	}
	f.refresh()
	return f
}

// Known reports whether prefill times can be told at all.
func (f *Fleet) Known() bool { return f.prefill.known() }

// refresh brings now up to date: the coefficients of the known engine until
// prefill is known.
func (f *Fleet) refresh() {
	k, d := known.prefillPart(), known.decodePart()
	if f.prefill.known() {
		k = f.prefill.coefficients()
	}
	switch {
	case !f.prefill.known(): // prices must be of one engine: measured steps beside guessed prefill would outweigh it
	case f.decode.known():
		d = f.decode.coefficients()
	default: // as slow at decoding as at prefill
		scale(&d, k[0]/known.PrefillToken)
	}
	f.now = Coefficients{
		PrefillToken: k[0], Attention: k[1], Step: k[2],
		DecodeStep: d[0], DecodeRequest: d[1], DecodeToken: d[2],
	}
}

// Of returns the coefficients of t: while nothing is known, those of a known engine.
func (f *Fleet) Of(t kv.Target) Coefficients {
	k := f.now
	e := f.target(t)
	if e == nil {
		return k
	}
	if x := e.prefill.Factor(); x != 1 {
		k.PrefillToken *= x
		k.Attention *= x
		k.Step *= x
	}
	if x := e.decode.Factor(); x != 1 {
		k.DecodeStep *= x
		k.DecodeRequest *= x
		k.DecodeToken *= x
	}
	return k
}

// Output returns how many tokens an answer has on average, and start while none has
// ended.
func (f *Fleet) Output(start float64) float64 { return f.output.Or(start) }

// Seen makes sure that a target which gets a request has a place to learn in, with what
// was known of it before. identity is the same for the same target after a restart.
func (f *Fleet) Seen(t kv.Target, identity uint64) {
	if !f.learn || int(t) >= len(f.targets) || f.targets[t] != nil && f.targets[t].identity == identity {
		return
	}
	f.Forget(t)
	for i, e := range f.parked {
		if e.identity == identity {
			f.parked = append(f.parked[:i], f.parked[i+1:]...)
			f.targets[t] = e
			return
		}
	}
	f.targets[t] = &target{identity: identity}
}

// Forget parks what is known of t, should the replica come back.
func (f *Fleet) Forget(t kv.Target) {
	if int(t) >= len(f.targets) || f.targets[t] == nil {
		return
	}
	if len(f.parked) >= kv.MaxTargets {
		f.parked = f.parked[1:]
	}
	f.parked = append(f.parked, f.targets[t])
	f.targets[t] = nil
}

// Short notes that a request was sent to t though memory was short there. It will wait
// for that, so the busy period says nothing of prefill.
func (f *Fleet) Short(t kv.Target, now time.Time) {
	if e := f.target(t); e != nil {
		e.short = now
	}
}

func (f *Fleet) target(t kv.Target) *target {
	if int(t) >= len(f.targets) {
		return nil
	}
	return f.targets[t]
}
