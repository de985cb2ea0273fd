package index

import (
	"math/bits"

	"kvasir/kv"
)

func (ix *Index) pagePlaceholder(l *lane, ev *kv.Event, r *Result) {
	u := run{l: l, tier: ev.Tier, handles: ev.Handles, chunk: 1, reused: ev.Reused}
	for i, h := range ev.Handles {
		tag := l.t.work.tags[i]
		if at := l.pages.named(tag, h); at == 0 {
			r.skip(NoTokens, 1)
		} else if ix.holdPage(&u, at, tag, h, r) {
			ix.holdBelow(l, at, u.tier)
		}
	}
	ix.age(l, ev.Tier, r)
	ix.account(l.pages)
}

func (ix *Index) removedPages(l *lane, ev *kv.Event, r *Result) {
	p, tags := l.pages, l.t.work.tags
	for i, h := range ev.Handles {
		if i%maxAhead == 0 {
			p.index.touch(tags[i:min(i+maxAhead, len(tags))])
		}
		left := told(ev, i)
		at := p.named(tags[i], h)
		if at == 0 || p.at(at.strip()).held[ev.Tier]>>at.place()&1 == 0 {
			if !ix.removedOrphan(l, h, ev.Tier, left, r) {
				r.Unknown++
			}
			continue
		}
		switch n := p.several(at, ev.Tier); {
		case left > 0:
			p.setSeveral(at, ev.Tier, min(left, int32(ix.cfg.MaxCopies)))
		case left < 0 && !l.t.cfg.Copies.drops() && n > 1:
			p.setSeveral(at, ev.Tier, n-1)
		default:
			r.Removed++
			ix.losePage(l, at, ev.Tier, ev.Tier)
			continue
		}
		r.Kept++
	}
	ix.account(p)
}

func (ix *Index) dropPage(l *lane, h kv.Handle, t kv.Tier) {
	if at := l.pages.named(ix.keyOf(h), h); at != 0 {
		ix.losePage(l, at, t, t)
		ix.account(l.pages)
	}
}

// clearPages forgets the pages that l holds in a tier, and returns how many.
func (ix *Index) clearPages(l *lane, t kv.Tier) (n int) {
	p := l.pages
	for i := uint32(1); int(i/slabStrips) < len(p.store.slabs); i++ {
		s := p.peek(i)
		if s == nil || s.held[t] == 0 {
			continue
		}
		n += bits.OnesCount16(s.held[t])
		ix.loseBits(l, i, s.held[t], t, t)
		ix.prune(l, i)
		if i%64 == 0 {
			ix.account(p)
			ix.yield() // others may evict meanwhile
		}
	}
	ix.account(p)
	return n
}

// evictChunk forgets the pages of the block in slot at, which l is to lose, but
// those that other blocks share.
func (ix *Index) evictChunk(l *lane, at slot) {
	p := l.pages
	if n := ix.inSlot(p, at); n != 0 {
		ix.loseBits(l, n, p.at(n).any(), kv.GPU, kv.NumTiers-1)
		ix.prune(l, n)
		ix.account(p)
	}
}

// finishPages holds the chunks that are complete in a lane just loaded, and drops
// pages that nothing needs.
func (ix *Index) finishPages(l *lane) {
	p := l.pages
	n := uint32(len(p.store.slabs) * slabStrips)
	for i := range n {
		if s := p.peek(i); s != nil && p.complete(s) && s.flags&stripRoot == 0 {
			for t := kv.GPU; t < kv.NumTiers; t++ {
				if p.reached(s, s.end, t) {
					ix.holdChunk(l, i, t)
				}
			}
		}
	}
	for i := n; i > 0; i-- {
		if p.peek(i-1) != nil {
			ix.prune(l, i-1)
		}
	}
	ix.account(p)
}
