package policy

import (
	"kvasir/kv"
	"kvasir/policy/learn"
)

// A mix is how the time that requests take is split: up to the first token, and
// after it. It isn't kept over a restart.
type mix struct {
	first, after learn.Mean // seconds
}

const (
	mixMemory  = 1000 // requests
	mixSamples = 50

	// Where first tokens take this share of the time or more, decode has the
	// prices that were tuned there.
	ordinaryFirst = .03
)

func (m *mix) firstToken(o *kv.FirstToken) {
	if !o.FromPeer && o.Latency > 0 {
		m.first.Add(o.Latency.Seconds(), mixMemory)
	}
}

func (m *mix) done(o *kv.Done) {
	if !o.Failed && !o.FromPeer && o.Streaming > 0 {
		m.after.Add(o.Streaming.Seconds(), mixMemory)
	}
}

// scale returns by how much the prices of decode rise, from 1 on: in inverse
// proportion to the share of first tokens, below ordinaryFirst. There is little
// to lose at first tokens then, and the last token of all (a rollout, a batch)
// comes the sooner the more evenly decode is spread.
func (m *mix) scale() float64 {
	if m.first.Weight() < mixSamples || m.after.Weight() < mixSamples {
		return 1
	}
	share := m.first.Or(0) / (m.first.Or(0) + m.after.Or(0))
	return max(1, ordinaryFirst/max(share, 1e-3))
}

// decodePrice returns price at the mix at hand, at most top if that is more.
func (m *mix) decodePrice(price, top float64) float64 {
	if price <= 0 || top <= price {
		return price
	}
	return min(price*m.scale(), top)
}

// flightSigma is what sigma rises to where delta and omega have trebled: a prefill holds
// up what decodes there.
const flightSigma = .03

// flightPrice returns sigma at the mix at hand; delta and top are a price of decode and
// what that rises to.
func (m *mix) flightPrice(sigma, delta, top float64) float64 {
	if delta <= 0 || top <= delta || sigma >= flightSigma {
		return sigma
	}
	return sigma + (flightSigma-sigma)*min(1, (m.scale()-1)/2)
}
