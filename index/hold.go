package index

import (
	"kvasir/index/table"
	"kvasir/kv"
)

// setOf returns the holders of slot s.
func (ix *Index) setOf(s slot) uint32 {
	_, r := ix.rows.at(s.row())
	id := r.sets.Load()
	if id&inDetail != 0 {
		id = ix.rows.detail(id)[s.pos()]
	}
	return id
}

// mask returns the planes in which l holds slot s.
func (ix *Index) mask(s slot, l *lane) uint8 { return ix.sets.mask(ix.setOf(s), l.id) }

// setMask makes l hold slot s in the planes of mask, no more and no less. When
// nobody holds the slot any more, its name goes; with the last slot, the row (U3).
func (ix *Index) setMask(l *lane, s slot, mask uint8) {
	old := ix.setOf(s)
	id := ix.sets.with(old, l.id, mask)
	if id == old {
		return
	}
	if mask != 0 {
		l.near(s.row())
	}
	ix.sets.hold(id, 1)
	ix.putSet(s.row(), s.pos(), id)
	ix.sets.release(old, 1, &ix.epochs)
	switch {
	case id == 0:
		ix.vacate(s)
	case old == 0:
		_, m := ix.rows.at(s.row())
		m.live |= 1 << s.pos()
		ix.blocks++
	}
}

// putSet stores the holders of one slot; counting references is the caller's.
func (ix *Index) putSet(r uint32, pos int, id uint32) { ix.putSets(r, pos, pos+1, id) }

// putSets stores the holders of the slots from lo to hi-1.
func (ix *Index) putSets(r uint32, lo, hi int, id uint32) {
	_, m := ix.rows.at(r)
	fill := int(m.fill.Load())
	sets := m.sets.Load()
	if lo == 0 && hi == fill {
		m.sets.Store(id)
		if sets&inDetail != 0 {
			ix.epochs.retire(retiredDetail, sets)
		}
		return
	}
	if sets&inDetail == 0 {
		d := ix.rows.allocDetail()
		det := ix.rows.detail(d)
		for i := range fill {
			det[i] = sets
		}
		for i := lo; i < hi; i++ {
			det[i] = id
		}
		m.sets.Store(d)
		return
	}
	det := ix.rows.detail(sets)
	for i := lo; i < hi; i++ {
		det.store(i, id)
	}
	for i := fill - 1; i >= 0; i-- {
		if det[i] != id {
			return
		}
	}
	m.sets.Store(id)
	ix.epochs.retire(retiredDetail, sets)
}

// loseRange makes l forget the slots from lo to hi-1 of a row, which it holds by
// names in a table, once each, together with equal others: they are in set id. tags
// may be nil, see unname.
func (ix *Index) loseRange(l *lane, row uint32, lo, hi int, id uint32, tags *[rowSlots]uint32) {
	n := hi - lo
	l.recount(ix.sets.mask(id, l.id), 0, n)
	rest := ix.sets.with(id, l.id, 0)
	ix.sets.hold(rest, n)
	_, m := ix.rows.at(row)
	if rest == 0 || m.names == l.id {
		ix.unname(row, lo, hi, tags)
	}
	if rest == 0 {
		gone := uint16((1<<n - 1) << lo)
		m.alias &^= gone
		m.extra &^= gone
		m.live &^= gone
		ix.blocks -= n
	}
	if m.live != 0 {
		ix.putSets(row, lo, hi, rest)
	} else {
		ix.freeRow(row)
	}
	ix.sets.release(id, n, &ix.epochs)
}

// simple says that l's blocks have nothing but names and planes: no windows, no
// ages.
func (l *lane) simple() bool {
	return l.kind == laneDense && l.page == 0 && len(l.t.lanes) <= 1 && l.limits == [len(l.limits)]*aging{}
}

// vacate cleans up after the last holder of s.
func (ix *Index) vacate(s slot) {
	_, m := ix.rows.at(s.row())
	p := s.pos()
	ix.unname(s.row(), p, p+1, nil)
	m.alias &^= 1 << p
	m.extra &^= 1 << p
	m.live &^= 1 << p
	ix.blocks--
	if m.live == 0 {
		ix.freeRow(s.row())
	}
}

// born begins a new use of row r, a child of prev.
func (ix *Index) born(r uint32, prev slot) {
	_, m := ix.rows.at(r)
	ix.gens++
	m.gen, m.kids = max(ix.gens, 1), 0
	if prev == 0 {
		ix.detached++
	}
	ix.attach(r, prev)
}

// freeRow takes a row that nobody holds out of sight. A reader may still be in it,
// so its memory is retired (U6).
func (ix *Index) freeRow(r uint32) {
	sl, m := ix.rows.at(r)
	if sets := m.sets.Load(); sets&inDetail != 0 {
		ix.epochs.retire(retiredDetail, sets)
	}
	ix.heads.Delete(table.Tag(uint64(sl.hashes(r)[0])), r)
	m.next.Store(0)
	if up := ix.parentRow(m); up.row != nil {
		up.kids--
		if follows(m.up, r) {
			up.next.Store(0) // before fill: no reader goes on from there
		}
	} else if m.up != atRoot {
		ix.detached--
	}
	ix.detached += int(m.kids)
	m.gen, m.kids = 0, 0
	m.fill.Store(0)
	m.sets.Store(0)
	ix.epochs.retire(retiredRow, r)
	ix.retiredRows++
}

// reuse takes back what no reader sees any more.
func (ix *Index) reuse(kind retired, n uint32) {
	switch kind {
	case retiredRow:
		ix.rows.release(n)
		ix.retiredRows--
	case retiredDetail:
		ix.rows.detailsF = append(ix.rows.detailsF, n&^inDetail)
	case retiredSet:
		ix.sets.drop(n)
	case retiredLane:
		ix.freeLane(uint16(n))
	}
}

// head returns the row whose first block is h, or 0 (U1).
func (ix *Index) head(h kv.Hash) uint32 {
	tag := table.Tag(uint64(h))
	r, none := ix.heads.First(tag)
	if none || r != 0 && ix.begins(r, h) {
		return r
	}
	for p := ix.heads.Probe(tag); ; {
		if r = p.Next(); r == 0 || ix.begins(r, h) {
			return r
		}
	}
}

// begins says that row r, which may not be one any more, begins with block h.
func (ix *Index) begins(r uint32, h kv.Hash) bool {
	s, m := ix.rows.peek(r)
	return s != nil && m.fill.Load() > 0 && s.hashes(r)[0] == h
}

// A row whose parent's block is in no row is detached (U4). While there are none,
// children of a new block are new, and nobody needs to look for them.

// attach makes row r, found or made as a child of prev, a child row of prev's.
func (ix *Index) attach(r uint32, prev slot) {
	_, m := ix.rows.at(r)
	m.up, m.upGen = prev, 0
	if prev.row() != 0 {
		_, pm := ix.rows.at(prev.row())
		m.upGen = pm.gen
		pm.kids++
		if follows(prev, r) {
			pm.next.Store(1)
		}
	}
}

// follows says that row r is the child of prev at the place where readers expect
// it: behind the last slot of the row before, in the same slab.
func follows(prev slot, r uint32) bool {
	return prev.pos() == rowSlots-1 && prev.row()+1 == r && r%slabRows != 0
}

// parentRow returns the row that m is attached to, none if it is detached or
// begins at the root.
func (ix *Index) parentRow(m rowRef) rowRef {
	if m.up.row() == 0 {
		return rowRef{}
	}
	if s, pm := ix.rows.peek(m.up.row()); s != nil && pm.gen == m.upGen {
		return pm
	}
	return rowRef{}
}

func (ix *Index) isDetached(m rowRef) bool { return m.up != atRoot && ix.parentRow(m).row == nil }

// find returns the slot of block h, whose parent is in slot prev (atRoot: it has
// none; 0: its parent is in no row), or 0.
func (ix *Index) find(prev slot, h kv.Hash) slot {
	if r := prev.row(); r != 0 {
		p := prev.pos() + 1
		s, m := ix.rows.at(r)
		if p < int(m.fill.Load()) && s.hashes(r)[p] == h {
			return slotAt(r, p)
		}
		if ix.detached == 0 && m.kids == 0 { // nothing follows, here or anywhere (U4)
			return 0
		}
		if p == rowSlots {
			if s, m := ix.rows.peek(r + 1); s != nil && m.fill.Load() > 0 && s.hashes(r + 1)[0] == h {
				return ix.found(r+1, prev)
			}
		}
	}
	if r := ix.head(h); r != 0 {
		return ix.found(r, prev)
	}
	return 0
}

// found returns the first slot of row r, a child of prev.
func (ix *Index) found(r uint32, prev slot) slot {
	if _, m := ix.rows.at(r); prev != 0 && ix.detached > 0 && ix.isDetached(m) {
		ix.detached--
		ix.attach(r, prev)
	}
	return slotAt(r, 0)
}

// place returns where the block after prev would go if it is new: the slot
// behind prev if prev is the last of its row, otherwise a row of its own (0).
func (ix *Index) place(prev slot) slot {
	if prev.row() == 0 {
		return 0
	}
	_, m := ix.rows.at(prev.row())
	if p := prev.pos() + 1; p == int(m.fill.Load()) && p < rowSlots {
		return slotAt(prev.row(), p)
	}
	return 0
}

// create makes slots for the new blocks hs after prev, at place at (see place),
// held by nobody but set id, and returns the first. hs fits into the row. Readers
// may be in the row: what fill will cover is written before fill (U5).
func (ix *Index) create(prev, at slot, hs []kv.Hash, id uint32) slot {
	n := len(hs)
	ix.blocks += n
	ix.sets.hold(id, n)
	if at == 0 {
		r := ix.rows.alloc(prev.row())
		s, m := ix.rows.at(r)
		copy(s.hashes(r)[:], hs)
		m.depth = 0
		if prev.row() != 0 {
			_, pm := ix.rows.at(prev.row())
			m.depth = pm.depth + uint32(prev.pos()) + 1
		}
		ix.born(r, prev)
		m.live, m.named, m.alias, m.extra = 1<<n-1, 0, 0, 0
		m.used.Store(usedStored)
		m.sets.Store(id)
		m.fill.Store(uint32(n))
		ix.heads.Insert(table.Tag(uint64(hs[0])), r)
		return slotAt(r, 0)
	}
	r, p := at.row(), at.pos()
	s, m := ix.rows.at(r)
	copy(s.hashes(r)[p:], hs)
	switch sets := m.sets.Load(); {
	case sets&inDetail != 0:
		det := ix.rows.detail(sets)
		for i := range hs {
			det.store(p+i, id)
		}
	case sets != id:
		d := ix.rows.allocDetail()
		det := ix.rows.detail(d)
		for i := range p {
			det[i] = sets
		}
		for i := range hs {
			det[p+i] = id
		}
		m.sets.Store(d)
	}
	m.live |= (1<<n - 1) << p
	m.fill.Store(uint32(p + n))
	return at
}
