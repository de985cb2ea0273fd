package index

import (
	"math/bits"
	"sync/atomic"

	"kvasir/kv"
)

// A row holds up to 16 blocks that follow each other in a chain. The hash of a
// block covers its whole prefix, so a block is in one row only, reached through
// the block before it: either it is the next slot of the same row, or it is the
// head of a row, which the table of heads finds. A slot whose block nobody holds
// stays as long as its row has a held block; then the row goes as a whole.
const (
	rowSlots  = 16
	slabRows  = 1024
	slabSlots = slabRows * rowSlots
	groupRows = 64 // rows for which a lane remembers that it has blocks there
)

// A slot is row<<4 | position; a row number is slab<<10 | index. Row 0 is none.
type slot uint32

func (s slot) row() uint32        { return uint32(s) / rowSlots }
func (s slot) pos() int           { return int(s % rowSlots) }
func slotAt(r uint32, p int) slot { return slot(r*rowSlots + uint32(p)) }

// atRoot stands for the slot of the parent of a first block.
const atRoot slot = 1

// A slab is 1,024 rows: no pointers, so the collector never looks inside.
type slab struct {
	hash   [slabSlots]kv.Hash   // of slots below fill; written before fill says so
	handle [slabSlots]kv.Handle // the name that most holders use, if named; the writer's
	row    [slabRows]row
	own    [slabRows]rowOwn
}

// A row is what readers see of a row, 4 in a cache line. fill is stored after the
// row's hashes and holders, and read before them.
type row struct {
	fill atomic.Uint32 // slots in use from the first on; 0: not a row
	sets atomic.Uint32 // holders of all slots alike, or inDetail | number of a detail
	used atomic.Uint32 // how often the clock hand passes by before it takes the row
	next atomic.Uint32 // 1: the next row in memory is the child of the last slot
}

// A rowOwn is what only the writer needs of a row.
type rowOwn struct {
	up    slot   // parent of the first block: atRoot, or a slot of row upGen; 0: in no row
	upGen uint32 // gen of up's row; another one is there now if they differ
	gen   uint32 // names this use of the row
	kids  uint32 // rows attached to this one by up
	depth uint32 // of the first block in its chain, from 0
	live  uint16 // slots with holders
	named uint16 // slots with a handle in a table of names
	names uint16 // which table: a lane's, or inCommon
	alias uint16 // slots that a lane knows by another name
	extra uint16 // slots of which a lane has several copies
}

// A rowRef is both parts of a row.
type rowRef struct {
	*row
	*rowOwn
}

// A row that was matched outlives one that was only stored.
const (
	usedStored  = 1
	usedMatched = 2
)

const inDetail = 1 << 31

// A detail has the holders of each slot of a row whose slots differ. Once it is
// published, it is read and written atomically.
type detail [rowSlots]uint32

func (d *detail) load(pos int) uint32      { return atomic.LoadUint32(&d[pos]) }
func (d *detail) store(pos int, id uint32) { atomic.StoreUint32(&d[pos], id) }

const detailChunk = 256

// rows is the memory of all rows.
type rows struct {
	slabs   atomic.Pointer[[]atomic.Pointer[slab]]
	free    []freeRows // by slab
	lowest  int        // no slab below has free rows
	nfree   int
	inUse   int
	slabsIn int

	details  atomic.Pointer[[]*[detailChunk]detail]
	detailsF []uint32
	ndetails uint32
}

type freeRows struct {
	bits [slabRows / 64]uint64
	n    int
}

func (m *rows) init() {
	s := make([]atomic.Pointer[slab], 0)
	m.slabs.Store(&s)
	d := make([]*[detailChunk]detail, 0)
	m.details.Store(&d)
}

// at returns a row that is in use, and its slab.
func (m *rows) at(r uint32) (*slab, rowRef) {
	s := (*m.slabs.Load())[r/slabRows].Load()
	return s, rowRef{&s.row[r%slabRows], &s.own[r%slabRows]}
}

// peek is at for a row number that may be of no row.
func (m *rows) peek(r uint32) (*slab, rowRef) {
	d := *m.slabs.Load()
	if int(r/slabRows) >= len(d) {
		return nil, rowRef{}
	}
	s := d[r/slabRows].Load()
	if s == nil {
		return nil, rowRef{}
	}
	return s, rowRef{&s.row[r%slabRows], &s.own[r%slabRows]}
}

// hashes returns the hashes of row r in slab s.
func (s *slab) hashes(r uint32) *[rowSlots]kv.Hash {
	return (*[rowSlots]kv.Hash)(s.hash[r%slabRows*rowSlots:])
}

func (s *slab) handles(r uint32) *[rowSlots]kv.Handle {
	return (*[rowSlots]kv.Handle)(s.handle[r%slabRows*rowSlots:])
}

// alloc returns a free row, the next after near if it can.
func (m *rows) alloc(near uint32) uint32 {
	if m.nfree == 0 {
		m.grow()
	}
	m.nfree--
	m.inUse++
	if near != 0 && int(near/slabRows) < len(m.free) {
		if f := &m.free[near/slabRows]; f.n > 0 {
			if i, ok := f.after(near%slabRows + 1); ok {
				f.take(i)
				return near/slabRows*slabRows + i
			}
		}
	}
	for m.free[m.lowest].n == 0 {
		m.lowest++
	}
	f := &m.free[m.lowest]
	i, _ := f.after(0)
	f.take(i)
	return uint32(m.lowest)*slabRows + i
}

// after returns the first free row from i on.
func (f *freeRows) after(i uint32) (uint32, bool) {
	if i >= slabRows {
		return 0, false
	}
	w := i / 64
	b := f.bits[w] &^ (1<<(i%64) - 1)
	for b == 0 {
		if w++; w == slabRows/64 {
			return 0, false
		}
		b = f.bits[w]
	}
	return w*64 + uint32(bits.TrailingZeros64(b)), true
}

func (f *freeRows) take(i uint32) {
	f.bits[i/64] &^= 1 << (i % 64)
	f.n--
}

func (m *rows) grow() {
	d := *m.slabs.Load()
	at := len(d)
	for i := range d {
		if d[i].Load() == nil {
			at = i
			break
		}
	}
	if at == len(d) {
		more := make([]atomic.Pointer[slab], len(d)+1, 2*len(d)+4)
		if cap(d) > len(d) {
			more = d[:len(d)+1]
		} else {
			for i := range d {
				more[i].Store(d[i].Load())
			}
		}
		d = more
		m.free = append(m.free, freeRows{})
	}
	d[at].Store(new(slab))
	m.slabs.Store(&d)
	m.slabsIn++
	f := &m.free[at]
	for i := range f.bits {
		f.bits[i] = ^uint64(0)
	}
	f.n = slabRows
	if at == 0 {
		f.take(0) // row 0 is none
	}
	m.nfree += f.n
	m.lowest = min(m.lowest, at)
}

// put back a row that no reader can see any more; a slab that is wholly free
// goes back to the heap if there are enough free rows besides.
func (m *rows) release(r uint32) {
	i := int(r / slabRows)
	f := &m.free[i]
	f.bits[r%slabRows/64] |= 1 << (r % 64)
	f.n++
	m.nfree++
	m.inUse--
	m.lowest = min(m.lowest, i)
	if f.n == slabRows && m.nfree >= 3*slabRows {
		(*m.slabs.Load())[i].Store(nil)
		m.slabsIn--
		m.nfree -= slabRows
		*f = freeRows{}
	}
}

func (m *rows) detail(id uint32) *detail {
	i := id &^ inDetail
	return &(*m.details.Load())[i/detailChunk][i%detailChunk]
}

// allocDetail returns inDetail | the number of a detail.
func (m *rows) allocDetail() uint32 {
	if n := len(m.detailsF); n > 0 {
		id := m.detailsF[n-1]
		m.detailsF = m.detailsF[:n-1]
		return id | inDetail
	}
	id := m.ndetails
	if d := *m.details.Load(); int(id/detailChunk) == len(d) {
		d = append(d, new([detailChunk]detail))
		m.details.Store(&d)
	}
	m.ndetails++
	return id | inDetail
}

// rowBytes is what a row takes.
const rowBytes = 2*8*rowSlots + 16 + 32
