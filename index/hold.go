package index

import "kvasir/kv"

// setOf returns the holders of slot s.
func (ix *Index) setOf(s slot) uint32 {
	_, r := ix.rows.at(s.row())
	id := r.sets.Load()
	if id&inDetail != 0 {
		id = ix.rows.detail(id)[s.pos()].Load()
	}
	return id
}

// mask returns the planes in which l holds slot s.
func (ix *Index) mask(s slot, l *lane) uint8 { return ix.sets.mask(ix.setOf(s), l.id) }

// setMask makes l hold slot s in the planes of mask, no more and no less. When
// nobody holds the slot any more, its name goes; with the last slot, the row.
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
func (ix *Index) putSet(r uint32, pos int, id uint32) {
	_, m := ix.rows.at(r)
	fill := int(m.fill.Load())
	sets := m.sets.Load()
	if sets&inDetail == 0 {
		if fill == 1 {
			m.sets.Store(id)
			return
		}
		d := ix.rows.allocDetail()
		det := ix.rows.detail(d)
		for i := range fill {
			det[i].Store(sets)
		}
		det[pos].Store(id)
		m.sets.Store(d)
		return
	}
	det := ix.rows.detail(sets)
	det[pos].Store(id)
	for i := fill - 1; i >= 0; i-- {
		if det[i].Load() != id {
			return
		}
	}
	m.sets.Store(id)
	ix.epochs.retire(retiredDetail, sets)
}

// vacate cleans up after the last holder of s.
func (ix *Index) vacate(s slot) {
	sl, m := ix.rows.at(s.row())
	p := s.pos()
	if m.named>>p&1 == 1 {
		ix.handles.delete(ix.keyOf(sl.handles(s.row())[p]), uint32(s))
	}
	m.named &^= 1 << p
	m.alias &^= 1 << p
	m.extra &^= 1 << p
	m.live &^= 1 << p
	ix.blocks--
	if m.live == 0 {
		ix.freeRow(s.row())
	}
}

// freeRow takes a row that nobody holds out of sight.
func (ix *Index) freeRow(r uint32) {
	sl, m := ix.rows.at(r)
	if sets := m.sets.Load(); sets&inDetail != 0 {
		ix.epochs.retire(retiredDetail, sets)
	}
	ix.heads.delete(tagOf(sl.hashes(r)[0].Load()), r)
	m.fill.Store(0)
	m.sets.Store(0)
	ix.epochs.retire(retiredRow, r)
}

// reuse takes back what no reader sees any more.
func (ix *Index) reuse(kind retired, n uint32) {
	switch kind {
	case retiredRow:
		ix.rows.release(n)
	case retiredDetail:
		ix.rows.detailsF = append(ix.rows.detailsF, n&^inDetail)
	case retiredSet:
		ix.sets.drop(n)
	case retiredLane:
		ix.freeLane(uint16(n))
	}
}

// head returns the row whose first block is h, or 0.
func (ix *Index) head(h kv.Hash) uint32 {
	p := ix.heads.probe(tagOf(uint64(h)))
	for r := p.next(); r != 0; r = p.next() {
		if s, m := ix.rows.peek(r); s != nil && m.fill.Load() > 0 && s.hashes(r)[0].Load() == uint64(h) {
			return r
		}
	}
	return 0
}

// find returns the slot of block h, whose parent is in slot prev (0: not known
// to be anywhere), or 0.
func (ix *Index) find(prev slot, h kv.Hash) slot {
	if prev != 0 {
		r, p := prev.row(), prev.pos()+1
		s, m := ix.rows.at(r)
		if p < int(m.fill.Load()) && s.hashes(r)[p].Load() == uint64(h) {
			return slotAt(r, p)
		}
		if p == rowSlots {
			if s, m := ix.rows.peek(r + 1); s != nil && m.fill.Load() > 0 && s.hashes(r + 1)[0].Load() == uint64(h) {
				return slotAt(r+1, 0)
			}
		}
	}
	if r := ix.head(h); r != 0 {
		return slotAt(r, 0)
	}
	return 0
}

// place returns where the block after prev would go if it is new: the slot
// behind prev if prev is the last of its row, otherwise a row of its own (0).
func (ix *Index) place(prev slot) slot {
	if prev == 0 {
		return 0
	}
	_, m := ix.rows.at(prev.row())
	if p := prev.pos() + 1; p == int(m.fill.Load()) && p < rowSlots {
		return slotAt(prev.row(), p)
	}
	return 0
}

// create makes slots for the new blocks hs after prev, at place at (see place),
// held by nobody but set id, and returns the first. hs fits into the row.
func (ix *Index) create(prev, at slot, hs []kv.Hash, id uint32) slot {
	n := len(hs)
	ix.blocks += n
	ix.sets.hold(id, n)
	if at == 0 {
		r := ix.rows.alloc(prev.row())
		s, m := ix.rows.at(r)
		h := s.hashes(r)
		for i, x := range hs {
			h[i].Store(uint64(x))
		}
		m.depth = 0
		if prev != 0 {
			_, pm := ix.rows.at(prev.row())
			m.depth = pm.depth + uint32(prev.pos()) + 1
		}
		m.live, m.named, m.alias, m.extra = 1<<n-1, 0, 0, 0
		m.used.Store(1)
		m.sets.Store(id)
		m.fill.Store(uint32(n))
		ix.heads.insert(tagOf(uint64(hs[0])), r)
		return slotAt(r, 0)
	}
	r, p := at.row(), at.pos()
	s, m := ix.rows.at(r)
	h := s.hashes(r)
	for i, x := range hs {
		h[p+i].Store(uint64(x))
	}
	switch sets := m.sets.Load(); {
	case sets&inDetail != 0:
		det := ix.rows.detail(sets)
		for i := range hs {
			det[p+i].Store(id)
		}
	case sets != id:
		d := ix.rows.allocDetail()
		det := ix.rows.detail(d)
		for i := range p {
			det[i].Store(sets)
		}
		for i := range hs {
			det[p+i].Store(id)
		}
		m.sets.Store(d)
	}
	m.live |= (1<<n - 1) << p
	m.fill.Store(uint32(p + n))
	return at
}
