package seq

import (
	"fmt"
	"math"
	"time"

	"kvasir/kv"
)

// End is the sequence number that ends a replay (eight bytes 0xff). It is never data.
const End = math.MaxUint64

// A Batch is one message of the publisher.
type Batch struct {
	Seq  uint64
	Time float64 // unix seconds by the engine's clock, 0 if not known
	Body []byte  // copied by whoever keeps it longer than the call
}

// Applied is what a batch turned out to be when it was applied.
type Applied struct {
	Cleared bool // the cache was emptied, and nothing is known of tiers that were not
	Missed  int  // stores that were not understood
	Lost    int  // removals that were not understood
	Bad     bool // the batch, or the rest of it, could not be read
}

// A Sink does what the Machine decides. It is called from inside the Machine's
// methods and must not call back.
type Sink interface {
	Apply(b Batch) Applied         // in ascending order of the sequence number, each once
	Forget(why string)             // nothing is held any more
	Replay(token int, from uint64) // ask for all batches from that number on
	Cancel(token int)              // the answers of that replay are of no interest any more
	Trust(t kv.Trust, why string)  // only when one of the two has changed
}

// A mode says what a running replay is for.
type mode uint8

const (
	none   mode = iota
	attach      // nothing is known: from 0
	repair      // a gap or a new connection: from the last batch that we have, as a proof
	refill      // what is known is not good enough: from 0, forgetting at the first answer
)

// A Machine follows one publisher.
type Machine struct {
	cfg  Config
	sink Sink

	// The link.
	up        bool
	epoch     uint64
	upSince   time.Time
	downSince time.Time

	// The watermark. started means that next and lastTime mean something.
	started      bool
	next         uint64
	lastTime     float64
	appliedEpoch uint64  // the connection that delivered, or a replay during it
	process      float64 // when the publisher's process began, 0: not known
	observed     bool    // it was looked up since the connection was made
	seenLive     uint64  // follows the highest number that came live on this connection
	dupRun       int     // duplicates in ascending order
	lastDup      uint64
	loaded       bool // from a snapshot, and not confirmed yet

	// The running replay and the live batches that wait for its end.
	mode      mode
	why       string // of a refill
	behind    bool   // there may be more than we have been told: no replay has ended well since we connected
	probe     bool   // a repair that is not known to be needed
	token     int
	from      uint64
	running   string // what trust says about it
	answered  bool
	progress  bool      // and brought something new
	retries   int       // replays in a row that brought nothing new
	deadline  time.Time // for the next answer
	hold      []Batch
	holdBytes int
	maxSeen   uint64 // highest number that was dropped, valid if sawMore
	sawMore   bool

	// After a failed replay: when the next refill is due, zero: never.
	retryAt time.Time
	backoff time.Duration

	// Silence. The publisher drops for a slow subscriber, and the last batch before
	// a silence has no successor that would show its loss.
	probeAt   time.Time
	probeWait time.Duration

	trust trust
	stats Stats
}

// New returns a Machine that has not heard of its publisher yet.
func New(cfg Config, sink Sink) *Machine {
	m := &Machine{cfg: cfg.withDefaults(), sink: sink}
	m.backoff = m.cfg.Backoff
	m.trust.why = "no events yet"
	return m
}

// Stats returns the counters.
func (m *Machine) Stats() Stats { return m.stats }

// Next returns the number that is expected next, and whether there is one.
func (m *Machine) Next() (uint64, bool) { return m.next, m.started }

// Opened says that the subscription was asked for. Without a connection the target is
// blind after Config.BlindAfter.
func (m *Machine) Opened(now time.Time) {
	m.downSince = now
	m.publish(now)
}

// Connected: the subscription stands. epoch is another number for each
// connection.
func (m *Machine) Connected(epoch uint64, now time.Time) {
	m.up, m.epoch, m.upSince = true, epoch, now
	m.dropHold()
	m.sawMore, m.seenLive = false, 0
	m.retries = 0
	if m.started && m.next == 0 { // known, but nothing was published yet
		m.unstart(m.trust.why)
	}
	m.trust.proven = !m.started
	m.trust.contiguous, m.trust.verified, m.observed = false, false, false
	switch {
	case !m.cfg.Replay:
	case !m.started:
		m.start(attach, 0, now)
	default:
		m.start(repair, before(m.next), now)
	}
	m.behind = m.cfg.Replay
	m.publish(now)
}

// Disconnected: the connection of that epoch is gone.
func (m *Machine) Disconnected(epoch uint64, now time.Time) {
	if epoch != m.epoch || !m.up {
		return
	}
	m.up, m.downSince = false, now
	m.cancel()
	m.dropHold()
	m.publish(now)
}

// Live takes a batch from the subscription.
func (m *Machine) Live(epoch uint64, b Batch, now time.Time) {
	if epoch != m.epoch || !m.up || b.Seq == End {
		m.stats.Foreign++
		return
	}
	if m.probe && !m.answered && b.Seq == m.next { // there is more
		m.cancel()
	}
	if m.mode == none || m.mode == refill && !m.answered {
		m.steady(b, now)
	} else {
		m.wait(b, now)
	}
	m.seenLive = max(m.seenLive, after(b.Seq))
	m.probeWait = m.cfg.ProbeAfter
	m.probeAt = now.Add(m.probeWait)
	m.publish(now)
}

// Tick lets time pass: see Deadline.
func (m *Machine) Tick(now time.Time) {
	m.doubt(now)
	if m.mode != none && !now.Before(m.deadline) {
		err := fmt.Errorf("no answer within %v", m.cfg.ReplayTimeout)
		if m.answered {
			err = fmt.Errorf("no more answers for %v", m.cfg.AnswerTimeout)
		}
		m.ReplayFailed(m.token, err, now)
	}
	if m.mode == none && m.up && !m.retryAt.IsZero() && !now.Before(m.retryAt) {
		m.why = "filled again after a replay that failed"
		m.start(refill, 0, now)
	}
	if m.probing() && !now.Before(m.probeAt) {
		m.stats.Probes++
		m.start(repair, before(m.next), now)
		m.probe = true
		m.probeWait = min(2*m.probeWait, maxProbeWait)
		m.probeAt = now.Add(m.probeWait)
	}
	m.publish(now)
}

// maxProbeWait bounds the silence between two probes.
const maxProbeWait = 10 * time.Minute

// probing reports whether a silence is worth a question.
func (m *Machine) probing() bool {
	return m.cfg.Replay && m.up && m.started && m.mode == none && m.retryAt.IsZero() && !m.probeAt.IsZero()
}

// Deadline returns when Tick wants to be called next; zero: not before
// something else happens.
func (m *Machine) Deadline() time.Time {
	var d time.Time
	earliest := func(t time.Time) {
		if !t.IsZero() && (d.IsZero() || t.Before(d)) {
			d = t
		}
	}
	earliest(m.doubtAt())
	switch {
	case !m.up:
		if m.trust.shown != kv.Blind && !m.downSince.IsZero() {
			earliest(m.downSince.Add(m.cfg.BlindAfter))
		}
	case m.mode != none:
		earliest(m.deadline)
	default:
		earliest(m.retryAt)
		if m.probing() {
			earliest(m.probeAt)
		}
	}
	return d
}

// after returns the number that follows s. End is skipped.
func after(s uint64) uint64 {
	if s+1 == End {
		return 0
	}
	return s + 1
}

// before returns the number of the batch before next, 0 if there is none.
func before(next uint64) uint64 {
	if next == 0 {
		return 0
	}
	return next - 1
}
