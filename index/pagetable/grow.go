package pagetable

// grow makes room in s, the segment of key: another piece, or two segments.
func (t *Table) grow(s *segment, key uint32) {
	if s.k < maxPieces {
		s.addPiece()
		return
	}
	if s.depth == maxBits {
		panic("pagetable: a table of pages overflows") // MaxEntries excludes it
	}
	if s.depth == t.bits {
		double := make([]*segment, 2*len(t.dir))
		for i := range double {
			double[i] = t.dir[i/2]
		}
		t.dir = double
		t.bits++
	}
	var half [2][]uint64
	for j := range s.k {
		for _, e := range s.piece[j] {
			if e != 0 {
				side := uint32(e>>32) << 1 << s.depth >> 31
				half[side] = append(half[side], e)
			}
		}
	}
	t.point(key, s.depth, build(half[0], s.depth+1), build(half[1], s.depth+1))
}

// point makes the entries of the directory that agree with key in depth bits,
// which are neighbours, lead to lo and, the second half of them, to hi.
func (t *Table) point(key uint32, depth uint, lo, hi *segment) {
	span := 1 << (t.bits - depth)
	first := int(uint64(key<<1)>>(32-depth)) * span
	for i := range span {
		if i < (span+1)/2 {
			t.dir[first+i] = lo
		} else {
			t.dir[first+i] = hi
		}
	}
}

// build returns a segment of the entries, with as many pieces as they need.
func build(es []uint64, depth uint) *segment {
	for k := max(1, (len(es)+pieceBuilt-1)/pieceBuilt); ; k++ {
		s := &segment{n: len(es), k: min(k, maxPieces), depth: depth}
		for _, e := range es {
			s.fill[s.of(uint32(e>>32))]++
		}
		if k < maxPieces && s.crowded() {
			continue
		}
		for j := range s.k {
			s.piece[j] = new(piece)
		}
		for _, e := range es {
			s.put(s.of(uint32(e>>32)), e)
		}
		return s
	}
}

// crowded says that a piece has more than it should.
func (s *segment) crowded() bool {
	for _, n := range s.fill[:s.k] {
		if n > pieceMost {
			return true
		}
	}
	return false
}

// addPiece gives s another piece, and moves there what belongs there.
func (s *segment) addPiece() {
	k := s.k
	s.piece[k] = new(piece)
	for j := range k {
		for b := range uint32(pieceBuckets) {
			for i, x := range s.piece[j].bucket(b) {
				if x != 0 && jump[k+1][sliceOf(uint32(x>>32))] == uint8(k) {
					s.remove(j, b, i)
					s.fill[j]--
					s.put(k, x)
					s.fill[k]++
				}
			}
		}
	}
	s.k++
}

// shrink takes back what s, the segment of key, doesn't need after a deletion:
// the last piece, or one of two half segments; of an empty table all.
func (t *Table) shrink(s *segment, key uint32) {
	if t.n == 0 {
		*t = Table{}
		return
	}
	if s.k > 1 && s.n <= (s.k-1)*pieceShrink {
		s.dropPiece()
		return
	}
	if s.depth == 0 {
		return
	}
	other := t.segment(key ^ 1<<(31-s.depth))
	if other.depth != s.depth || s.k+other.k > maxPieces*3/4 {
		return
	}
	es := make([]uint64, 0, s.n+other.n)
	for _, from := range [2]*segment{s, other} {
		for _, p := range from.piece[:from.k] {
			for _, e := range p {
				if e != 0 {
					es = append(es, e)
				}
			}
		}
	}
	one := build(es, s.depth-1)
	t.point(key, one.depth, one, one)
}

// dropPiece spreads the last piece of s over the others, unless one of them would
// be too full.
func (s *segment) dropPiece() {
	k := s.k - 1
	last, fill := s.piece[k], s.fill
	for _, e := range last {
		if e != 0 {
			if j := jump[k][sliceOf(uint32(e>>32))]; fill[j] < pieceMost {
				fill[j]++
			} else {
				return
			}
		}
	}
	fill[k], s.past[k] = 0, [pieceBuckets]uint8{}
	s.k, s.fill, s.piece[k] = k, fill, nil
	for _, e := range last {
		if e != 0 {
			s.put(s.of(uint32(e>>32)), e)
		}
	}
}
