package engine

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"kvasir/engine/seq"
	"kvasir/engine/wire"
	"kvasir/kv"
)

// A stream follows one publisher, one rank of a replica, from the ring to
// Hooks.Apply. Everything but the ring belongs to the goroutine in run.
type stream struct {
	cfg    *Config
	hooks  *Hooks
	log    *slog.Logger
	ranks  *rankRange
	rank   int    // the engine's, by port or configuration; what a batch says is stronger
	replay string // endpoint of the replay service, "" for none

	ring    *ring
	connect func() // told, on the reading goroutine, that a connection stands, or has ended

	gate    sync.Mutex // held while the machine works; see Replica.Hold
	machine *seq.Machine
	decoder wire.Decoder
	targets map[int]kv.Target // of the ranks that this publisher has spoken for
	spoken  bool              // a batch has said of which rank it is
	refused int               // the last rank that had no target
	lower   bool              // blocks of a lower tier are known
	tombs   tombs
	replies *replies           // of the running replay, nil if none runs
	cancel  context.CancelFunc // of the running replay
	ctx     context.Context

	connects atomic.Uint64          // connections so far
	live     atomic.Bool            // a connection stands
	trouble  atomic.Pointer[string] // why the last attempt to connect failed

	mu       sync.Mutex
	stats    StreamStats // as of the end of the last step
	requests requests
}

// A reply is one answer of a replay service, or its end.
type reply struct {
	token int
	batch seq.Batch
	end   bool
	err   error
}

// StreamStats is what happened on one stream since it was made.
type StreamStats struct {
	Rank    int
	Trust   kv.Trust
	Why     string
	Since   time.Time // of the trust
	Dropped uint64    // messages that found no room in the ring
	Seq     seq.Stats
	Wire    wire.Stats
}

func newStream(cfg *Config, hooks *Hooks, ranks *rankRange, rank int, replay string, connect func()) *stream {
	s := &stream{cfg: cfg, hooks: hooks, log: cfg.Log.With("rank", rank), ranks: ranks, rank: rank, replay: replay,
		ring: newRing(cfg.RingMessages, cfg.RingBytes), connect: connect,
		targets: map[int]kv.Target{}}
	s.decoder = s.newDecoder()
	s.machine = seq.New(seq.Config{Replay: replay != "", BlindAfter: cfg.BlindAfter, Jitter: cfg.Jitter}, s)
	s.stats.Rank, s.refused = rank, -1
	return s
}

func (s *stream) newDecoder() wire.Decoder {
	return wire.Decoder{Seed: s.cfg.Seed, Model: s.cfg.Model, ClearAll: s.cfg.ClearAll}
}

// connected, message and disconnected are called by the connection's reader.

func (s *stream) connected(epoch uint64) {
	s.connects.Add(1)
	s.live.Store(true)
	s.ring.put(connected, epoch, 0, nil)
	if s.connect != nil {
		s.connect()
	}
}

func (s *stream) message(epoch uint64, frames [][]byte) {
	kind, _, seq, payload := liveFrames(frames)
	s.ring.put(kind, epoch, seq, payload)
}

func (s *stream) disconnected(epoch uint64) {
	s.live.Store(false)
	s.ring.put(disconnected, epoch, 0, nil)
	if s.connect != nil {
		s.connect() // a silent heartbeat is the first sign of an engine that has stopped
	}
}

// process says when the engine's process began, as looked up while connects was
// the number of connections. refill asks for a refill. Neither waits.

func (s *stream) process(start float64, connects uint64) {
	s.ask(func(r *requests) { r.process, r.connects = start, connects })
}

func (s *stream) refill(why string) { s.ask(func(r *requests) { r.refill = why }) }

// emptied says that the engine's cache is known to be empty.
func (s *stream) emptied(why string) { s.ask(func(r *requests) { r.emptied = why }) }

// requests are what others want from the machine, the latest of each kind.
type requests struct {
	process  float64
	connects uint64
	refill   string
	emptied  string
	discard  string
	gone     []string // adapters
}

func (s *stream) ask(set func(*requests)) {
	s.mu.Lock()
	set(&s.requests)
	s.mu.Unlock()
	select {
	case s.ring.wake <- struct{}{}:
	default:
	}
}

func (s *stream) answer(now time.Time) {
	s.mu.Lock()
	r := s.requests
	s.requests = requests{}
	s.mu.Unlock()
	if r.process > 0 && r.connects == s.connects.Load() {
		s.machine.Process(r.process, now)
	}
	if r.emptied != "" {
		s.machine.Emptied(r.emptied, now)
	}
	if len(r.gone) > 0 {
		s.drop(r.gone, now)
	}
	if r.discard != "" {
		s.machine.Discard(r.discard, now)
	}
	if r.refill != "" {
		s.machine.Refill(r.refill, now)
	}
}

// run applies until ctx ends. Then nothing is applied any more.
func (s *stream) run(ctx context.Context) {
	s.ctx = ctx
	defer s.stopReplay()
	s.gate.Lock()
	s.machine.Opened(time.Now())
	s.gate.Unlock()
	var ld load
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		s.publishStats()
		if at := s.machine.Deadline(); at.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(time.Until(at))
		}
		select {
		case <-ctx.Done():
			return
		case <-s.ring.wake:
			ld = s.drain(ld)
		case r := <-s.replies.channel():
			s.reply(r)
		case <-timer.C:
			for q := s.replies; len(q.channel()) > 0 && q == s.replies; { // we may be the ones who were slow
				s.reply(<-q.c)
			}
			s.gate.Lock()
			s.machine.Tick(time.Now())
			s.gate.Unlock()
		}
	}
}

// drain works through what the ring has.
func (s *stream) drain(old load) load {
	ld := s.ring.take(old)
	now := time.Now()
	for i := range ld.entries {
		e := &ld.entries[i]
		s.gate.Lock()
		switch e.kind {
		case connected:
			s.machine.Connected(e.epoch, now)
		case disconnected:
			s.machine.Disconnected(e.epoch, now)
		case gotBatch:
			payload := ld.buf[e.from:e.to]
			s.machine.Live(e.epoch, seq.Batch{Seq: e.seq, Time: wire.PeekTime(payload), Body: payload}, now)
		case gotPlain:
			s.machine.Unsequenced(e.epoch, seq.Batch{Body: ld.buf[e.from:e.to]}, now)
		}
		s.gate.Unlock()
		if i%64 == 63 && s.ctx.Err() != nil {
			break
		}
	}
	s.gate.Lock()
	defer s.gate.Unlock()
	if ld.dropped > 0 {
		s.log.Warn("events came faster than they could be applied", "dropped", ld.dropped, "up_to", ld.droppedSeq)
		s.machine.Dropped(ld.droppedEpoch, ld.droppedSeq, now)
	}
	s.answer(now)
	s.decoder.Release()
	return ld
}

func (s *stream) reply(r reply) {
	s.replies.took(r)
	s.gate.Lock()
	defer s.gate.Unlock()
	now := time.Now()
	switch {
	case r.err != nil:
		s.log.Info("replay failed", "error", r.err)
		s.machine.ReplayFailed(r.token, r.err, now)
	case r.end:
		s.machine.ReplayEnd(r.token, now)
	default:
		s.machine.Replayed(r.token, r.batch, now)
	}
}

func (s *stream) publishStats() {
	s.mu.Lock()
	s.stats.Seq, s.stats.Wire, s.stats.Dropped = s.machine.Stats(), s.decoder.Stats, s.ring.dropCount()
	s.mu.Unlock()
}

// snapshot returns the stats; anyone may call it.
func (s *stream) snapshot() StreamStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats
}
