package index

import (
	"math/rand/v2"
	"slices"
	"testing"

	"kvasir/kv"
)

// check compares what a table counts with its entries, and looks each up.
func (t *pageTable) check(tt *testing.T) {
	tt.Helper()
	n := 0
	var last *pageSegment
	for i, s := range t.dir {
		if s == last {
			continue
		}
		last = s
		in := 0
		for j := range s.k {
			fill := 0
			for b, e := range s.piece[j] {
				if e == 0 {
					continue
				}
				fill++
				key := uint32(e >> 32)
				found := false
				for k := t.seek(key); ; {
					ref := k.next()
					if found = ref == uint32(e); found || ref == 0 {
						break
					}
				}
				if !found || t.segment(key) != s {
					tt.Fatalf("segment %d, piece %d, place %d: entry %x is not found", i, j, b, e)
				}
			}
			var past [pieceBuckets]int
			for i, e := range s.piece[j] {
				for b := homeOf(uint32(e >> 32)); e != 0 && int(b) != i/bucketSize; b = (b + 1) % pieceBuckets {
					past[b]++
				}
			}
			for b, n := range past {
				if got := int(s.past[j][b]); got != n && got != 255 {
					tt.Fatalf("segment %d, piece %d: %d entries went past bucket %d, counted %d", i, j, got, b, n)
				}
			}
			if fill != int(s.fill[j]) {
				tt.Fatalf("segment %d, piece %d: %d entries, counted %d", i, j, s.fill[j], fill)
			}
			in += fill
		}
		if in != s.n {
			tt.Fatalf("segment %d: %d entries, counted %d", i, s.n, in)
		}
		n += in
	}
	if n != t.n {
		tt.Fatalf("%d entries, counted %d", t.n, n)
	}
}

// TestPageTable: random entries, with equal keys among them, against a map; the
// table grows over many segments and becomes empty again, always well filled.
func TestPageTable(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	var pt pageTable
	type entry struct{ key, ref uint32 }
	var all []entry
	in := map[entry]bool{}
	most := 150000
	if testing.Short() {
		most = 40000
	}
	fits := func() {
		segs, pieces := map[*pageSegment]bool{}, 0
		for _, s := range pt.dir {
			if !segs[s] {
				segs[s] = true
				pieces += s.k
			}
		}
		if real := int64(pieces) * pieceBytes; real > pt.bytes()*14/10 || pt.bytes() > real*11/10+pieceBytes {
			t.Fatalf("%d entries in %d pieces: %d bytes, said %d", pt.n, pieces, real, pt.bytes())
		}
	}
	for step, up := 0, true; up || len(all) > 0; step++ {
		if r.IntN(10) < 3 == up && len(all) > 0 {
			i := r.IntN(len(all))
			e := all[i]
			all[i] = all[len(all)-1]
			all = all[:len(all)-1]
			if !pt.delete(e.key, e.ref) || pt.delete(e.key, e.ref) {
				t.Fatalf("step %d: %v deleted: want once", step, e)
			}
			delete(in, e)
		} else {
			e := entry{r.Uint32(), r.Uint32()/2 + 1}
			if r.IntN(50) == 0 && len(all) > 0 {
				e.key = all[r.IntN(len(all))].key
			}
			if in[e] {
				continue
			}
			pt.insert(e.key, e.ref)
			in[e] = true
			all = append(all, e)
		}
		if len(all) > most {
			up = false
		}
		if step%20000 == 0 {
			pt.check(t)
			fits()
		}
	}
	if pt.dir != nil || pt.bytes() != 0 {
		t.Errorf("an empty table has %d segments, %d bytes", len(pt.dir), pt.bytes())
	}
}

// TestPageKeysMeet: entries of other things under the same key are not taken for
// what is looked for.
func TestPageKeysMeet(t *testing.T) {
	ix := New(Config{Seed: testSeed})
	ix.Apply(&kv.Event{BlockSize: 1, Root: true, Handles: []kv.Handle{1, 2, 3}, Tokens: []uint32{1, 2, 3}})
	ix.Apply(&kv.Event{BlockSize: 1, Parent: 1, Handles: []kv.Handle{4}, Tokens: []uint32{9}})
	ix.Apply(&kv.Event{BlockSize: 1, Root: true, Key: kv.Key{Salt: "a"}, Handles: []kv.Handle{5}, Tokens: []uint32{1}})
	p := ix.targets[0].lanes[0].pages
	page := p.named(ix.keyOf(1), 1)
	for key, find := range map[uint32]func() bool{
		ix.keyOf(7):                         func() bool { return p.named(ix.keyOf(7), 7) != 0 },
		ix.rootKey(7):                       func() bool { return ix.root(p, 7) != 0 },
		ix.rowKey(7):                        func() bool { return ix.rowEnd(p, 7) != 0 },
		ix.forkKey(page):                    func() bool { return ix.fork(p, page) != p.named(ix.keyOf(4), 4).strip() },
		ix.childKey(page, []uint32{8}, nil): func() bool { return ix.next(p, page, []uint32{8}, nil) != 0 },
	} {
		for n := range uint32(slabStrips) {
			if s := p.peek(n); s != nil {
				p.index.insert(key, uint32(refAt(n, 0)))
				p.index.insert(key, uint32(refAt(n, uint8(p.per-1))))
			}
		}
		if find() {
			t.Errorf("key %x: what was found belongs to something else", key)
		}
	}
}

func TestJump(t *testing.T) {
	for k := 1; k <= maxPieces; k++ {
		count := make([]int, k)
		for x, j := range jump[k] {
			count[j]++
			if k > 1 && j != jump[k-1][x] && int(j) != k-1 {
				t.Fatalf("with %d pieces, slice %d moves to old piece %d", k, x, j)
			}
		}
		if least, most := slices.Min(count), slices.Max(count); most-least > 10 {
			t.Errorf("%d pieces have %d to %d slices", k, least, most)
		}
	}
}
