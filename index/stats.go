package index

import "kvasir/kv"

// Totals sums the Results of all events since the start.
type Totals struct {
	Events, Stored, Copies, Removed, Kept, Unknown, Orphaned, Joined, Dropped, Rebound, Expired uint64
	Skipped                                                                                     [NumReasons]uint64 // blocks, by reason
}

func (t *Totals) add(r *Result) {
	t.Events++
	t.Stored += uint64(r.Stored)
	t.Copies += uint64(r.Copies)
	t.Removed += uint64(r.Removed)
	t.Kept += uint64(r.Kept)
	t.Unknown += uint64(r.Unknown)
	t.Orphaned += uint64(r.Orphaned)
	t.Joined += uint64(r.Joined)
	t.Dropped += uint64(r.Dropped)
	t.Rebound += uint64(r.Rebound)
	t.Expired += uint64(r.Expired)
	t.Skipped[r.Reason] += uint64(r.Skipped)
}

// Stats is the state of an index, for metrics.
type Stats struct {
	Totals      Totals
	Blocks      int                // distinct blocks held by anyone
	Memberships [kv.NumTiers]int64 // (target, group, block), by tier
	Predicted   int64              // (target, block) dispatched and not yet reported
	Orphans     int                // units of blocks that wait for a parent, see Config.Orphans
	OwnNames    int                // blocks that a target calls otherwise than the first that stored them
	Sets        int                // distinct sets of holders of more than one target
	Pages       int64              // bytes of small pages, see ChainSize
	Evicted     uint64             // blocks forgotten at MaxBytes
	Bytes       int64              // memory that counts against MaxBytes
}

// Stats returns the state of the index. It holds up events for a moment, not
// lookups.
func (ix *Index) Stats() Stats {
	ix.lock()
	defer ix.mu.Unlock()
	s := Stats{
		Totals: ix.totals, Blocks: ix.blocks, Orphans: ix.orphanUnits, OwnNames: len(ix.aliasOf), Sets: ix.sets.count,
		Pages: ix.pageMemory, Evicted: ix.evictions, Bytes: ix.bytes(),
	}
	for _, l := range ix.lanes {
		if l == nil {
			continue
		}
		if l.kind == lanePredicted {
			s.Predicted += l.count[kv.GPU]
			continue
		}
		for t, n := range l.count {
			s.Memberships[t] += n
		}
	}
	return s
}

// TargetStats is what the index holds for one target.
type TargetStats struct {
	Blocks    [kv.NumTiers]int64 // by tier, over all groups
	Predicted int64
	Orphans   int
	Groups    int
	Events    int // of its engine
}

// TargetStats returns what the index holds for t.
func (ix *Index) TargetStats(id kv.Target) (s TargetStats) {
	if id >= kv.MaxTargets {
		return s
	}
	ix.lock()
	defer ix.mu.Unlock()
	t := ix.target(id)
	s.Orphans, s.Groups, s.Events = t.orphanUnits, len(t.lanes), t.events
	if t.pred != nil {
		s.Predicted = t.pred.count[kv.GPU]
	}
	for _, l := range t.lanes {
		for tier, n := range l.count {
			s.Blocks[tier] += n
		}
	}
	return s
}
