package index

import (
	"math/bits"

	"kvasir/kv"
)

// several returns how many copies of page at are held in tier t, where it is held.
func (p *pages) several(at pageRef, t kv.Tier) int32 {
	if p.at(at.strip()).flags&stripCopies != 0 {
		if n := p.copies[copiesAt(at, t)]; n > 0 {
			return n
		}
	}
	return 1
}

// setSeveral sets what several returns.
func (p *pages) setSeveral(at pageRef, t kv.Tier, n int32) {
	if n > 1 {
		p.at(at.strip()).flags |= stripCopies
		p.copies[copiesAt(at, t)] = n
	} else {
		delete(p.copies, copiesAt(at, t))
	}
}

func copiesAt(at pageRef, t kv.Tier) uint64 { return uint64(at)<<2 | uint64(t) }

// holdPage makes u's lane hold page at by name h in the run's tier, and says
// whether it didn't so far; then holdBelow has to follow.
func (ix *Index) holdPage(u *run, at pageRef, tag uint32, h kv.Handle, r *Result) bool {
	l, p := u.l, u.l.pages
	s, bit := p.at(at.strip()), uint16(1)<<at.place()
	name := &p.names(at.strip())[at.place()]
	if s.any()&bit != 0 && *name != h {
		r.Rebound++
		ix.loseBits(l, at.strip(), bit, kv.GPU, kv.NumTiers-1)
	}
	if s.any()&bit == 0 {
		*name = h
		p.index.insert(tag, uint32(at))
	}
	if a := l.limits[u.tier]; a != nil {
		a.touch(h, l.t.events)
	}
	if s.held[u.tier]&bit != 0 {
		r.Copies++
		if n := p.several(at, u.tier); !u.reused && int(n) < ix.cfg.MaxCopies {
			p.setSeveral(at, u.tier, n+1)
		}
		return false
	}
	r.Stored++
	s.held[u.tier] |= bit
	return true
}

// losePage takes page at out of the tiers from first to last, and out of the
// tree if nothing needs it any more.
func (ix *Index) losePage(l *lane, at pageRef, first, last kv.Tier) {
	ix.loseBits(l, at.strip(), 1<<at.place(), first, last)
	ix.prune(l, at.strip())
}

// loseBits takes pages of strip n, by place, out of the tiers from first to last.
func (ix *Index) loseBits(l *lane, n uint32, places uint16, first, last kv.Tier) {
	p := l.pages
	s, names := p.at(n), p.names(n)
	before := s.any()
	for t := first; t <= last; t++ {
		gone := s.held[t] & places
		if gone == 0 {
			continue
		}
		ix.loseEnds(l, n, uint8(bits.TrailingZeros16(gone)), t)
		s.held[t] &^= gone
		if a := l.limits[t]; a != nil {
			for m := gone; m != 0; m &= m - 1 {
				a.forget(names[bits.TrailingZeros16(m)])
			}
		}
		if s.flags&stripCopies != 0 {
			for m := gone; m != 0; m &= m - 1 {
				delete(p.copies, copiesAt(refAt(n, uint8(bits.TrailingZeros16(m))), t))
			}
		}
	}
	for m := before &^ s.any(); m != 0; m &= m - 1 {
		k := bits.TrailingZeros16(m)
		p.index.delete(ix.keyOf(names[k]), uint32(refAt(n, uint8(k))))
	}
}

// reached says that the pages of a chunk before place lo of strip s are held in t.
func (p *pages) reached(s *strip, lo uint8, t kv.Tier) bool {
	for {
		if m := places(s.from, lo); s.held[t]&m != m {
			return false
		}
		if s.from == 0 {
			return true
		}
		lo, s = s.from, p.at(s.up)
	}
}

// holdBelow makes l hold the chunks that are complete in t now that page at, and
// perhaps some behind it in its strip, are held (0: none).
func (ix *Index) holdBelow(l *lane, at pageRef, t kv.Tier) {
	if at != 0 && l.pages.reached(l.pages.at(at.strip()), at.place(), t) {
		ix.holdEnds(l, at.strip(), at.place(), t)
	}
}

// holdEnds is holdBelow for strip n if all pages before place lo are held.
func (ix *Index) holdEnds(l *lane, n uint32, lo uint8, t kv.Tier) {
	p := l.pages
	s := p.at(n)
	end := lo + uint8(bits.TrailingZeros16(^(s.held[t] >> lo)))
	if end == s.end && p.complete(s) {
		ix.holdChunk(l, n, t)
	}
	for m := s.forks & places(lo, end); m != 0; m &= m - 1 {
		for c := ix.fork(p, refAt(n, uint8(bits.TrailingZeros16(m)))); c != 0; c, _ = p.siblings(c) {
			ix.holdEnds(l, c, p.at(c).from, t)
		}
	}
}

// loseEnds makes l forget, in t, the chunks that have the page at place lo of
// strip n, which is held until now.
func (ix *Index) loseEnds(l *lane, n uint32, lo uint8, t kv.Tier) {
	p := l.pages
	s := p.at(n)
	if p.complete(s) && s.slot != 0 {
		ix.loseChunk(l, n, t)
	}
	end := lo + uint8(bits.TrailingZeros16(^(s.held[t] >> lo)))
	for m := s.forks & places(lo, end); m != 0; m &= m - 1 {
		for c := ix.fork(p, refAt(n, uint8(bits.TrailingZeros16(m)))); c != 0; c, _ = p.siblings(c) {
			ix.loseEnds(l, c, p.at(c).from, t)
		}
	}
}

// prune frees the pages at the end of strip n that nothing needs, and so on above
// it if that was all of it.
func (ix *Index) prune(l *lane, n uint32) {
	p := l.pages
	for n != 0 {
		s := p.at(n)
		if s.kids > 0 {
			return
		}
		if s.flags&stripRoot != 0 {
			p.index.delete(ix.rootKey(s.hash), uint32(refAt(n, s.end-1)))
			p.store.release(n)
			return
		}
		end := max(s.from, uint8(bits.Len16(s.any()|s.forks)))
		if end == s.end && end > s.from {
			return
		}
		if end == s.from {
			ix.unlink(p, n)
		}
		if s.flags&stripExtra != 0 {
			for k := end; k < s.end; k++ {
				p.extras -= len(p.digests[refAt(n, k)])
				delete(p.digests, refAt(n, k))
			}
		}
		if s.end = end; end > s.from {
			return
		}
		up := s.up
		p.store.release(n)
		n = up
	}
}

// holdChunk makes l hold the block that ends in strip n.
func (ix *Index) holdChunk(l *lane, n uint32, t kv.Tier) {
	p := l.pages
	s := p.at(n)
	plane := inGPU << t
	if s.slot != 0 && !ix.holds(l, s.slot, s.hash) {
		ix.leaveSlot(p, n)
	}
	old := uint8(0)
	if s.slot == 0 {
		at, made := ix.chunkSlot(l, n, plane)
		if !made && ix.mask(at, l) != 0 {
			return // two paths to one block: only a forged snapshot has that
		}
		s.slot = at
		ix.tookSlot(p, n)
	} else if old = ix.mask(s.slot, l); old&plane != 0 {
		return
	}
	ix.setMask(l, s.slot, old|plane)
	l.recount(old, old|plane, 1)
	if t == kv.GPU {
		ix.fact(l.t, s.slot)
	}
}

// loseChunk makes l forget, in t, the block that ends in strip n and has a slot.
func (ix *Index) loseChunk(l *lane, n uint32, t kv.Tier) {
	p := l.pages
	s := p.at(n)
	at := s.slot
	if !ix.holds(l, at, s.hash) {
		ix.leaveSlot(p, n)
		return
	}
	old := ix.mask(at, l)
	now := old &^ (inGPU << t)
	l.recount(old, now, 1)
	if now == 0 {
		ix.leaveSlot(p, n)
	}
	ix.setMask(l, at, now)
}

// farChunk is how many chunks back chunkSlot looks for one that l holds.
const farChunk = 4096

// chunkSlot finds or makes the slot of the block that ends in strip n, from the
// nearest block before it that l holds, and says whether it made it, held in
// plane.
func (ix *Index) chunkSlot(l *lane, n uint32, plane uint8) (at slot, made bool) {
	p := l.pages
	prev := atRoot
	var between []kv.Hash // from the nearest to the farthest
	for b := p.chunkBefore(n); b != 0; b = p.chunkBefore(b) {
		s := p.at(b)
		if s.slot != 0 && ix.holds(l, s.slot, s.hash) {
			prev = s.slot
			break
		}
		if between = append(between, s.hash); len(between) == farChunk {
			prev = 0
			break
		}
	}
	for i := len(between) - 1; i >= 0; i-- {
		prev = ix.find(prev, between[i])
	}
	h := p.at(n).hash
	if s := ix.find(prev, h); s != 0 {
		return s, false
	}
	s := ix.create(prev, ix.place(prev), []kv.Hash{h}, single(l.id, plane))
	l.near(s.row())
	return s, true
}
