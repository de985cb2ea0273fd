package index

import (
	"fmt"
	"math/bits"

	"kvasir/kv"
)

// A pageCensus is what a lane's pages have, counted anew.
type pageCensus struct {
	used, entries, extras int
	kids                  map[uint32]uint32
	forks                 map[pageRef]int
	rows                  map[uint32]slot // the last chunk in each row
	chunks                [kv.NumTiers]int64
}

// check compares what the pages know about each other, and about the blocks that
// their lane holds: chunks has how many those are.
func (p *pages) check(chunks [kv.NumTiers]int64) error {
	if err := p.index.Check(func(uint32, uint32) error { return nil }); err != nil {
		return fmt.Errorf("U16: %w", err)
	}
	c := &pageCensus{kids: map[uint32]uint32{}, forks: map[pageRef]int{}, rows: map[uint32]slot{}}
	end := uint32(len(p.strips.slabs) * slabStrips)
	for n := range end {
		if s := p.peek(n); s != nil {
			if err := p.checkStrip(c, n, s); err != nil {
				return err
			}
		}
	}
	for n := range end {
		if s := p.peek(n); s != nil {
			if err := p.checkBelow(c, n, s); err != nil {
				return err
			}
		}
	}
	c.entries += len(c.rows)
	if chunks != c.chunks {
		return fmt.Errorf("U14: chunks of whole strips: %v, the lane holds %v", c.chunks, chunks)
	}
	for at, n := range p.copies {
		if s := p.peek(pageRef(at >> 2).strip()); n < 2 || s == nil || s.held[at&3]>>pageRef(at>>2).place()&1 == 0 {
			return fmt.Errorf("U13: %d copies of page %x", n, at>>2)
		}
	}
	if c.entries != p.index.Len() || len(c.forks) != 0 {
		return fmt.Errorf("U16: %d entries, counted %d; forks %v elsewhere", p.index.Len(), c.entries, c.forks)
	}
	if c.used != p.strips.used || c.extras != p.extras || p.bytes() != p.counted {
		return fmt.Errorf("U18: %d strips, %d extras, %d bytes; counted %d, %d, %d", p.strips.used, p.extras, p.counted, c.used, c.extras, p.bytes())
	}
	return nil
}

// checkStrip checks strip n by itself, and that it is found.
func (p *pages) checkStrip(c *pageCensus, n uint32, s *strip) error {
	c.used++
	if s.flags&stripRoot != 0 {
		c.entries++
		if s.kids == 0 {
			return fmt.Errorf("U15: root %d has no kids", n)
		}
		if got := p.root(s.hash); got != refAt(n, uint8(p.per-1)) {
			return fmt.Errorf("U16: root %d is found as %x", n, got)
		}
		return nil
	}
	if s.from >= s.end || int(s.end) > p.per || s.any()&^places(s.from, s.end) != 0 || s.forks&^places(s.from, s.end) != 0 {
		return fmt.Errorf("U15: strip %d from %d to %d holds %b, forks after %b", n, s.from, s.end, s.any(), s.forks)
	}
	if last := s.end - 1; (s.any()|s.forks)>>last&1 == 0 && s.kids == 0 {
		return fmt.Errorf("U15: strip %d: nothing needs its last page", n)
	}
	for k := s.from; k < s.end; k++ {
		at := refAt(n, k)
		c.extras += len(p.digests[at])
		if s.any()>>k&1 == 1 {
			c.entries++
			if name := p.names(n)[k]; p.named(p.ix.keyOf(name), name) != at {
				return fmt.Errorf("U11: page %x: its name %x belongs to %x", at, name, p.named(p.ix.keyOf(name), name))
			}
		}
	}
	first := refAt(n, s.from)
	if got := p.next(p.before(s), p.tokens(first), p.extrasAt(first)); got != first {
		return fmt.Errorf("U16: strip %d is found as %x by its first page", n, got)
	}
	if s.from > 0 {
		c.entries++
		c.forks[p.before(s)]++
	} else {
		c.kids[s.up]++
		if p.at(s.up).flags&stripOnly == 0 {
			c.entries++
		}
	}
	return p.checkChunk(c, n, s)
}

// checkChunk checks the chunk that ends in strip n, if one does.
func (p *pages) checkChunk(c *pageCensus, n uint32, s *strip) error {
	for t := kv.GPU; t < kv.NumTiers; t++ {
		whole := p.complete(s) && p.reached(s, s.end, t)
		got := s.slot != 0 && p.ix.holds(p.l, s.slot, s.hash) && p.ix.mask(s.slot, p.l)&(inGPU<<t) != 0
		if whole != got {
			return fmt.Errorf("U14: strip %d: all pages of its chunk are in tier %v: %v; the chunk is: %v", n, t, whole, got)
		}
		if got {
			c.chunks[t]++
		}
	}
	if s.slot == 0 {
		return nil
	}
	c.rows[s.slot.row()] = max(c.rows[s.slot.row()], s.slot)
	if got := p.inSlot(s.slot); got != n {
		return fmt.Errorf("U17: slot %d of strip %d leads to strip %d", s.slot, n, got)
	}
	return nil
}

// checkBelow checks what strip n knows of the strips that follow it.
func (p *pages) checkBelow(c *pageCensus, n uint32, s *strip) error {
	if got := c.kids[n]; got != s.kids && s.flags&stripOnly == 0 || got != 1 && s.flags&stripOnly != 0 {
		return fmt.Errorf("U16: strip %d has %d kids (flags %b), counted %d", n, s.kids, s.flags, got)
	}
	for m := s.forks; m != 0; m &= m - 1 {
		at, count, prev := refAt(n, uint8(bits.TrailingZeros16(m))), 0, uint32(0)
		for f := p.fork(at); f != 0; f, _ = p.siblings(f) {
			if _, b := p.siblings(f); b != prev || p.before(p.at(f)) != at {
				return fmt.Errorf("U16: fork %d after page %x is wrongly linked", f, at)
			}
			prev = f
			count++
		}
		if c.entries++; count == 0 || count != c.forks[at] {
			return fmt.Errorf("U16: page %x has %d forks, counted %d", at, count, c.forks[at])
		}
		delete(c.forks, at)
	}
	return nil
}
