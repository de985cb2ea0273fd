package index

import (
	"math/bits"
	"slices"
	"sync/atomic"
)

// A lane is one cache group of one target (and one more for its predictions).
// Each lane holds a block in some planes: a tier, or the inside of a lower
// tier's chunk, where no credit may end.
const (
	inGPU uint8 = 1 << iota
	inHost
	inDisk
	inHostChunk
	inDiskChunk

	planes   = 5
	maxLanes = 4096
)

// The holders of a block are a set of (lane, planes), named by a number. 0 is the empty
// set; a single holder is spelled out in the number, lane<<5 | planes. Any other set is
// interned, since sets repeat along a chain and from row to row (U7).
const firstInterned = maxLanes << planes

func single(lane uint16, mask uint8) uint32 { return uint32(lane)<<planes | uint32(mask) }

// holders is an interned set: bitmaps over lanes lo*64 to (lo+n)*64-1, first of
// the lanes in any plane, then, if there are several planes, of each plane that
// occurs. Only refs and serial change after it was published.
type holders struct {
	id     uint32
	lo, n  uint16
	planes uint8
	words  []uint64
	sum    uint64 // hash of the content

	refs   int64  // slots; the writer's
	serial uint64 // names this use of the id; 0 when retired
}

// plane returns the bitmap of plane p, nil if it is empty.
func (h *holders) plane(p int) []uint64 {
	n := int(h.n)
	if h.planes == 1<<p {
		return h.words[:n]
	}
	if h.planes>>p&1 == 0 {
		return nil
	}
	k := 1 + bits.OnesCount8(h.planes&(1<<p-1))
	return h.words[k*n : (k+1)*n]
}

func (h *holders) mask(lane uint16) (m uint8) {
	w := int(lane/64) - int(h.lo)
	if w < 0 || w >= int(h.n) || h.words[w]>>(lane%64)&1 == 0 {
		return 0
	}
	for p := range planes {
		if b := h.plane(p); b != nil && b[w]>>(lane%64)&1 == 1 {
			m |= 1 << p
		}
	}
	return m
}

// sets interns holder sets. Readers use get and mask.
type sets struct {
	dir    atomic.Pointer[[]*[setChunk]atomic.Pointer[holders]]
	free   []uint32
	next   uint32
	bySum  map[uint64]uint32
	serial uint64
	size   int64 // bytes
	count  int
	moves  [1024]move
	draft  holders    // being built
	spare  []*holders // dropped, for the next to be published
	work   [planes][maxLanes / 64]uint64
}

const (
	setChunk     = 256
	maxSpareSets = 64
)

// A move remembers the answer of with.
type move struct {
	from, op, to         uint32
	fromSerial, toSerial uint64
}

func (s *sets) init() {
	d := make([]*[setChunk]atomic.Pointer[holders], 0)
	s.dir.Store(&d)
	s.bySum = map[uint64]uint32{}
}

// get returns the interned set id.
func (s *sets) get(id uint32) *holders {
	i := id - firstInterned
	return (*s.dir.Load())[i/setChunk][i%setChunk].Load()
}

// mask returns the planes in which lane is in set id.
func (s *sets) mask(id uint32, lane uint16) uint8 {
	if id < firstInterned {
		if id>>planes == uint32(lane) {
			return uint8(id & (1<<planes - 1))
		}
		return 0
	}
	return s.get(id).mask(lane)
}

// hold adds n references to set id, release takes them; a set without
// references is retired by drop.
func (s *sets) hold(id uint32, n int) {
	if id >= firstInterned {
		s.get(id).refs += int64(n)
	}
}

func (s *sets) release(id uint32, n int, e *epochs) {
	if id < firstInterned {
		return
	}
	h := s.get(id)
	if h.refs -= int64(n); h.refs == 0 {
		delete(s.bySum, h.sum)
		h.serial = 0
		e.retire(retiredSet, id)
	}
}

// drop frees a retired set.
func (s *sets) drop(id uint32) {
	i := id - firstInterned
	p := &(*s.dir.Load())[i/setChunk][i%setChunk]
	h := p.Load()
	s.size -= h.bytes()
	s.count--
	p.Store(nil)
	if len(s.spare) < maxSpareSets {
		s.spare = append(s.spare, h)
	}
	s.free = append(s.free, id)
}

func (h *holders) bytes() int64 { return 160 + 8*int64(cap(h.words)) }

func (s *sets) serialOf(id uint32) uint64 {
	if id < firstInterned {
		return 1
	}
	return s.get(id).serial
}

// with returns the set that is id but for lane, which it has in the planes of
// mask. The caller holds it before it releases id.
func (s *sets) with(id uint32, lane uint16, mask uint8) uint32 {
	op := single(lane, mask)
	if id == 0 {
		if mask == 0 {
			return 0
		}
		return op
	}
	if id < firstInterned && id>>planes == uint32(lane) {
		if mask == 0 {
			return 0
		}
		return op
	}
	m := &s.moves[(id*0x9e3779b1^op*0x85ebca6b)>>22]
	if m.from == id && m.op == op && m.fromSerial == s.serialOf(id) {
		if m.to < firstInterned || m.toSerial != 0 && s.alive(m.to, m.toSerial) {
			return m.to
		}
	}
	to := s.build(id, lane, mask)
	*m = move{id, op, to, s.serialOf(id), s.serialOf(to)}
	return to
}

func (s *sets) alive(id uint32, serial uint64) bool {
	h := s.get(id)
	return h != nil && h.serial == serial
}

// build is with, without memory.
func (s *sets) build(id uint32, lane uint16, mask uint8) uint32 {
	lo, hi := int(lane/64), int(lane/64)+1
	if id < firstInterned {
		l := int(id >> planes / 64)
		lo, hi = min(lo, l), max(hi, l+1)
	} else {
		h := s.get(id)
		lo, hi = min(lo, int(h.lo)), max(hi, int(h.lo)+int(h.n))
	}
	for p := range planes {
		w := s.work[p][lo:hi]
		clear(w)
		if id < firstInterned {
			if id>>p&1 == 1 {
				l := id >> planes
				w[int(l/64)-lo] |= 1 << (l % 64)
			}
		} else {
			h := s.get(id)
			copy(w[int(h.lo)-lo:], h.plane(p))
		}
		bit := uint64(1) << (lane % 64)
		w[int(lane/64)-lo] &^= bit
		if mask>>p&1 == 1 {
			w[int(lane/64)-lo] |= bit
		}
	}
	return s.intern(lo, hi)
}

// intern returns the set that s.work holds in words lo to hi-1.
func (s *sets) intern(lo, hi int) uint32 {
	anyAt := func(i int) (w uint64) {
		for p := range planes {
			w |= s.work[p][i]
		}
		return w
	}
	for lo < hi && anyAt(lo) == 0 {
		lo++
	}
	for lo < hi && anyAt(hi-1) == 0 {
		hi--
	}
	if lo == hi {
		return 0
	}
	if w := anyAt(lo); hi == lo+1 && bits.OnesCount64(w) == 1 {
		l, m := uint16(lo*64+bits.TrailingZeros64(w)), uint8(0)
		for p := range planes {
			if s.work[p][lo] != 0 {
				m |= 1 << p
			}
		}
		return single(l, m)
	}
	h := &s.draft
	*h = holders{lo: uint16(lo), n: uint16(hi - lo), words: h.words[:0]}
	for p := range planes {
		if slices.ContainsFunc(s.work[p][lo:hi], func(w uint64) bool { return w != 0 }) {
			h.planes |= 1 << p
		}
	}
	for i := lo; i < hi; i++ {
		h.words = append(h.words, anyAt(i))
	}
	if h.planes&(h.planes-1) != 0 {
		for p := range planes {
			if h.planes>>p&1 == 1 {
				h.words = append(h.words, s.work[p][lo:hi]...)
			}
		}
	}
	h.sum = mum(uint64(h.lo)<<8|uint64(h.planes), 0x9e3779b97f4a7c15)
	for _, w := range h.words {
		h.sum = mum(h.sum^w, 0xbf58476d1ce4e5b9) + 1
	}
	for ; ; h.sum++ {
		id, ok := s.bySum[h.sum]
		if !ok {
			break
		}
		if o := s.get(id); o.lo == h.lo && o.planes == h.planes && slices.Equal(o.words, h.words) {
			return id
		}
	}
	return s.publish(h)
}

// publish makes the draft a set.
func (s *sets) publish(draft *holders) uint32 {
	var h *holders
	if n := len(s.spare); n > 0 {
		h = s.spare[n-1]
		s.spare = s.spare[:n-1]
	} else {
		h = new(holders)
	}
	words := append(h.words[:0], draft.words...)
	*h = *draft
	h.words = words
	if n := len(s.free); n > 0 {
		h.id = s.free[n-1]
		s.free = s.free[:n-1]
	} else {
		h.id = firstInterned + s.next
		if d := *s.dir.Load(); int(s.next/setChunk) == len(d) {
			d = append(d, new([setChunk]atomic.Pointer[holders]))
			s.dir.Store(&d)
		}
		s.next++
	}
	s.serial++
	h.serial = s.serial + 1
	s.bySum[h.sum] = h.id
	s.size += h.bytes()
	s.count++
	i := h.id - firstInterned
	(*s.dir.Load())[i/setChunk][i%setChunk].Store(h)
	return h.id
}

// each calls f for every lane of set id.
func (s *sets) each(id uint32, f func(lane uint16, mask uint8)) {
	if id == 0 {
		return
	}
	if id < firstInterned {
		f(uint16(id>>planes), uint8(id&(1<<planes-1)))
		return
	}
	h := s.get(id)
	for i := range int(h.n) {
		for w := h.words[i]; w != 0; w &= w - 1 {
			l := uint16((int(h.lo)+i)*64 + bits.TrailingZeros64(w))
			f(l, h.mask(l))
		}
	}
}

func mum(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo
}
