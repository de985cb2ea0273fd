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
	prev := atRoot
	for i := 0; i < len(hs); {
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
		for k := range slot(n) {
			id := ix.setOf(s + k)
			if first != nil && ix.sets.mask(id, first.id)&inGPU != 0 {
				r.Copies++
			} else if ix.sets.mask(id, l.id) != 0 {
				ix.addCopy(l, s+k, inGPU)
				r.Copies++
			} else {
				ix.setMask(l, s+k, inGPU)
				l.recount(0, inGPU, 1)
				r.Stored++
			}
		}
		prev = s + slot(n) - 1
		i += n
	}
}

func (ix *Index) unpredict(l *lane, hs []kv.Hash, r *Result) {
	prev := atRoot
	for _, h := range hs {
		s := ix.find(prev, h)
		// The row may go with its last block, but only when nobody needs it:
		// the next find then looks for a head.
		prev = s
		if s == 0 || ix.mask(s, l) == 0 {
			r.Unknown++
			continue
		}
		if ix.takeCopy(l, s, inGPU) {
			r.Kept++
			continue
		}
		r.Removed++
		l.recount(inGPU, 0, 1)
		ix.setMask(l, s, 0)
		if _, m := ix.rows.at(s.row()); m.fill.Load() == 0 {
			prev = 0
		}
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
