// Package pagetable is a hash table from mixed 32-bit keys to 32-bit references,
// packed closer than package table: for things that are many and small, as an
// engine's pages of one token are. It keeps all bits of a key; whether a reference
// is what was looked for, the caller sees where it points to. Bit 31 of a key
// doesn't choose the place, so a caller may use it to tell kinds of keys apart. It
// knows nothing of pages.
//
// A directory leads from the top bits of a key to a segment. A segment has 1 to 16
// pieces of 8 KB and gets one more when it is 93/100 full, which only moves what now
// belongs there (jump). Within a piece, an entry that doesn't fit into its bucket,
// a cache line, goes to the next that has room; each bucket knows how many entries
// went past it, so that a search ends early and deletions leave no trace.
package pagetable

// A Table has one user at a time. The zero value is empty.
type Table struct {
	dir  []*segment // 1<<bits
	bits uint
	n    int
}

const (
	bucketSize   = 8
	none         = bucketSize // no place
	pieceBuckets = 128
	pieceEntries = pieceBuckets * bucketSize
	pieceBytes   = pieceEntries * 8
	maxPieces    = 16
	pieceSlices  = 1024 // of a segment's keys, each belongs to one piece
	pieceMost    = pieceEntries - 16
	pieceGrow    = pieceEntries * 93 / 100 // entries per piece at which a segment grows
	pieceBuilt   = 860                     // and how many there are after it was rebuilt
	pieceShrink  = pieceEntries * 80 / 100
	maxBits      = 14 // of the directory: what a key has beside slice and bucket

	// MaxEntries bounds a table: 14 bits of segments, nearly full.
	MaxEntries = 200e6

	// EntryBytes is what an entry takes: a large table is between 4/5 and 93/100
	// full.
	EntryBytes = 9

	segmentBytes = 2304
)

// A piece has entries: each is key<<32 | reference, 0 if it is empty.
type piece [pieceEntries]uint64

type segment struct {
	piece [maxPieces]*piece
	past  [maxPieces][pieceBuckets]uint8 // entries of a bucket, or one before, that lie behind; 255: or more
	fill  [maxPieces]uint16              // entries of each piece
	n     int
	k     int  // pieces
	depth uint // bits of the directory that lead here
}

// jump says, for each number of pieces, in which of them the keys of a slice are.
// With one more piece, slices move only to the new one (as in jump consistent
// hashing, Lamping and Veach, 2014, but tabulated, and even).
var jump = func() (to [maxPieces + 1][pieceSlices]uint8) {
	var count [maxPieces]int
	count[0] = pieceSlices
	for k := 2; k <= maxPieces; k++ {
		to[k] = to[k-1]
		want := pieceSlices / k
		for x := 0; count[k-1] < want; x = (x + 389) % pieceSlices {
			if j := int(to[k][x]); j < k-1 && count[j] > want {
				to[k][x] = uint8(k - 1)
				count[j]--
				count[k-1]++
			}
		}
	}
	return to
}()

func sliceOf(key uint32) uint32      { return key >> 7 % pieceSlices }
func homeOf(key uint32) uint32       { return key % pieceBuckets }
func (s *segment) of(key uint32) int { return int(jump[s.k][sliceOf(key)]) }

func (t *Table) segment(key uint32) *segment {
	return t.dir[uint64(key<<1)>>(32-t.bits)]
}

func (p *piece) bucket(b uint32) *[bucketSize]uint64 {
	return (*[bucketSize]uint64)(p[b%pieceBuckets*bucketSize:])
}

// Touch loads the buckets of keys that are about to be looked up, so that their
// cache misses overlap. Not inlined, as the loads of an unused result would go.
//
//go:noinline
func (t *Table) Touch(keys []uint32) (x uint64) {
	if t.n > 0 {
		for _, key := range keys {
			s := t.segment(key)
			x |= s.piece[s.of(key)].bucket(homeOf(key))[0]
		}
	}
	return x
}

// A bucket is searched without branches that depend on what is in it.

// has says that an entry of e may have key; with key 0, an empty one also does.
func has(e *[bucketSize]uint64, key uint32) bool {
	k := uint64(key)
	any := (e[0]>>32 ^ k) - 1 // the top bit is set if the keys are equal
	any |= (e[1]>>32 ^ k) - 1
	any |= (e[2]>>32 ^ k) - 1
	any |= (e[3]>>32 ^ k) - 1
	any |= (e[4]>>32 ^ k) - 1
	any |= (e[5]>>32 ^ k) - 1
	any |= (e[6]>>32 ^ k) - 1
	any |= (e[7]>>32 ^ k) - 1
	return int64(any) < 0
}

// whereIs returns the place of x in e, none if it isn't there.
func whereIs(e *[bucketSize]uint64, x uint64) int {
	at := none
	for i := range e {
		if e[i] == x {
			at = i
		}
	}
	return at
}

// A Seek goes through the references of a key.
type Seek struct {
	p    *piece
	past *[pieceBuckets]uint8
	key  uint32
	n    uint32 // entries seen
}

func (t *Table) Seek(key uint32) Seek {
	if t.n == 0 {
		return Seek{n: pieceEntries}
	}
	s := t.segment(key)
	j := s.of(key)
	return Seek{p: s.piece[j], past: &s.past[j], key: key}
}

// Next returns the next reference, 0 at the end.
func (k *Seek) Next() uint32 {
	for k.n < pieceEntries {
		b := homeOf(k.key) + k.n/bucketSize
		e := k.p.bucket(b)
		if k.n%bucketSize == 0 {
			if k.n > 0 && k.past[(b-1)%pieceBuckets] == 0 {
				return 0
			}
			if !has(e, k.key) {
				k.n += bucketSize
				continue
			}
		}
		x := e[k.n%bucketSize]
		k.n++
		if uint32(x>>32) == k.key && x != 0 {
			return uint32(x)
		}
	}
	return 0
}

// put adds an entry to piece j, which has room.
func (s *segment) put(j int, v uint64) {
	for b := homeOf(uint32(v >> 32)); ; b = (b + 1) % pieceBuckets {
		e := s.piece[j].bucket(b)
		if i := whereIs(e, 0); i != none {
			e[i] = v
			return
		}
		if s.past[j][b] < 255 {
			s.past[j][b]++
		}
	}
}

// remove empties entry i of bucket b of piece j.
func (s *segment) remove(j int, b uint32, i int) {
	e := s.piece[j].bucket(b)
	for h := homeOf(uint32(e[i] >> 32)); h != b; h = (h + 1) % pieceBuckets {
		if s.past[j][h] < 255 {
			s.past[j][h]--
		}
	}
	e[i] = 0
}

// where returns the piece, bucket and place of an entry, none if there is none.
func (s *segment) where(key, ref uint32) (j int, b uint32, i int) {
	j, b = s.of(key), homeOf(key)
	for range pieceBuckets {
		if i = whereIs(s.piece[j].bucket(b), uint64(key)<<32|uint64(ref)); i != none || s.past[j][b] == 0 {
			return j, b, i
		}
		b = (b + 1) % pieceBuckets
	}
	return j, b, none
}

// Len returns how many entries t has.
func (t *Table) Len() int { return t.n }

// Insert adds an entry that isn't there, whose ref isn't 0. Keys have to be well
// mixed, and entries at most MaxEntries: it panics when a segment can't take more.
func (t *Table) Insert(key, ref uint32) {
	if t.dir == nil {
		t.dir = []*segment{{k: 1}}
		t.dir[0].piece[0] = new(piece)
	}
	s := t.segment(key)
	j := s.of(key)
	for s.n >= s.k*pieceGrow && !t.atMost(s) || s.fill[j] >= pieceMost {
		t.grow(s, key)
		s = t.segment(key)
		j = s.of(key)
	}
	s.put(j, uint64(key)<<32|uint64(ref))
	s.fill[j]++
	s.n++
	t.n++
}

// atMost says that s can't grow any more: MaxEntries excludes that it is full.
func (t *Table) atMost(s *segment) bool { return s.k == maxPieces && s.depth == maxBits }

// Delete removes an entry and says whether it was there.
func (t *Table) Delete(key, ref uint32) bool {
	if t.n == 0 {
		return false
	}
	s := t.segment(key)
	j, b, i := s.where(key, ref)
	if i == none {
		return false
	}
	s.remove(j, b, i)
	s.fill[j]--
	s.n--
	t.n--
	t.shrink(s, key)
	return true
}

// Replace makes an entry, which is there, refer to something else.
func (t *Table) Replace(key, old, ref uint32) {
	s := t.segment(key)
	if j, b, i := s.where(key, old); i != none {
		s.piece[j].bucket(b)[i] = uint64(key)<<32 | uint64(ref)
	}
}

// Bytes is what the table takes, about.
func (t *Table) Bytes() int64 {
	if t.n == 0 {
		return 0
	}
	return int64(t.n)*EntryBytes + int64(t.n/(12*pieceGrow)+1)*segmentBytes + pieceBytes
}
