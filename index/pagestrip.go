package index

import (
	"math/bits"
	"slices"

	"kvasir/kv"
)

// A strip holds pages that follow each other on one path, within one chunk. Where
// paths part within a chunk, what they have in common stays in one strip, and each
// other continuation is a strip of its own, a fork, that begins at its place in
// the chunk. Names and tokens of a strip are beside it in its slab, by place.
//
// The paths of one key begin at a root, a strip without pages whose end is where
// the first chunk begins.
type strip struct {
	hash  kv.Hash             // of the chunk that ends here; of a root: what its first chunks chain to
	up    uint32              // the strip with the page before the first, 0 for a root
	slot  slot                // of the chunk that ends here, while it is held in any tier
	kids  uint32              // how many strips of the next chunk follow, or which one, see stripOnly
	held  [kv.NumTiers]uint16 // by tier, the places of held pages
	forks uint16              // places after which forks begin
	from  uint8               // place of the first page
	end   uint8               // behind the last page
	flags uint8
}

const (
	stripUsed   = 1 << iota
	stripRoot   // has no pages
	stripExtra  // some page has extras
	stripCopies // some page has several copies
	stripOnly   // one strip follows the chunk: kids is its number, and the table doesn't have it
)

// places returns the bits of places lo to hi-1.
func places(lo, hi uint8) uint16 { return 1<<hi - 1<<lo }

// any returns the places of pages that are held in any tier.
func (s *strip) any() uint16 { return s.held[kv.GPU] | s.held[kv.Host] | s.held[kv.Disk] }

// A pageRef is a strip's number<<4 | a place: of a page, or the end of a root.
type pageRef uint32

func refAt(n uint32, place uint8) pageRef { return pageRef(n<<4 | uint32(place)) }
func (r pageRef) strip() uint32           { return uint32(r) >> 4 }
func (r pageRef) place() uint8            { return uint8(r & 15) }

const (
	slabStrips = 64
	maxStrips  = 1<<28 - slabStrips
)

// A stripSlab has the memory of 64 strips, without pointers.
type stripSlab struct {
	strip  *[slabStrips]strip
	names  []kv.Handle // per for each
	tokens []uint32    // per*size for each
}

// A stripStore is the memory of a lane's strips. Strip 0 is none. The lowest free
// strip is used first, so that slabs at the end become free as a whole.
type stripStore struct {
	slabs []*stripSlab
	free  []uint64 // by slab, its free strips
	some  []uint64 // by slab, a bit: it has free strips
	first int      // no word of some before is not 0
	holes int      // slabs that are nil
	nfree int
	used  int
}

// stripBytes is what a strip of per pages of size tokens takes.
func stripBytes(per, size int) int64 { return int64(32 + 8*per + 4*per*size + 2) }

// alloc returns a free strip.
func (m *stripStore) alloc(per, size int) uint32 {
	if m.nfree == 0 {
		m.grow(per, size)
	}
	for m.some[m.first] == 0 {
		m.first++
	}
	i := m.first*64 + bits.TrailingZeros64(m.some[m.first])
	k := bits.TrailingZeros64(m.free[i])
	m.take(i, k)
	m.used++
	return uint32(i*slabStrips + k)
}

func (m *stripStore) take(i, k int) {
	if m.free[i] &^= 1 << k; m.free[i] == 0 {
		m.some[i/64] &^= 1 << (i % 64)
	}
	m.nfree--
}

func (m *stripStore) grow(per, size int) {
	i := len(m.slabs)
	if m.holes > 0 {
		i = slices.Index(m.slabs, nil)
		m.holes--
	} else {
		m.slabs, m.free = append(m.slabs, nil), append(m.free, 0)
		if i/64 == len(m.some) {
			m.some = append(m.some, 0)
		}
	}
	m.slabs[i] = &stripSlab{strip: new([slabStrips]strip), names: make([]kv.Handle, slabStrips*per), tokens: make([]uint32, slabStrips*per*size)}
	m.free[i] = ^uint64(0)
	m.some[i/64] |= 1 << (i % 64)
	m.first = min(m.first, i/64)
	m.nfree += slabStrips
	if i == 0 {
		m.take(0, 0)
	}
}

// release takes a strip back. A slab that is wholly free goes back to the heap if
// there are enough free strips besides; with the last strip, all do.
func (m *stripStore) release(n uint32) {
	i, k := int(n/slabStrips), n%slabStrips
	m.slabs[i].strip[k] = strip{}
	m.free[i] |= 1 << k
	m.some[i/64] |= 1 << (i % 64)
	m.first = min(m.first, i/64)
	m.nfree++
	if m.used--; m.used == 0 {
		*m = stripStore{}
		return
	}
	if m.free[i] == ^uint64(0) && m.nfree >= 3*slabStrips {
		m.slabs[i], m.free[i] = nil, 0
		m.holes++
		m.some[i/64] &^= 1 << (i % 64)
		m.nfree -= slabStrips
		for n := len(m.slabs); n > 0 && m.slabs[n-1] == nil; n-- {
			m.slabs, m.free = m.slabs[:n-1], m.free[:n-1]
			m.holes--
		}
	}
}

// at returns strip n, which is in use.
func (p *pageTree) at(n uint32) *strip { return &p.strips.slabs[n/slabStrips].strip[n%slabStrips] }

// peek returns strip n, nil if it isn't in use.
func (p *pageTree) peek(n uint32) *strip {
	if int(n/slabStrips) >= len(p.strips.slabs) || p.strips.slabs[n/slabStrips] == nil {
		return nil
	}
	if s := p.at(n); s.flags&stripUsed != 0 {
		return s
	}
	return nil
}

// names returns the names of strip n by place. The first of a fork's is unused
// and links it to its siblings.
func (p *pageTree) names(n uint32) []kv.Handle {
	return p.strips.slabs[n/slabStrips].names[int(n%slabStrips)*p.per:][:p.per]
}

// tokens returns the tokens of page at.
func (p *pageTree) tokens(at pageRef) []uint32 {
	n := at.strip()
	return p.strips.slabs[n/slabStrips].tokens[(int(n%slabStrips)*p.per+int(at.place()))*p.size:][:p.size]
}

// newStrip makes a strip for pages that follow page up from place from on.
func (p *pageTree) newStrip(up pageRef, from uint8) uint32 {
	n := p.strips.alloc(p.per, p.size)
	*p.at(n) = strip{up: up.strip(), from: from, end: from, flags: stripUsed}
	return n
}

// before returns the page before the first of strip s.
func (p *pageTree) before(s *strip) pageRef {
	if s.from == 0 {
		return refAt(s.up, uint8(p.per-1))
	}
	return refAt(s.up, s.from-1)
}

// complete says that a chunk ends in s.
func (p *pageTree) complete(s *strip) bool { return int(s.end) == p.per }
