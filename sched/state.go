package sched

import (
	"fmt"
	"math/bits"
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
	drift drift
}

// A drift watches the latest compared requests of one target.
type drift struct {
	phantoms uint32 // a bit for each of the latest, the newest lowest: served clearly less than predicted
	n        int    // of them compared since the last alarm
	over     uint64 // tokens, since the last alarm
}

// An alarm needs driftAlarm phantoms among the latest driftWindow requests. An
// engine under pressure evicts between decision and prefill, so one is nothing.
const (
	driftWindow = 32
	driftAlarm  = 16
)

// add takes one comparison and reports an alarm. Clearly less: by more than two
// blocks and a tenth of what was predicted.
func (w *drift) add(predicted, cached, blockSize int) (why string) {
	over := predicted - cached
	w.phantoms <<= 1
	w.n++
	if over > 2*blockSize && 10*over > predicted {
		w.phantoms |= 1
		w.over += uint64(over)
	}
	if n := bits.OnesCount32(w.phantoms); n >= driftAlarm {
		why = fmt.Sprintf("%d of the latest %d requests were served clearly less than predicted, %d tokens in all", n, min(w.n, driftWindow), w.over)
		*w = drift{}
	}
	return why
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

// fill gives candidates their trust, and what their engines reported if that is
// fresh.
func (s *states) fill(cands []policy.Candidate, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range cands {
		c := &cands[i]
		x := &s.by[c.Target]
		c.Trust, c.Held = x.Trust, x.held
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

// served compares what was predicted at dispatch with what the engine did.
// It returns the alarm, if there is reason for one.
func (s *states) served(d *Decision, prompt, cached int) (alarm string) {
	if d.Tokens == 0 {
		return "" // nothing was predicted
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
	return x.drift.add(p, cached, d.blockSize)
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

// State returns what is known of t.
func (s *Scheduler) State(t kv.Target) TargetState {
	s.states.mu.Lock()
	defer s.states.mu.Unlock()
	return s.states.by[t]
}

// Learned returns what the policy has learned of how fast t is, as it prices requests
// with it: seconds per prompt token and step, how t compares with the fleet, and what
// that rests on. False if the policy learns nothing; then there is nothing to show. The
// age of the latest sample is now less Prefill.Last, or Decode.Last, unless that is zero.
func (s *Scheduler) Learned(t kv.Target) (learn.Learned, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l, ok := s.policy.(policy.Learner); ok {
		return l.Learned(t)
	}
	return learn.Learned{}, false
}

// Load returns what t owes.
func (s *Scheduler) Load(t kv.Target, now time.Time) kv.Load {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ledger.View(t, now, nil)
}
