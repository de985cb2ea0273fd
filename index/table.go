package index

import "sync/atomic"

// A table finds 32-bit references by a well-mixed 64-bit key, of which it keeps
// 31 bits; the caller compares the rest where the reference points to. It is an
// extendible hash table of buckets that fill a cache line: 8 entries of 64 bits,
// and entries that don't fit go to the next bucket of their segment. It grows by
// one segment of 32 KB at a time, so there are no long pauses and no garbage.
//
// One writer at a time. With shared set, readers need no lock: they can miss an
// entry while its segment splits, and can be handed a reference that was just
// deleted.
type table struct {
	shared bool
	dir    atomic.Pointer[[]atomic.Pointer[segment]]
	bits   uint // log2 of the directory's length
	spare  *segment
	memory []entries
	segs   int
	n      int
}

const (
	segBuckets = 512
	bucketSize = 8
	segEntries = segBuckets * bucketSize
	segFull    = segEntries * 4 / 5
	segBytes   = segEntries * 8
	keyBits    = 31
	maxDirBits = keyBits - 9

	// overflowed is set in a bucket's first entry when entries that belong to
	// the bucket, or to one before, lie behind it.
	overflowed = 1 << 63
	tagMask    = 1<<keyBits - 1
)

// An entry is overflowed | tag<<32 | reference; reference 0 is an empty entry.
type entries [segEntries]uint64

type segment struct {
	e     *entries
	n     int  // entries in use
	over  int  // buckets with overflowed set
	depth uint // bits of the directory that lead here
}

func (t *table) init(shared bool) {
	t.shared = shared
	d := make([]atomic.Pointer[segment], 1)
	d[0].Store(&segment{e: new(entries)})
	t.dir.Store(&d)
	t.segs = 1
}

// tagOf returns the part of key x that a table keeps: its top bits choose the
// segment, its low 9 bits the bucket.
func tagOf(x uint64) uint32 { return uint32(x >> (64 - keyBits)) }

// segment returns where tag's entries are, and the first entry of its bucket.
func (t *table) segment(tag uint32) (*segment, uint32) {
	d := *t.dir.Load()
	return d[uint64(tag)*uint64(len(d))>>keyBits].Load(), tag % segBuckets * bucketSize
}

// bucket returns the entries from b on; readers without the lock load them
// atomically.
func (e *entries) bucket(b uint32) *[bucketSize]uint64 {
	return (*[bucketSize]uint64)(e[b%segEntries:])
}

// matches says that entry e has the given tag, and is in use.
func matches(e uint64, tag uint32) bool { return uint32(e>>32)&tagMask == tag && uint32(e) != 0 }

// scan looks through a bucket for tag and for a free entry (noSpot: there is
// none), without branches that depend on what is in it. A hit may be of an empty
// entry, so the caller looks again. Not inlined: within a large function its
// variables would live on the stack.
//
//go:noinline
func scan(e *[bucketSize]uint64, tag uint32) (hit bool, spot int) {
	want := uint64(tag) << 32
	x0, x1, x2, x3, x4, x5, x6, x7 := e[0], e[1], e[2], e[3], e[4], e[5], e[6], e[7]
	spot = noSpot
	if uint32(x0) == 0 {
		spot = 0
	}
	if uint32(x1) == 0 {
		spot = 1
	}
	if uint32(x2) == 0 {
		spot = 2
	}
	if uint32(x3) == 0 {
		spot = 3
	}
	if uint32(x4) == 0 {
		spot = 4
	}
	if uint32(x5) == 0 {
		spot = 5
	}
	if uint32(x6) == 0 {
		spot = 6
	}
	if uint32(x7) == 0 {
		spot = 7
	}
	// The top bit of a term is set if the tags are equal.
	any := ((x0^want)<<1>>33 - 1) | ((x1^want)<<1>>33 - 1) | ((x2^want)<<1>>33 - 1) | ((x3^want)<<1>>33 - 1) |
		((x4^want)<<1>>33 - 1) | ((x5^want)<<1>>33 - 1) | ((x6^want)<<1>>33 - 1) | ((x7^want)<<1>>33 - 1)
	return int64(any) < 0, spot
}

const noSpot = bucketSize

// touch loads the buckets of tags that are about to be looked up, so that their
// cache misses overlap. It returns something that depends on them.
func (t *table) touch(tags []uint32) (x uint64) {
	d := *t.dir.Load()
	n := uint64(len(d))
	for _, tag := range tags {
		x |= d[uint64(tag)*n>>keyBits].Load().e[tag%segBuckets*bucketSize]
	}
	return x
}

// lookup looks up at most 64 tags at once: spots has for each a free place in
// its bucket, and the bits of maybe say which of them may be in the table.
func (t *table) lookup(tags []uint32, spots *[64]uint8) (maybe uint64) {
	d := *t.dir.Load()
	n := uint64(len(d))
	for k, tag := range tags {
		e := d[uint64(tag)*n>>keyBits].Load().e.bucket(tag % segBuckets * bucketSize)
		hit, spot := scan(e, tag)
		spots[k%64] = uint8(spot)
		if hit || e[0]&overflowed != 0 {
			maybe |= 1 << (k % 64)
		}
	}
	return maybe
}

// put changes an entry.
func (t *table) put(p *uint64, v uint64) {
	if t.shared {
		atomic.StoreUint64(p, v)
	} else {
		*p = v
	}
}

// insert adds an entry; the caller knows that it isn't there.
func (t *table) insert(tag, ref uint32) {
	s, b := t.segment(tag)
	for s.n >= segFull && s.depth < maxDirBits || s.over > segBuckets/2 && s.n < segFull/2 {
		s = t.split(s, tag)
	}
	t.n++
	v := uint64(tag)<<32 | uint64(ref)
	for range segBuckets {
		e := s.e.bucket(b)
		for i := range e {
			if uint32(e[i]) == 0 {
				t.put(&e[i], e[i]&overflowed|v)
				s.n++
				return
			}
		}
		if e[0]&overflowed == 0 {
			t.put(&e[0], e[0]|overflowed)
			s.over++
		}
		b += bucketSize
	}
	panic("index: a segment overflows") // segFull and maxDirBits exclude it
}

// insertAt is insert with a place in tag's own bucket that was free lately.
func (t *table) insertAt(tag, ref uint32, spot int) {
	if s, b := t.segment(tag); spot < bucketSize && s.n < segFull {
		if e := &s.e.bucket(b)[spot]; uint32(*e) == 0 {
			t.put(e, *e&overflowed|uint64(tag)<<32|uint64(ref))
			s.n++
			t.n++
			return
		}
	}
	t.insert(tag, ref)
}

// delete removes the entry, if it is there.
func (t *table) delete(tag, ref uint32) bool {
	s, b := t.segment(tag)
	want := uint64(tag)<<32 | uint64(ref)
	for range segBuckets {
		e := s.e.bucket(b)
		for i := range e {
			if e[i]&^overflowed == want {
				t.put(&e[i], e[i]&overflowed)
				s.n--
				t.n--
				return true
			}
		}
		if e[0]&overflowed == 0 {
			return false
		}
		b += bucketSize
	}
	return false
}

// split distributes s, the segment of tag, over two; a segment that is only
// worn by deletions is rebuilt. It returns the segment that tag is in now.
func (t *table) split(s *segment, tag uint32) *segment {
	d := *t.dir.Load()
	worn := s.n < segFull
	if !worn && s.depth == t.bits {
		double := make([]atomic.Pointer[segment], 2*len(d))
		for i := range double {
			double[i].Store(d[i/2].Load())
		}
		d = double
		t.dir.Store(&d)
		t.bits++
	}
	to := [2]*segment{t.take(), nil}
	to[0].depth = s.depth
	if !worn {
		to[1] = t.take()
		to[0].depth++
		to[1].depth = to[0].depth
		t.segs++
	}
	s.spread(to, worn)
	// the entries of the directory that lead to s are neighbours
	span := 1 << (t.bits - s.depth)
	first := int(tag>>(keyBits-s.depth)) * span
	for i := range span {
		if !worn && i >= span/2 {
			d[first+i].Store(to[1])
		} else {
			d[first+i].Store(to[0])
		}
	}
	if t.shared { // a reader may still be in there
		t.spare = nil
	} else {
		t.spare = s
	}
	s, _ = t.segment(tag)
	return s
}

// spread moves the entries of s to the empty segments of to, by the bit that
// tells them apart.
func (s *segment) spread(to [2]*segment, worn bool) {
	var used [2][segBuckets]uint8
	shift := keyBits - to[0].depth
	for _, e := range s.e {
		if uint32(e) == 0 {
			continue
		}
		tag := uint32(e>>32) & tagMask
		side := uint32(0)
		if !worn {
			side = tag >> shift & 1
		}
		g, u := to[side], &used[side]
		b := tag % segBuckets
		for u[b] == bucketSize {
			if p := &g.e[b*bucketSize]; *p&overflowed == 0 {
				*p |= overflowed
				g.over++
			}
			b = (b + 1) % segBuckets
		}
		g.e[b*bucketSize+uint32(u[b])] |= e &^ overflowed
		u[b]++
		g.n++
	}
}

// segBatch is how many segments are allocated at a time: an array of exactly
// 32 KB each, without the padding that single ones would get.
const segBatch = 8

// take returns an empty segment.
func (t *table) take() *segment {
	if s := t.spare; s != nil {
		t.spare = nil
		clear(s.e[:])
		s.n, s.over, s.depth = 0, 0, 0
		return s
	}
	if len(t.memory) == 0 {
		t.memory = make([]entries, segBatch)
	}
	s := &segment{e: &t.memory[0]}
	t.memory = t.memory[1:]
	return s
}

func (t *table) bytes() int64 { return int64(t.segs)*segBytes + 8<<t.bits }
