package index

import (
	"kvasir/index/table"
	"kvasir/kv"
)

func (ix *Index) removed(t *target, ev *kv.Event, r *Result) {
	l := t.lane(ev.Group)
	switch {
	case l == nil && ev.Attention != kv.Dense:
		r.skip(SparseGroup, len(ev.Handles))
	case l == nil:
		r.Unknown += int32(len(ev.Handles))
	case l.kind == laneSliding:
		ix.removedSliding(l, ev, r)
	case l.page != 0:
		l.pages.removed(ev, r)
	default:
		ix.removedDense(l, ev, r)
	}
}

// told returns how many copies of block i are left, if the engine said so, else
// -1.
func told(ev *kv.Event, i int) int32 {
	if len(ev.Copies) != len(ev.Handles) {
		return -1
	}
	return max(ev.Copies[i], 0)
}

func (ix *Index) removedDense(l *lane, ev *kv.Event, r *Result) {
	tags := l.t.work.tags
	ready := 0 // blocks below were asked for
	simple := l.simple() && len(ev.Copies) != len(ev.Handles)
	for i := 0; i < len(ev.Handles); i++ {
		h := ev.Handles[i]
		if i >= ready {
			if ready += ix.ahead; ready < len(tags) {
				ix.ask(l, tags[ready:min(ready+ix.ahead, len(tags))])
			}
			ix.approach(l, tags[i:min(ready, len(tags))])
		}
		left := told(ev, i)
		s := ix.resolveTag(l, h, tags[i])
		var old uint8
		if s != 0 {
			old = ix.mask(s, l)
		}
		here := old & planesOf(ev.Tier)
		if simple && old == planeOf(ev.Tier, false) {
			if n := ix.removedRun(l, s, ev.Handles[i:], tags[i:]); n > 0 {
				r.Removed += int32(n)
				i += n - 1
				continue
			}
		}
		if here == 0 {
			if !ix.removedOrphan(l, h, ev.Tier, left, r) {
				r.Unknown++
			}
			continue
		}
		now := old
		plane := planeOf(ev.Tier, here&planeOf(ev.Tier, false) == 0)
		switch {
		case left > 0:
			ix.setCopies(l, s, plane, int(left))
		case left == 0 || l.t.cfg.Copies.drops():
			now &^= here
		case !ix.takeCopy(l, s, plane):
			now &^= plane
		}
		if now&planesOf(ev.Tier) != 0 {
			r.Kept++
		} else {
			r.Removed++
		}
		if now != old {
			ix.reduce(l, s, old, now)
		}
	}
}

// removedRun removes s and, in one go, the blocks before or behind it in its row
// if they are the next to be removed: engines evict the ends of chains. It
// returns how many; 0 if s needs more care.
func (ix *Index) removedRun(l *lane, s slot, hs []kv.Handle, tags []uint32) int {
	sl, m := ix.rows.at(s.row())
	if m.extra|m.alias != 0 { // copies to take first (U13), or other names
		return 0
	}
	names, id, p := sl.handles(s.row()), ix.setOf(s), s.pos()
	next := func(q, k int) bool {
		return k < len(hs) && names[q] == hs[k] && m.named>>q&1 == 1 && ix.setOf(slotAt(s.row(), q)) == id
	}
	lo, hi, n := p, p+1, 1
	var known [rowSlots]uint32
	known[p] = tags[0]
	for lo > 0 && next(lo-1, n) {
		lo--
		known[lo] = tags[n]
		n++
	}
	for n == hi-p && hi < int(m.fill.Load()) && next(hi, n) {
		known[hi] = tags[n]
		hi++
		n++
	}
	ix.loseRange(l, s.row(), lo, hi, id, &known)
	return n
}

// approach prefetches what will be looked at of the blocks with these tags: the
// rows, then where their heads are.
func (ix *Index) approach(l *lane, tags []uint32) {
	var rows [maxAhead]uint32
	n, last := 0, uint32(0)
	var guess [table.Batch]uint32
	l.names.Guess(tags, &guess)
	for k := range tags {
		s := slot(guess[k%table.Batch])
		if s == 0 {
			continue
		}
		if row := s.row(); row != last {
			last, rows[n%maxAhead] = row, row
			n++
			sl, r := ix.rows.at(row)
			prefetchRow(r.row, r.rowOwn, &sl.handle[s%slabSlots], &sl.hashes(row)[0])
		}
	}
	for _, row := range rows[:min(n, maxAhead)] {
		sl, _ := ix.rows.at(row)
		ix.heads.Touch(table.Tag(uint64(sl.hashes(row)[0])))
	}
}

// cleared forgets t's blocks of a tier, or of all. It lets go of the lock
// between groups of rows, so that events of other targets go on.
func (ix *Index) cleared(t *target, ev *kv.Event, r *Result) {
	for tier := kv.GPU; tier < kv.NumTiers; tier++ {
		if tier != ev.Tier && !ev.AllTiers {
			continue
		}
		ix.dropOrphans(&t.orphans, func(o *orphan) bool { return o.tier == tier }, r)
		for _, l := range t.lanes {
			r.Removed += int32(ix.clearTier(l, tier))
		}
	}
}

// clearTier forgets what l holds in a tier and returns how many blocks that was.
func (ix *Index) clearTier(l *lane, tier kv.Tier) int {
	if l.kind == laneSliding {
		return ix.clearSliding(l, tier)
	}
	if l.page != 0 {
		return l.pages.clear(tier)
	}
	n := int(l.count[tier])
	if n == 0 {
		return 0
	}
	l.limits[tier].reset()
	ix.sweep(l, planesOf(tier))
	return n
}

// sweep takes planes from every block of l.
func (ix *Index) sweep(l *lane, gone uint8) {
	l.eachGroup(func(g uint32) {
		stays := false
		for row := g * groupRows; row < (g+1)*groupRows; row++ {
			if ix.sweepRow(l, row, gone) {
				stays = true
			}
		}
		if !stays {
			l.groups[g/64] &^= 1 << (g % 64)
		}
		if len(ix.epochs.during) > 256 {
			ix.epochs.advance(ix.reuse)
		}
		ix.yield()
	})
}

// sweepRow takes planes from l's blocks of a row and says whether any are left.
func (ix *Index) sweepRow(l *lane, row uint32, gone uint8) (stays bool) {
	s, m := ix.rows.peek(row)
	if s == nil {
		return false
	}
	n := int(m.fill.Load())
	if sets := m.sets.Load(); sets&inDetail == 0 {
		old := ix.sets.mask(sets, l.id)
		if old == 0 {
			return false
		}
		if old&^gone == 0 && m.extra|m.alias == 0 && (l.simple() || l.page != 0 && len(l.t.lanes) == 0) {
			ix.loseRange(l, row, 0, n, sets, nil)
			return false
		}
	}
	for p := n - 1; p >= 0 && m.fill.Load() != 0; p-- {
		at := slotAt(row, p)
		old := ix.mask(at, l)
		if now := old &^ gone; now != old {
			ix.reduce(l, at, old, now)
			stays = stays || now != 0
		} else if old != 0 {
			stays = true
		}
	}
	return stays
}

// Forget drops everything of target t, its settings too: its number may then be
// used again. Lookups see nothing of it as soon as Forget has begun.
func (ix *Index) Forget(id kv.Target) {
	if id >= kv.MaxTargets {
		return
	}
	t := ix.target(id)
	t.busy.Lock()
	defer t.busy.Unlock()
	ix.lock()
	defer ix.mu.Unlock()
	ix.dropOrphans(&t.orphans, func(*orphan) bool { return true }, &Result{})
	gone := t.lanes
	if t.pred != nil {
		gone = append(gone, t.pred)
	}
	t.lanes, t.pred, t.events = nil, nil, 0
	t.set(ix.cfg.Target)
	t.view.Store(&laneView{pred: noLane})
	for _, l := range gone {
		ix.info[l.id].Store(0)
	}
	for _, l := range gone {
		for i := range l.limits {
			l.limits[i] = nil
		}
		ix.forgetPages(l)
		ix.slidNames -= len(l.slid)
		l.slid = nil
		ix.sweep(l, 1<<planes-1)
		l.names.Forget()
		ix.lanes[l.id] = nil
		ix.epochs.retire(retiredLane, uint32(l.id))
	}
	ix.epochs.advance(ix.reuse)
	if invariants {
		ix.verify(0)
	}
}
