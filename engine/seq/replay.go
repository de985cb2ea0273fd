package seq

import (
	"fmt"
	"time"

	"kvasir/kv"
)

// maxRetries is how often a hole is asked for without anything new coming.
const maxRetries = 2

// start asks for a replay, instead of one that may be running.
func (m *Machine) start(mo mode, from uint64, now time.Time) {
	m.cancel()
	m.token++
	m.mode, m.from, m.answered, m.progress, m.probe = mo, from, false, false, false
	m.running = fmt.Sprintf("replay from batch %d is running", from)
	m.deadline = now.Add(m.cfg.ReplayTimeout)
	m.behind = m.behind || mo == attach
	m.stats.Replays++
	m.sink.Replay(m.token, from)
}

func (m *Machine) cancel() {
	if m.mode != none {
		m.mode, m.probe = none, false
		m.sink.Cancel(m.token)
	}
}

// wait handles a live batch while a replay runs.
func (m *Machine) wait(b Batch, now time.Time) {
	if m.started && b.Seq < m.next {
		if why := m.restartSign(b); why != "" {
			m.restart(why, &b, now)
			return
		}
		m.stats.Duplicates++
		return
	}
	m.keep(b)
}

// keep holds a live batch back. What finds no room is asked for afterwards.
func (m *Machine) keep(b Batch) {
	if len(m.hold) >= m.cfg.HoldBatches || m.holdBytes+len(b.Body) > m.cfg.HoldBytes {
		m.stats.Dropped++
		m.saw(b.Seq)
		return
	}
	b.Body = append([]byte(nil), b.Body...)
	m.hold = append(m.hold, b)
	m.holdBytes += len(b.Body)
}

func (m *Machine) saw(seq uint64) {
	if !m.sawMore || seq > m.maxSeen {
		m.sawMore, m.maxSeen = true, seq
	}
}

func (m *Machine) dropHold() { m.hold, m.holdBytes = nil, 0 }

// Replayed takes an answer to the replay of that token.
func (m *Machine) Replayed(token int, b Batch, now time.Time) {
	if token != m.token || m.mode == none || b.Seq == End {
		m.stats.Foreign++
		return
	}
	m.deadline = now.Add(m.cfg.AnswerTimeout)
	first := !m.answered
	m.answered = true
	before := m.stats.Applied
	if first && m.mode != repair {
		m.fillFrom(b)
	} else {
		m.continued(b, first, now)
	}
	m.progress = m.progress || m.stats.Applied > before
	m.publish(now)
}

// fillFrom takes the first answer of an attach or a refill: from here on
// everything is known.
func (m *Machine) fillFrom(b Batch) {
	if m.mode == refill {
		m.forget(m.why)
		if m.started { // applied since we asked, and perhaps published after the answer
			m.saw(before(m.next))
		}
	}
	m.started, m.next = true, b.Seq
	m.ground()
	if b.Seq == 0 {
		m.believe(kv.Exact, "replayed from the engine's start, followed since")
	} else {
		m.believe(kv.Filling, fmt.Sprintf("the replay buffer begins at batch %d, history before it is unknown", b.Seq))
	}
	m.apply(b)
}

// continued takes any other answer.
func (m *Machine) continued(b Batch, first bool, now time.Time) {
	last := before(m.next)
	switch {
	case b.Seq < m.next:
		// Asked for as a proof, or sent twice. A batch with this number and
		// another time is of another process.
		if b.Seq == last && m.mode == repair && b.Time != m.lastTime ||
			b.Time > m.lastTime && m.lastTime > 0 {
			m.restart(fmt.Sprintf("engine restarted: batch %d is another one than before", b.Seq), nil, now)
			return
		}
		if b.Seq == last && m.mode == repair {
			if m.trust.guessed {
				m.restart(fmt.Sprintf("whether the engine has restarted before batch %d can't be told any more", b.Seq), nil, now)
				return
			}
			m.trust.proven = true
			m.appliedEpoch = m.epoch
		}
		m.stats.Duplicates++
	case b.Seq == m.next && (m.trust.proven || m.next == 0):
		m.retries = 0
		m.ground()
		m.probe = false // it was needed
		m.apply(b)
	case first: // the buffer begins after our last batch: what was between is lost, or it is another process
		why := fmt.Sprintf("batches %d to %d are lost, the replay buffer begins at %d", m.next, b.Seq-1, b.Seq)
		if b.Seq == m.next {
			why = fmt.Sprintf("the replay buffer begins at %d, so it can't be told whether the engine has restarted", b.Seq)
		}
		m.jump(b, why)
	case m.retries < maxRetries: // a hole in the answers: the service drops when we read too slowly
		m.retries++
		m.start(repair, last, now)
	default:
		m.jump(b, fmt.Sprintf("batches %d to %d are not replayed", m.next, b.Seq-1))
	}
}

// jump goes on at b, behind a hole that nobody can fill. What was known before
// may have been removed inside the hole, so it is forgotten.
func (m *Machine) jump(b Batch, why string) {
	m.forget(why)
	m.started, m.next, m.retries = true, b.Seq, 0
	m.believe(kv.Filling, why)
	m.ground()
	m.apply(b)
}

// ReplayEnd takes the end marker.
func (m *Machine) ReplayEnd(token int, now time.Time) {
	if token != m.token || m.mode == none {
		m.stats.Foreign++
		return
	}
	mo := m.mode
	if !m.answered {
		switch {
		case mo == repair && !m.trust.proven:
			m.restart(fmt.Sprintf("engine restarted: it has no batch %d any more", m.from), nil, now)
			m.publish(now)
			return
		case mo == repair, mo == refill && m.started && m.next > 0:
			m.ReplayFailed(token, fmt.Errorf("the replay service has no batch from %d on", m.from), now)
			return
		case len(m.hold) == 0 && !m.sawMore:
			m.started, m.next, m.lastTime = true, 0, 0
			m.appliedEpoch = m.epoch
			m.believe(kv.Exact, nothingYet)
			m.ground()
		}
	}
	m.mode, m.probe, m.behind = none, false, false
	m.retryAt = time.Time{}
	m.release(now)
	switch {
	case !m.loaded || m.mode != none:
	case m.trust.lossy:
		m.unload(m.trust.why, now)
	default:
		m.confirm()
	}
	if m.probeAt.IsZero() || m.probeAt.Before(now) {
		m.probeWait = m.cfg.ProbeAfter
		m.probeAt = now.Add(m.probeWait)
	}
	if m.mode == none && m.retryAt.IsZero() {
		m.backoff = m.cfg.Backoff
		if m.trust.lossy { // what was repaired is not what was lost before
			m.again(now)
		}
	}
	m.publish(now)
}

// release applies the live batches that were held back, after a replay that
// has ended well.
func (m *Machine) release(now time.Time) {
	hold := m.hold
	m.dropHold()
	for i, b := range hold {
		switch {
		case m.overtaken(b):
			m.stats.Duplicates++
		case m.started && b.Seq > m.next:
			if m.missing(hold[i:], now) {
				return
			}
			m.jump(b, fmt.Sprintf("batches %d to %d are not replayed", m.next, b.Seq-1))
		default:
			m.steady(b, now)
			if m.mode != none { // a restart: the rest is of the old process, or will be replayed
				return
			}
		}
	}
	if m.sawMore && m.started && m.maxSeen >= m.next {
		if m.missing(nil, now) {
			return
		}
		m.stale(fmt.Sprintf("batches %d to %d are not replayed", m.next, m.maxSeen), true)
		m.again(now)
	}
	m.sawMore = false
}

// overtaken reports whether a replay has brought b, or gone past it, while it was
// held back.
func (m *Machine) overtaken(b Batch) bool {
	return m.started && b.Seq < m.next && m.younger(b) == ""
}

// missing asks once more for what was published while the replay ran, and
// keeps rest for afterwards. false: enough was asked.
func (m *Machine) missing(rest []Batch, now time.Time) bool {
	if m.retries >= maxRetries {
		return false
	}
	m.retries++
	for _, b := range rest {
		m.hold = append(m.hold, b)
		m.holdBytes += len(b.Body)
	}
	m.start(repair, before(m.next), now)
	return true
}

// ReplayFailed: the replay of that token was not answered, or broke off. Live
// batches go on; a refill follows.
func (m *Machine) ReplayFailed(token int, err error, now time.Time) {
	if token != m.token || m.mode == none {
		m.stats.Foreign++
		return
	}
	if m.progress { // the service drops what is too much at once, the end marker too: go on from here
		m.start(repair, before(m.next), now)
		m.publish(now)
		return
	}
	m.stats.Failed++
	if m.loaded {
		m.unload(fmt.Sprintf("replay from batch %d failed: %v", m.from, err), now)
		m.publish(now)
		return
	}
	mo, answered, probe := m.mode, m.answered, m.probe
	m.cancel()
	if probe && len(m.hold) == 0 && !m.sawMore { // nothing says that anything is missing
		m.publish(now)
		return
	}
	m.again(now)
	hold := m.hold
	m.dropHold()
	switch {
	case mo == refill && !answered: // nothing was held, nothing was forgotten
	case m.started && m.trust.proven && (answered || m.behind || len(hold) > 0 || m.sawMore):
		m.stale(fmt.Sprintf("replay from batch %d failed: %v", m.from, err), true)
	}
	m.sawMore = false
	for _, b := range hold {
		switch {
		case m.overtaken(b):
			m.stats.Duplicates++
		case m.mode == none:
			m.steady(b, now)
		default: // the batch before was a restart's
			m.wait(b, now)
		}
	}
	if m.trust.base == kv.Exact && m.trust.proven {
		m.retryAt = time.Time{}
	}
	m.publish(now)
}

// again sets the time of the next refill: a back-off, spread by half, that doubles.
func (m *Machine) again(now time.Time) {
	m.retryAt = now.Add(time.Duration(float64(m.backoff) * (0.5 + m.cfg.Jitter())))
	m.backoff = min(2*m.backoff, m.cfg.MaxBackoff)
}
