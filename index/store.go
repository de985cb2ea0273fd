package index

import (
	"math/bits"

	"kvasir/index/table"
	"kvasir/kv"
)

// A run is consecutive blocks to store: those of an event, or of an orphan that
// was joined.
type run struct {
	l       *lane
	tier    kv.Tier
	handles []kv.Handle
	live    []bool // nil: all
	chunk   int    // blocks that count only together
	reused  bool
}

func (u *run) plane(i int) uint8 { return planeOf(u.tier, i%u.chunk != u.chunk-1) }

// stored applies a store: it sends each kind of it to its own place, and refuses what
// makes no sense.
func (ix *Index) stored(t *target, ev *kv.Event, r *Result) {
	n := len(ev.Handles)
	l := t.lane(ev.Group)
	size := int32(0)
	switch {
	case ev.Attention != kv.Dense:
		ix.storedSliding(t, l, ev, r)
		return
	case l != nil && l.kind != laneDense:
		r.skip(BadShape, n)
		return
	case n == 0:
		return
	case t.work.twice:
		r.skip(Cycle, n)
		return
	case len(ev.Tokens) == 0:
		ix.placeholder(l, ev, r)
		return
	case l != nil:
		size = l.bs
	}
	unit, chunk, ok := shape(ev, l != nil, size)
	page := int32(0)
	if unit < kv.MinChunk {
		page = int32(unit)
	}
	if !ok || l != nil && l.page != page && ev.Tier != kv.GPU {
		r.skip(BadShape, n)
		return
	}
	if l = ix.ready(t, l, ev, page, r); l == nil {
		return
	}
	var u run // not as a literal, which is built elsewhere and copied here: that stalls for a dozen cycles
	u.l, u.tier, u.handles, u.chunk, u.reused = l, ev.Tier, ev.Handles, chunk, ev.Reused
	ix.storeAfter(&u, ev, unit, r)
}

// ready makes lane l, or a new one, ready for the blocks of ev, and room for them. It
// returns nil if they can't be taken.
func (ix *Index) ready(t *target, l *lane, ev *kv.Event, page int32, r *Result) *lane {
	if l == nil {
		if l = ix.addLane(t, laneDense, ev.Group); l == nil {
			r.skip(Full, len(ev.Handles))
			return nil
		}
		ix.setPage(l, page)
	}
	if l.page != page {
		ix.regenerate(l, page, r)
	}
	if ev.Tier == kv.GPU || l.bs == 0 {
		l.bs = ev.BlockSize
	}
	// Not before: that the group exists counts even if its blocks find no room.
	if !ix.makeRoom(t, len(ev.Handles), ev.Parent, l) {
		r.skip(Full, len(ev.Handles))
		return nil
	}
	return l
}

// storeAfter stores the blocks of ev after their parent, and then the orphans that
// waited for them; if the parent isn't known, they wait themselves.
func (ix *Index) storeAfter(u *run, ev *kv.Event, unit int, r *Result) {
	ok := false
	if u.l.page != 0 {
		ok = u.l.pages.store(u, ev, r)
	} else if ev.Root {
		ok = true
		ix.storeRun(u, atRoot, ix.cfg.Seed.Root(ev.Key, unit), ev.Tokens, unit, ev.Extras, r)
	} else if p := ix.parent(u.l, ev.Parent); p != 0 {
		ok = true
		sl, _ := ix.rows.at(p.row())
		ix.storeRun(u, p, sl.hashes(p.row())[p.pos()], ev.Tokens, unit, ev.Extras, r)
	}
	if !ok {
		ix.wait(u, ev, unit, r)
		return
	}
	if u.l.t.orphanUnits > 0 {
		ix.join(u.l, ev.Handles, r)
	}
}

// parent resolves the parent of a store, which most often was stored last.
func (ix *Index) parent(l *lane, h kv.Handle) slot {
	if s := l.tail; s != 0 {
		if sl, m := ix.rows.peek(s.row()); sl != nil && int(m.fill.Load()) > s.pos() && m.named>>s.pos()&1 == 1 &&
			sl.handles(s.row())[s.pos()] == h && (m.names == l.id || m.names == inCommon && ix.mask(s, l) != 0 && !ix.aliased(l, s)) {
			return s
		}
	}
	return ix.resolve(l, h)
}

// shape returns the block size at which ev is hashed, and how many of those
// blocks make a chunk that only counts whole.
func shape(ev *kv.Event, known bool, size int32) (unit, chunk int, ok bool) {
	bs, n := int(ev.BlockSize), len(ev.Handles)
	if bs <= 0 || bs > maxBlockSize {
		return 0, 0, false
	}
	if len(ev.Tokens) == n*bs {
		return bs, 1, true
	}
	if unit := int(size); ev.Tier != kv.GPU && known && unit >= kv.MinChunk && bs > unit && bs%unit == 0 &&
		n%(bs/unit) == 0 && len(ev.Tokens) == n*unit {
		return unit, bs / unit, true
	}
	return 0, 0, false
}

// storeRun stores the blocks of tokens after the block parent, which is in slot
// prev (atRoot: it has none).
func (ix *Index) storeRun(u *run, prev slot, parent kv.Hash, tokens []uint32, unit int, extras []kv.Extra, r *Result) {
	l := u.l
	w := l.t.work
	w.hashes = ix.cfg.Seed.Extend(w.hashes[:0], parent, tokens, unit, extras)
	hs := w.hashes
	for from := 0; from < len(hs); from += ix.ahead {
		to := min(from+ix.ahead, len(hs))
		if to < len(hs) {
			ix.ask(l, w.tags[to:min(to+ix.ahead, len(hs))])
		}
		if to-from > 1 || prev.pos() == rowSlots-1 {
			ix.approachHeads(prev, hs[from:to])
		}
		ix.freeNames(u, hs, from, to, r)
		plain := u.live == nil && u.chunk == 1 && len(l.t.lanes) == 1 && l.limits[u.tier] == nil
		prev = ix.storeBlocks(u, prev, hs[:to], from, plain, r)
		if to < len(hs) && ix.yield() {
			// Others may have evicted what was just stored: then what follows is
			// found, or made, by itself.
			if prev.row() != 0 && !ix.holds(l, prev, hs[to-1]) {
				prev = 0
			}
		}
	}
	if prev.row() != 0 {
		l.tail = prev
	}
	ix.age(l, u.tier, r)
}

// holds says that l holds block h in slot s, which may be of no use any more.
func (ix *Index) holds(l *lane, s slot, h kv.Hash) bool {
	sl, m := ix.rows.peek(s.row())
	return sl != nil && s.pos() < int(m.fill.Load()) && sl.hashes(s.row())[s.pos()] == h && ix.mask(s, l) != 0
}

// storeBlocks stores the blocks of hs from number i on, and returns the slot of
// the last.
func (ix *Index) storeBlocks(u *run, prev slot, hs []kv.Hash, i int, plain bool, r *Result) slot {
	l, from := u.l, i
	for i < len(hs) {
		s := ix.find(prev, hs[i])
		if s == 0 {
			if u.live != nil && !u.live[i] {
				prev = 0
				i++
				continue
			}
			n, at := ix.newBlocks(u, prev, hs, i)
			s = ix.create(prev, at, hs[i:i+n], single(l.id, u.plane(i)))
			ix.name(u, s, i, n, from, plain, r)
			prev = s + slot(n) - 1
			i += n
			continue
		}
		n := ix.same(s, hs[i:])
		if !(plain && (ix.joinRow(u, s, i, n, r) || ix.settle(u, s, i, n, from, r))) {
			for k := range n {
				if u.live == nil || u.live[i+k] {
					ix.hold(u, s+slot(k), u.handles[i+k], u.plane(i+k), r)
				}
			}
		}
		prev = s + slot(n) - 1
		i += n
	}
	return prev
}

// approachHeads prefetches where the heads of new rows will go that begin with a
// block of hs, which come after prev.
func (ix *Index) approachHeads(prev slot, hs []kv.Hash) {
	i := 0
	if at := ix.place(prev); at != 0 {
		i = rowSlots - at.pos()
	}
	for ; i < len(hs); i += rowSlots {
		ix.heads.Touch(table.Tag(uint64(hs[i])))
	}
}

// freeNames forgets blocks whose names blocks from to to-1 of the run take over.
// It notes in work.taken which names may be in the lane's own table, and in
// work.spots where the others would go.
func (ix *Index) freeNames(u *run, hs []kv.Hash, from, to int, r *Result) {
	l, w := u.l, u.l.t.work
	tags := w.tags[from:to]
	w.taken = l.names.Lookup(tags, &w.spots)
	common := uint64(0)
	if ix.common.Len() > 0 {
		var spots [table.Batch]uint8
		common = ix.common.Lookup(tags, &spots)
	}
	maybe := w.taken | common
	if l.aliases > 0 {
		maybe = 1<<len(tags) - 1
	}
	for ; maybe != 0; maybe &= maybe - 1 {
		k := bits.TrailingZeros64(maybe)
		if u.live != nil && !u.live[from+k] {
			continue
		}
		s := ix.resolveTag(l, u.handles[from+k], tags[k])
		if s != 0 {
			if sl, _ := ix.rows.at(s.row()); sl.hashes(s.row())[s.pos()] != hs[from+k] {
				ix.drop(l, s)
				r.Rebound++
			}
		}
	}
}

// newBlocks returns how many blocks from hs[i] on are new and go to one row, and
// where.
func (ix *Index) newBlocks(u *run, prev slot, hs []kv.Hash, i int) (n int, at slot) {
	room := rowSlots
	if at = ix.place(prev); at != 0 {
		room -= at.pos()
	}
	room = min(room, len(hs)-i)
	if room > 2 && ix.detached > 0 {
		var tags [rowSlots]uint32
		for k := range room {
			tags[k] = table.Tag(uint64(hs[i+k]))
		}
		ix.heads.Prefetch(tags[1:room])
	}
	for n = 1; n < room; n++ {
		if u.chunk > 1 && u.plane(i+n) != u.plane(i) || u.live != nil && !u.live[i+n] || ix.detached > 0 && ix.head(hs[i+n]) != 0 {
			break
		}
	}
	return n, at
}

// same returns how many slots from s on, in its row, have the hashes hs.
func (ix *Index) same(s slot, hs []kv.Hash) int {
	sl, m := ix.rows.at(s.row())
	h := sl.hashes(s.row())
	p := s.pos()
	n := min(int(m.fill.Load())-p, len(hs))
	for k := 1; k < n; k++ {
		if h[p+k] != hs[k] {
			return k
		}
	}
	return n
}

// name finishes n slots just created for l from s on, blocks i to i+n-1 of the
// run: names and counts. work.taken begins with block from.
func (ix *Index) name(u *run, s slot, i, n, from int, plain bool, r *Result) {
	l := u.l
	sl, m := ix.rows.at(s.row())
	names := sl.handles(s.row())
	w := l.t.work
	ix.open(l, s.row())
	own := m.names == l.id
	for k := range n {
		h := u.handles[i+k]
		if own && w.taken>>(i+k-from)&1 == 0 {
			p := s.pos() + k
			names[p] = h
			m.named |= 1 << p
			l.names.InsertAt(w.tags[i+k], uint32(s)+uint32(k), uint(w.spots[i+k-from]))
		} else {
			ix.bind(l, h, s+slot(k))
		}
	}
	l.near(s.row())
	l.count[u.tier] += int64(n)
	r.Stored += int32(n)
	if !plain {
		for k := range n {
			ix.noted(u, s+slot(k), u.handles[i+k], true)
		}
	}
}

// joinRow makes l a holder of a whole row at once, if nothing is in the way.
func (ix *Index) joinRow(u *run, s slot, i, n int, r *Result) bool {
	sl, m := ix.rows.at(s.row())
	l := u.l
	if old := m.sets.Load(); s.pos() != 0 || n != int(m.fill.Load()) || old&inDetail != 0 || ix.sets.mask(old, l.id) != 0 || m.named != 1<<n-1 {
		return false
	}
	names := sl.handles(s.row())
	for k, h := range u.handles[i : i+n] {
		if names[k] != h {
			return false
		}
	}
	if m.extra != 0 && l.t.pred != nil {
		return false // perhaps it is predicted for several requests
	}
	if ix.open(l, s.row()); m.named != 1<<n-1 {
		return false
	}
	ix.admit(u, s.row(), 0, n, m.sets.Load())
	m.used.Store(usedMatched) // by another target
	l.near(s.row())
	l.count[u.tier] += int64(n)
	r.Stored += int32(n)
	return true
}

// admit makes l a holder of slots lo to hi-1 of a row, which set old holds, and
// ends the prediction of these blocks.
func (ix *Index) admit(u *run, row uint32, lo, hi int, old uint32) {
	l, n, from := u.l, hi-lo, old
	if p := l.t.pred; p != nil && u.tier == kv.GPU {
		if m := ix.sets.mask(old, p.id); m != 0 {
			from = ix.sets.with(old, p.id, 0)
			p.recount(m, 0, n)
		}
	}
	ix.sets.hold(from, 1)
	id := ix.sets.with(from, l.id, planeOf(u.tier, false))
	ix.sets.hold(id, n)
	ix.sets.release(from, 1, &ix.epochs)
	ix.putSets(row, lo, hi, id)
	ix.sets.release(old, n, &ix.epochs)
}

// settle stores n blocks in slots from s on that were predicted, have no names yet
// and are held by the same lanes, if that is how it is.
func (ix *Index) settle(u *run, s slot, i, n, from int, r *Result) bool {
	_, m := ix.rows.at(s.row())
	l, lo, hi := u.l, s.pos(), s.pos()+n
	id := ix.setOf(s)
	if u.tier != kv.GPU || l.t.pred == nil || (m.named|m.alias|m.extra)>>lo&(1<<n-1) != 0 ||
		ix.sets.mask(id, l.t.pred.id) == 0 || ix.sets.mask(id, l.id) != 0 {
		return false
	}
	if ix.alike(s, n, id) < n {
		return false
	}
	ix.admit(u, s.row(), lo, hi, id)
	ix.name(u, s, i, n, from, true, r)
	return true
}

// hold makes l hold block s, named h, in a plane.
func (ix *Index) hold(u *run, s slot, h kv.Handle, plane uint8, r *Result) {
	l := u.l
	old := ix.mask(s, l)
	if old != 0 && ix.nameOf(l, s) != h {
		r.Rebound++
		ix.lose(l, s, old, 0)
		old = 0
	}
	bound := old == 0
	if bound {
		ix.bind(l, h, s)
	}
	if old&planesOf(u.tier) == 0 {
		r.Stored++
	} else {
		r.Copies++
	}
	if old&plane == 0 {
		ix.setMask(l, s, old|plane)
		l.recount(old, old|plane, 1)
	} else if !u.reused {
		ix.addCopy(l, s, plane)
	}
	ix.noted(u, s, h, bound)
}

// noted does what follows a store of a block: age, prediction, windows.
func (ix *Index) noted(u *run, s slot, h kv.Handle, bound bool) {
	l := u.l
	if a := l.limits[u.tier]; a != nil {
		a.touch(h, l.t.events)
	}
	if u.tier == kv.GPU {
		ix.fact(l.t, s)
	}
	if bound && len(l.t.lanes) > 1 && l == l.t.primary() {
		ix.showWindows(l.t, s, h)
	}
}

// lose undoes what depends on l holding s when its planes go from old to now;
// the mask itself is the caller's.
func (ix *Index) lose(l *lane, s slot, old, now uint8) {
	ix.dropCopies(l, s, old&^now)
	l.recount(old, now, 1)
	if l.kind != laneDense || l.page != 0 {
		return
	}
	for t, a := range l.limits {
		if p := planesOf(kv.Tier(t)); a != nil && old&p != 0 && now&p == 0 {
			a.forget(ix.nameOf(l, s))
		}
	}
	if now == 0 {
		if len(l.t.lanes) > 1 && l == l.t.primary() {
			ix.hideWindows(l.t, s)
		}
		ix.unbind(l, s)
	}
}

// reduce makes l hold s in fewer planes.
func (ix *Index) reduce(l *lane, s slot, old, now uint8) {
	ix.lose(l, s, old, now)
	ix.setMask(l, s, now)
}

// drop makes l forget s.
func (ix *Index) drop(l *lane, s slot) { ix.reduce(l, s, ix.mask(s, l), 0) }

// placeholder applies a store without tokens: only handles that are known have
// a position.
func (ix *Index) placeholder(l *lane, ev *kv.Event, r *Result) {
	n := len(ev.Handles)
	if l == nil {
		r.skip(NoTokens, n)
		return
	}
	if l.page != 0 {
		l.pages.placeholder(ev, r)
		return
	}
	chunk := 1
	if bs := ev.BlockSize; ev.Tier != kv.GPU && l.bs > 0 && bs > l.bs {
		if bs%l.bs != 0 || n%int(bs/l.bs) != 0 {
			r.skip(BadShape, n)
			return
		}
		chunk = int(bs / l.bs)
	}
	u := run{l: l, tier: ev.Tier, handles: ev.Handles, chunk: chunk, reused: ev.Reused}
chunks:
	for i := 0; i < n; i += chunk {
		for _, h := range ev.Handles[i : i+chunk] {
			if ix.resolve(l, h) == 0 {
				r.skip(NoTokens, chunk)
				continue chunks
			}
		}
		for k := i; k < i+chunk; k++ {
			if s := ix.resolve(l, ev.Handles[k]); s != 0 {
				ix.hold(&u, s, ev.Handles[k], u.plane(k), r)
			}
		}
	}
	ix.age(l, ev.Tier, r)
}
