package index

import (
	"slices"

	"kvasir/kv"
)

// An orphan is a store whose parent is not known: its position in a prompt, and
// so its hashes, have to wait. Orphans are bounded; the oldest go first.
type orphan struct {
	l       *lane
	tier    kv.Tier
	parent  kv.Handle
	handles []kv.Handle
	live    []bool // false: removed while it waited
	left    int    // of live
	tokens  []uint32
	extras  []kv.Extra
	unit    int
	chunk   int
	reused  bool
	age     uint64

	inAll, inTarget orphanLinks
}

// Lists of orphans, oldest first: of all, and of each target.
type orphanList struct{ first, last *orphan }

type orphanLinks struct{ before, after *orphan }

func linksAll(o *orphan) *orphanLinks    { return &o.inAll }
func linksTarget(o *orphan) *orphanLinks { return &o.inTarget }

func (q *orphanList) push(o *orphan, links func(*orphan) *orphanLinks) {
	*links(o) = orphanLinks{before: q.last}
	if q.last == nil {
		q.first = o
	} else {
		links(q.last).after = o
	}
	q.last = o
}

func (q *orphanList) remove(o *orphan, links func(*orphan) *orphanLinks) {
	l := links(o)
	if l.before == nil {
		q.first = l.after
	} else {
		links(l.before).after = l.after
	}
	if l.after == nil {
		q.last = l.before
	} else {
		links(l.after).before = l.before
	}
}

// units is what o counts against the bounds: blocks, or as many as its tokens
// would fill at 16 each.
func units(handles, tokens int) int { return max(handles, (tokens+15)/16) }

// wait keeps a copy of the store until its parent comes (U19): join then applies it.
func (ix *Index) wait(u *run, ev *kv.Event, unit int, r *Result) {
	n := units(len(ev.Handles), len(ev.Tokens))
	if n > ix.cfg.Orphans || n > ix.cfg.OrphansPerTarget {
		r.skip(Full, len(ev.Handles))
		return
	}
	t := u.l.t
	for t.orphanUnits+n > ix.cfg.OrphansPerTarget {
		ix.dropOrphan(t.orphans.first, r)
	}
	for ix.orphanUnits+n > ix.cfg.Orphans {
		ix.dropOrphan(ix.orphans.first, r)
	}
	o := &orphan{l: u.l, tier: u.tier, parent: ev.Parent, handles: slices.Clone(ev.Handles), left: len(ev.Handles),
		tokens: slices.Clone(ev.Tokens), extras: slices.Clone(ev.Extras), unit: unit, chunk: u.chunk, reused: u.reused}
	o.live = make([]bool, len(o.handles))
	for i := range o.live {
		o.live[i] = true
	}
	ix.orphanAge++
	o.age = ix.orphanAge
	ix.orphans.push(o, linksAll)
	t.orphans.push(o, linksTarget)
	ix.orphanUnits += n
	t.orphanUnits += n
	k := laneHandle{o.parent, u.l.id}
	ix.waiting[k] = append(ix.waiting[k], o)
	for _, h := range o.handles {
		k := laneHandle{h, u.l.id}
		ix.orphaned[k] = append(ix.orphaned[k], o)
	}
	r.Orphaned += int32(len(ev.Handles))
}

// unwait takes o out of everything that knows it.
func (ix *Index) unwait(o *orphan) {
	t := o.l.t
	ix.orphans.remove(o, linksAll)
	t.orphans.remove(o, linksTarget)
	n := units(len(o.handles), len(o.tokens))
	ix.orphanUnits -= n
	t.orphanUnits -= n
	without(ix.waiting, laneHandle{o.parent, o.l.id}, o)
	for _, h := range o.handles {
		without(ix.orphaned, laneHandle{h, o.l.id}, o)
	}
}

func without(m map[laneHandle][]*orphan, k laneHandle, o *orphan) {
	list := m[k]
	if i := slices.Index(list, o); i >= 0 {
		list = slices.Delete(list, i, i+1)
	}
	if len(list) == 0 {
		delete(m, k)
	} else {
		m[k] = list
	}
}

func (ix *Index) dropOrphan(o *orphan, r *Result) {
	ix.unwait(o)
	r.Dropped += int32(o.left)
}

// dropOrphans drops the orphans of a target's list that match.
func (ix *Index) dropOrphans(q *orphanList, which func(*orphan) bool, r *Result) {
	for o := q.first; o != nil; {
		next := o.inTarget.after
		if which(o) {
			ix.dropOrphan(o, r)
		}
		o = next
	}
}

// join stores the orphans that wait for one of the handles, which were just
// stored, then those that wait for them, and so on.
func (ix *Index) join(l *lane, handles []kv.Handle, r *Result) {
	work := slices.Clone(handles)
	for len(work) > 0 {
		h := work[0]
		work = work[1:]
		for _, o := range slices.Clone(ix.waiting[laneHandle{h, l.id}]) {
			if !ix.knows(l, h) {
				break
			}
			ix.unwait(o)
			r.Joined += int32(o.left)
			u := run{l: l, tier: o.tier, handles: o.handles, live: o.live, chunk: o.chunk, reused: o.reused}
			l.t.work.tag(ix, o.handles)
			if l.page != 0 {
				l.pages.join(&u, o, r)
			} else {
				p := ix.resolve(l, h)
				sl, _ := ix.rows.at(p.row())
				ix.storeRun(&u, p, sl.hashes(p.row())[p.pos()], o.tokens, o.unit, o.extras, r)
			}
			work = append(work, o.handles...)
		}
		if l.t.orphanUnits == 0 {
			return
		}
	}
}

// knows says that l holds a block or page named h.
func (ix *Index) knows(l *lane, h kv.Handle) bool {
	if l.page != 0 {
		return l.pages.named(ix.keyOf(h), h) != 0
	}
	return ix.resolve(l, h) != 0
}

// removedOrphan takes a removal for a block that waits: one copy, or all.
func (ix *Index) removedOrphan(l *lane, h kv.Handle, t kv.Tier, left int32, r *Result) bool {
	if l.t.orphanUnits == 0 {
		return false
	}
	found := false
	for _, o := range slices.Clone(ix.orphaned[laneHandle{h, l.id}]) {
		i := slices.Index(o.handles, h)
		if o.tier != t || !o.live[i] {
			continue
		}
		found = true
		if left > 0 {
			r.Kept++
			return true
		}
		o.live[i] = false
		o.left--
		r.Dropped++
		if o.left == 0 {
			ix.unwait(o)
		}
		if left < 0 && !l.t.cfg.Copies.drops() {
			return true
		}
	}
	return found
}
