package table

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
)

// A twin is a table and a map that hold the same.
type twin struct {
	mem  Memory
	tab  Table
	want map[uint32]uint32 // reference -> tag
	refs []uint32
}

func newTwin(shared bool) *twin {
	w := &twin{want: map[uint32]uint32{}}
	w.tab.Init(&w.mem, shared)
	return w
}

// insert adds an entry in one of the two ways.
func (w *twin) insert(tag, ref uint32, at bool) error {
	if at {
		var spots [Batch]uint8
		known := w.tab.Lookup([]uint32{tag}, &spots)
		if has := w.has(tag); known&1 == 1 != has {
			return fmt.Errorf("Lookup says %b, the tag is there: %v", known, has)
		}
		w.tab.InsertAt(tag, ref, uint(spots[0]))
	} else {
		w.tab.Insert(tag, ref)
	}
	w.want[ref] = tag
	w.refs = append(w.refs, ref)
	return nil
}

func (w *twin) has(tag uint32) bool {
	p := w.tab.Probe(tag)
	ref := p.Next()
	if first, none := w.tab.First(tag); first != 0 && first != ref || none && ref != 0 {
		return false // they come to the same, or this isn't true
	}
	return ref != 0
}

// delete takes entry i out, which must be there once.
func (w *twin) delete(i int) error {
	ref := w.refs[i]
	w.refs[i] = w.refs[len(w.refs)-1]
	w.refs = w.refs[:len(w.refs)-1]
	if !w.tab.Delete(w.want[ref], ref) {
		return fmt.Errorf("entry %d of tag %x is lost", ref, w.want[ref])
	}
	if w.tab.Delete(w.want[ref], ref) {
		return fmt.Errorf("entry %d was there twice", ref)
	}
	delete(w.want, ref)
	return nil
}

// check compares the table with the map.
func (w *twin) check() error {
	seen := 0
	err := w.tab.Check(func(tag, ref uint32) error {
		seen++
		if w.want[ref] != tag {
			return fmt.Errorf("entry %d has tag %x, want %x", ref, tag, w.want[ref])
		}
		return nil
	})
	if err != nil {
		return err
	}
	if seen != len(w.want) || w.tab.Len() != len(w.want) {
		return fmt.Errorf("%d entries, Len says %d, want %d", seen, w.tab.Len(), len(w.want))
	}
	for ref, tag := range w.want {
		if !w.tab.holds(tag, ref) {
			return fmt.Errorf("entry %d of tag %x isn't found", ref, tag)
		}
	}
	if !w.tab.shared && w.mem.Bytes() != w.tab.Bytes() {
		return fmt.Errorf("memory of %d bytes, counted %d", w.mem.Bytes(), w.tab.Bytes())
	}
	return nil
}

// end deletes everything: nothing is left but an empty table's first segment.
func (w *twin) end() error {
	for len(w.refs) > 0 {
		if err := w.delete(len(w.refs) - 1); err != nil {
			return err
		}
	}
	if err := w.check(); err != nil {
		return err
	}
	if b := w.tab.Bytes(); !w.tab.shared && b != smallest*bucketBytes+8 {
		return fmt.Errorf("an empty table has %d bytes", b)
	}
	w.tab.Forget()
	if w.mem.Bytes() != 0 {
		return fmt.Errorf("a forgotten table has %d bytes", w.mem.Bytes())
	}
	return nil
}

// TestTable compares a table with a map, under keys that spread evenly and under
// keys that agree in their top bits, which make the directory deep.
func TestTable(t *testing.T) {
	for _, c := range []struct {
		name   string
		shared bool
		shift  uint // top bits that all keys agree in
		most   int
	}{{"private", false, 0, 30000}, {"shared", true, 0, 30000}, {"deep", false, 15, 3000}, {"deep shared", true, 14, 6000}, {"small", false, 0, 150}} {
		t.Run(c.name, func(t *testing.T) {
			w := newTwin(c.shared)
			r := rand.New(rand.NewPCG(1, 2))
			for step := range 12 * c.most {
				growing := step/c.most%2 == 0
				var err error
				if n := len(w.refs); n == 0 || n < c.most && (growing && r.IntN(8) > 0 || !growing && r.IntN(8) == 0) {
					err = w.insert(Tag(r.Uint64())>>c.shift, uint32(step+1), r.IntN(2) == 1)
				} else {
					err = w.delete(r.IntN(n))
				}
				if err == nil && step%c.most == c.most-1 {
					err = w.check()
				}
				if err != nil {
					t.Fatalf("step %d: %v", step, err)
				}
			}
			if err := w.end(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestLookupMany looks up whole batches, some of whose tags are there.
func TestLookupMany(t *testing.T) {
	w := newTwin(false)
	r := rand.New(rand.NewPCG(5, 6))
	for round := range 400 {
		var tags []uint32
		for range 1 + r.IntN(Batch) {
			tag := Tag(r.Uint64())
			if n := len(w.refs); n > 0 && r.IntN(3) == 0 {
				tag = w.want[w.refs[r.IntN(n)]]
			}
			tags = append(tags, tag)
		}
		w.tab.Prefetch(tags)
		var spots [Batch]uint8
		known := w.tab.Lookup(tags, &spots)
		var guess [Batch]uint32
		w.tab.Guess(tags, &guess)
		for k, tag := range tags {
			has := w.has(tag)
			if known>>k&1 == 1 != has {
				t.Fatalf("round %d: tag %d of %d: said to be there: %v", round, k, len(tags), !has)
			}
			if has && k == 0 && guess[k] == 0 && !w.tab.place(tag).passed() {
				t.Fatalf("round %d: no guess for a tag that is there", round)
			}
			if _, ok := w.want[guess[k]]; guess[k] != 0 && !ok {
				t.Fatalf("round %d: guessed %d, which isn't there", round, guess[k])
			}
			if !has {
				ref := uint32(round*Batch + k + 1)
				w.tab.InsertAt(tag, ref, uint(spots[k]))
				w.want[ref], w.refs = tag, append(w.refs, ref)
			}
		}
	}
	if err := w.check(); err != nil {
		t.Fatal(err)
	}
}

// TestReaders: while a shared table grows and loses entries, readers find what was
// there before they began, or nothing, but never a reference of another tag. Run it
// with -race.
func TestReaders(t *testing.T) {
	var mem Memory
	var tab Table
	tab.Init(&mem, true)
	const n = 20000
	tags := make([]uint32, n+1)
	r := rand.New(rand.NewPCG(7, 8))
	for i := range tags {
		tags[i] = Tag(r.Uint64())
	}
	var stop atomic.Bool
	var found atomic.Int64
	var wg sync.WaitGroup
	for k := range 2 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			r := rand.New(rand.NewPCG(9, uint64(k)))
			for !stop.Load() || found.Load() == 0 {
				i := uint32(1 + r.IntN(n))
				for p := tab.Probe(tags[i]); ; {
					ref := p.Next()
					if ref == 0 {
						break
					}
					if ref == i {
						found.Add(1)
						break
					}
					if ref > n {
						t.Errorf("reference %d was never inserted", ref)
						return
					}
				}
			}
		}()
	}
	for i := uint32(1); i <= n; i++ {
		tab.Insert(tags[i], i)
		if i%3 == 0 {
			tab.Delete(tags[i/2], i/2)
		}
	}
	stop.Store(true)
	wg.Wait()
	if err := tab.Check(func(uint32, uint32) error { return nil }); err != nil {
		t.Fatal(err)
	}
}

// FuzzTable plays bytes on a table and on a map: each pair is an insertion, in one
// of two ways, of one of 256 tags that crowd a few buckets and segments, or a
// deletion.
func FuzzTable(f *testing.F) {
	r := rand.New(rand.NewPCG(3, 4))
	for n := range 6 {
		seed := make([]byte, 400<<n)
		for i := range seed {
			seed[i] = byte(r.Uint32())
		}
		f.Add(seed, n%2 == 0, uint8(n*5))
	}
	f.Fuzz(func(t *testing.T, data []byte, shared bool, shift uint8) {
		if len(data) > 1<<15 {
			return
		}
		w, crowd := newTwin(shared), map[uint32]int{}
		for step := 0; len(data) >= 2; step++ {
			op, b := data[0], data[1]
			data = data[2:]
			var err error
			if n := len(w.refs); op%8 < 5 || n == 0 {
				x := uint64(op>>3)<<8 | uint64(b) // 13 bits of key, spread over home bits and top bits
				tag := (uint32(x)*0x9e3779b1>>(32-TagBits)>>(shift%16))&^0x70 | uint32(b)&0x70
				if crowd[tag>>homeBits]++; crowd[tag>>homeBits] <= 600 { // see Insert
					err = w.insert(tag, uint32(step+1), op%2 == 0)
				}
			} else {
				err = w.delete((int(b)<<5 | int(op>>3)) % n)
			}
			if err == nil && step%256 == 255 {
				err = w.check()
			}
			if err != nil {
				t.Fatalf("step %d: %v", step, err)
			}
		}
		if err := w.end(); err != nil {
			t.Fatal(err)
		}
	})
}
