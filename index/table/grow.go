package table

import (
	"math/bits"
	"sync/atomic"
)

// Memory is the memory of tables, which may share one. The zero value is ready.
type Memory struct {
	fresh []bucket   // not used yet
	heads []segment  // for them, side by side
	free  []*segment // whole ones, to be used again
	bytes int64      // of all segments and directories that are in use
}

const (
	smallest     = 8  // buckets of a new private table
	segBatch     = 32 // segments that are allocated at a time: an array without the padding that single ones would get
	maxFreeSegs  = 64 // beyond that, unused segments are garbage
	fewInSegment = segEntries / 8
	bucketBytes  = 64
)

// take returns a segment of empty buckets.
func (m *Memory) take(buckets int, depth uint) *segment {
	m.bytes += int64(bucketBytes * buckets)
	var s *segment
	switch k := len(m.free); {
	case buckets < segBuckets:
		s = &segment{e: make([]bucket, buckets)}
	case k > 0:
		s, m.free = m.free[k-1], m.free[:k-1]
		s.n = 0
	default:
		if len(m.fresh) == 0 {
			m.fresh, m.heads = make([]bucket, segBatch*segBuckets), make([]segment, segBatch)
		}
		s = &m.heads[0]
		s.e, m.fresh, m.heads = m.fresh[:segBuckets:segBuckets], m.fresh[segBuckets:], m.heads[1:]
	}
	clear(s.e) // fresh pages too: a page that is written first faults once, one that is read first twice
	s.depth = depth
	return s
}

// drop takes back a segment; a reader may still be in it if the table is shared.
func (m *Memory) drop(s *segment, shared bool) {
	m.bytes -= int64(bucketBytes * len(s.e))
	if !shared && len(s.e) == segBuckets && len(m.free) < maxFreeSegs {
		m.free = append(m.free, s)
	}
}

// Bytes is what all tables of m take.
func (m *Memory) Bytes() int64 { return m.bytes }

// Len returns how many entries t has.
func (t *Table) Len() int { return t.n }

// Init makes t an empty table in m.
func (t *Table) Init(m *Memory, shared bool) {
	t.shared, t.memory = shared, m
	if shared {
		t.start(segBuckets)
	} else {
		t.start(smallest)
	}
}

// start begins a table of one segment.
func (t *Table) start(buckets int) {
	d := make([]atomic.Pointer[segment], 1)
	d[0].Store(t.memory.take(buckets, 0))
	t.bits, t.segs, t.n = 0, 1, 0
	t.memory.bytes += 8
	t.dir.Store(&d)
}

// Forget gives the memory of t back. It isn't used any more before it starts anew.
func (t *Table) Forget() {
	var last *segment
	for i := range *t.dir.Load() {
		if s := (*t.dir.Load())[i].Load(); s != last {
			t.memory.drop(s, t.shared)
			last = s
		}
	}
	t.memory.bytes -= 8 << t.bits
}

// grow makes room in s, the segment of tag: a small one gets twice as many
// buckets, a full one is distributed over two. It returns the segment that tag is
// in now.
func (t *Table) grow(s *segment, tag uint32) *segment {
	if len(s.e) < segBuckets {
		to := t.memory.take(2*len(s.e), 0)
		s.spread(to)
		t.point(tag, 0, to, to)
		t.memory.drop(s, t.shared)
	} else {
		t.split(s, tag)
	}
	return t.segment(tag)
}

// split moves half of s, the segment of tag, to a new one.
func (t *Table) split(s *segment, tag uint32) {
	if d := *t.dir.Load(); s.depth == t.bits {
		double := make([]atomic.Pointer[segment], 2*len(d))
		for i := range double {
			double[i].Store(d[i/2].Load())
		}
		t.bits++
		t.memory.bytes += int64(8 * len(d))
		t.dir.Store(&double)
	}
	to, bit := t.memory.take(segBuckets, s.depth+1), keyBits-s.depth-1
	t.segs++
	if t.shared { // readers find them there before they are gone from s
		for k := range s.e {
			b := &s.e[k]
			for m := b[0] & b.having(bit) & (inUse * everyByte); m != 0; m &= m - 1 {
				to.add(b.tag(first(m)), b.at(first(m)), false)
			}
		}
		t.point(tag, s.depth, s, to)
		s.halve(bit, nil)
	} else {
		t.point(tag, s.depth, s, to)
		s.halve(bit, to)
	}
	s.depth++
}

// halve takes the entries out of s whose tags have a bit set, and moves them to
// another segment. If there is none, they are there already, and readers may be
// here. What is left goes to its own bucket where that has room now.
func (s *segment) halve(bit uint, to *segment) {
	shared := to == nil
	away := s.bucket(segBuckets - 1).passed()
	for k := range s.e {
		b := &s.e[k]
		if away { // perhaps entries are here that belong elsewhere
			for m := b[0] & (inUse * everyByte); m != 0; m &= m - 1 {
				i := first(m)
				if b.home(i) == uint32(k) {
					continue
				}
				tag, ref := b.tag(i), b.at(i)
				s.remove(tag, (uint32(k)-b.home(i))%segBuckets, i, shared)
				if tag>>bit&1 == 0 {
					s.add(tag, ref, shared)
				} else if to != nil {
					to.add(tag, ref, false)
				}
			}
		}
		gone := b[0] & b.having(bit) & (inUse * everyByte)
		if to != nil {
			for m := gone; m != 0; m &= m - 1 {
				i := first(m)
				if j := free(to.e[k][0]); j != NoSpot {
					to.e[k].copy(j, b, i)
					to.n++
				} else {
					to.add(b.tag(i), b.at(i), false)
				}
			}
		}
		put(&b[0], gone>>7*0xff, 0, 0, shared)
		s.n -= bits.OnesCount64(gone)
		away = b.passed()
	}
}

// point makes the entries of the directory that agree with tag in depth bits,
// which are neighbours, lead to lo and, the second half of them, to hi.
func (t *Table) point(tag uint32, depth uint, lo, hi *segment) {
	d := *t.dir.Load()
	span := 1 << (t.bits - depth)
	first := int(tag>>(keyBits-depth)) * span
	for i := range span {
		if i < (span+1)/2 {
			d[first+i].Store(lo)
		} else {
			d[first+i].Store(hi)
		}
	}
}

// spread adds the entries of s to those of another segment.
func (s *segment) spread(to *segment) {
	for k := range s.e {
		b := &s.e[k]
		for m := b[0] & (inUse * everyByte); m != 0; m &= m - 1 {
			to.add(b.tag(first(m)), b.at(first(m)), false)
		}
	}
}

// shrink joins s, the segment of tag, with its other half if both are nearly
// empty, and gives up the memory of a table that is wholly empty.
func (t *Table) shrink(s *segment, tag uint32) {
	if t.n == 0 && (t.segs > 1 || len(s.e) > smallest) {
		t.Forget()
		t.start(smallest)
		return
	}
	if s.n > fewInSegment || s.depth == 0 {
		return
	}
	other := t.segment(tag ^ 1<<(keyBits-s.depth))
	if other.depth != s.depth || other.n > fewInSegment {
		return
	}
	to := t.memory.take(segBuckets, s.depth-1)
	for _, half := range [2]*segment{s, other} {
		half.spread(to)
		t.memory.drop(half, false)
	}
	t.point(tag, to.depth, to, to)
	t.segs--
}
