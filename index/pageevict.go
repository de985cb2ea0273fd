package index

import "kvasir/kv"

// Pages may take half of MaxBytes. At that bound, the lane that has most of them
// forgets the ends of its paths, whether their chunks are complete or not, so that
// nobody else pays for an engine that says too much.

// pageRoom evicts pages until need more bytes of them fit, and says whether they
// do. It keeps the page that l calls parent.
func (ix *Index) pageRoom(l *lane, need int64, parent kv.Handle) bool {
	bound := ix.cfg.MaxBytes / 2
	if need > bound {
		return false
	}
	keep := l.pages.named(ix.keyOf(parent), parent).strip()
	for ix.pageMemory+need > bound {
		if stuck := [2]int64{int64(keep), ix.pageMemory}; keep != 0 && l.pages.stuck == stuck {
			return false // looked for in vain before
		}
		most := l
		for _, o := range ix.lanes {
			if o != nil && o.pages != nil && o.pages.counted > most.pages.counted {
				most = o
			}
		}
		spare := uint32(0)
		if most == l {
			spare = keep
		}
		if !most.pages.evict(spare, ix.pageMemory+need-bound) {
			l.pages.stuck = [2]int64{int64(keep), ix.pageMemory}
			return false
		}
	}
	return true
}

// evict forgets strips that nothing follows, besides strip keep, from
// the last one on, those first that were not matched or stored since the clock
// hand came by, until their memory has gone down by some bytes. It says whether
// any went.
func (p *pages) evict(keep uint32, some int64) (any bool) {
	for n := uint32(len(p.strips.slabs)*slabStrips) * (usedMatched + 1); n > 0 && some > 0; n-- {
		if p.hand == 0 {
			p.hand = uint32(len(p.strips.slabs) * slabStrips)
		}
		if p.hand--; p.hand == keep {
			continue
		}
		s := p.peek(p.hand)
		if s == nil || s.flags&stripRoot != 0 || s.kids > 0 || s.forks != 0 || p.wasUsed(s) {
			continue
		}
		p.ix.evictions++
		p.loseBits(p.hand, s.any(), kv.GPU, kv.NumTiers-1)
		p.prune(p.hand)
		before := p.counted
		p.account()
		some -= before - p.counted
		any = true
		if p.strips.used == 0 {
			p.hand = 0
			break
		}
	}
	return any
}

// wasUsed takes one turn of the clock from the chunk that ends in s.
func (p *pages) wasUsed(s *strip) bool {
	if s.slot == 0 || !p.ix.holds(p.l, s.slot, s.hash) {
		return false
	}
	_, m := p.ix.rows.at(s.slot.row())
	u := m.used.Load()
	if u > 0 {
		m.used.Store(u - 1)
	}
	return u > 0
}
