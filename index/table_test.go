package index

import (
	"math/rand/v2"
	"testing"
)

// TestTable compares a table with a map, under keys that spread evenly and under
// keys that agree in their top bits, which make the directory deep. After every
// phase the counts of a segment are counted again.
func TestTable(t *testing.T) {
	for _, c := range []struct {
		name   string
		shared bool
		shift  uint // top bits that all keys agree in
		most   int
	}{{"private", false, 0, 30000}, {"shared", true, 0, 30000}, {"deep", false, 15, 3000}, {"deep shared", true, 14, 6000}, {"small", false, 0, 150}} {
		t.Run(c.name, func(t *testing.T) {
			var mem segments
			var tab table
			tab.init(&mem, c.shared)
			r := rand.New(rand.NewPCG(1, 2))
			want := map[uint32]uint32{} // reference -> tag
			var refs []uint32
			for step := range 12 * c.most {
				growing := step/c.most%2 == 0
				if len(refs) == 0 || len(refs) < c.most && (growing && r.IntN(8) > 0 || !growing && r.IntN(8) == 0) {
					tag, ref := tagOf(r.Uint64())>>c.shift, uint32(step+1)
					if r.IntN(2) == 0 {
						tab.insert(tag, ref)
					} else {
						var spots [64]uint8
						if known := tab.lookup([]uint32{tag}, &spots); known&1 == 1 != tab.has(tag) {
							t.Fatalf("step %d: lookup says %b, has %v", step, known, tab.has(tag))
						}
						tab.insertAt(tag, ref, uint(spots[0]))
					}
					want[ref] = tag
					refs = append(refs, ref)
				} else {
					i := r.IntN(len(refs))
					ref := refs[i]
					refs[i] = refs[len(refs)-1]
					refs = refs[:len(refs)-1]
					if !tab.delete(want[ref], ref) {
						t.Fatalf("step %d: entry %d of tag %x is lost", step, ref, want[ref])
					}
					if tab.delete(want[ref], ref) {
						t.Fatalf("step %d: entry %d was there twice", step, ref)
					}
					delete(want, ref)
				}
				if tab.n != len(want) {
					t.Fatalf("step %d: %d entries, counted %d", step, tab.n, len(want))
				}
				if step%c.most == c.most-1 {
					tab.check(t, want)
				}
			}
			for ref, tag := range want {
				tab.delete(tag, ref)
			}
			tab.check(t, nil)
			if !c.shared && mem.bytes != tab.bytes() || tab.n != 0 {
				t.Errorf("%d entries and %d bytes are left", tab.n, mem.bytes)
			}
			if !c.shared && tab.bytes() != smallest*bucketBytes+8 {
				t.Errorf("an empty table has %d bytes", tab.bytes())
			}
		})
	}
}

func (t *table) has(tag uint32) bool { return t.segment(tag).has(tag) }

// check counts everything that t counts, and looks for every entry.
func (t *table) check(tt *testing.T, want map[uint32]uint32) {
	tt.Helper()
	var last *segment
	segs, n := 0, 0
	for i := range *t.dir.Load() {
		s := (*t.dir.Load())[i].Load()
		if s == last {
			continue
		}
		last = s
		segs++
		inSegment, passed := 0, make([]int, len(s.e))
		for k := range s.e {
			b := &s.e[k]
			for m := b[0] & (inUse * everyByte); m != 0; m &= m - 1 {
				inSegment++
				tag, ref := b.tag(first(m)), b.at(first(m))
				if want[ref] != tag {
					tt.Fatalf("entry %d has tag %x, want %x", ref, tag, want[ref])
				}
				if t.segment(tag) != s {
					tt.Fatalf("entry %d is in a segment that tag %x doesn't lead to", ref, tag)
				}
				for p := tag % uint32(len(s.e)); p != uint32(k); p = (p + 1) % uint32(len(s.e)) {
					passed[p]++
				}
			}
		}
		for k := range s.e {
			if got := int(s.e[k][7] >> 56); got != passed[k] {
				tt.Fatalf("bucket %d: %d entries passed by, counted %d", k, got, passed[k])
			}
		}
		if inSegment != s.n {
			tt.Fatalf("segment of %d entries, counted %d", s.n, inSegment)
		}
		n += inSegment
	}
	if segs != t.segs || n != t.n || n != len(want) {
		tt.Fatalf("%d segments, counted %d; %d entries, counted %d, want %d", t.segs, segs, t.n, n, len(want))
	}
	for ref, tag := range want {
		if !t.has(tag) {
			tt.Fatalf("tag %x of entry %d isn't found", tag, ref)
		}
	}
}

// TestTwice compares tagSet with a map, for lists with and without a tag twice.
func TestTwice(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	var s tagSet
	for _, n := range []int{1, 2, 9, 64, 500, 2000, 70000, 300} {
		for round := range 50 {
			tags, seen := make([]uint32, n), map[uint32]bool{}
			for i := range tags {
				for tags[i] = tagOf(r.Uint64()); seen[tags[i]]; {
					tags[i] = tagOf(r.Uint64())
				}
				seen[tags[i]] = true
			}
			if s.twice(tags) {
				t.Fatalf("%d tags: one is said to occur twice", n)
			}
			if n > 1 {
				i := r.IntN(n)
				tags[i] = tags[(i+1+r.IntN(n-1))%n]
				if !s.twice(tags) {
					t.Fatalf("%d tags: a tag that occurs twice isn't found", n)
				}
			}
			if n > 10000 && round == 3 {
				break
			}
		}
	}
}
