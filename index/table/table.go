// Package table is a hash table from a tag, 29 well-mixed bits of a key, to 32-bit
// references. It keeps no keys: what a reference refers to has the key, so the
// caller compares there, and an entry costs 8 bytes. It knows nothing of blocks.
//
// It is an extendible hash table. A directory leads from the top bits of a tag to
// a segment of 128 buckets, the lowest bits to a bucket, which fills a cache line
// with 8 entries. Entries that don't fit go to the next bucket of their segment.
// It grows by one segment of 8 KB at a time, so there are no long pauses (grow.go).
//
// For example, to find the slot whose name is h:
//
//	for p := t.Probe(tag); ; {
//		ref := p.Next()
//		if ref == 0 || nameOf(ref) == h {
//			return ref
//		}
//	}
package table

import (
	"math/bits"
	"sync/atomic"
)

// A Table has one writer at a time. If it is shared, readers need no lock: they
// can miss an entry while its segment splits, and can be handed a reference that
// was just deleted. A Table that isn't shared starts small and shrinks.
type Table struct {
	shared bool
	dir    atomic.Pointer[[]atomic.Pointer[segment]]
	bits   uint // log2 of the directory's length
	segs   int
	n      int
	memory *Memory
}

const (
	segBuckets = 128
	bucketSize = 8
	segEntries = segBuckets * bucketSize
	homeBits   = 7 // of a tag, to choose the bucket: its lowest
	keyBits    = TagBits
	maxDirBits = keyBits - homeBits
)

// A segment has a power of two of buckets, segBuckets unless it is the only one of
// a small table.
type segment struct {
	e     []bucket
	n     int  // entries in use
	depth uint // bits of the directory that lead here
}

// A bucket's parts of its 8 entries lie side by side, so that all can be compared
// at once. In word 0 a byte for each: inUse | 7 bits of the tag; in words 1 to 4 the
// references; in words 5 and 6 16 bits for each, 15 more of the tag; in word 7 the 7
// bits of the tag that choose the bucket it belongs to, and in the highest byte how
// many entries have passed by because the bucket was full (255: lost count).
type bucket [8]uint64

const (
	everyByte = 0x0101010101010101
	inUse     = 0x80
	homeMask  = 1<<homeBits - 1
)

const (
	// TagBits is how many bits a tag has.
	TagBits = 29
	// NoSpot says that a bucket is full, see Lookup.
	NoSpot = bucketSize
	// Batch is how many tags Lookup takes at most.
	Batch = 64
)

// Tag returns the part of the well-mixed key x that a table keeps: its top bits
// choose the segment, its lowest the bucket.
func Tag(x uint64) uint32 { return uint32(x >> (64 - keyBits)) }

// segment returns where tag's entries are.
func (t *Table) segment(tag uint32) *segment {
	d := *t.dir.Load()
	return d[uint64(tag)*uint64(len(d))>>keyBits].Load()
}

// bucket returns bucket b of s; b counts round the segment. A tag counts as its own
// bucket.
func (s *segment) bucket(b uint32) *bucket { return &s.e[b&uint32(len(s.e)-1)] }

// crowded says that s has to grow before another entry goes in.
func (s *segment) crowded() bool {
	return s.n >= len(s.e)*(bucketSize*4)/5 && s.depth < maxDirBits
}

// free returns a free place, or NoSpot, from a bucket's word 0.
func free(w uint64) uint { return uint(bits.TrailingZeros64(^w&(inUse*everyByte))) / 8 }

// same returns in the top bits of the bytes which entries have 7 bits of tag in
// word 0, and perhaps some more above one of them.
func same(w uint64, tag uint32) uint64 {
	v := w ^ uint64(tag>>homeBits|inUse)&0xff*everyByte
	return (v - everyByte) &^ v & (inUse * everyByte)
}

// first returns the entry of the lowest bit in m, see same.
func first(m uint64) uint { return uint(bits.TrailingZeros64(m)) / 8 % bucketSize }

// ref returns the reference of entry i, if 15 more bits of its tag are the same;
// otherwise 0.
func (b *bucket) ref(i uint, tag uint32) uint32 {
	if uint32(b[(5+i/4)%8]>>(i%4*16))&0xffff != tag>>14 {
		return 0
	}
	return b.at(i)
}

// load is ref for readers without the lock.
func (b *bucket) load(i uint, tag uint32) uint32 {
	if uint32(atomic.LoadUint64(&b[(5+i/4)%8])>>(i%4*16))&0xffff != tag>>14 {
		return 0
	}
	return uint32(atomic.LoadUint64(&b[(1+i/2)%8]) >> (i % 2 * 32))
}

// at returns the reference of entry i.
func (b *bucket) at(i uint) uint32 { return uint32(b[(1+i/2)%8] >> (i % 2 * 32)) }

// home returns which bucket of a whole segment entry i belongs to.
func (b *bucket) home(i uint) uint32 { return uint32(b[7]>>(i*homeBits)) & homeMask }

// having returns in the top bits of the bytes which entries have a bit of the tag
// set; they may be unused ones.
func (b *bucket) having(bit uint) (m uint64) {
	if bit < 14 {
		for i := range uint(bucketSize) {
			m |= uint64(b.tag(i)>>bit&1) << (i*8 + 7)
		}
		return m
	}
	narrow := func(x uint64) uint64 { // from every 16th bit to every 8th
		x &= 0x0001000100010001
		x = (x | x>>8) & 0x0000010100000101
		return (x | x>>16) & 0x01010101
	}
	return narrow(b[5]>>(bit-14))<<7 | narrow(b[6]>>(bit-14))<<39
}

// passed says that entries lie behind b that belong to b or to a bucket before.
func (b *bucket) passed() bool { return b[7]>>56 != 0 }

// tag returns the whole tag of entry i.
func (b *bucket) tag(i uint) uint32 {
	return uint32(b[5+i/4]>>(i%4*16))&0xffff<<14 | uint32(b[0]>>(i*8))&0x7f<<homeBits | b.home(i)
}

// set makes entry i, which is free, that of tag and ref.
func (b *bucket) set(i uint, tag, ref uint32, shared bool) {
	i %= bucketSize
	refs, rest := &b[(1+i/2)%8], &b[(5+i/4)%8]
	if shared {
		put(refs, 0xffffffff, i%2*32, uint64(ref), true)
		put(rest, 0xffff, i%4*16, uint64(tag>>14), true)
		put(&b[7], homeMask, i*homeBits, uint64(tag&homeMask), true)
		put(&b[0], 0xff, i*8, uint64(tag>>homeBits|inUse)&0xff, true)
		return
	}
	put(refs, 0xffffffff, i%2*32, uint64(ref), false)
	put(rest, 0xffff, i%4*16, uint64(tag>>14), false)
	put(&b[7], homeMask, i*homeBits, uint64(tag&homeMask), false)
	put(&b[0], 0xff, i*8, uint64(tag>>homeBits|inUse)&0xff, false)
}

// copy makes entry j of b, which was never used, that of entry i of another bucket.
func (b *bucket) copy(j uint, from *bucket, i uint) {
	b[(1+j/2)%8] |= uint64(from.at(i)) << (j % 2 * 32)
	b[(5+j/4)%8] |= from[(5+i/4)%8] >> (i % 4 * 16) & 0xffff << (j % 4 * 16)
	b[7] |= uint64(from.home(i)) << (j * homeBits)
	b[0] |= from[0] >> (i * 8) & 0xff << (j * 8)
}

// put changes a part of a word; readers may be there.
func put(p *uint64, mask uint64, shift uint, v uint64, shared bool) {
	v = *p&^(mask<<(shift%64)) | v<<(shift%64)
	if shared {
		atomic.StoreUint64(p, v)
	} else {
		*p = v
	}
}

// pass notes by (1 or -1) more entries that passed b.
func (b *bucket) pass(by int, shared bool) {
	if n := b[7] >> 56; n < 255 {
		put(&b[7], 0xff, 56, n+uint64(by), shared)
	}
}

// place returns where the bucket of tag is.
func (t *Table) place(tag uint32) *bucket { return t.segment(tag).bucket(tag) }

// Prefetch asks for the buckets of tags, and doesn't wait for them. It may be
// called beside the writer.
func (t *Table) Prefetch(tags []uint32) {
	if d := *t.dir.Load(); len(d) == 1 && len(d[0].Load().e) == smallest {
		return
	}
	for ; len(tags) >= 4; tags = tags[4:] {
		prefetch4(t.place(tags[0]), t.place(tags[1]), t.place(tags[2]), t.place(tags[3]))
	}
	for _, tag := range tags {
		prefetch(t.place(tag))
	}
}

// Touch asks for the bucket of one tag, as Prefetch does.
func (t *Table) Touch(tag uint32) { prefetch(t.place(tag)) }

// Guess sets refs to the first reference that may be that of each of at most Batch
// tags, 0 if none is near: good enough to ask for memory early.
func (t *Table) Guess(tags []uint32, refs *[Batch]uint32) {
	for k, tag := range tags {
		ref := uint32(0)
		b := t.place(tag)
		if m := same(b[0], tag); m != 0 {
			ref = b.at(first(m))
		}
		refs[k%Batch] = ref
	}
}

// First returns the first reference of a tag in its own bucket, which nearly always
// is the one that a Probe would come to, and cheaper. If there is none there, it
// returns 0, and whether there can't be one elsewhere.
func (t *Table) First(tag uint32) (ref uint32, none bool) {
	b := t.place(tag)
	for m := same(atomic.LoadUint64(&b[0]), tag); m != 0; m &= m - 1 {
		if ref := b.load(first(m), tag); ref != 0 {
			return ref, false
		}
	}
	return 0, atomic.LoadUint64(&b[7])>>56 == 0
}

// A Probe goes through the references of a tag.
type Probe struct {
	s    *segment
	b    *bucket // the one that is being searched, nil at first
	m    uint64  // entries of b that may be the tag's and weren't returned yet
	tag  uint32
	seen uint32 // buckets up to b
}

// Probe begins a search. Beside the writer of a shared table, a reader sees each
// entry that was there all the time and isn't moved by a split meanwhile. It is
// inlined, unlike Next.
func (t *Table) Probe(tag uint32) Probe { return Probe{s: t.segment(tag), tag: tag} }

// Next returns the next reference, 0 at the end.
func (p *Probe) Next() uint32 {
	for {
		for p.m != 0 {
			i := first(p.m)
			p.m &= p.m - 1
			if ref := p.b.load(i, p.tag); ref != 0 {
				return ref
			}
		}
		if p.b != nil && (atomic.LoadUint64(&p.b[7])>>56 == 0 || int(p.seen) >= len(p.s.e)) {
			return 0
		}
		p.b = p.s.bucket(p.tag + p.seen)
		p.m = same(atomic.LoadUint64(&p.b[0]), p.tag)
		p.seen++
	}
}

// Lookup looks up at most Batch tags at once: spots has for each a free place in
// its bucket, and the bits of known say which of them are in the table.
func (t *Table) Lookup(tags []uint32, spots *[Batch]uint8) (known uint64) {
	d := *t.dir.Load()
	n := uint64(len(d))
	for k, tag := range tags {
		s := d[uint64(tag)*n>>keyBits].Load()
		b := s.bucket(tag)
		spots[k%Batch] = uint8(free(b[0]))
		if (same(b[0], tag) != 0 || b.passed()) && s.has(tag) {
			known |= 1 << (k % Batch)
		}
	}
	return known
}

// has says that an entry has the tag.
func (s *segment) has(tag uint32) bool {
	for k := range uint32(len(s.e)) {
		b := s.bucket(tag + k)
		for m := same(b[0], tag); m != 0; m &= m - 1 {
			if b.ref(first(m), tag) != 0 {
				return true
			}
		}
		if !b.passed() {
			break
		}
	}
	return false
}

// Insert adds an entry, whose ref isn't 0; the caller knows that it isn't there.
// Tags have to be well mixed: it panics when 1,024 entries agree in the top 22 bits.
func (t *Table) Insert(tag, ref uint32) {
	s := t.segment(tag)
	for s.crowded() {
		s = t.grow(s, tag)
	}
	t.n++
	s.add(tag, ref, t.shared)
}

// InsertAt is Insert with a place in tag's own bucket that was free lately, see
// Lookup.
func (t *Table) InsertAt(tag, ref uint32, spot uint) {
	if s := t.segment(tag); spot < bucketSize && !s.crowded() {
		if b := s.bucket(tag); b[0]>>(spot*8)&inUse == 0 {
			b.set(spot, tag, ref, t.shared)
			s.n++
			t.n++
			return
		}
	}
	t.Insert(tag, ref)
}

// add adds an entry; there is room for it.
func (s *segment) add(tag, ref uint32, shared bool) {
	s.n++
	for k := range uint32(len(s.e)) {
		b := s.bucket(tag + k)
		if i := free(b[0]); i != NoSpot {
			b.set(i, tag, ref, shared)
			return
		}
		b.pass(1, shared)
	}
	panic("table: a segment overflows") // crowded excludes it
}

// Delete removes the entry and says whether it was there.
func (t *Table) Delete(tag, ref uint32) bool {
	s := t.segment(tag)
	for k := range uint32(len(s.e)) {
		b := s.bucket(tag + k)
		for m := same(b[0], tag); m != 0; m &= m - 1 {
			i := first(m)
			if b.at(i) != ref {
				continue
			}
			s.remove(tag, k, i, t.shared)
			t.n--
			if s.n%128 == 0 && !t.shared {
				t.shrink(s, tag)
			}
			return true
		}
		if !b.passed() {
			break
		}
	}
	return false
}

// remove takes out entry i of the bucket that lies away buckets behind tag's own.
func (s *segment) remove(tag, away uint32, i uint, shared bool) {
	put(&s.bucket(tag + away)[0], 0xff, i*8, 0, shared)
	for away > 0 {
		away--
		s.bucket(tag+away).pass(-1, shared)
	}
	s.n--
}
