package engine

import (
	"time"

	"kvasir/engine/seq"
	"kvasir/engine/wire"
	"kvasir/kv"
)

// Apply is seq.Sink's: it decodes a batch and hands its events on.
func (s *stream) Apply(b seq.Batch) seq.Applied {
	batch, err := s.decoder.Decode(b.Body)
	a := seq.Applied{Missed: batch.Missed, Lost: batch.Lost, Bad: err != nil}
	if err != nil || a.Missed+a.Lost > 0 {
		s.log.Debug("events not understood", "seq", b.Seq, "missed", a.Missed, "lost", a.Lost, "error", s.decoder.LastError)
	}
	target := s.target(batch.Rank)
	if target == kv.NoTarget {
		a.Missed++
		return a
	}
	for i := range batch.Events {
		e := &batch.Events[i]
		e.Target = target
		if s.tombs.buried(e, b.Time) {
			continue
		}
		switch {
		case e.Kind == kv.Cleared:
			a.Cleared = e.AllTiers || e.Tier == kv.GPU && !s.lower
			s.lower = s.lower && !e.AllTiers
		case e.Kind == kv.Stored && e.Tier != kv.GPU:
			s.lower = true
		}
		s.hooks.Apply(e)
	}
	return a
}

// target returns the target of a batch: the rank that it says, else ours.
func (s *stream) target(rank int) kv.Target {
	if rank == wire.NoRank {
		rank = s.rank
	}
	if !s.spoken {
		s.spoken = true
		if rank != s.rank { // what we took its port for belongs to another stream
			clear(s.targets)
		}
	}
	if t, ok := s.targets[rank]; ok {
		return t
	}
	t := s.lookUp(rank)
	if t == kv.NoTarget {
		if s.refused != rank {
			s.refused = rank
			s.log.Warn("events of a rank that has no target", "batch_rank", rank)
		}
		return t
	}
	s.targets[rank] = t
	if s.stats.Why != "" {
		s.tellTrust(t, s.stats.Trust, s.stats.Why)
	}
	return t
}

// lookUp asks for the target of an engine's rank.
func (s *stream) lookUp(rank int) kv.Target {
	if n := s.ranks.index(rank); n >= 0 {
		return s.hooks.Target(n)
	}
	return kv.NoTarget
}

// Forget is seq.Sink's.
func (s *stream) Forget(why string) {
	s.log.Info("forgetting what the engine held", "reason", why)
	for _, t := range s.known() {
		s.hooks.Apply(&kv.Event{Kind: kv.Cleared, AllTiers: true, Target: t})
	}
	s.lower = false
	stats := s.decoder.Stats
	s.decoder = s.newDecoder()
	s.decoder.Stats = stats
	for rank := range s.targets { // a restart may have changed the ranks
		if t := s.lookUp(rank); t != kv.NoTarget {
			s.targets[rank] = t
		} else {
			delete(s.targets, rank)
		}
	}
}

// known returns the targets that this publisher has spoken for; before the first
// batch, the one that it will probably speak for.
func (s *stream) known() map[int]kv.Target {
	if len(s.targets) == 0 && !s.spoken {
		if t := s.lookUp(s.rank); t != kv.NoTarget {
			s.targets[s.rank] = t
		}
	}
	return s.targets
}

// Trust is seq.Sink's.
func (s *stream) Trust(t kv.Trust, why string) {
	if err := s.trouble.Load(); err != nil && !s.live.Load() && (t == kv.Blind || t == kv.Unknown) {
		why += ": " + *err
	}
	s.log.Info("trust", "trust", t.String(), "was", s.stats.Trust.String(), "reason", why)
	s.mu.Lock()
	if t != s.stats.Trust || s.stats.Since.IsZero() {
		s.stats.Since = time.Now()
	}
	s.stats.Trust, s.stats.Why = t, why
	s.mu.Unlock()
	for _, target := range s.known() {
		s.tellTrust(target, t, why)
	}
}

func (s *stream) tellTrust(target kv.Target, t kv.Trust, why string) {
	if s.hooks.Trust != nil {
		s.hooks.Trust(target, t, why)
	}
}
