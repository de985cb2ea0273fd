package index

import "sync/atomic"

// A table finds 32-bit references by a well-mixed 64-bit key, of which it keeps
// 31 bits; the caller compares the rest where the reference points to. It is an
// extendible hash table of buckets that fill a cache line: 8 entries of 64 bits,
// and entries that don't fit go to the next bucket of their segment. It grows by
// one segment of 32 KB at a time, so there are no long pauses and no garbage.
//
// One writer at a time; readers need no lock. A reader can miss an entry while
// its segment splits, and can be handed a reference that was just deleted.
type table struct {
	dir   atomic.Pointer[[]atomic.Pointer[segment]]
	bits  uint // log2 of the directory's length
	spare *segment
	segs  int
	n     int
}

const (
	segBuckets = 512
	bucketSize = 8
	segEntries = segBuckets * bucketSize
	segFull    = segEntries * 4 / 5
	segBytes   = segEntries*8 + 64
	keyBits    = 31
	maxDirBits = keyBits - 9

	// overflowed is set in a bucket's first entry when entries that belong to
	// the bucket, or to one before, lie behind it.
	overflowed = 1 << 63
	tagMask    = 1<<keyBits - 1
)

// An entry is overflowed | tag<<32 | reference; reference 0 is an empty entry.
type segment struct {
	e     [segEntries]atomic.Uint64
	n     int  // entries in use
	over  int  // buckets with overflowed set
	depth uint // bits of the directory that lead here
}

func (t *table) init() {
	d := make([]atomic.Pointer[segment], 1)
	d[0].Store(new(segment))
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

// A probe walks the references that may belong to a key.
type probe struct {
	s    *segment
	at   uint32 // next entry
	tag  uint32
	left uint32 // entries until the whole segment was seen
}

func (t *table) probe(tag uint32) probe {
	s, at := t.segment(tag)
	return probe{s, at, tag, segEntries}
}

// next returns the next reference, or 0 if there is none.
func (p *probe) next() uint32 {
	for p.left > 0 {
		i := p.at % segEntries
		e := p.s.e[i].Load()
		p.at++
		p.left--
		if p.at%bucketSize == 0 && p.s.e[p.at-bucketSize].Load()&overflowed == 0 {
			p.left = 0
		} else if p.at == segEntries {
			p.at = 0
		}
		if uint32(e>>32)&tagMask == p.tag && uint32(e) != 0 {
			return uint32(e)
		}
	}
	return 0
}

// insert adds an entry; the caller knows that it isn't there.
func (t *table) insert(tag, ref uint32) {
	s, _ := t.segment(tag)
	for s.n >= segFull && s.depth < maxDirBits || s.over > segBuckets/2 && s.n < segFull/2 {
		s = t.split(s, tag)
	}
	s.insert(tag, ref)
	t.n++
}

func (s *segment) insert(tag, ref uint32) {
	b := tag % segBuckets * bucketSize
	for range segBuckets {
		for i := b; i < b+bucketSize; i++ {
			if e := s.e[i].Load(); uint32(e) == 0 {
				s.e[i].Store(e&overflowed | uint64(tag)<<32 | uint64(ref))
				s.n++
				return
			}
		}
		if e := s.e[b].Load(); e&overflowed == 0 {
			s.e[b].Store(e | overflowed)
			s.over++
		}
		b = (b + bucketSize) % segEntries
	}
	panic("index: a segment overflows") // segFull and maxDirBits exclude it
}

// delete removes the entry, if it is there.
func (t *table) delete(tag, ref uint32) bool {
	s, b := t.segment(tag)
	want := uint64(tag)<<32 | uint64(ref)
	for range segBuckets {
		for i := b; i < b+bucketSize; i++ {
			if e := s.e[i].Load(); e&^overflowed == want {
				s.e[i].Store(e & overflowed)
				s.n--
				t.n--
				return true
			}
		}
		if s.e[b].Load()&overflowed == 0 {
			return false
		}
		b = (b + bucketSize) % segEntries
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
	low, high := t.take(), (*segment)(nil)
	low.depth = s.depth
	if !worn {
		high = t.take()
		low.depth++
		high.depth = low.depth
		t.segs++
	}
	for i := range s.e {
		e := s.e[i].Load()
		if uint32(e) == 0 {
			continue
		}
		et := uint32(e>>32) & tagMask
		if !worn && et>>(keyBits-low.depth)&1 == 1 {
			high.insert(et, uint32(e))
		} else {
			low.insert(et, uint32(e))
		}
	}
	// the entries of the directory that lead to s are neighbours
	span := 1 << (t.bits - s.depth)
	first := int(tag>>(keyBits-s.depth)) * span
	for i := range span {
		if !worn && i >= span/2 {
			d[first+i].Store(high)
		} else {
			d[first+i].Store(low)
		}
	}
	t.spare = s
	s, _ = t.segment(tag)
	return s
}

// take returns an empty segment: the spare one, or a new one. A reader that is
// still in the spare one finds nothing there, or what it must reject.
func (t *table) take() *segment {
	s := t.spare
	if s == nil {
		return new(segment)
	}
	t.spare = nil
	for i := range s.e {
		s.e[i].Store(0)
	}
	s.n, s.over, s.depth = 0, 0, 0
	return s
}

func (t *table) bytes() int64 { return int64(t.segs)*segBytes + 8<<t.bits }
