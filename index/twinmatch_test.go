package index

import "kvasir/kv"

func (w *twin) Match(p *kv.Prompt, over []kv.Overlap) {
	for t := range over {
		over[t] = kv.Overlap{}
		tt := w.targets[kv.Target(t)]
		if tt == nil {
			continue
		}
		var dense []*twinLane
		for _, l := range tt.lanes {
			if !l.slide {
				dense = append(dense, l)
			}
		}
		if len(dense) == 0 {
			dense = append(dense, nil)
		}
		var got [4]int // tokens up to the end of gpu, host, disk, predicted
		for k, l := range dense {
			var of [4]int
			for _, c := range p.Chains {
				if c.BlockSize <= 0 || p.Tokens <= 0 {
					continue
				}
				q := c.Hashes[:min(len(c.Hashes), (p.Tokens-1)/c.BlockSize)]
				for i, n := range tt.match(l, q, c.BlockSize) {
					of[i] = max(of[i], n*c.BlockSize)
				}
			}
			for i := range got {
				if k == 0 || of[i] < got[i] {
					got[i] = of[i]
				}
			}
		}
		over[t] = kv.Overlap{GPU: int32(got[0]), Host: int32(got[1] - got[0]), Disk: int32(got[2] - got[1]),
			Predicted: int32(max(got[3]-got[0], 0))}
	}
}

// match returns how many blocks of q the lane holds up to the ends of gpu, host,
// disk, and of gpu with predictions.
func (tt *twinTarget) match(l *twinLane, q []kv.Hash, bs int) (n [4]int) {
	has := func(i int, t kv.Tier) bool { return l != nil && l.has(q[i], t) }
	g := 0
	for g < len(q) && has(g, kv.GPU) {
		g++
	}
	h := g
	for i := g; i < len(q) && has(i, kv.Host); i++ {
		if l.ends(q[i], kv.Host) {
			h = i + 1
		}
	}
	d := h
	for i := h; i < len(q) && has(i, kv.Disk); i++ {
		if l.ends(q[i], kv.Disk) {
			d = i + 1
		}
	}
	p := 0
	for p < len(q) && (has(p, kv.GPU) || tt.pred[q[p]] > 0) {
		p++
	}
	gpu := func(c *[kv.NumTiers]int, _ kv.Hash) bool { return c != nil && c[kv.GPU] > 0 }
	anyTier := func(c *[kv.NumTiers]int, _ kv.Hash) bool { return c != nil && *c != [kv.NumTiers]int{} }
	soon := func(c *[kv.NumTiers]int, h kv.Hash) bool { return gpu(c, h) || tt.pred[h] > 0 }
	return [4]int{tt.windows(q, g, bs, gpu), tt.windows(q, h, bs, anyTier), tt.windows(q, d, bs, anyTier), tt.windows(q, p, bs, soon)}
}

// windows returns the longest match of at most n blocks after which every
// sliding group still has its window.
func (tt *twinTarget) windows(q []kv.Hash, n, bs int, held func(*[kv.NumTiers]int, kv.Hash) bool) int {
	first := tt.primary()
next:
	for ; n > 0; n-- {
		for _, s := range tt.lanes {
			if !s.slide {
				continue
			}
			for i := max(n-s.needs(bs), 0); i < n; i++ {
				var c *[kv.NumTiers]int
				if first != nil && first.byHash[q[i]] != nil {
					c = s.slid[first.byHash[q[i]].handle]
				}
				if !held(c, q[i]) {
					continue next
				}
			}
		}
		break
	}
	return n
}

// needs returns how many blocks of size bs before a match point the sliding
// group must hold. Groups with another block size are only visible at the blocks
// whose names they share: the last one then stands for the window.
func (l *twinLane) needs(bs int) int { return windowBlocks(l.window, l.bs, bs) }
