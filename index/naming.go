package index

import "kvasir/kv"

// An engine's handles are its own names. Engines that hash equal content to
// equal handles share one table: slot.handle is the name that the first holder
// used, the table of handles finds the slot, and a lane has the slot by that
// name if it is among the holders. A lane that calls the block otherwise, or
// whose name is already taken by another block, keeps its own name in alias.
//
// For each lane, names and held blocks are one to one: a name that is given to
// another block, or a block that gets another name, forgets what was known
// before (the last writer wins).
type laneHandle struct {
	handle kv.Handle
	lane   uint16
}

type laneSlot uint64

func atLane(l uint16, s slot) laneSlot { return laneSlot(s)<<16 | laneSlot(l) }

// keyOf mixes a handle for the table. Handles may be counters: mixed once, they
// would fill all segments at the same pace, which then would split all at once.
func (ix *Index) keyOf(h kv.Handle) uint32 {
	x := mum(uint64(h)^ix.secret, 0x9e3779b97f4a7c15)
	return tagOf(mum(x^ix.secret, 0xbf58476d1ce4e5b9))
}

// named returns the slot whose shared name is h, with h's tag, or 0.
func (ix *Index) named(h kv.Handle, tag uint32) slot {
	s, b := ix.handles.segment(tag)
	for range segBuckets {
		e := s.e.bucket(b)
		for i := range e {
			if x := e[i]; matches(x, tag) {
				if at := slot(x); ix.isNamed(at, h) {
					return at
				}
			}
		}
		if e[0]&overflowed == 0 {
			break
		}
		b += bucketSize
	}
	return 0
}

func (ix *Index) isNamed(s slot, h kv.Handle) bool {
	sl, r := ix.rows.at(s.row())
	return sl.handles(s.row())[s.pos()] == h && r.named>>s.pos()&1 == 1
}

// resolve returns the slot that lane l holds by name h, or 0.
func (ix *Index) resolve(l *lane, h kv.Handle) slot { return ix.resolveTag(l, h, ix.keyOf(h)) }

func (ix *Index) resolveTag(l *lane, h kv.Handle, tag uint32) slot {
	if s := ix.named(h, tag); s != 0 && ix.mask(s, l) != 0 && !ix.aliased(l, s) {
		return s
	}
	if l.names > 0 {
		return ix.byAlias[laneHandle{h, l.id}]
	}
	return 0
}

// aliased says that l has slot s by a name of its own.
func (ix *Index) aliased(l *lane, s slot) bool {
	_, r := ix.rows.at(s.row())
	if r.alias>>s.pos()&1 == 0 || l.names == 0 {
		return false
	}
	_, ok := ix.aliasOf[atLane(l.id, s)]
	return ok
}

// nameOf returns the name by which lane l holds s.
func (ix *Index) nameOf(l *lane, s slot) kv.Handle {
	sl, r := ix.rows.at(s.row())
	if r.alias>>s.pos()&1 == 1 && l.names > 0 {
		if h, ok := ix.aliasOf[atLane(l.id, s)]; ok {
			return h
		}
	}
	return sl.handles(s.row())[s.pos()]
}

// bind gives slot s the name h in lane l, which holds s from now on and has
// neither the name nor the block so far.
func (ix *Index) bind(l *lane, h kv.Handle, s slot) {
	sl, r := ix.rows.at(s.row())
	p := s.pos()
	if r.named>>p&1 == 1 {
		if sl.handles(s.row())[p] == h {
			return
		}
	} else if tag := ix.keyOf(h); ix.named(h, tag) == 0 {
		sl.handles(s.row())[p] = h
		r.named |= 1 << p
		ix.handles.insert(tag, uint32(s))
		return
	}
	r.alias |= 1 << p
	ix.byAlias[laneHandle{h, l.id}] = s
	ix.aliasOf[atLane(l.id, s)] = h
	l.names++
}

// unbind forgets l's own name of s, if it has one; it doesn't hold s any more.
func (ix *Index) unbind(l *lane, s slot) {
	_, r := ix.rows.at(s.row())
	if r.alias>>s.pos()&1 == 1 && l.names > 0 {
		k := atLane(l.id, s)
		if h, ok := ix.aliasOf[k]; ok {
			delete(ix.aliasOf, k)
			delete(ix.byAlias, laneHandle{h, l.id})
			l.names--
		}
	}
}

const aliasBytes = 100 // of both maps, about

// copies beyond the first, of the few blocks that have them
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
