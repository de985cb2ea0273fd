package sched

import (
	"sync"
	"time"

	"kvasir/kv"
	"kvasir/policy"
)

// A Gauge is what an engine reports of itself. A value is unknown until the
// engine has told it, and again when it is older than GaugeLife.
type Gauge struct {
	Running, Waiting int     // requests
	KVUsage          float64 // 0 to 1
	At               time.Time
}

// GaugeLife is how long an engine's report of itself is taken as fresh.
const GaugeLife = 15 * time.Second

// A TargetState is everything known of one target beside index and ledger.
type TargetState struct {
	Trust  kv.Trust
	Reason string // of the trust
	Since  time.Time

	Gauge Gauge

	Picked    uint64 // decisions
	Failed    uint64 // that ended Failed
	Predicted uint64 // prompt tokens predicted cached, over requests whose usage is known
	Cached    uint64 // prompt tokens reported cached, over the same requests
	Over      uint64 // tokens predicted beyond what was served: phantom hits
	Under     uint64 // tokens served beyond what was predicted
	Phantoms  uint64 // requests that were served less than predicted
	Compared  uint64 // requests whose usage is known
}

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

// fill gives a candidate what its engine reported, if that is fresh.
func (s *states) fill(c *policy.Candidate, now time.Time) {
	s.mu.Lock()
	g := s.by[c.Target].Gauge
	s.mu.Unlock()
	if !g.At.IsZero() && now.Sub(g.At) <= GaugeLife {
		c.Engine = policy.Reported{Fresh: true, Running: g.Running, Waiting: g.Waiting, KVUsage: g.KVUsage}
	}
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

// served compares what was predicted at dispatch with what the engine did.
func (s *states) served(d *Decision, prompt, cached int) {
	if d.Tokens == 0 {
		return // nothing was predicted
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
func (s *Scheduler) SetGauge(t kv.Target, g Gauge) {
	s.states.mu.Lock()
	s.states.by[t].Gauge = g
	s.states.mu.Unlock()
}

// State returns what is known of t.
func (s *Scheduler) State(t kv.Target) TargetState {
	s.states.mu.Lock()
	defer s.states.mu.Unlock()
	return s.states.by[t]
}

// Load returns what t owes.
func (s *Scheduler) Load(t kv.Target, now time.Time) kv.Load {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ledger.View(t, now, nil)
}
