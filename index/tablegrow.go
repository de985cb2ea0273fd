package index

import "sync/atomic"

// segments is the memory of the tables of an index.
type segments struct {
	fresh []uint64   // not used yet
	free  [][]uint64 // whole segments, to be cleared
	bytes int64      // of all segments and directories that are in use
}

const (
	smallest     = 8  // buckets of a new private table
	segBatch     = 8  // segments that are allocated at a time: an array without the padding that single ones would get
	maxFreeSegs  = 32 // beyond that, unused segments are garbage
	fewInSegment = segEntries / 8
)

// take returns a segment of empty buckets.
func (m *segments) take(buckets int, depth uint) *segment {
	n := buckets * bucketSize
	m.bytes += int64(8 * n)
	s := &segment{depth: depth}
	switch k := len(m.free); {
	case n < segEntries:
		s.e = make([]uint64, n)
	case k > 0:
		s.e, m.free = m.free[k-1], m.free[:k-1]
		clear(s.e)
	default:
		if len(m.fresh) == 0 {
			m.fresh = make([]uint64, segBatch*segEntries)
		}
		s.e, m.fresh = m.fresh[:segEntries:segEntries], m.fresh[segEntries:]
	}
	return s
}

// drop takes back a segment; a reader may still be in it if the table is shared.
func (m *segments) drop(s *segment, shared bool) {
	m.bytes -= int64(8 * len(s.e))
	if !shared && len(s.e) == segEntries && len(m.free) < maxFreeSegs {
		m.free = append(m.free, s.e)
	}
}

// init makes t an empty table. One that isn't shared starts small.
func (t *table) init(m *segments, shared bool) {
	*t = table{shared: shared, memory: m, segs: 1}
	buckets := smallest
	if shared {
		buckets = segBuckets
	}
	t.setDir(make([]atomic.Pointer[segment], 1))
	(*t.dir.Load())[0].Store(m.take(buckets, 0))
}

// forget empties t and gives its memory back. It isn't used any more before the
// next init.
func (t *table) forget() {
	var last *segment
	for i := range *t.dir.Load() {
		if s := (*t.dir.Load())[i].Load(); s != last {
			t.memory.drop(s, t.shared)
			last = s
		}
	}
	t.memory.bytes -= 8 << t.bits
	t.n, t.segs = 0, 0
}

// setDir publishes a directory.
func (t *table) setDir(d []atomic.Pointer[segment]) {
	if old := t.dir.Load(); old != nil {
		t.memory.bytes -= int64(8 * len(*old))
	}
	t.memory.bytes += int64(8 * len(d))
	t.dir.Store(&d)
}

// grow makes room in s, the segment of tag: a small one gets twice as many
// buckets, a full one is distributed over two, and one that is only worn by
// deletions is rebuilt. It returns the segment that tag is in now.
func (t *table) grow(s *segment, tag uint32) *segment {
	switch {
	case !s.crowded():
		t.replace(s, tag, t.memory.take(s.buckets(), s.depth))
	case s.buckets() < segBuckets:
		t.replace(s, tag, t.memory.take(2*s.buckets(), 0))
	default:
		t.split(s, tag)
	}
	s, _ = t.segment(tag)
	return s
}

// replace moves the entries of s, the segment of tag, to another.
func (t *table) replace(s *segment, tag uint32, to *segment) {
	s.spread([2]*segment{to, to})
	t.point(tag, s.depth, to, to)
	t.memory.drop(s, t.shared)
}

// split distributes s, the segment of tag, over two.
func (t *table) split(s *segment, tag uint32) {
	if d := *t.dir.Load(); s.depth == t.bits {
		double := make([]atomic.Pointer[segment], 2*len(d))
		for i := range double {
			double[i].Store(d[i/2].Load())
		}
		t.bits++
		t.setDir(double)
	}
	to := [2]*segment{t.memory.take(segBuckets, s.depth+1), t.memory.take(segBuckets, s.depth+1)}
	t.segs++
	s.spread(to)
	t.point(tag, s.depth, to[0], to[1])
	t.memory.drop(s, t.shared)
}

// point makes the entries of the directory that agree with tag in depth bits,
// which are neighbours, lead to lo and, the second half of them, to hi.
func (t *table) point(tag uint32, depth uint, lo, hi *segment) {
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

// spread moves the entries of s to the empty segments of to, by the bit that
// tells them apart (to[0] and to[1] may be the same).
func (s *segment) spread(to [2]*segment) {
	var used [2][segBuckets]uint8
	shift, split := keyBits-to[0].depth, uint32(1)
	if to[0] == to[1] {
		split = 0
	}
	for _, e := range s.e {
		if uint32(e) == 0 {
			continue
		}
		tag := uint32(e>>32) & tagMask
		side := tag >> (shift % 32) & split
		g, u := to[side], &used[side]
		mask := uint32(g.buckets() - 1)
		b := tag & mask
		for u[b%segBuckets] == bucketSize {
			if p := &g.e[b*bucketSize]; *p&overflowed == 0 {
				*p |= overflowed
				g.over++
			}
			b = (b + 1) & mask
		}
		g.e[b*bucketSize+uint32(u[b%segBuckets])] |= e &^ overflowed
		u[b%segBuckets]++
		g.n++
	}
}

// shrink joins s, the segment of tag, with its other half if both are nearly
// empty, and gives up the memory of a table that is wholly empty.
func (t *table) shrink(s *segment, tag uint32) {
	if t.n == 0 && (t.segs > 1 || s.buckets() > smallest) {
		m := t.memory
		t.forget()
		t.init(m, false)
		return
	}
	if s.n > fewInSegment || s.depth == 0 {
		return
	}
	half := uint32(1) << (keyBits - s.depth)
	other, _ := t.segment(tag ^ half)
	if other.depth != s.depth || other.n > fewInSegment {
		return
	}
	to := t.memory.take(segBuckets, s.depth-1)
	for _, from := range [2]*segment{s, other} {
		for _, e := range from.e {
			if uint32(e) != 0 {
				to.add(uint32(e>>32)&tagMask, e&^overflowed, false)
			}
		}
	}
	t.point(tag, to.depth, to, to)
	t.memory.drop(s, false)
	t.memory.drop(other, false)
	t.segs--
}
