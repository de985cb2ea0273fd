package seq

import (
	"fmt"
	"math"
	"time"

	"kvasir/kv"
)

// Unsequenced takes a batch from a publisher that numbers none. Losses can't be
// seen, so it is never trusted fully, and a new connection begins from nothing.
func (m *Machine) Unsequenced(epoch uint64, b Batch, now time.Time) {
	if epoch != m.epoch || !m.up {
		m.stats.Foreign++
		return
	}
	if m.mode != none {
		m.cancel()
		m.dropHold()
	}
	if m.appliedEpoch != epoch && (m.stats.Applied > 0 || m.loaded) {
		m.forget("the publisher numbers no batches and has connected again")
	}
	m.believe(kv.Filling, "the publisher numbers no batches, so losses can't be seen")
	m.ground()
	b.Seq = 0
	m.apply(b)
	if m.trust.base == kv.Exact {
		m.believe(kv.Filling, "the publisher numbers no batches, so losses can't be seen")
	}
	m.started = false
	m.publish(now)
}

// Dropped: the ring before us was full; live batches up to seq are lost.
func (m *Machine) Dropped(epoch, seq uint64, now time.Time) {
	if epoch != m.epoch || !m.up {
		return
	}
	m.stats.Dropped++
	switch {
	case m.mode != none:
		m.saw(seq)
	case m.started && seq >= m.next:
		m.saw(seq)
		m.gap(seq+1, now)
	}
	m.publish(now)
}

// Process says when the publisher's process began, in unix seconds, as looked up
// after the connection was made. A restart that the numbers don't show (the new
// process has already published more than the old one) shows here.
func (m *Machine) Process(start float64, now time.Time) {
	same := math.Abs(start-m.process) < sameProcess
	switch {
	case m.process == 0, !m.observed && m.trust.proven:
		// The first that we hear, or the connection has been found to be of the
		// process that it is of by stronger means.
	case same:
		m.trust.verified = true
		m.prove()
	default:
		m.stats.Restarts++
		m.fresh(fmt.Sprintf("engine restarted at %s", time.Unix(int64(start), 0).UTC().Format(time.RFC3339)), now)
	}
	if m.process == 0 || !same {
		m.process = start
	}
	m.observed = true
	m.publish(now)
}

// sameProcess is how far two readings of one start time may differ, in seconds:
// some exporters compute it anew from the machine's uptime. No engine is back
// sooner than that.
const sameProcess = 0.5

// Refill forgets what is known and fills it again, by replay where there is one.
func (m *Machine) Refill(why string, now time.Time) {
	switch {
	case m.cfg.Replay && m.up:
		if m.mode != none {
			return // what runs is as good
		}
		m.why = why
		m.start(refill, 0, now)
	case m.started:
		m.fresh(why, now)
	}
	m.publish(now)
}

// Emptied: somebody else found out that the engine's cache is empty, before the
// engine says so itself (vLLM does with its next batch).
func (m *Machine) Emptied(why string, now time.Time) {
	if !m.started || m.mode != none {
		return
	}
	m.forget(why)
	m.believe(kv.Filling, why)
	m.publish(now)
}

// Discard forgets what is known, now, and fills it again by replay where there is one.
func (m *Machine) Discard(why string, now time.Time) {
	if m.started {
		m.fresh(why, now)
		m.publish(now)
	}
}

// LastTime returns when the last batch that was applied was published, by the
// engine's clock; 0: none, or not known.
func (m *Machine) LastTime() float64 { return m.lastTime }

// fresh forgets everything, keeps its place in the stream if it has one on this
// connection, and fills again.
func (m *Machine) fresh(why string, now time.Time) {
	m.cancel()
	m.dropHold()
	m.forget(why)
	if m.up && m.started && m.appliedEpoch == m.epoch {
		m.believe(kv.Filling, why)
		m.ground()
	} else {
		m.unstart(why)
	}
	if m.up && m.cfg.Replay {
		m.unstart(why)
		m.start(attach, 0, now)
	}
}
