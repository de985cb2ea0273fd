package index

import (
	"math/bits"

	"kvasir/kv"
)

// The ends of what a lane holds of a chain, in blocks from the first on.
type ends struct{ gpu, host, disk, predicted int }

// closer computes the overlap of targets that hold blocks in lower tiers, in
// several groups, or as predictions, from the segments that the walk noted.
func (ix *Index) closer(sc *scratch, over []kv.Overlap) {
	var seen [kv.MaxTargets / 64]uint64
	for w := range sc.special {
		for x := sc.special[w]; x != 0; x &= x - 1 {
			v := laneInfo(ix.info[w*64+bits.TrailingZeros64(x)].Load())
			t := v.target()
			if v.kind() == laneUnused || t >= len(over) || seen[t/64]>>(t%64)&1 == 1 {
				continue
			}
			seen[t/64] |= 1 << (t % 64)
			if view := ix.targets[t].view.Load(); view != nil {
				over[t] = ix.overlap(sc, view)
			}
		}
		sc.special[w] = 0
	}
	sc.closer, sc.union = false, false
}

func (ix *Index) overlap(sc *scratch, view *laneView) kv.Overlap {
	var got ends
	dense := view.dense
	if len(dense) == 0 {
		dense = []uint16{noLane} // predictions only
	}
	for k, l := range dense {
		var of ends
		for i := range sc.chains {
			c := &sc.chains[i]
			n := ix.ends(sc, c, l, view)
			of.gpu = max(of.gpu, n.gpu*c.bs)
			of.host = max(of.host, n.host*c.bs)
			of.disk = max(of.disk, n.disk*c.bs)
			of.predicted = max(of.predicted, n.predicted*c.bs)
		}
		if k == 0 {
			got = of
		} else { // a block counts if every group has it
			got = ends{min(got.gpu, of.gpu), min(got.host, of.host), min(got.disk, of.disk), min(got.predicted, of.predicted)}
		}
	}
	return kv.Overlap{GPU: int32(got.gpu), Host: int32(got.host - got.gpu), Disk: int32(got.disk - got.host),
		Predicted: int32(max(got.predicted-got.gpu, 0))}
}

// segEnd returns where segment i of c ends.
func (sc *scratch) segEnd(c *walked, i int) int {
	if i+1 < c.to {
		return int(sc.segs[i+1].start)
	}
	return c.end
}

// ends follows lane l through the segments of a chain: the GPU, then the host from
// where the GPU ends, then the disk from where the host ends; and the GPU together
// with what was predicted. For example, of 8 blocks the GPU has 0 to 2, the host 2 to
// 5 and the disk 5 to 7: the ends are 3, 6 and 8. l may be noLane, which holds nothing.
func (ix *Index) ends(sc *scratch, c *walked, l uint16, view *laneView) (e ends) {
	i := c.from
	e.gpu, i = ix.reach(sc, c, l, i, inGPU, 0)
	e.host, i = ix.reach(sc, c, l, i, inHost, inHostChunk)
	e.disk, _ = ix.reach(sc, c, l, i, inDisk, inDiskChunk)
	e.predicted = ix.expected(sc, c, l, view.pred)
	if len(view.sliding) > 0 {
		e.gpu = ix.windows(sc, c, e.gpu, view, inGPU, false)
		e.host = ix.windows(sc, c, e.host, view, inGPU|inHost|inDisk, false)
		e.disk = ix.windows(sc, c, e.disk, view, inGPU|inHost|inDisk, false)
		e.predicted = ix.windows(sc, c, e.predicted, view, inGPU, true)
	}
	return e
}

// reach returns how far lane l holds c in the planes of whole or inside, from segment
// i on, and the segment where that ends. Inside a chunk credit can't end: what is held
// there counts only if a block in whole follows.
func (ix *Index) reach(sc *scratch, c *walked, l uint16, i int, whole, inside uint8) (end, next int) {
	if next = i; i > c.from {
		end = sc.segEnd(c, i-1)
	}
	for ; i < c.to; i++ {
		m := ix.sets.mask(sc.segs[i].set, l)
		if m&(whole|inside) == 0 {
			break
		}
		if m&whole != 0 {
			end, next = sc.segEnd(c, i), i+1
		}
	}
	return end, next
}

// expected returns how far lane l holds c on the GPU, or lane pred predicts that.
func (ix *Index) expected(sc *scratch, c *walked, l, pred uint16) (end int) {
	for i := c.from; i < c.to; i++ {
		set := sc.segs[i].set
		if (ix.sets.mask(set, l)|ix.sets.mask(set, pred))&inGPU == 0 {
			break
		}
		end = sc.segEnd(c, i)
	}
	return end
}

// windows returns the longest match of at most n blocks after which every
// sliding group has its window in one of the planes of mask, or, with soon,
// blocks of the window are predicted.
func (ix *Index) windows(sc *scratch, c *walked, n int, view *laneView, mask uint8, soon bool) int {
	var run [maxGroups]int
	best := 0
	for i := c.from; i < c.to && int(sc.segs[i].start) < n; i++ {
		set, start, end := sc.segs[i].set, int(sc.segs[i].start), min(sc.segEnd(c, i), n)
		predicted := soon && view.pred != noLane && ix.sets.mask(set, view.pred) != 0
		ok := true
		for k, l := range view.sliding {
			if predicted || ix.sets.mask(set, l)&mask != 0 {
				run[k] += end - start
			} else {
				run[k] = 0
			}
			v := laneInfo(ix.info[l].Load())
			if run[k] < min(windowBlocks(v.window(), v.bs(), c.bs), end) {
				ok = false
			}
		}
		if ok {
			best = end
		}
	}
	return best
}

// windowBlocks returns how many blocks of size bs before a match point a sliding
// group must hold, whose own blocks have size own. Groups with another block size
// are only visible at the blocks whose names they share: the last one then
// stands for the window. (vLLM: ceil((window-1) / block size) blocks in a row, or
// all from the start; SlidingWindowManager.find_longest_cache_hit.)
func windowBlocks(window, own int32, bs int) int {
	switch {
	case window <= 1:
		return 0
	case int(own) == bs:
		return (int(window) - 2 + bs) / bs
	}
	return 1
}
