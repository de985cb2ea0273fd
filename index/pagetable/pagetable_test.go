package pagetable

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

type entry struct{ key, ref uint32 }

// A twin is a table and a map that hold the same.
type twin struct {
	tab Table
	in  map[entry]bool
	all []entry
}

func (w *twin) insert(e entry) {
	if w.in[e] {
		return
	}
	w.tab.Insert(e.key, e.ref)
	w.in[e] = true
	w.all = append(w.all, e)
}

// delete takes entry i out, which must be there once.
func (w *twin) delete(i int) error {
	e := w.all[i]
	w.all[i] = w.all[len(w.all)-1]
	w.all = w.all[:len(w.all)-1]
	if !w.tab.Delete(e.key, e.ref) || w.tab.Delete(e.key, e.ref) {
		return fmt.Errorf("%v deleted: want once", e)
	}
	delete(w.in, e)
	return nil
}

// replace makes entry i refer to something else.
func (w *twin) replace(i int, ref uint32) {
	e := w.all[i]
	if to := (entry{e.key, ref}); !w.in[to] {
		w.tab.Replace(e.key, e.ref, ref)
		delete(w.in, e)
		w.in[to] = true
		w.all[i] = to
	}
}

// check compares the table with the map.
func (w *twin) check() error {
	n := 0
	err := w.tab.Check(func(key, ref uint32) error {
		n++
		if !w.in[entry{key, ref}] {
			return fmt.Errorf("entry %x of key %x should not be there", ref, key)
		}
		return nil
	})
	if err == nil && (n != len(w.in) || w.tab.Len() != n) {
		err = fmt.Errorf("%d entries, Len says %d, want %d", n, w.tab.Len(), len(w.in))
	}
	return err
}

// end deletes everything: nothing is left.
func (w *twin) end() error {
	for len(w.all) > 0 {
		if err := w.delete(len(w.all) - 1); err != nil {
			return err
		}
	}
	if w.tab.dir != nil || w.tab.Bytes() != 0 {
		return fmt.Errorf("an empty table has %d segments, %d bytes", len(w.tab.dir), w.tab.Bytes())
	}
	return nil
}

// fits says that what Bytes says is near what the pieces take.
func (w *twin) fits() error {
	segs, pieces := map[*segment]bool{}, 0
	for _, s := range w.tab.dir {
		if !segs[s] {
			segs[s] = true
			pieces += s.k
		}
	}
	if real := int64(pieces) * pieceBytes; real > w.tab.Bytes()*14/10 || w.tab.Bytes() > real*11/10+pieceBytes {
		return fmt.Errorf("%d entries in %d pieces: %d bytes, said %d", w.tab.n, pieces, real, w.tab.Bytes())
	}
	return nil
}

// TestTable: random entries, with equal keys among them, against a map; the table
// grows over many segments and becomes empty again, always well filled.
func TestTable(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	w := &twin{in: map[entry]bool{}}
	most := 150000
	if testing.Short() {
		most = 40000
	}
	for step, up := 0, true; up || len(w.all) > 0; step++ {
		n := len(w.all)
		if r.IntN(10) < 3 == up && n > 0 {
			if err := w.delete(r.IntN(n)); err != nil {
				t.Fatalf("step %d: %v", step, err)
			}
		} else {
			e := entry{r.Uint32(), r.Uint32()/2 + 1}
			if r.IntN(50) == 0 && n > 0 {
				e.key = w.all[r.IntN(n)].key
			}
			w.insert(e)
		}
		if n > 0 && r.IntN(20) == 0 && len(w.all) > 0 {
			w.replace(r.IntN(len(w.all)), r.Uint32()/2+1)
		}
		if len(w.all) > most {
			up = false
		}
		if step%20000 == 0 {
			if err := w.check(); err != nil {
				t.Fatalf("step %d: %v", step, err)
			}
			if err := w.fits(); err != nil {
				t.Fatalf("step %d: %v", step, err)
			}
		}
	}
	if err := w.end(); err != nil {
		t.Error(err)
	}
}

// TestTouch: what is touched of keys is their bucket, in an empty table nothing.
func TestTouch(t *testing.T) {
	var tab Table
	if tab.Touch([]uint32{1, 2}) != 0 {
		t.Error("an empty table has something to touch")
	}
	for ref := range uint32(bucketSize) {
		tab.Insert(5, ref+1) // from the bucket's end
	}
	if got := tab.Touch([]uint32{5}); got != 5<<32|bucketSize {
		t.Errorf("the bucket of key 5 begins with %x", got)
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

// FuzzTable plays bytes on a table and on a map. An operation is three bytes: what
// to do, and 16 bits of an entry's key, which a seed spreads as a caller's mixing
// does; of each it inserts a run, so that few bytes fill many pieces.
func FuzzTable(f *testing.F) {
	r := rand.New(rand.NewPCG(3, 4))
	for n := range 6 {
		seed := make([]byte, 150<<n)
		for i := range seed {
			seed[i] = byte(r.Uint32())
		}
		f.Add(seed, uint8(1<<n))
	}
	f.Fuzz(func(t *testing.T, data []byte, run uint8) {
		if len(data) > 6000 {
			return
		}
		w := &twin{in: map[entry]bool{}}
		for step := 0; len(data) >= 3; step++ {
			op, x := data[0], uint32(data[1])<<8|uint32(data[2])
			data = data[3:]
			var err error
			for i := range uint32(run%64) + 1 {
				n := len(w.all)
				switch {
				case op%16 < 9 || n == 0:
					w.insert(entry{(x + i) * 0x9e3779b1, uint32(op)>>4 + 1})
				case op%16 < 15:
					err = w.delete(int(x*131+i*17) % n)
				default:
					w.replace(int(x+i)%n, uint32(op)<<8|i+1)
				}
				if err != nil {
					t.Fatalf("step %d: %v", step, err)
				}
			}
			if step%256 == 255 {
				if err := w.check(); err != nil {
					t.Fatalf("step %d: %v", step, err)
				}
			}
		}
		if err := w.check(); err != nil {
			t.Fatal(err)
		}
		if err := w.end(); err != nil {
			t.Fatal(err)
		}
	})
}
