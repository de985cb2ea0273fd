package seq

import (
	"fmt"
	"time"

	"kvasir/kv"
)

// longRun is how many duplicates in ascending order are no duplicates but a new
// process behind a broker, with a clock that is behind.
const longRun = 8

// steady handles a live batch while nothing holds it back.
func (m *Machine) steady(b Batch, now time.Time) {
	switch {
	case !m.started:
		m.begin(b)
	case b.Seq == m.next:
		m.trust.contiguous, m.behind = true, false
		m.apply(b)
		m.prove()
	case b.Seq < m.next:
		if why := m.restartSign(b); why != "" {
			m.restart(why, &b, now)
			return
		}
		m.stats.Duplicates++
	case m.cfg.Replay && m.mode == none && m.retryAt.IsZero():
		m.keep(b)
		m.gap(b.Seq, now)
	default: // no replay, one that doesn't answer, or a refill that will see to it
		m.stats.Gaps++
		m.lose(b.Seq)
		m.next = b.Seq
		m.apply(b)
	}
}

// begin takes the first batch of a publisher whose past is unknown.
func (m *Machine) begin(b Batch) {
	m.started = true
	m.next = b.Seq
	m.ground()
	m.observed, m.behind = false, false
	if b.Seq == 0 {
		m.believe(kv.Exact, sinceStart)
	} else {
		m.believe(kv.Filling, fmt.Sprintf("attached at batch %d, history unknown", b.Seq))
		m.trust.lossy = m.cfg.Replay // its service has not answered yet
	}
	m.apply(b)
}

// restartSign says why a batch below the watermark is of another process; "" if
// it is a duplicate.
func (m *Machine) restartSign(b Batch) string {
	if why := m.younger(b); why != "" {
		return why
	}
	if b.Seq >= m.seenLive { // for the first time: a replay was faster
		m.dupRun = 0
		return ""
	}
	if m.dupRun > 0 && b.Seq == after(m.lastDup) {
		m.dupRun++
	} else {
		m.dupRun = 1
	}
	m.lastDup = b.Seq
	if m.dupRun >= longRun {
		m.dupRun = 0
		return fmt.Sprintf("engine restarted: %d batches up to %d come in order a second time", longRun, b.Seq)
	}
	return ""
}

// younger says why a batch below the watermark can't be a duplicate: a publisher
// never sends a batch twice on a new connection, and a batch that is older than our
// last one is not younger by its clock.
func (m *Machine) younger(b Batch) string {
	switch {
	case m.appliedEpoch != m.epoch:
		return fmt.Sprintf("engine restarted: batch %d after %d on a new connection", b.Seq, before(m.next))
	case b.Time > m.lastTime && m.lastTime > 0:
		return fmt.Sprintf("engine restarted: batch %d is younger than %d", b.Seq, before(m.next))
	}
	return ""
}

// restart begins from nothing, with b as a live batch of the new process if not nil.
func (m *Machine) restart(why string, b *Batch, now time.Time) {
	m.stats.Restarts++
	m.cancel()
	m.dropHold()
	m.sawMore = false
	m.forget(why)
	m.unstart(why)
	m.process, m.seenLive = 0, 0
	switch {
	case m.cfg.Replay:
		if b != nil {
			m.keep(*b)
		}
		m.start(attach, 0, now)
	case b != nil:
		m.begin(*b)
	}
}

// gap: batches from next to before seq are missing.
func (m *Machine) gap(seq uint64, now time.Time) {
	m.stats.Gaps++
	if m.cfg.Replay && m.retryAt.IsZero() {
		m.retries = 0
		m.start(repair, before(m.next), now)
		return
	}
	m.lose(seq)
}

// lose notes that batches from next to before seq are not to be had. A replay
// service that doesn't answer now may do so later. Without one nobody will ever
// tell which blocks were removed in between: better none than wrong ones.
func (m *Machine) lose(seq uint64) {
	lost := fmt.Sprintf("batches %d to %d are lost", m.next, seq-1)
	if m.cfg.Replay {
		m.stale(lost+", the replay service doesn't answer", true)
		return
	}
	lost += ", and the engine has no replay service to ask for them" + addReplay
	m.forget(lost)
	m.believe(kv.Filling, lost)
	m.ground()
	m.next = seq
}

// addReplay is what an operator can do.
const addReplay = " (add replay_endpoint to its --kv-events-config)"

// Reasons to be exact.
const (
	sinceStart = "followed since the engine's start"
	nothingYet = "the engine has not published anything yet"
)

// apply hands b to the sink and moves the watermark.
func (m *Machine) apply(b Batch) {
	if m.trust.why == nothingYet {
		m.believe(kv.Exact, sinceStart)
	}
	m.next, m.lastTime, m.appliedEpoch = after(b.Seq), b.Time, m.epoch
	m.dupRun = 0
	m.stats.Applied++
	m.trust.guessed = m.trust.guessed || !m.trust.proven
	a := m.sink.Apply(b)
	if a.Cleared {
		m.believe(kv.Exact, fmt.Sprintf("cleared by the engine at batch %d, followed since", b.Seq))
		m.ground()
		m.loaded, m.retryAt = false, time.Time{}
	}
	switch {
	case a.Bad:
		m.stale(fmt.Sprintf("batch %d could not be read", b.Seq), false)
	case a.Lost > 0:
		m.stale(fmt.Sprintf("%d removals in batch %d were not understood", a.Lost, b.Seq), false)
	case a.Missed > 0 && m.trust.base == kv.Exact:
		m.believe(kv.Filling, fmt.Sprintf("%d stores in batch %d were not understood", a.Missed, b.Seq))
	}
}

// forget drops what is held; what comes after it is true, but not all.
func (m *Machine) forget(why string) {
	m.stats.Forgets++
	m.loaded = false
	m.sink.Forget(why)
}

// unstart returns to not knowing the publisher.
func (m *Machine) unstart(why string) {
	m.started, m.next, m.lastTime = false, 0, 0
	m.retryAt = time.Time{}
	m.believe(kv.Unknown, why)
	m.ground()
	m.observed = false
}
