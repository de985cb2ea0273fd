package table

import "fmt"

// Check counts everything that t counts, looks up every entry and hands it to each,
// and returns what doesn't fit. It is slow: for tests, and builds with the tag
// invariants.
func (t *Table) Check(each func(tag, ref uint32) error) error {
	var last *segment
	segs, n := 0, 0
	for i := range *t.dir.Load() {
		s := (*t.dir.Load())[i].Load()
		if s == last {
			continue
		}
		last = s
		segs++
		n += s.n
		if err := t.checkSegment(s, each); err != nil {
			return err
		}
	}
	if segs != t.segs || n != t.n {
		return fmt.Errorf("table: %d segments, counted %d; %d entries, counted %d", t.segs, segs, t.n, n)
	}
	return nil
}

func (t *Table) checkSegment(s *segment, each func(tag, ref uint32) error) error {
	n, passed := 0, make([]int, len(s.e))
	for k := range s.e {
		b := &s.e[k]
		for m := b[0] & (inUse * everyByte); m != 0; m &= m - 1 {
			n++
			tag, ref := b.tag(first(m)), b.at(first(m))
			if t.segment(tag) != s || !t.holds(tag, ref) {
				return fmt.Errorf("table: entry %d is not found by its tag %x", ref, tag)
			}
			if err := each(tag, ref); err != nil {
				return err
			}
			for p := tag % uint32(len(s.e)); p != uint32(k); p = (p + 1) % uint32(len(s.e)) {
				passed[p]++
			}
		}
	}
	for k := range s.e {
		if got := int(s.e[k][7] >> 56); got != passed[k] && got != 255 {
			return fmt.Errorf("table: %d entries passed by bucket %d, counted %d", got, k, passed[k])
		}
	}
	if n != s.n {
		return fmt.Errorf("table: segment of %d entries, counted %d", s.n, n)
	}
	return nil
}

// holds says that a search for tag comes by ref.
func (t *Table) holds(tag, ref uint32) bool {
	for p := t.Probe(tag); ; {
		got := p.Next()
		if got == 0 || got == ref {
			return got == ref
		}
	}
}

// Bytes counts what t takes of its memory.
func (t *Table) Bytes() int64 {
	n, last := int64(8)<<t.bits, (*segment)(nil)
	for i := range *t.dir.Load() {
		if s := (*t.dir.Load())[i].Load(); s != last {
			n, last = n+int64(bucketBytes*len(s.e)), s
		}
	}
	return n
}
