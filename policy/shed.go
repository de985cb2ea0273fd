package policy

import (
	"math"
	"time"
)

// Shed configures what is refused.
type Shed struct {
	// Enabled refuses requests that no target could serve in time.
	Enabled bool `yaml:"enabled"`
	// Deadline is how long the first token may take, for requests that name no deadline
	// themselves. 0s: as long as it takes.
	Deadline time.Duration `yaml:"deadline" range:"0s..24h"`
	// Rate is the prefill of one target, for policies that don't predict times. 0: their
	// requests are never late.
	Rate float64 `yaml:"prefill_rate" range:"0..1e9" unit:"tokens/s"`
	// Queue: requests of a priority below 0 are refused when every target has a queue of at
	// least this, or a KV use of KVUsage.
	Queue int `yaml:"queue" default:"5" range:"1..1Gi" unit:"requests"`
	// KVUsage: see Queue. A share of the KV cache.
	KVUsage float64 `yaml:"kv_usage" default:"0.8" range:"0.01..1"`
}

// shed refuses a request that no target could serve in time, before it makes
// those late that still can be: only if the least of waiting plus own prefill
// over all candidates is beyond the deadline. Weighting queues harder is no
// shedding, it only moves load.
type shed struct {
	Policy
	cfg Shed
}

func (p *shed) Shed(req *Request, cands []Candidate, i int) (why Refusal, refuse bool) {
	if why, refuse = p.Policy.Shed(req, cands, i); refuse {
		return why, true
	}
	deadline := p.cfg.Deadline
	if req.Deadline > 0 {
		deadline = req.Deadline
	}
	soonest, wait, alone := infinity, infinity, infinity
	saturated := true
	for i := range cands {
		c := &cands[i]
		w, own, known := p.times(req, c)
		if !known {
			soonest = 0 // can't tell, so it may be in time
		}
		soonest, wait, alone = min(soonest, w+own), min(wait, w), min(alone, own)
		if queueOf(c) < p.cfg.Queue && usageOf(c) < p.cfg.KVUsage {
			saturated = false
		}
	}
	switch {
	case deadline > 0 && soonest > deadline.Seconds():
		return Refusal{
			Retry: wholeSeconds(soonest - deadline.Seconds()), // by then so much work is done
			Late:  true, Soonest: durationOf(soonest), Deadline: deadline, Alone: durationOf(alone),
		}, true
	case req.Priority < 0 && saturated:
		return Refusal{Retry: wholeSeconds(wait)}, true
	}
	return Refusal{}, false
}

// wholeSeconds rounds s up to what Retry-After can say: 1 s to an hour.
func wholeSeconds(s float64) time.Duration {
	return time.Duration(math.Ceil(max(1, min(s, 3600)))) * time.Second
}

func durationOf(s float64) time.Duration { return time.Duration(min(s, 1e6) * float64(time.Second)) }

// times returns the waiting and the own prefill on c, in seconds.
func (p *shed) times(req *Request, c *Candidate) (wait, own float64, known bool) {
	if c.Prefill > 0 {
		return c.Load.Wait.Seconds(), c.Prefill.Seconds(), true
	}
	if p.cfg.Rate > 0 {
		u := tokensOf(req) - cachedOn(req, c, true)
		return float64(c.Load.Prefill) / p.cfg.Rate, float64(u) / p.cfg.Rate, true
	}
	return 0, 0, false
}
