package index

import (
	"slices"

	"kvasir/kv"
)

func (w *twin) slide(l *twinLane, ev *kv.Event, r *Result) {
	for _, h := range ev.Handles {
		c := l.slid[h]
		if c == nil {
			c = new([kv.NumTiers]int)
			l.slid[h] = c
		}
		if c[ev.Tier] == 0 {
			c[ev.Tier] = 1
			r.Stored++
			continue
		}
		if !ev.Reused && c[ev.Tier] < w.cfg.MaxCopies {
			c[ev.Tier]++
		}
		r.Copies++
	}
}

func (w *twin) removed(tt *twinTarget, ev *kv.Event, r *Result) {
	l := tt.lane(ev.Group)
	if l == nil {
		if ev.Attention != kv.Dense {
			r.skip(SparseGroup, len(ev.Handles))
			return
		}
		r.Unknown += int32(len(ev.Handles))
		return
	}
	for i, h := range ev.Handles {
		left := int32(-1)
		if len(ev.Copies) == len(ev.Handles) {
			left = max(ev.Copies[i], 0)
		}
		if l.slide {
			c := l.slid[h]
			if c == nil || c[ev.Tier] == 0 {
				r.Unknown++
				continue
			}
			c[ev.Tier] = w.left(tt, c[ev.Tier], left)
			if c[ev.Tier] > 0 {
				r.Kept++
				continue
			}
			r.Removed++
			if *c == [kv.NumTiers]int{} {
				delete(l.slid, h)
			}
			continue
		}
		b := l.bound[h]
		if b == nil || !b.held(ev.Tier) {
			if !w.unorphan(l, h, ev.Tier, left, r) {
				r.Unknown++
			}
			continue
		}
		plane := int(ev.Tier)
		if b.n[plane] == 0 {
			plane = innerOf(ev.Tier)
		}
		b.n[plane] = w.left(tt, b.n[plane], left)
		if left == 0 || left < 0 && tt.cfg.Copies.drops() {
			l.dropTier(b, ev.Tier)
		}
		if b.held(ev.Tier) {
			r.Kept++
		} else {
			r.Removed++
		}
		l.settle(b)
	}
}

// left returns how many of n copies remain after a removal; told is what the
// engine says, or -1.
func (w *twin) left(tt *twinTarget, n int, told int32) int {
	switch {
	case told >= 0:
		return min(int(told), w.cfg.MaxCopies)
	case tt.cfg.Copies.drops():
		return 0
	}
	return n - 1
}

func (w *twin) cleared(tt *twinTarget, ev *kv.Event, r *Result) {
	for t := kv.GPU; t < kv.NumTiers; t++ {
		if t != ev.Tier && !ev.AllTiers {
			continue
		}
		for _, l := range tt.lanes {
			for _, b := range l.bound {
				if b.held(t) {
					l.dropTier(b, t)
					r.Removed++
				}
			}
			for h, c := range l.slid {
				if c[t] > 0 {
					r.Removed++
				}
				if c[t] = 0; *c == [kv.NumTiers]int{} {
					delete(l.slid, h)
				}
			}
		}
		w.dropOrphans(func(o *twinOrphan) bool { return o.l.t == tt && o.tier == t }, r)
	}
}

// wait adds o to the orphans, and makes room for it.
func (w *twin) wait(o *twinOrphan, r *Result) {
	n := o.units()
	if n > w.cfg.Orphans || n > w.cfg.OrphansPerTarget {
		r.skip(Full, len(o.handles))
		return
	}
	for {
		mine, first := 0, (*twinOrphan)(nil)
		for _, x := range w.orphans {
			if x.l.t == o.l.t {
				if first == nil {
					first = x
				}
				mine += x.units()
			}
		}
		if mine+n <= w.cfg.OrphansPerTarget {
			if w.waiting+n <= w.cfg.Orphans {
				break
			}
			first = w.orphans[0]
		}
		w.dropOrphans(func(x *twinOrphan) bool { return x == first }, r)
	}
	w.orphans = append(w.orphans, o)
	w.waiting += n
	r.Orphaned += int32(len(o.handles))
}

func (w *twin) unwait(o *twinOrphan) {
	i := slices.Index(w.orphans, o)
	w.orphans = slices.Delete(w.orphans, i, i+1)
	w.waiting -= o.units()
}

func (w *twin) dropOrphans(which func(*twinOrphan) bool, r *Result) {
	for _, o := range slices.Clone(w.orphans) {
		if which(o) {
			w.unwait(o)
			for _, live := range o.live {
				if live {
					r.Dropped++
				}
			}
		}
	}
}

// unorphan takes a removal for a block that waits: one copy, or all.
func (w *twin) unorphan(l *twinLane, h kv.Handle, t kv.Tier, left int32, r *Result) bool {
	found := false
	for _, o := range slices.Clone(w.orphans) {
		if o.l != l || o.tier != t {
			continue
		}
		i := slices.Index(o.handles, h)
		if i < 0 || !o.live[i] {
			continue
		}
		found = true
		if left > 0 {
			r.Kept++
			return true
		}
		o.live[i] = false
		r.Dropped++
		if !slices.Contains(o.live, true) {
			w.unwait(o)
		}
		if left < 0 && !l.t.cfg.Copies.drops() {
			return true
		}
	}
	return found
}
