package policy

import (
	"math"
	"time"
)

// Shed configures what is refused.
type Shed struct {
	Enabled  bool          `yaml:"enabled"`
	Deadline time.Duration `yaml:"deadline"` // to the first token, for requests that name none; 0: none
	// Rate is prefill tokens per second of one target, for policies that don't
	// predict times; 0: their requests are never late.
	Rate float64 `yaml:"prefill_rate"`
	// Requests of a priority below 0 are refused when every target has a queue
	// or a KV use of at least these.
	Queue   int     `yaml:"queue"`
	KVUsage float64 `yaml:"kv_usage"`
}

func (c *Shed) validate() error {
	if err := checkDuration("policy.shed.deadline", c.Deadline, 0, 24*time.Hour); err != nil {
		return err
	}
	if err := checkRange("policy.shed.prefill_rate", c.Rate, 0, 1e9); err != nil {
		return err
	}
	if err := checkInt("policy.shed.queue", c.Queue, 1, 1<<30); err != nil {
		return err
	}
	return checkRange("policy.shed.kv_usage", c.KVUsage, .01, 1)
}

// shed refuses a request that no target could serve in time, before it makes
// those late that still can be: only if the least of waiting plus own prefill
// over all candidates is beyond the deadline. Weighting queues harder is no
// shedding, it only moves load.
type shed struct {
	chain
	cfg Shed
}

func (p *shed) Pick(req *Request, cands []Candidate) int { return p.inner.Pick(req, cands) }

func (p *shed) Shed(req *Request, cands []Candidate, _ int) (retry time.Duration, refuse bool) {
	deadline := p.cfg.Deadline
	if req.Deadline > 0 {
		deadline = req.Deadline
	}
	soonest, wait := infinity, infinity
	saturated := true
	for i := range cands {
		c := &cands[i]
		w, own, known := p.times(req, c)
		if !known {
			soonest = 0 // can't tell, so it may be in time
		}
		soonest, wait = min(soonest, w+own), min(wait, w)
		if queueOf(c) < p.cfg.Queue && usageOf(c) < p.cfg.KVUsage {
			saturated = false
		}
	}
	late := deadline > 0 && soonest > deadline.Seconds()
	if !late && !(req.Priority < 0 && saturated) {
		return 0, false
	}
	return time.Duration(math.Ceil(max(1, min(wait, 3600)))) * time.Second, true
}

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
