package sched

import (
	"fmt"
	"sync"
	"time"

	"kvasir/kv"
	"kvasir/policy"
	"kvasir/policy/learn"
)

// GaugeLife is how long an engine's report of itself is believed; older ones are
// unknown to the policy.
const GaugeLife = 15 * time.Second

// A TargetState is everything known of one target beside index and ledger.
type TargetState struct {
	Trust  kv.Trust
	Reason string // of the trust
	Since  time.Time

	Gauge kv.Gauge // the engine's latest report of itself, however old; zero: none

	Picked    uint64 // decisions
	Failed    uint64 // that ended Failed
	Predicted uint64 // prompt tokens predicted cached, over requests whose usage is known
	Cached    uint64 // prompt tokens reported cached, over the same requests
	Over      uint64 // tokens predicted beyond what was served: phantom hits
	Under     uint64 // tokens served beyond what was predicted
	Phantoms  uint64 // requests that were served less than predicted
	Compared  uint64 // requests whose usage is known

	// Of the requests that were answered in full: had the engine announced blocks
	// of their prompts a few seconds later? If it hadn't, we and the engine
	// disagree about the tokens.
	Confirmed, Unconfirmed uint64

	held  int // blocks on the GPU, as the index had it at the last Tick
	short shortfall
}

// Share returns how much of what t's blocks say its engine serves, 0 to 1, as overlaps
// are priced with it: 1 unless less has been learned.
func (x *TargetState) Share() float64 { return x.short.share() }

// states holds a TargetState per target.
type states struct {
	mu sync.Mutex
	by [kv.MaxTargets]TargetState // guarded by mu
}

func (s *states) trust(t kv.Target) kv.Trust {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.by[t].Trust
}

// fill gives candidates their trust, what of their blocks is served, and what their
// engines reported if that is fresh.
func (s *states) fill(cands []policy.Candidate, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range cands {
		c := &cands[i]
		x := &s.by[c.Target]
		c.Trust, c.Held = x.Trust, x.held
		c.Overlap = x.short.price(c.Overlap)
		if x.Gauge.Known() && now.Sub(x.Gauge.At) <= GaugeLife {
			c.Engine = x.Gauge
		}
	}
}

// hold notes how many blocks the index has of t.
func (s *states) hold(t kv.Target, blocks int) {
	s.mu.Lock()
	s.by[t].held = blocks
	s.mu.Unlock()
}

func (s *states) picked(t kv.Target) {
	s.mu.Lock()
	s.by[t].Picked++
	s.mu.Unlock()
}

func (s *states) ended(t kv.Target, o Outcome) {
	if o != Failed {
		return
	}
	s.mu.Lock()
	s.by[t].Failed++
	s.mu.Unlock()
}

// served compares what was predicted at dispatch with what the engine did. It returns
// the alarm, if there is reason for one: see shortfall.
func (s *states) served(d *Decision, cached int) (alarm string, refill bool) {
	if d.Tokens == 0 || d.unread {
		return "", false // nothing was predicted
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	x := &s.by[d.Target]
	p := d.Cached()
	x.Compared++
	x.Predicted += uint64(p)
	x.Cached += uint64(cached)
	switch {
	case p > cached:
		x.Over += uint64(p - cached)
		x.Phantoms++
	case cached > p:
		x.Under += uint64(cached - p)
	}
	if d.odd {
		return "", false
	}
	return x.short.add(d.promised, cached, d.blockSize)
}

func (s *states) confirmed(t kv.Target, yes bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if yes {
		s.by[t].Confirmed++
	} else {
		s.by[t].Unconfirmed++
	}
}

func (s *states) forget(t kv.Target, now time.Time) {
	s.mu.Lock()
	s.by[t] = TargetState{Since: now, Reason: "new"}
	s.mu.Unlock()
}

// SetTrust says how far the index can be believed about t from now on.
func (s *Scheduler) SetTrust(t kv.Target, trust kv.Trust, reason string, now time.Time) {
	s.states.mu.Lock()
	defer s.states.mu.Unlock()
	x := &s.states.by[t]
	if x.Trust == trust && x.Reason == reason {
		return
	}
	if x.Trust != trust || x.Since.IsZero() {
		x.Since = now
	}
	x.Trust, x.Reason = trust, reason
}

// SetGauge keeps what t's engine reports of itself.
func (s *Scheduler) SetGauge(t kv.Target, g kv.Gauge) {
	s.states.mu.Lock()
	s.states.by[t].Gauge = g
	s.states.mu.Unlock()
}

// State returns what is known of t. The reason of its trust has what was learned of it.
func (s *Scheduler) State(t kv.Target) TargetState {
	s.states.mu.Lock()
	defer s.states.mu.Unlock()
	x := s.states.by[t]
	if x.short.learned() {
		if x.Reason != "" {
			x.Reason += "; "
		}
		x.Reason += fmt.Sprintf("the engine serves %.0f%% of what its blocks say, and is priced so", 100*x.Share())
	}
	return x
}

// Learned returns what the policy has learned of how fast t is, as it prices requests
// with it: seconds per prompt token and step, how t compares with the fleet, and what
// that rests on. False if the policy learns nothing; then there is nothing to show. The
// age of the latest sample is now less Prefill.Last, or Decode.Last, unless that is zero.
func (s *Scheduler) Learned(t kv.Target) (learn.Learned, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.policy.Learned(t)
}

// Load returns what t owes.
func (s *Scheduler) Load(t kv.Target, now time.Time) kv.Load {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ledger.View(t, now, nil)
}
