package index

import "kvasir/kv"

// bytes is the memory that counts against Config.MaxBytes (U18): everything but
// orphans, which have bounds of their own, and lanes.
func (ix *Index) bytes() int64 {
	return int64(ix.rows.inUse-ix.retiredRows)*rowBytes + // retired ones are as good as free
		int64(ix.rows.ndetails-uint32(len(ix.rows.detailsF)))*64 +
		ix.tables.Bytes() + ix.headTables.Bytes() + ix.sets.size +
		int64(len(ix.aliasOf))*aliasBytes + int64(len(ix.copies))*copyBytes + int64(ix.slidNames)*slidBytes + ix.pageMemory
}

// makeRoom evicts until n more blocks fit, and says whether they do. It keeps
// the block that l calls parent.
func (ix *Index) makeRoom(t *target, n int, parent kv.Handle, l *lane) bool {
	need := int64(n/rowSlots+2)*rowBytes + int64(n)*10
	if l != nil && l.page != 0 {
		if need = int64(n) * pageBytes(int(l.page)); !ix.pageRoom(l, need, parent) {
			return false
		}
	}
	if need > ix.cfg.MaxBytes/2 {
		return false
	}
	// A part is kept free for tables that grow in the course of one event.
	need += ix.cfg.MaxBytes / 16
	if ix.bytes()+need <= ix.cfg.MaxBytes {
		return true
	}
	keep := uint32(0)
	if l != nil && l.page == 0 {
		keep = ix.parent(l, parent).row()
	}
	for range 2 * (ix.rows.inUse + 1) {
		if ix.bytes()+need <= ix.cfg.MaxBytes {
			return true
		}
		if !ix.evict(keep) {
			return false
		}
		ix.epochs.advance(ix.reuse)
	}
	return false
}

const candidates = 8

// evict forgets the blocks of one row: of a few rows that were not matched or
// stored since the clock hand came by, the deepest in its chain, whose blocks are
// of use to the fewest prompts.
func (ix *Index) evict(keep uint32) bool {
	total := uint32(len(*ix.rows.slabs.Load())) * slabRows
	best, depth, found := uint32(0), uint32(0), 0
	for range (usedMatched + 1) * total {
		if ix.hand++; ix.hand >= total {
			ix.hand = 0
		}
		s, m := ix.rows.peek(ix.hand)
		if s == nil {
			ix.hand |= slabRows - 1
			continue
		}
		if m.fill.Load() == 0 || ix.hand == keep {
			continue
		}
		if u := m.used.Load(); u != 0 {
			m.used.Store(u - 1)
			continue
		}
		if best == 0 || m.depth > depth {
			best, depth = ix.hand, m.depth
		}
		if found++; found == candidates {
			break
		}
	}
	if best == 0 {
		return false
	}
	ix.evictRow(best)
	return true
}

func (ix *Index) evictRow(r uint32) {
	_, m := ix.rows.at(r)
	n := int(m.fill.Load())
	for p := n - 1; p >= 0; p-- {
		s := slotAt(r, p)
		for m.fill.Load() != 0 {
			id := ix.setOf(s)
			if id == 0 {
				break
			}
			l := ix.lanes[ix.sets.first(id)]
			switch {
			case l.kind == laneSliding && l.t.primary() != nil:
				// goes with the dense lane; if that has gone, by itself
				if first := l.t.primary(); ix.mask(s, first) != 0 {
					l = first
				}
			case l.page != 0:
				l.pages.evictChunk(s)
				if m.fill.Load() == 0 || ix.mask(s, l) == 0 {
					continue
				}
			}
			ix.drop(l, s)
		}
		if m.fill.Load() == 0 {
			break
		}
		ix.evictions++
	}
	ix.evictions++
}
