package learn

import (
	"time"

	"kvasir/kv"
)

// Learned is what is known of how fast one target computes, as its requests are priced
// with it. All numbers are finite.
type Learned struct {
	// Coefficients are those in use for this target, in seconds: of the fleet, times the
	// target's ratios where these are clear. PrefillToken is seconds per prompt token that
	// isn't cached, Step per engine step with prefill in it, DecodeStep per step without.
	Coefficients
	// Known says that prefill times are measured, or configured. False: the coefficients
	// are those of a known engine, good for proportions only, and tokens are counted
	// instead of time.
	Known bool

	Prefill Evidence // for PrefillToken, Attention and Step
	Decode  Evidence // for DecodeStep, DecodeRequest and DecodeToken

	Output float64 // mean tokens of an answer, of the whole fleet; 0: none has ended yet
}

// Evidence is what the coefficients of one target rest on.
type Evidence struct {
	// Ratio is how long this target takes for what takes the fleet 1: 2 is half as fast.
	// 1 before there are 16 samples. Only where the difference is Clear do the
	// coefficients have it.
	Ratio float64
	Clear bool
	// Error is the standard error of Ratio, as a share of it: .05 says that the truth is
	// probably within 5 %. 0: can't be told yet.
	Error   float64
	Samples int       // of this target, for Ratio
	Fleet   int       // of all targets, for the fleet's coefficients, since their last start; 0 and Known: configured
	Last    time.Time // when this target gave its latest sample; zero: none yet
}

// Learned returns what is known of t. A target that is new has what is known of the
// fleet, and no samples.
func (f *Fleet) Learned(t kv.Target) Learned {
	l := Learned{Coefficients: f.Of(t), Known: f.Known(), Output: f.output.Or(0)}
	own := f.target(t)
	if own == nil {
		own = &target{}
	}
	l.Prefill = evidence(&own.prefill, &f.prefill, own.prefillAt)
	l.Decode = evidence(&own.decode, &f.decode, own.decodeAt)
	return l
}

func evidence(own *Ratio, fleet *fitted, last time.Time) Evidence {
	return Evidence{
		Ratio: own.Median(), Clear: own.Clear(), Error: own.Error(), Samples: own.Samples(),
		Fleet: fleet.fit.Samples(), Last: last,
	}
}
