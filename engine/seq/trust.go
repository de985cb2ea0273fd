package seq

import (
	"fmt"
	"time"

	"kvasir/kv"
)

// trust is how far what was applied can be believed: a base that follows from
// the numbers, and what the link adds to it.
type trust struct {
	base  kv.Trust
	why   string
	lossy bool // batches are missing that a refill may bring

	// After a new connection it must be shown that the process is the one that
	// we know and that nothing was lost in between: by a replay that begins with
	// our last batch, or by an unchanged start time and a number that fits.
	proven     bool
	guessed    bool // batches were applied while it was not: our last batch proves nothing about those before
	contiguous bool
	verified   bool

	shown    kv.Trust // as last told to the sink
	shownWhy string
}

// prove notices that number and start time agree.
func (m *Machine) prove() {
	if m.trust.contiguous && m.trust.verified {
		m.ground()
		m.confirm()
	}
}

// believe sets the base.
func (m *Machine) believe(t kv.Trust, why string) {
	m.trust.base, m.trust.why, m.trust.lossy = t, why, false
}

// ground notes that what is known is of the process on this connection.
func (m *Machine) ground() { m.trust.proven, m.trust.guessed = true, false }

// stale notes that removals may be missing; lossy, that a refill would help. The
// first reason stays.
func (m *Machine) stale(why string, lossy bool) {
	if m.trust.base != kv.Stale {
		m.trust.base, m.trust.why = kv.Stale, why
	}
	m.trust.lossy = m.trust.lossy || lossy
}

// publish tells the sink when trust or reason have changed.
func (m *Machine) publish(now time.Time) {
	t, why := m.trust.base, m.trust.why
	switch {
	case !m.up && m.downSince.IsZero():
	case !m.up && now.Sub(m.downSince) >= m.cfg.BlindAfter:
		t, why = kv.Blind, fmt.Sprintf("connection down for more than %v", m.cfg.BlindAfter)
	case t == kv.Unknown && !m.up && m.stats.Applied == 0:
		why = "not connected yet"
	case t == kv.Unknown:
	case m.loaded:
		t, why = kv.Filling, unconfirmed
	case !m.up:
		t, why = kv.Stale, "connection down"
	case m.mode == repair && !m.probe:
		t, why = kv.Stale, m.running
	case m.mode == attach && m.started, m.mode == refill && m.answered:
		t, why = kv.Filling, m.running
	case !m.trust.proven && t != kv.Stale:
		t, why = kv.Stale, "connected again: that nothing was lost has not been shown yet"
		if !m.cfg.Replay {
			why = "connected again: the next batch will show whether any was lost" + addReplay
		}
	}
	if t != m.trust.shown || why != m.trust.shownWhy {
		m.trust.shown, m.trust.shownWhy = t, why
		m.sink.Trust(t, why)
	}
}
