package index

import (
	"math/bits"

	"kvasir/kv"
)

// several returns how many copies of page at are held in tier t, where it is held.
func (p *pageTree) several(at pageRef, t kv.Tier) int32 {
	if p.at(at.strip()).flags&stripCopies != 0 {
		if n := p.copies[copiesAt(at, t)]; n > 0 {
			return n
		}
	}
	return 1
}

// setSeveral sets what several returns.
func (p *pageTree) setSeveral(at pageRef, t kv.Tier, n int32) {
	if n > 1 {
		p.at(at.strip()).flags |= stripCopies
		p.copies[copiesAt(at, t)] = n
	} else {
		delete(p.copies, copiesAt(at, t))
	}
}

func copiesAt(at pageRef, t kv.Tier) uint64 { return uint64(at)<<2 | uint64(t) }

// hold makes u's lane hold page at by name h in the run's tier, and says
// whether it didn't so far; then holdBelow has to follow.
func (p *pages) hold(u *run, at pageRef, tag uint32, h kv.Handle, r *Result) bool {
	s, bit := p.at(at.strip()), uint16(1)<<at.place()
	name := &p.names(at.strip())[at.place()]
	if s.any()&bit != 0 && *name != h {
		r.Rebound++
		p.loseBits(at.strip(), bit, kv.GPU, kv.NumTiers-1)
	}
	if s.any()&bit == 0 {
		*name = h
		p.index.Insert(tag, uint32(at))
	}
	if a := p.l.limits[u.tier]; a != nil {
		a.touch(h, p.l.t.events)
	}
	if s.held[u.tier]&bit != 0 {
		r.Copies++
		if n := p.several(at, u.tier); !u.reused && int(n) < p.ix.cfg.MaxCopies {
			p.setSeveral(at, u.tier, n+1)
		}
		return false
	}
	r.Stored++
	s.held[u.tier] |= bit
	return true
}

// lose takes page at out of the tiers from first to last, and out of the
// tree if nothing needs it any more.
func (p *pages) lose(at pageRef, first, last kv.Tier) {
	p.loseBits(at.strip(), 1<<at.place(), first, last)
	p.prune(at.strip())
}

// loseBits takes pages of strip n, by place, out of the tiers from first to last.
func (p *pages) loseBits(n uint32, places uint16, first, last kv.Tier) {
	s, names := p.at(n), p.names(n)
	before := s.any()
	for t := first; t <= last; t++ {
		gone := s.held[t] & places
		if gone == 0 {
			continue
		}
		p.loseEnds(n, uint8(bits.TrailingZeros16(gone)), t)
		s.held[t] &^= gone
		if a := p.l.limits[t]; a != nil {
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
		p.index.Delete(p.ix.keyOf(names[k]), uint32(refAt(n, uint8(k))))
	}
}

// reached says that the pages of a chunk before place lo of strip s are held in t.
func (p *pageTree) reached(s *strip, lo uint8, t kv.Tier) bool {
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

// holdBelow makes the lane hold the chunks that are complete in t now that page at, and
// perhaps some behind it in its strip, are held (0: none).
func (p *pages) holdBelow(at pageRef, t kv.Tier) {
	if at != 0 && p.reached(p.at(at.strip()), at.place(), t) {
		p.holdEnds(at.strip(), at.place(), t)
	}
}

// holdEnds is holdBelow for strip n if all pages before place lo are held (U14).
func (p *pages) holdEnds(n uint32, lo uint8, t kv.Tier) {
	s := p.at(n)
	end := lo + uint8(bits.TrailingZeros16(^(s.held[t] >> lo)))
	if end == s.end && p.complete(s) {
		p.holdChunk(n, t)
	}
	for m := s.forks & places(lo, end); m != 0; m &= m - 1 {
		for c := p.fork(refAt(n, uint8(bits.TrailingZeros16(m)))); c != 0; c, _ = p.siblings(c) {
			p.holdEnds(c, p.at(c).from, t)
		}
	}
}

// loseEnds makes the lane forget, in t, the chunks that have the page at place lo of
// strip n, which is held until now.
func (p *pages) loseEnds(n uint32, lo uint8, t kv.Tier) {
	s := p.at(n)
	if p.complete(s) && s.slot != 0 {
		p.loseChunk(n, t)
	}
	end := lo + uint8(bits.TrailingZeros16(^(s.held[t] >> lo)))
	for m := s.forks & places(lo, end); m != 0; m &= m - 1 {
		for c := p.fork(refAt(n, uint8(bits.TrailingZeros16(m)))); c != 0; c, _ = p.siblings(c) {
			p.loseEnds(c, p.at(c).from, t)
		}
	}
}

// prune frees the pages at the end of strip n that nothing needs (U15), and so on
// above it if that was all of it.
func (p *pages) prune(n uint32) {
	for n != 0 {
		s := p.at(n)
		if s.kids > 0 {
			return
		}
		if s.flags&stripRoot != 0 {
			p.index.Delete(p.rootKey(s.hash), uint32(refAt(n, s.end-1)))
			p.strips.release(n)
			return
		}
		end := max(s.from, uint8(bits.Len16(s.any()|s.forks)))
		if end == s.end && end > s.from {
			return
		}
		if end == s.from {
			p.unlink(n)
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
		p.strips.release(n)
		n = up
	}
}

// holdChunk makes the lane hold the block that ends in strip n.
func (p *pages) holdChunk(n uint32, t kv.Tier) {
	s := p.at(n)
	plane := inGPU << t
	if s.slot != 0 && !p.ix.holds(p.l, s.slot, s.hash) {
		p.leaveSlot(n)
	}
	old := uint8(0)
	if s.slot == 0 {
		at, made := p.chunkSlot(n, plane)
		if !made && p.ix.mask(at, p.l) != 0 {
			return // two paths to one block: only a forged snapshot has that
		}
		s.slot = at
		p.tookSlot(n)
	} else if old = p.ix.mask(s.slot, p.l); old&plane != 0 {
		return
	}
	p.ix.setMask(p.l, s.slot, old|plane)
	p.l.recount(old, old|plane, 1)
	if t == kv.GPU {
		p.ix.fact(p.l.t, s.slot)
	}
}

// loseChunk makes the lane forget, in t, the block that ends in strip n and has a slot.
func (p *pages) loseChunk(n uint32, t kv.Tier) {
	s := p.at(n)
	at := s.slot
	if !p.ix.holds(p.l, at, s.hash) {
		p.leaveSlot(n)
		return
	}
	old := p.ix.mask(at, p.l)
	now := old &^ (inGPU << t)
	p.l.recount(old, now, 1)
	if now == 0 {
		p.leaveSlot(n)
	}
	p.ix.setMask(p.l, at, now)
}

// farChunk is how many chunks back chunkSlot looks for one that the lane holds.
const farChunk = 4096

// chunkSlot finds or makes the slot of the block that ends in strip n, from the
// nearest block before it that the lane holds, and says whether it made it, held in
// plane.
func (p *pages) chunkSlot(n uint32, plane uint8) (at slot, made bool) {
	prev := atRoot
	var between []kv.Hash // from the nearest to the farthest
	for b := p.chunkBefore(n); b != 0; b = p.chunkBefore(b) {
		s := p.at(b)
		if s.slot != 0 && p.ix.holds(p.l, s.slot, s.hash) {
			prev = s.slot
			break
		}
		if between = append(between, s.hash); len(between) == farChunk {
			prev = 0
			break
		}
	}
	for i := len(between) - 1; i >= 0; i-- {
		prev = p.ix.find(prev, between[i])
	}
	h := p.at(n).hash
	if s := p.ix.find(prev, h); s != 0 {
		return s, false
	}
	s := p.ix.create(prev, p.ix.place(prev), []kv.Hash{h}, single(p.l.id, plane))
	p.l.near(s.row())
	return s, true
}
