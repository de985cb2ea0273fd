package index

import "kvasir/kv"

// A sliding-window group keeps only the end of what it computed and names only
// that, so it makes no prefixes. Its blocks bear the same names as those of the
// target's first dense group: where both hold one, the sliding lane is among the
// slot's holders, and Match asks for a window of such slots before a match point.
// The lane's own truth is the map of names, whether the dense block is known or
// not.

// maxSliding bounds the names of one sliding group.
const maxSliding = 1 << 20

const slidBytes = 56 // of an entry of slid, about

func (ix *Index) storedSliding(t *target, l *lane, ev *kv.Event, r *Result) {
	n := len(ev.Handles)
	if ev.Attention != kv.Sliding {
		r.skip(SparseGroup, n)
		return
	}
	if l == nil {
		if l = ix.addLane(t, laneSliding, ev.Group); l == nil {
			r.skip(Full, n)
			return
		}
		l.slid = map[kv.Handle]*[kv.NumTiers]int32{}
	}
	if l.kind != laneSliding {
		r.skip(BadShape, n)
		return
	}
	if l.window != ev.Window || l.bs != ev.BlockSize {
		l.window, l.bs = ev.Window, ev.BlockSize
		ix.showLanes(t)
	}
	for _, h := range ev.Handles {
		c := l.slid[h]
		if c == nil {
			if len(l.slid) >= maxSliding || ix.bytes() > ix.cfg.MaxBytes {
				r.skip(Full, 1)
				continue
			}
			c = new([kv.NumTiers]int32)
			l.slid[h] = c
			ix.slidNames++
		}
		if c[ev.Tier] == 0 {
			c[ev.Tier] = 1
			l.count[ev.Tier]++
			r.Stored++
			ix.showWindow(l, h)
			continue
		}
		if !ev.Reused && int(c[ev.Tier]) < ix.cfg.MaxCopies {
			c[ev.Tier]++
		}
		r.Copies++
	}
}

func (ix *Index) removedSliding(l *lane, ev *kv.Event, r *Result) {
	for i, h := range ev.Handles {
		c := l.slid[h]
		if c == nil || c[ev.Tier] == 0 {
			r.Unknown++
			continue
		}
		switch left := told(ev, i); {
		case left >= 0:
			c[ev.Tier] = min(left, int32(ix.cfg.MaxCopies))
		case l.t.cfg.Copies.drops():
			c[ev.Tier] = 0
		default:
			c[ev.Tier]--
		}
		if c[ev.Tier] > 0 {
			r.Kept++
			continue
		}
		r.Removed++
		ix.settleSliding(l, h, c, ev.Tier)
	}
}

// settleSliding follows a name that has just gone from a tier.
func (ix *Index) settleSliding(l *lane, h kv.Handle, c *[kv.NumTiers]int32, t kv.Tier) {
	l.count[t]--
	if *c == [kv.NumTiers]int32{} {
		delete(l.slid, h)
		ix.slidNames--
	}
	ix.showWindow(l, h)
}

func (ix *Index) clearSliding(l *lane, t kv.Tier) (n int) {
	for h, c := range l.slid {
		if c[t] > 0 {
			c[t] = 0
			n++
			ix.settleSliding(l, h, c, t)
		}
	}
	return n
}

// showWindow brings the slot of name h in line with what sliding lane l holds.
func (ix *Index) showWindow(l *lane, h kv.Handle) {
	p := l.t.primary()
	if p == nil || p.page != 0 {
		return
	}
	if s := ix.resolve(p, h); s != 0 {
		ix.setMask(l, s, l.slidMask(h))
	}
}

func (l *lane) slidMask(h kv.Handle) (m uint8) {
	if c := l.slid[h]; c != nil {
		for t, n := range c {
			if n > 0 {
				m |= inGPU << t
			}
		}
	}
	return m
}

// showWindows adds the sliding lanes of t that have name h to slot s, which the
// first dense lane has just begun to hold; hideWindows takes them away.
func (ix *Index) showWindows(t *target, s slot, h kv.Handle) {
	for _, l := range t.lanes {
		if l.kind == laneSliding {
			ix.setMask(l, s, l.slidMask(h))
		}
	}
}

func (ix *Index) hideWindows(t *target, s slot) {
	for _, l := range t.lanes {
		if l.kind == laneSliding {
			ix.setMask(l, s, 0)
		}
	}
}
