package index

import "kvasir/kv"

// An aging knows in which order a lane's blocks of one tier were stored last,
// where a TierLimit asks for it.
type aging struct {
	order []aged             // oldest first; entries that were stored again are stale
	last  map[kv.Handle]aged // the valid entries
	seq   uint64
}

type aged struct {
	h     kv.Handle
	seq   uint64
	event int
}

func newAging() *aging { return &aging{last: map[kv.Handle]aged{}} }

func (a *aging) touch(h kv.Handle, event int) {
	a.seq++
	e := aged{h, a.seq, event}
	a.last[h] = e
	a.order = append(a.order, e)
	if len(a.order) > 64 && len(a.order) > 2*len(a.last) {
		keep := a.order[:0]
		for _, e := range a.order {
			if a.last[e.h].seq == e.seq {
				keep = append(keep, e)
			}
		}
		a.order = keep
	}
}

func (a *aging) forget(h kv.Handle) { delete(a.last, h) }

func (a *aging) reset() {
	if a != nil {
		a.order = nil
		clear(a.last)
	}
}

// oldest returns the entry stored longest ago.
func (a *aging) oldest() (aged, bool) {
	for len(a.order) > 0 {
		if e := a.order[0]; a.last[e.h].seq == e.seq {
			return e, true
		}
		a.order = a.order[1:]
	}
	return aged{}, false
}

// limit starts or ends the aging of l's tiers as its target's settings say.
func (l *lane) limit() {
	for t := range l.limits {
		switch lim := l.t.cfg.Tiers[t]; {
		case lim == TierLimit{}:
			l.limits[t] = nil
		case l.limits[t] == nil:
			l.limits[t] = newAging()
		}
	}
}

// age forgets what is more than l's tier can hold.
func (ix *Index) age(l *lane, t kv.Tier, r *Result) {
	a, most := l.limits[t], l.t.cfg.Tiers[t].Blocks
	if a == nil || most == 0 {
		return
	}
	for len(a.last) > most {
		e, _ := a.oldest()
		ix.dropTier(l, e.h, t)
		r.Expired++
	}
}

// expire forgets what was stored too many events ago.
func (ix *Index) expire(t *target, r *Result) {
	for tier, lim := range t.cfg.Tiers {
		if lim.Events == 0 {
			continue
		}
		for _, l := range t.lanes {
			a := l.limits[tier]
			if a == nil {
				continue
			}
			for e, ok := a.oldest(); ok && t.events-e.event > lim.Events; e, ok = a.oldest() {
				ix.dropTier(l, e.h, kv.Tier(tier))
				r.Expired++
			}
		}
	}
}

// dropTier forgets the block or page named h in one tier.
func (ix *Index) dropTier(l *lane, h kv.Handle, t kv.Tier) {
	l.limits[t].forget(h)
	if l.page != 0 {
		l.pages.drop(h, t)
		return
	}
	if s := ix.resolve(l, h); s != 0 {
		old := ix.mask(s, l)
		ix.reduce(l, s, old, old&^planesOf(t))
	}
}
