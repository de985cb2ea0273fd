package pagetable

import "fmt"

// Check compares what t counts with its entries, looks each up and hands it to
// each, and returns what doesn't fit. It is slow: for tests, and builds with the
// tag invariants.
func (t *Table) Check(each func(key, ref uint32) error) error {
	n := 0
	var last *segment
	for i, s := range t.dir {
		if s == last {
			continue
		}
		last = s
		in := 0
		for j := range s.k {
			if err := t.checkPiece(s, j, each); err != nil {
				return fmt.Errorf("pagetable: segment %d, piece %d: %w", i, j, err)
			}
			in += int(s.fill[j])
		}
		if in != s.n {
			return fmt.Errorf("pagetable: segment %d: %d entries, counted %d", i, s.n, in)
		}
		n += in
	}
	if n != t.n {
		return fmt.Errorf("pagetable: %d entries, counted %d", t.n, n)
	}
	return nil
}

func (t *Table) checkPiece(s *segment, j int, each func(key, ref uint32) error) error {
	fill := 0
	var past [pieceBuckets]int
	for i, e := range s.piece[j] {
		if e == 0 {
			continue
		}
		fill++
		key, ref := uint32(e>>32), uint32(e)
		if t.segment(key) != s || !t.holds(key, ref) {
			return fmt.Errorf("place %d: entry %x is not found", i, e)
		}
		if err := each(key, ref); err != nil {
			return err
		}
		for b := homeOf(key); int(b) != i/bucketSize; b = (b + 1) % pieceBuckets {
			past[b]++
		}
	}
	for b, n := range past {
		if got := int(s.past[j][b]); got != n && got != 255 {
			return fmt.Errorf("%d entries went past bucket %d, counted %d", got, b, n)
		}
	}
	if fill != int(s.fill[j]) {
		return fmt.Errorf("%d entries, counted %d", s.fill[j], fill)
	}
	return nil
}

// holds says that a search for key comes by ref.
func (t *Table) holds(key, ref uint32) bool {
	for k := t.Seek(key); ; {
		got := k.Next()
		if got == 0 || got == ref {
			return got == ref
		}
	}
}
