package index

import (
	"math/bits"

	"kvasir/kv"
)

// A scratch is what one Match needs; pooled.
type scratch struct {
	shard   uint32
	segs    []span
	chains  []walked
	active  [maxLanes / 64]uint64 // lanes that hold everything so far on the GPU
	alive   [maxLanes / 64]uint64 // the same in any tier
	special [maxLanes / 64]uint64 // lanes whose targets need a closer look
	lo, hi  int                   // words of active and alive in use
	closer  bool                  // special isn't empty
	union   bool                  // lanes were seen that complete each other
	one     [1]uint64
}

// A span is where the holders change along a chain: they are set from block
// start on.
type span struct {
	start int32
	set   uint32
}

// A walked chain is segs[from:to], up to block end.
type walked struct {
	from, to, end, bs int
}

// Match fills over, indexed by target, with what each target holds of p from its
// first token on. Targets beyond len(over) are left out. It takes no lock, waits
// for nobody and doesn't allocate; any number of goroutines may call it beside
// Apply. What Apply removed before Match began is never counted.
func (ix *Index) Match(p *kv.Prompt, over []kv.Overlap) {
	clear(over)
	sc := ix.pool.Get().(*scratch)
	in := ix.epochs.enter(sc.shard)
	sc.segs, sc.chains = sc.segs[:0], sc.chains[:0]
	for i := range p.Chains {
		c := &p.Chains[i]
		if c.BlockSize <= 0 || p.Tokens <= 0 {
			continue
		}
		// An engine computes at least one token, and so the last block.
		q := c.Hashes[:min(len(c.Hashes), (p.Tokens-1)/c.BlockSize)]
		if len(q) > 0 {
			ix.walk(sc, q, c.BlockSize, over)
		}
	}
	if sc.closer {
		ix.closer(sc, over)
	}
	in.leave()
	ix.pool.Put(sc)
}

// walk follows q through the rows as long as any lane holds all of it.
//
// Where the last block of a row is q's, all blocks of the row are (U2). So a row
// costs one comparison and a look at its holders, and only the row where q leaves
// the chain is searched. For example, of three rows of 16 a prompt of 40 blocks has
// two wholly and half of the third: two comparisons, then a binary search of five.
func (ix *Index) walk(sc *scratch, q []kv.Hash, bs int, over []kv.Overlap) {
	r := ix.head(q[0])
	if r == 0 {
		return
	}
	from, d, cur := len(sc.segs), 0, ^uint32(0)
	slabs := *ix.rows.slabs.Load()
	ahead := 1
	for r != 0 && d < len(q) {
		if int(r/slabRows) >= len(slabs) {
			slabs = *ix.rows.slabs.Load()
		}
		s := slabs[r/slabRows].Load()
		m := &s.row[r%slabRows]
		fill, sets := m.fill.Load(), m.sets.Load() // in this order (U5)
		// Rows that are known to follow each other (U4) and have the same holders (U7)
		// are compared at the last one. Chains part where holders change, so that is
		// where the search begins anew with one row, then 4, 16 and 64.
		k := 1
		if sets&inDetail == 0 && fill == rowSlots {
			if sets != cur {
				ahead = 1
			}
			k = s.alike(r, sets, min(ahead, (len(q)-d)/rowSlots))
			if k > 1 && s.hashes(r + uint32(k) - 1)[rowSlots-1] != q[d+k*rowSlots-1] {
				ahead = max(k/4, 1) // q leaves the chain within these rows
				continue
			}
		}
		n := k * rowSlots
		if k == 1 {
			if n = common(s.hashes(r), q[d:], min(int(fill), len(q)-d, rowSlots)); n == 0 {
				break
			}
		}
		if sets&inDetail != 0 {
			whole := false
			if d, cur, whole = ix.stepDetail(sc, ix.rows.detail(sets), n, d, cur, bs, over); !whole {
				break
			}
		} else {
			if sets != cur {
				if cur = sets; !ix.step(sc, cur, d, bs, over) {
					break
				}
			}
			d += n
		}
		s.matched(r, k)
		ahead = min(4*ahead, maxJump)
		r = ix.after(s, r+uint32(k)-1, n, q[d:])
	}
	ix.arrive(sc, from, d, bs, over)
}

// alike returns how many rows from r on, at most most and at least 1, are whole, lie
// behind each other and are held by set sets. The first is known to be.
func (s *slab) alike(r, sets uint32, most int) int {
	k := 1
	for ; k < most && s.row[(r+uint32(k)-1)%slabRows].next.Load() == 1; k++ {
		if m := &s.row[(r+uint32(k))%slabRows]; m.fill.Load() != rowSlots || m.sets.Load() != sets {
			break
		}
	}
	return k
}

// matched notes that k rows from r on were matched.
func (s *slab) matched(r uint32, k int) {
	for end := r + uint32(k); r < end; r++ {
		if m := &s.row[r%slabRows]; m.used.Load() != usedMatched {
			m.used.Store(usedMatched)
		}
	}
}

// after returns the row where what is left of a prompt, q, goes on behind n blocks
// that end in row r, or 0. It is most often the next in memory: if that isn't the
// one, its blocks aren't q's, and then the table of heads is asked.
func (ix *Index) after(s *slab, r uint32, n int, q []kv.Hash) uint32 {
	if len(q) == 0 {
		return 0
	}
	if n%rowSlots == 0 && (r+1)%slabRows != 0 {
		m := &s.row[(r+1)%slabRows]
		if k := min(int(m.fill.Load()), len(q), rowSlots); k > 0 {
			if h := s.hashes(r + 1); h[k-1] == q[k-1] || h[0] == q[0] {
				return r + 1
			}
		}
	}
	return ix.head(q[0])
}

// stepDetail is step for n blocks from d on, of a row whose slots differ, after a
// block that set cur holds. It returns where the walk is then, who holds the block
// before, and whether the walk goes on.
func (ix *Index) stepDetail(sc *scratch, det *detail, n, d int, cur uint32, bs int, over []kv.Overlap) (int, uint32, bool) {
	for j := range n {
		if id := det.load(j); id != cur {
			cur = id
			if !ix.step(sc, id, d+j, bs, over) {
				return d + j, cur, false
			}
		}
	}
	return d + n, cur, true
}

// arrive ends a walk at block d, whose spans begin at number from.
func (ix *Index) arrive(sc *scratch, from, d, bs int, over []kv.Overlap) {
	for w := sc.lo; w < sc.hi; w++ {
		ix.record(sc, w, sc.active[w], d*bs, over)
		sc.active[w] = 0
	}
	sc.lo, sc.hi = 0, 0
	if len(sc.segs) > from {
		sc.chains = append(sc.chains, walked{from, len(sc.segs), d, bs})
	}
}

// maxJump is how many rows walk compares at once at most.
const maxJump = 64

// common returns how many of the first n hashes of a row are q's: a beginning (U2).
func common(h *[rowSlots]kv.Hash, q []kv.Hash, n int) int {
	if n == 0 || h[n-1] == q[n-1] {
		return n
	}
	lo := 0
	for hi := n - 1; lo < hi; {
		mid := (lo + hi) / 2
		if h[mid] == q[mid] {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// step takes in that from block d on the holders are set id, and says whether
// the walk goes on.
func (ix *Index) step(sc *scratch, id uint32, d, bs int, over []kv.Overlap) bool {
	if id == 0 {
		return false
	}
	var held, gpu []uint64
	lo := 0
	beyond := false // planes other than GPU occur
	if id < firstInterned {
		lane := id >> planes
		lo = int(lane / 64)
		sc.one[0] = 1 << (lane % 64)
		held = sc.one[:]
		if id&uint32(inGPU) != 0 {
			gpu = held
		}
		beyond = id&(1<<planes-1) != uint32(inGPU)
	} else {
		h := ix.sets.get(id)
		lo = int(h.lo)
		held, gpu = h.words[:h.n], h.plane(0)
		beyond = h.planes != inGPU
	}
	hi := lo + len(held)
	sc.segs = append(sc.segs, span{int32(d), id})
	if d == 0 {
		sc.lo, sc.hi = lo, hi
		copy(sc.alive[lo:hi], held)
		clear(sc.active[lo:hi])
		copy(sc.active[lo:hi], gpu)
	}
	left := uint64(0)
	for w := sc.lo; w < sc.hi; w++ {
		var a, g uint64
		if w >= lo && w < hi {
			a = held[w-lo]
			if gpu != nil {
				g = gpu[w-lo]
			}
		}
		if lost := sc.active[w] &^ g; lost != 0 {
			ix.record(sc, w, lost, d*bs, over)
			sc.active[w] &= g
		}
		sc.alive[w] &= a
		left |= sc.alive[w]
	}
	for w, a := range held {
		if x := a & ix.special[lo+w].Load(); x != 0 {
			sc.special[lo+w] |= x
			sc.closer, sc.union = true, true
		}
		if beyond {
			g := uint64(0)
			if gpu != nil && id >= firstInterned {
				g = onlyGPU(ix.sets.get(id), w)
			}
			if x := a &^ g; x != 0 {
				sc.special[lo+w] |= x
				sc.closer = true
			}
		}
	}
	// A prediction may go on where a fact ends, and the other way round: then
	// the walk ends at the first block that nobody has.
	return left != 0 || sc.union
}

// onlyGPU returns the lanes of word w that are in no plane but GPU.
func onlyGPU(h *holders, w int) uint64 {
	g := h.words[w]
	for p := 1; p < planes; p++ {
		if b := h.plane(p); b != nil {
			g &^= b[w]
		}
	}
	return g
}

// record notes that lanes of word w hold tokens on the GPU.
func (ix *Index) record(sc *scratch, w int, lanes uint64, tokens int, over []kv.Overlap) {
	for ; lanes != 0; lanes &= lanes - 1 {
		l := w*64 + bits.TrailingZeros64(lanes)
		v := laneInfo(ix.info[l].Load())
		if t := v.target(); v.kind() == laneDense && v.plain() && t < len(over) {
			over[t].GPU = max(over[t].GPU, int32(tokens))
		}
	}
}
