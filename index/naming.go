package index

import (
	"math/bits"

	"kvasir/index/table"
	"kvasir/kv"
)

// An engine's handles are its own names. slot.handle is the name that the first
// holder used. As long as that holder alone uses the names of a row, they are in
// the holder's own table (lane.names): the names that one engine stores or removes
// together are then close to each other in memory. When a second lane uses one of
// them, since engines hash equal content to equal handles, the names of the row
// move to a table that all share (Index.common). A lane that calls a block
// otherwise, or whose name is already taken by another block, keeps its own name
// in alias.
//
// A name in a lane's own table is a block that the lane holds by that name; a lane
// has a block by a name in the common table if it is among the holders (U12).
//
// For each lane, names and held blocks are one to one (U11): a name that is given to
// another block, or a block that gets another name, forgets what was known
// before (the last writer wins).
type laneHandle struct {
	handle kv.Handle
	lane   uint16
}

type laneSlot uint64

func atLane(l uint16, s slot) laneSlot { return laneSlot(s)<<16 | laneSlot(l) }

// inCommon stands for the common table where otherwise the number of a lane is.
const inCommon = maxLanes

// namesOf returns the table that has the names of a row, if it has any.
func (ix *Index) namesOf(m rowRef) *table.Table {
	if m.names == inCommon {
		return &ix.common
	}
	return &ix.lanes[m.names].names
}

// keyOf mixes a handle for the tables. Handles may be counters: mixed once, they
// would fill all segments at the same pace, which then would split all at once.
func (ix *Index) keyOf(h kv.Handle) uint32 {
	x := mum(uint64(h)^ix.secret, 0x9e3779b97f4a7c15)
	return table.Tag(mum(x^ix.secret, 0xbf58476d1ce4e5b9))
}

// named returns the slot whose name in t is h, with h's tag, or 0.
func (ix *Index) named(t *table.Table, h kv.Handle, tag uint32) slot {
	ref, none := t.First(tag)
	if s := slot(ref); none || s != 0 && ix.handle(s) == h {
		return s
	}
	for p := t.Probe(tag); ; {
		s := slot(p.Next())
		if s == 0 || ix.handle(s) == h {
			return s
		}
	}
}

// handle returns the name of a slot that is in a table.
func (ix *Index) handle(s slot) kv.Handle {
	sl, _ := ix.rows.at(s.row())
	return sl.handles(s.row())[s.pos()]
}

// resolve returns the slot that lane l holds by name h, or 0.
func (ix *Index) resolve(l *lane, h kv.Handle) slot { return ix.resolveTag(l, h, ix.keyOf(h)) }

func (ix *Index) resolveTag(l *lane, h kv.Handle, tag uint32) slot {
	if l.names.Len() > 0 {
		if s := ix.named(&l.names, h, tag); s != 0 {
			return s
		}
	}
	if ix.common.Len() > 0 {
		if s := ix.named(&ix.common, h, tag); s != 0 && ix.mask(s, l) != 0 && !ix.aliased(l, s) {
			return s
		}
	}
	if l.aliases > 0 {
		return ix.byAlias[laneHandle{h, l.id}]
	}
	return 0
}

// aliased says that l has slot s by a name of its own.
func (ix *Index) aliased(l *lane, s slot) bool {
	_, r := ix.rows.at(s.row())
	if r.alias>>s.pos()&1 == 0 || l.aliases == 0 {
		return false
	}
	_, ok := ix.aliasOf[atLane(l.id, s)]
	return ok
}

// nameOf returns the name by which lane l holds s.
func (ix *Index) nameOf(l *lane, s slot) kv.Handle {
	_, r := ix.rows.at(s.row())
	if r.alias>>s.pos()&1 == 1 && l.aliases > 0 {
		if h, ok := ix.aliasOf[atLane(l.id, s)]; ok {
			return h
		}
	}
	return ix.handle(s)
}

// bind gives slot s the name h in lane l, which holds s from now on and has
// neither the name nor the block so far.
func (ix *Index) bind(l *lane, h kv.Handle, s slot) {
	sl, m := ix.rows.at(s.row())
	p := s.pos()
	name := &sl.handles(s.row())[p]
	if free := m.named>>p&1 == 0; free || *name == h {
		ix.open(l, s.row())
		switch tag := ix.keyOf(h); {
		case m.named>>p&1 == 1:
			if *name == h {
				return
			}
		case free && ix.named(ix.namesOf(m), h, tag) == 0:
			*name = h
			m.named |= 1 << p
			ix.namesOf(m).Insert(tag, uint32(s))
			return
		}
	}
	ix.rename(l, h, s)
}

// open lets l use the names of a row, and give some.
func (ix *Index) open(l *lane, row uint32) {
	_, m := ix.rows.at(row)
	switch {
	case m.named == 0:
		m.names = l.id
	case m.names != l.id && m.names != inCommon:
		ix.share(row)
	}
}

// share moves the names of a row from a lane's own table to the common one. Where
// a name is taken there, the lane keeps it as a name of its own.
func (ix *Index) share(row uint32) {
	sl, m := ix.rows.at(row)
	l := ix.lanes[m.names]
	for x := m.named; x != 0; x &= x - 1 {
		s := slotAt(row, bits.TrailingZeros16(x))
		h := sl.handles(row)[s.pos()]
		tag := ix.keyOf(h)
		l.names.Delete(tag, uint32(s))
		if ix.named(&ix.common, h, tag) == 0 {
			ix.common.Insert(tag, uint32(s))
		} else {
			m.named &^= 1 << s.pos()
			ix.rename(l, h, s)
		}
	}
	m.names = inCommon
}

// rename gives slot s the name h that only l knows.
func (ix *Index) rename(l *lane, h kv.Handle, s slot) {
	_, m := ix.rows.at(s.row())
	m.alias |= 1 << s.pos()
	ix.byAlias[laneHandle{h, l.id}] = s
	ix.aliasOf[atLane(l.id, s)] = h
	l.aliases++
}

// unbind forgets l's own name of s, if it has one; it doesn't hold s any more.
func (ix *Index) unbind(l *lane, s slot) {
	_, m := ix.rows.at(s.row())
	p := s.pos()
	if m.alias>>p&1 == 1 && l.aliases > 0 {
		k := atLane(l.id, s)
		if h, ok := ix.aliasOf[k]; ok {
			delete(ix.aliasOf, k)
			delete(ix.byAlias, laneHandle{h, l.id})
			l.aliases--
			return
		}
	}
	if m.named>>p&1 == 1 && m.names == l.id {
		ix.unname(s.row(), p, p+1, nil)
	}
}

// unname takes the names of slots lo to hi-1 out of their table. tags has those of
// these slots, if they are known.
func (ix *Index) unname(row uint32, lo, hi int, tags *[rowSlots]uint32) {
	sl, m := ix.rows.at(row)
	gone := m.named >> lo << lo & (1<<hi - 1)
	if gone == 0 {
		return
	}
	t := ix.namesOf(m)
	for x := gone; x != 0; x &= x - 1 {
		p := bits.TrailingZeros16(x)
		tag := uint32(0)
		if tags != nil {
			tag = tags[p]
		} else {
			tag = ix.keyOf(sl.handles(row)[p])
		}
		t.Delete(tag, uint32(slotAt(row, p)))
	}
	m.named &^= gone
}

const aliasBytes = 100 // of both maps, about

// copyKey is the key in copies, which counts those beyond the first of the few
// blocks that have several (U13).
func (ix *Index) copyKey(l *lane, s slot, plane uint8) uint64 {
	return uint64(s)<<17 | uint64(l.id)<<5 | uint64(plane)
}

// addCopy counts another copy of a block that l holds.
func (ix *Index) addCopy(l *lane, s slot, plane uint8) {
	_, r := ix.rows.at(s.row())
	r.extra |= 1 << s.pos()
	k := ix.copyKey(l, s, plane)
	if n := ix.copies[k]; int(n) < ix.cfg.MaxCopies-1 {
		ix.copies[k] = n + 1
	}
}

// setCopies says that l has n >= 1 copies.
func (ix *Index) setCopies(l *lane, s slot, plane uint8, n int) {
	_, r := ix.rows.at(s.row())
	k := ix.copyKey(l, s, plane)
	if n = min(n, ix.cfg.MaxCopies); n > 1 {
		r.extra |= 1 << s.pos()
		ix.copies[k] = int32(n - 1)
	} else if r.extra>>s.pos()&1 == 1 {
		delete(ix.copies, k)
	}
}

// takeCopy takes one copy and says whether there was one beyond the first.
func (ix *Index) takeCopy(l *lane, s slot, plane uint8) bool {
	_, r := ix.rows.at(s.row())
	if r.extra>>s.pos()&1 == 0 {
		return false
	}
	k := ix.copyKey(l, s, plane)
	switch n, ok := ix.copies[k]; {
	case !ok:
		return false
	case n > 1:
		ix.copies[k] = n - 1
	default:
		delete(ix.copies, k)
	}
	return true
}

// dropCopies forgets the counts of the given planes.
func (ix *Index) dropCopies(l *lane, s slot, mask uint8) {
	_, r := ix.rows.at(s.row())
	if r.extra>>s.pos()&1 == 0 {
		return
	}
	for p := uint8(1); p < 1<<planes; p <<= 1 {
		if mask&p != 0 {
			delete(ix.copies, ix.copyKey(l, s, p))
		}
	}
}

const copyBytes = 40 // of an entry of copies, about
