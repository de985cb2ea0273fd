package index

import "kvasir/kv"

// A dispatched request will fill its target's cache with its blocks, which the
// engine reports some time later. Until then they are held by the target's
// predicted lane: counted, since several requests may share them, and no facts.

// dispatch adds or takes back the predictions of one request.
func (ix *Index) dispatch(t *target, ev *kv.Event) (r Result) {
	ix.lock()
	defer ix.mu.Unlock()
	ix.dispatched(t, ev, &r)
	ix.tidy()
	ix.totals.add(&r)
	if invariants {
		ix.verify(len(ev.Hashes))
	}
	return r
}

func (ix *Index) dispatched(t *target, ev *kv.Event, r *Result) {
	switch ev.Kind {
	case kv.Stored:
		if !ix.makeRoom(t, len(ev.Hashes), 0, nil) {
			r.skip(Full, len(ev.Hashes))
			return
		}
		l := t.pred
		if l == nil {
			if l = ix.addLane(t, lanePredicted, 0); l == nil {
				r.skip(Full, len(ev.Hashes))
				return
			}
		}
		ix.predict(t, l, ev.Hashes, r)
	case kv.Removed:
		if t.pred == nil {
			r.Unknown += int32(len(ev.Hashes))
			return
		}
		ix.unpredict(t.pred, ev.Hashes, r)
	case kv.Cleared:
		if t.pred != nil {
			r.Removed += int32(t.pred.count[kv.GPU])
			ix.sweep(t.pred, 1<<planes-1)
		}
	}
}

// predict adds one reference for every block of hs that isn't a fact already. hs
// is a chain from its first block on.
func (ix *Index) predict(t *target, l *lane, hs []kv.Hash, r *Result) {
	first := t.primary()
	prev, asked := atRoot, 0
	for i := 0; i < len(hs); {
		if i >= asked {
			asked = i + 4*rowSlots
			ix.approachHeads(prev, hs[i:min(asked, len(hs))])
		}
		s := ix.find(prev, hs[i])
		if s == 0 {
			room := rowSlots
			at := ix.place(prev)
			if at != 0 {
				room -= at.pos()
			}
			n := 1
			for n < min(room, len(hs)-i) && (ix.detached == 0 || ix.head(hs[i+n]) == 0) {
				n++
			}
			s = ix.create(prev, at, hs[i:i+n], single(l.id, inGPU))
			l.near(s.row())
			l.recount(0, inGPU, n)
			r.Stored += int32(n)
			prev = s + slot(n) - 1
			i += n
			continue
		}
		n := ix.same(s, hs[i:])
		for k := 0; k < n; {
			k += ix.predictRange(first, l, s+slot(k), n-k, r)
		}
		prev = s + slot(n) - 1
		i += n
	}
}

// predictRange predicts the first of n blocks from s on, and those behind it that
// have the same holders. It returns how many that are.
func (ix *Index) predictRange(first, l *lane, s slot, n int, r *Result) int {
	id := ix.setOf(s)
	n = ix.alike(s, n, id)
	switch {
	case first != nil && ix.sets.mask(id, first.id)&inGPU != 0:
		r.Copies += int32(n)
	case ix.sets.mask(id, l.id) != 0:
		for k := range slot(n) {
			ix.addCopy(l, s+k, inGPU)
		}
		r.Copies += int32(n)
	case id == 0:
		n = 1
		ix.setMask(l, s, inGPU)
		l.recount(0, inGPU, 1)
		r.Stored++
	default:
		to := ix.sets.with(id, l.id, inGPU)
		ix.sets.hold(to, n)
		ix.putSets(s.row(), s.pos(), s.pos()+n, to)
		ix.sets.release(id, n, &ix.epochs)
		l.near(s.row())
		l.recount(0, inGPU, n)
		r.Stored += int32(n)
	}
	return n
}

// alike returns how many of n slots from s on are held by set id, as s is.
func (ix *Index) alike(s slot, n int, id uint32) int {
	for k := 1; k < n; k++ {
		if ix.setOf(s+slot(k)) != id {
			return k
		}
	}
	return n
}

func (ix *Index) unpredict(l *lane, hs []kv.Hash, r *Result) {
	prev := atRoot
	for i := 0; i < len(hs); {
		s := ix.find(prev, hs[i])
		// The row may go with its last block, but only when nobody needs it:
		// the next find then looks for a head.
		prev = s
		if s == 0 || ix.mask(s, l) == 0 {
			r.Unknown++
			i++
			continue
		}
		n := 1
		_, m := ix.rows.at(s.row())
		if m.extra|m.alias == 0 {
			id := ix.setOf(s)
			n = ix.alike(s, ix.same(s, hs[i:]), id)
			ix.loseRange(l, s.row(), s.pos(), s.pos()+n, id, nil)
			r.Removed += int32(n)
		} else if ix.takeCopy(l, s, inGPU) {
			r.Kept++
		} else {
			r.Removed++
			l.recount(inGPU, 0, 1)
			ix.setMask(l, s, 0)
		}
		if prev += slot(n) - 1; m.fill.Load() == 0 {
			prev = 0
		}
		i += n
	}
}

// fact ends the prediction of a block that the engine has reported.
func (ix *Index) fact(t *target, s slot) {
	l := t.pred
	if l == nil || l.count[kv.GPU] == 0 || ix.mask(s, l) == 0 {
		return
	}
	ix.dropCopies(l, s, inGPU)
	l.recount(inGPU, 0, 1)
	ix.setMask(l, s, 0)
}
