package seq

import (
	"fmt"
	"math"
	"strings"
	"time"

	"kvasir/kv"
)

// A Mark says where a Machine stands. What its sink holds at that moment is what
// the publisher's batches before Next have made of it, so that a later Machine
// can go on from there with what was kept (see Resume).
type Mark struct {
	Next    uint64  // number of the batch that is expected next, above 0
	Time    float64 // of the batch before it, by the engine's clock
	Process float64 // when the engine's process began, in unix seconds; 0: not known
	Exact   bool    // every batch since then has been applied
	Why     string  // of the trust
}

// Mark returns where m stands. false: what the sink holds can't be gone on with,
// because nothing was published, or something was lost.
func (m *Machine) Mark() (Mark, bool) {
	t := &m.trust
	if !m.started || m.next == 0 || !isTime(m.lastTime) || t.guessed || t.lossy || t.base != kv.Exact && t.base != kv.Filling {
		return Mark{}, false
	}
	k := Mark{Next: m.next, Time: m.lastTime, Exact: t.base == kv.Exact, Why: t.why}
	if isTime(m.process) {
		k.Process = m.process
	}
	return k, true
}

func isTime(t float64) bool { return t > 0 && !math.IsInf(t, 1) }

// Resume makes a new Machine go on where another stood, with what that one's sink
// held. Until the publisher has shown that it is the same process, and that
// nothing was missed in between that can't be had, the trust is filling; if it
// can't be shown, everything is forgotten. Call it before Opened.
func (m *Machine) Resume(k Mark) {
	if k.Next == 0 || !isTime(k.Time) {
		return
	}
	m.started, m.next, m.lastTime, m.process = true, k.Next, k.Time, k.Process
	t := kv.Filling
	if k.Exact {
		t = kv.Exact
	}
	m.believe(t, k.Why)
	m.trust.proven = false
	m.loaded = true
}

const (
	unconfirmed = "loaded from a snapshot, not confirmed by the engine yet"
	continued   = "; continued from a snapshot"
)

// confirm notes that what was loaded is what the engine has.
func (m *Machine) confirm() {
	if m.loaded {
		m.loaded = false
		m.trust.why = strings.TrimSuffix(m.trust.why, continued) + continued
	}
}

// unload forgets what was loaded, and begins as if there had been no snapshot.
func (m *Machine) unload(why string, now time.Time) {
	m.cancel()
	m.dropHold()
	m.sawMore = false
	m.forget("the snapshot is of no use: " + why)
	m.unstart(why)
	if m.up && m.cfg.Replay {
		m.start(attach, 0, now)
	}
}

// doubt gives up on what should have been confirmed by now.
func (m *Machine) doubt(now time.Time) {
	switch at := m.doubtAt(); {
	case at.IsZero() || now.Before(at):
	case m.up:
		m.fresh(fmt.Sprintf("the engine has not told within %v of our connecting when its process began, so it may be another one%s", m.cfg.BlindAfter, addReplay), now)
	default:
		m.unload(fmt.Sprintf("no connection for %v", m.cfg.BlindAfter), now)
	}
}

// doubtAt returns when what is held must have been confirmed; zero: there is no
// such time. A replay has time-outs of its own. Without one the process must be
// known to be the same; then the next batch, whenever it comes, tells whether any
// was missed.
func (m *Machine) doubtAt() time.Time {
	switch {
	case m.loaded && !m.up && !m.downSince.IsZero():
		return m.downSince.Add(m.cfg.BlindAfter)
	case m.up && m.started && !m.cfg.Replay && !m.trust.proven && !m.trust.verified:
		return m.upSince.Add(m.cfg.BlindAfter)
	}
	return time.Time{}
}
