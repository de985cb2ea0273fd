package index

import (
	"iter"

	"kvasir/kv"
)

// A block is one block of a dump.
type block struct {
	Hash    kv.Hash
	Depth   int      // in its chain, from 0
	Holders []holder // valid until the next block
}

// A holder is one cache group of a target that holds a block.
type holder struct {
	Target    kv.Target
	Group     uint16
	Predicted bool
	Sliding   bool
	Tiers     [kv.NumTiers]bool
	Handle    kv.Handle // what the engine calls it; 0 for pages and predictions
}

// dump iterates over all blocks that anybody holds, in no particular order. It
// holds up events for some microseconds at a time: it is no snapshot of one
// moment.
func (ix *Index) dump() iter.Seq[block] {
	return func(yield func(block) bool) {
		var out []block
		for row := uint32(0); ; {
			ix.lock()
			end := uint32(len(*ix.rows.slabs.Load())) * slabRows
			out = out[:0]
			for ; row < end && len(out) < 256; row++ {
				out = ix.dumpRow(out, row)
			}
			ix.mu.Unlock()
			for _, b := range out {
				if !yield(b) {
					return
				}
			}
			if row >= end {
				return
			}
		}
	}
}

func (ix *Index) dumpRow(out []block, row uint32) []block {
	s, m := ix.rows.peek(row)
	if s == nil {
		return out
	}
	for p := range int(m.fill.Load()) {
		at := slotAt(row, p)
		b := block{Hash: s.hashes(row)[p], Depth: int(m.depth) + p}
		ix.sets.each(ix.setOf(at), func(lane uint16, mask uint8) {
			l := ix.lanes[lane]
			if l == nil {
				return
			}
			h := holder{Target: l.t.id, Group: l.group, Predicted: l.kind == lanePredicted, Sliding: l.kind == laneSliding}
			for t := range h.Tiers {
				h.Tiers[t] = mask&planesOf(kv.Tier(t)) != 0
			}
			if l.kind == laneDense && l.page == 0 {
				h.Handle = ix.nameOf(l, at)
			}
			b.Holders = append(b.Holders, h)
		})
		if len(b.Holders) > 0 {
			out = append(out, b)
		}
	}
	return out
}

// same is for Load where targets keep their numbers.
func same(t kv.Target) kv.Target { return t }
