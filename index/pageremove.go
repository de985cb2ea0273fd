package index

import (
	"math/bits"

	"kvasir/kv"
)

func (p *pages) placeholder(ev *kv.Event, r *Result) {
	u := run{l: p.l, tier: ev.Tier, handles: ev.Handles, chunk: 1, reused: ev.Reused}
	for i, h := range ev.Handles {
		tag := p.l.t.work.tags[i]
		if at := p.named(tag, h); at == 0 {
			r.skip(NoTokens, 1)
		} else if p.hold(&u, at, tag, h, r) {
			p.holdBelow(at, u.tier)
		}
	}
	p.ix.age(p.l, ev.Tier, r)
	p.account()
}

func (p *pages) removed(ev *kv.Event, r *Result) {
	tags := p.l.t.work.tags
	for i, h := range ev.Handles {
		if i%maxAhead == 0 {
			p.index.Touch(tags[i:min(i+maxAhead, len(tags))])
		}
		left := told(ev, i)
		at := p.named(tags[i], h)
		if at == 0 || p.at(at.strip()).held[ev.Tier]>>at.place()&1 == 0 {
			if !p.ix.removedOrphan(p.l, h, ev.Tier, left, r) {
				r.Unknown++
			}
			continue
		}
		switch n := p.several(at, ev.Tier); {
		case left > 0:
			p.setSeveral(at, ev.Tier, min(left, int32(p.ix.cfg.MaxCopies)))
		case left < 0 && !p.l.t.cfg.Copies.drops() && n > 1:
			p.setSeveral(at, ev.Tier, n-1)
		default:
			r.Removed++
			p.lose(at, ev.Tier, ev.Tier)
			continue
		}
		r.Kept++
	}
	p.account()
}

func (p *pages) drop(h kv.Handle, t kv.Tier) {
	if at := p.named(p.ix.keyOf(h), h); at != 0 {
		p.lose(at, t, t)
		p.account()
	}
}

// clear forgets the pages that the lane holds in a tier, and returns how many.
func (p *pages) clear(t kv.Tier) (n int) {
	for i := uint32(1); int(i/slabStrips) < len(p.strips.slabs); i++ {
		s := p.peek(i)
		if s == nil || s.held[t] == 0 {
			continue
		}
		n += bits.OnesCount16(s.held[t])
		p.loseBits(i, s.held[t], t, t)
		p.prune(i)
		if i%64 == 0 {
			p.account()
			p.ix.yield() // others may evict meanwhile
		}
	}
	p.account()
	return n
}

// evictChunk forgets the pages of the block in slot at, which the lane is to lose, but
// those that other blocks share.
func (p *pages) evictChunk(at slot) {
	if n := p.inSlot(at); n != 0 {
		p.loseBits(n, p.at(n).any(), kv.GPU, kv.NumTiers-1)
		p.prune(n)
		p.account()
	}
}

// finish holds the chunks that are complete in a lane just loaded, and drops
// pages that nothing needs.
func (p *pages) finish() {
	n := uint32(len(p.strips.slabs) * slabStrips)
	for i := range n {
		if s := p.peek(i); s != nil && p.complete(s) && s.flags&stripRoot == 0 {
			for t := kv.GPU; t < kv.NumTiers; t++ {
				if p.reached(s, s.end, t) {
					p.holdChunk(i, t)
				}
			}
		}
	}
	for i := n; i > 0; i-- {
		if p.peek(i-1) != nil {
			p.prune(i - 1)
		}
	}
	p.account()
}
