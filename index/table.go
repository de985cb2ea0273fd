package index

import "sync/atomic"

// A table finds 32-bit references by a well-mixed 64-bit key, of which it keeps
// 31 bits; the caller compares the rest where the reference points to. It is an
// extendible hash table of buckets that fill a cache line: 8 entries of 64 bits,
// and entries that don't fit go to the next bucket of their segment. It grows by
// one segment of 32 KB at a time, so there are no long pauses (tablegrow.go).
//
// One writer at a time. With shared set, readers need no lock: they can miss an
// entry while its segment splits, and can be handed a reference that was just
// deleted.
type table struct {
	shared bool
	dir    atomic.Pointer[[]atomic.Pointer[segment]]
	bits   uint // log2 of the directory's length
	segs   int
	n      int
	memory *segments
}

const (
	segBuckets = 512
	bucketSize = 8
	segEntries = segBuckets * bucketSize
	segBytes   = segEntries * 8
	keyBits    = 31
	maxDirBits = keyBits - 9

	// overflowed is set in a bucket's first entry when entries that belong to
	// the bucket, or to one before, lie behind it.
	overflowed = 1 << 63
	tagMask    = 1<<keyBits - 1
)

// A segment has a power of two of buckets, segBuckets unless it is the only one of
// a small table. An entry is overflowed | tag<<32 | reference; reference 0 is an
// empty entry.
type segment struct {
	e     []uint64
	n     int  // entries in use
	over  int  // buckets with overflowed set
	depth uint // bits of the directory that lead here
}

// tagOf returns the part of key x that a table keeps: its top bits choose the
// segment, its low 9 bits the bucket.
func tagOf(x uint64) uint32 { return uint32(x >> (64 - keyBits)) }

// segment returns where tag's entries are, and the first entry of its bucket.
func (t *table) segment(tag uint32) (*segment, uint32) {
	d := *t.dir.Load()
	return d[uint64(tag)*uint64(len(d))>>keyBits].Load(), tag * bucketSize
}

// bucket returns the entries from b on; readers without the lock load them
// atomically. b counts round the segment.
func (s *segment) bucket(b uint32) *[bucketSize]uint64 {
	return (*[bucketSize]uint64)(s.e[b&uint32(len(s.e)-1):])
}

// buckets is how many buckets s has.
func (s *segment) buckets() int { return len(s.e) / bucketSize }

// crowded says that s has to grow before another entry goes in.
func (s *segment) crowded() bool { return s.n >= len(s.e)*4/5 && s.depth < maxDirBits }

// worn says that many entries are away from their buckets though there is room.
func (s *segment) worn() bool { return s.over > s.buckets()/2 && s.n < len(s.e)*4/10 }

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
		x |= d[uint64(tag)*n>>keyBits].Load().bucket(tag * bucketSize)[0]
	}
	return x
}

// lookup looks up at most 64 tags at once: spots has for each a free place in
// its bucket, and the bits of maybe say which of them may be in the table.
func (t *table) lookup(tags []uint32, spots *[64]uint8) (maybe uint64) {
	d := *t.dir.Load()
	n := uint64(len(d))
	for k, tag := range tags {
		e := d[uint64(tag)*n>>keyBits].Load().bucket(tag * bucketSize)
		hit, spot := scan(e, tag)
		spots[k%64] = uint8(spot)
		if hit || e[0]&overflowed != 0 {
			maybe |= 1 << (k % 64)
		}
	}
	return maybe
}

// maybe says which of at most 64 tags may be in the table.
func (t *table) maybe(tags []uint32) (maybe uint64) {
	var spots [64]uint8
	return t.lookup(tags, &spots)
}

// put changes an entry of a table that is shared, or not.
func put(p *uint64, v uint64, shared bool) {
	if shared {
		atomic.StoreUint64(p, v)
	} else {
		*p = v
	}
}

// insert adds an entry; the caller knows that it isn't there.
func (t *table) insert(tag, ref uint32) {
	s, _ := t.segment(tag)
	for s.crowded() || s.worn() {
		s = t.grow(s, tag)
	}
	t.n++
	s.add(tag, uint64(tag)<<32|uint64(ref), t.shared)
}

// add stores entry v; there is room for it.
func (s *segment) add(tag uint32, v uint64, shared bool) {
	b := tag * bucketSize
	for range s.buckets() {
		e := s.bucket(b)
		for i := range e {
			if uint32(e[i]) == 0 {
				put(&e[i], e[i]&overflowed|v, shared)
				s.n++
				return
			}
		}
		if e[0]&overflowed == 0 {
			put(&e[0], e[0]|overflowed, shared)
			s.over++
		}
		b += bucketSize
	}
	panic("index: a segment overflows") // crowded excludes it
}

// insertAt is insert with a place in tag's own bucket that was free lately.
func (t *table) insertAt(tag, ref uint32, spot int) {
	if s, b := t.segment(tag); spot < bucketSize && !s.crowded() {
		if e := &s.bucket(b)[spot]; uint32(*e) == 0 {
			put(e, *e&overflowed|uint64(tag)<<32|uint64(ref), t.shared)
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
	for range s.buckets() {
		e := s.bucket(b)
		for i := range e {
			if e[i]&^overflowed == want {
				put(&e[i], e[i]&overflowed, t.shared)
				s.n--
				t.n--
				if s.n%128 == 0 && !t.shared {
					t.shrink(s, tag)
				}
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
