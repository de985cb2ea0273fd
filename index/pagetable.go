package index

// A pageTable finds references by a mixed 32-bit key, of which entries keep all
// bits; the caller compares the rest where the reference points to. A lane's pages
// are many and small, so it is packed closer than a table: a segment has 1 to 16
// pieces of 8 KB and gets one more when it is 93/100 full, which only moves what now
// belongs there (jump). Within a piece, buckets of a cache line are probed in
// order. An entry lies behind its bucket only if all buckets between are full, and
// a deletion restores that, so nothing wears. The zero value is empty.
type pageTable struct {
	dir  []*pageSegment // 1<<bits
	bits uint
	n    int
}

const (
	pieceBuckets = 128
	pieceEntries = pieceBuckets * bucketSize
	pieceBytes   = pieceEntries * 8
	maxPieces    = 16
	pieceSlices  = 1024 // of a segment's keys, each belongs to one piece
	pieceMost    = pieceEntries - 16
	pieceGrow    = pieceEntries * 93 / 100 // entries per piece at which a segment grows
	pieceBuilt   = 860                     // and how many there are after it was rebuilt
	pieceShrink  = pieceEntries * 80 / 100
	maxPageBits  = 14 // of the directory: what a key has beside slice and bucket

	// maxPageEntries bounds a table: 14 bits of segments, nearly full.
	maxPageEntries = 200e6

	// entryBytes is what an entry takes: a large table is between 4/5 and 93/100
	// full.
	entryBytes = 9
)

// An entry is key<<32 | reference; 0 is an empty entry. Bit 31 of a key says
// which kind of thing is referred to, see page.go.
type piece [pieceEntries]uint64

type pageSegment struct {
	piece [maxPieces]*piece
	fill  [maxPieces]uint16 // entries of each piece
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

func sliceOf(key uint32) uint32          { return key >> 7 % pieceSlices }
func homeOf(key uint32) uint32           { return key % pieceBuckets }
func (s *pageSegment) of(key uint32) int { return int(jump[s.k][sliceOf(key)]) }

func (t *pageTable) segment(key uint32) *pageSegment {
	return t.dir[uint64(key<<1)>>(32-t.bits)]
}

func (p *piece) bucket(b uint32) *[bucketSize]uint64 {
	return (*[bucketSize]uint64)(p[b%pieceBuckets*bucketSize:])
}

// touch loads the buckets of keys that are about to be looked up, so that their
// cache misses overlap. It returns something that depends on them.
func (t *pageTable) touch(keys []uint32) (x uint64) {
	if t.n > 0 {
		for _, key := range keys {
			s := t.segment(key)
			x |= s.piece[s.of(key)][homeOf(key)*bucketSize]
		}
	}
	return x
}

// A seek goes through the references of a key.
type seek struct {
	p   *piece
	key uint32
	b   uint32
	i   uint32
}

func (t *pageTable) seek(key uint32) seek {
	if t.n == 0 {
		return seek{}
	}
	s := t.segment(key)
	return seek{p: s.piece[s.of(key)], key: key, b: homeOf(key)}
}

// next returns the next reference, 0 at the end.
func (k *seek) next() uint32 {
	if k.p == nil {
		return 0
	}
	for {
		e := k.p.bucket(k.b)
		for i := k.i; i < bucketSize; i++ {
			switch x := e[i]; {
			case x == 0:
				// Entries of a bucket are in front: there are no more.
				k.p = nil
				return 0
			case uint32(x>>32) == k.key:
				k.i = i + 1
				return uint32(x)
			}
		}
		k.b, k.i = k.b+1, 0
	}
}

// put adds an entry to p, which has room.
func (p *piece) put(v uint64) {
	for b := homeOf(uint32(v >> 32)); ; b++ {
		e := p.bucket(b)
		if e[bucketSize-1] != 0 {
			continue
		}
		for i := range e {
			if e[i] == 0 {
				e[i] = v
				return
			}
		}
	}
}

// remove empties entry i of bucket b. Entries behind move up, so that a bucket's
// are in front, and full buckets stay full as long as something behind needs it.
func (p *piece) remove(b, i uint32) {
	for {
		e := p.bucket(b)
		full := e[bucketSize-1] != 0
		last := uint32(bucketSize - 1)
		for e[last] == 0 {
			last--
		}
		e[i] = e[last]
		e[last] = 0
		if !full {
			return
		}
		c, q := p.behind(b)
		if q == noSpot {
			return
		}
		e[last] = p.bucket(c)[q]
		b, i = c, q
	}
}

// behind finds, in the buckets after b, an entry that belongs to b or one before.
func (p *piece) behind(b uint32) (c, q uint32) {
	for c = b + 1; ; c++ {
		e := p.bucket(c)
		for q, x := range e {
			if x == 0 {
				return 0, noSpot
			}
			if (c-homeOf(uint32(x>>32)))%pieceBuckets >= c-b {
				return c, uint32(q)
			}
		}
	}
}

// insert adds an entry that isn't there.
func (t *pageTable) insert(key, ref uint32) {
	if t.dir == nil {
		t.dir = []*pageSegment{{k: 1}}
		t.dir[0].piece[0] = new(piece)
	}
	s := t.segment(key)
	j := s.of(key)
	for s.n >= s.k*pieceGrow && !t.atMost(s) || s.fill[j] >= pieceMost {
		t.grow(s, key)
		s = t.segment(key)
		j = s.of(key)
	}
	s.piece[j].put(uint64(key)<<32 | uint64(ref))
	s.fill[j]++
	s.n++
	t.n++
}

// atMost says that s can't grow any more: maxPageEntries excludes that it is full.
func (t *pageTable) atMost(s *pageSegment) bool { return s.k == maxPieces && s.depth == maxPageBits }

// delete removes an entry and says whether it was there.
func (t *pageTable) delete(key, ref uint32) bool {
	if t.n == 0 {
		return false
	}
	s := t.segment(key)
	j := s.of(key)
	want := uint64(key)<<32 | uint64(ref)
	for b := homeOf(key); ; b++ {
		for i, x := range s.piece[j].bucket(b) {
			if x == want {
				s.piece[j].remove(b, uint32(i))
				s.fill[j]--
				s.n--
				t.n--
				t.shrink(s, key)
				return true
			}
			if x == 0 {
				return false
			}
		}
	}
}

// replace makes an entry refer to something else.
func (t *pageTable) replace(key, old, ref uint32) {
	s := t.segment(key)
	want := uint64(key)<<32 | uint64(old)
	for b := homeOf(key); ; b++ {
		for i, x := range s.piece[s.of(key)].bucket(b) {
			if x == want {
				s.piece[s.of(key)].bucket(b)[i] = uint64(key)<<32 | uint64(ref)
				return
			}
			if x == 0 {
				return
			}
		}
	}
}

// bytes is what the table takes.
func (t *pageTable) bytes() int64 {
	if t.n == 0 {
		return 0
	}
	return int64(t.n)*entryBytes + pieceBytes
}
