package index

import "kvasir/kv"

// Keys of pages.index: names have the tag of the handle (31 bits), everything else
// has bit 31 set. All references of a table can be looked at, whatever they are
// for, and whether one is what was looked for shows in the strip itself; so it
// does no harm that keys of different things may meet.
const (
	notName  = 1 << 31
	keyMul   = 0x9e3779b97f4a7c15
	childMul = 0xbf58476d1ce4e5b9
	forkMul  = 0x94d049bb133111eb
	rootMul  = 0xd6e8feb86659fd93
	rowMul   = 0xa0761d6478bd642f
)

func (p *pageTree) pageKey(x uint64) uint32 {
	return uint32(mum(x^p.secret, keyMul)>>32) | notName
}

// childKey finds the strip that follows page at and begins with a page of the
// given content.
func (p *pageTree) childKey(at pageRef, tokens []uint32, extras []kv.Extra) uint32 {
	x := mum(uint64(at)^p.secret, childMul)
	for _, t := range tokens {
		x = mum(x^uint64(t)^p.secret, childMul)
	}
	for _, e := range extras {
		x = mum(x^e.Digest, keyMul)
	}
	return p.pageKey(x)
}

func (p *pageTree) forkKey(at pageRef) uint32 { return p.pageKey(mum(uint64(at)^p.secret, forkMul)) }
func (p *pageTree) rootKey(h kv.Hash) uint32  { return p.pageKey(mum(uint64(h)^p.secret, rootMul)) }
func (p *pageTree) rowKey(row uint32) uint32  { return p.pageKey(mum(uint64(row)^p.secret, rowMul)) }

// named returns the held page named h, with h's tag, or 0.
func (p *pageTree) named(tag uint32, h kv.Handle) pageRef {
	for k := p.index.Seek(tag); ; {
		at := pageRef(k.Next())
		if at == 0 || p.isNamed(at, h) {
			return at
		}
	}
}

func (p *pageTree) isNamed(at pageRef, h kv.Handle) bool {
	return p.names(at.strip())[at.place()] == h && p.at(at.strip()).any()>>at.place()&1 == 1
}

// root returns the end of the root whose first chunks chain to h, or 0.
func (p *pageTree) root(h kv.Hash) pageRef {
	for k := p.index.Seek(p.rootKey(h)); ; {
		at := pageRef(k.Next())
		if at == 0 {
			return 0
		}
		if s := p.at(at.strip()); s.flags&stripRoot != 0 && s.hash == h {
			return at
		}
	}
}

func (p *pageTree) newRoot(h kv.Hash) pageRef {
	end := uint8(p.per)
	n := p.newStrip(0, end)
	s := p.at(n)
	s.flags |= stripRoot
	s.hash = h
	at := refAt(n, end-1)
	p.index.Insert(p.rootKey(h), uint32(at))
	return at
}

// link makes the strip that begins with page first, which has the given content,
// follow page at, so that it is found from there (U16).
func (p *pageTree) link(at, first pageRef, tokens []uint32, extras []kv.Extra) {
	s := p.at(at.strip())
	if first.place() == 0 {
		if s.kids == 0 {
			s.kids = first.strip()
			s.flags |= stripOnly
			return
		}
		if s.flags&stripOnly != 0 {
			only := refAt(s.kids, 0)
			p.index.Insert(p.childKey(at, p.tokens(only), p.extrasAt(only)), uint32(only))
			s.kids = 1
			s.flags &^= stripOnly
		}
		s.kids++
	} else {
		p.linkFork(at, first.strip())
	}
	p.index.Insert(p.childKey(at, tokens, extras), uint32(first))
}

// unlink is link undone for strip n.
func (p *pageTree) unlink(n uint32) {
	s := p.at(n)
	at, first := p.before(s), refAt(n, s.from)
	if s.from == 0 {
		if up := p.at(s.up); up.flags&stripOnly != 0 {
			up.kids = 0
			up.flags &^= stripOnly
			return
		}
		p.at(s.up).kids--
	} else {
		p.unlinkFork(at, n)
	}
	p.index.Delete(p.childKey(at, p.tokens(first), p.extrasAt(first)), uint32(first))
}

// extrasAt returns the extras of page at.
func (p *pageTree) extrasAt(at pageRef) (extras []kv.Extra) {
	if p.at(at.strip()).flags&stripExtra != 0 {
		for _, d := range p.digests[at] {
			extras = append(extras, kv.Extra{Digest: d})
		}
	}
	return extras
}

// The forks after a page are linked; the first has an entry in the table.

// siblings returns the forks after and before fork n, which follow the same page.
func (p *pageTree) siblings(n uint32) (next, prev uint32) {
	v := p.names(n)[0]
	return uint32(v), uint32(v >> 32)
}

func (p *pageTree) setSiblings(n, next, prev uint32) {
	p.names(n)[0] = kv.Handle(uint64(prev)<<32 | uint64(next))
}

// fork returns the first fork after page at, or 0.
func (p *pageTree) fork(at pageRef) uint32 {
	if p.at(at.strip()).forks>>at.place()&1 == 0 {
		return 0
	}
	for k := p.index.Seek(p.forkKey(at)); ; {
		c := pageRef(k.Next())
		if c == 0 {
			return 0
		}
		if s := p.at(c.strip()); s.flags&stripRoot == 0 && s.from > 0 && p.before(s) == at {
			if _, prev := p.siblings(c.strip()); prev == 0 {
				return c.strip()
			}
		}
	}
}

// linkFork makes strip n the first fork after page at.
func (p *pageTree) linkFork(at pageRef, n uint32) {
	key, first := p.forkKey(at), p.fork(at)
	p.setSiblings(n, first, 0)
	if first == 0 {
		p.at(at.strip()).forks |= 1 << at.place()
		p.index.Insert(key, uint32(refAt(n, 0)))
		return
	}
	next, _ := p.siblings(first)
	p.setSiblings(first, next, n)
	p.index.Replace(key, uint32(refAt(first, 0)), uint32(refAt(n, 0)))
}

// unlinkFork is linkFork undone.
func (p *pageTree) unlinkFork(at pageRef, n uint32) {
	next, prev := p.siblings(n)
	switch {
	case prev != 0:
		_, before := p.siblings(prev)
		p.setSiblings(prev, next, before)
	case next != 0:
		p.index.Replace(p.forkKey(at), uint32(refAt(n, 0)), uint32(refAt(next, 0)))
	default:
		p.index.Delete(p.forkKey(at), uint32(refAt(n, 0)))
		p.at(at.strip()).forks &^= 1 << at.place()
	}
	if next != 0 {
		after, _ := p.siblings(next)
		p.setSiblings(next, after, prev)
	}
}

// rowEnd returns the strip of the last chunk that the lane holds in a row, or 0.
// The chunks before it in the row lie before it on its path.
func (p *pageTree) rowEnd(row uint32) uint32 {
	for k := p.index.Seek(p.rowKey(row)); ; {
		at := pageRef(k.Next())
		if at == 0 {
			return 0
		}
		if s := p.at(at.strip()); s.slot.row() == row {
			return at.strip()
		}
	}
}

// tookSlot notes that the chunk that ends in strip n is in its slot now.
func (p *pageTree) tookSlot(n uint32) {
	s := p.at(n)
	switch last := p.rowEnd(s.slot.row()); {
	case last == n || last == 0:
		p.index.Insert(p.rowKey(s.slot.row()), uint32(refAt(n, 0)))
	case p.at(last).slot < s.slot:
		p.index.Replace(p.rowKey(s.slot.row()), uint32(refAt(last, 0)), uint32(refAt(n, 0)))
	}
}

// leaveSlot is tookSlot undone.
func (p *pageTree) leaveSlot(n uint32) {
	s := p.at(n)
	row := s.slot.row()
	if p.rowEnd(row) == n {
		before := n
		for range s.slot.pos() {
			if before = p.chunkBefore(before); before == 0 || p.at(before).slot.row() == row {
				break
			}
		}
		if before != 0 && before != n && p.at(before).slot.row() == row {
			p.index.Replace(p.rowKey(row), uint32(refAt(n, 0)), uint32(refAt(before, 0)))
		} else {
			p.index.Delete(p.rowKey(row), uint32(refAt(n, 0)))
		}
	}
	s.slot = 0
}

// inSlot returns the strip whose chunk is in slot at, or 0: it is on the path to the
// last chunk of the row (U17).
func (p *pageTree) inSlot(at slot) uint32 {
	n := p.rowEnd(at.row())
	for range rowSlots {
		if n == 0 || p.at(n).slot == at {
			return n
		}
		n = p.chunkBefore(n)
	}
	return 0
}

// chunkBefore returns the strip in which the chunk before that of strip n ends, or
// 0.
func (p *pageTree) chunkBefore(n uint32) uint32 {
	s := p.at(n)
	for s.from > 0 {
		s = p.at(s.up)
	}
	if p.at(s.up).flags&stripRoot != 0 {
		return 0
	}
	return s.up
}
