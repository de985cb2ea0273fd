package indexbench

import (
	"fmt"

	"kvasir/index"
	"kvasir/kv"
)

// A Growth says how lookups fare when the index grows.
type Growth struct {
	Memberships []int    `json:"memberships"`
	Lookup      []Lookup `json:"lookup"` // hits at each size
	Ratio       float64  `json:"p50_ratio"`
}

// Grow stores sequences until the index has each of the sizes, in memberships,
// and times hits then. The last size needs about 34 bytes each.
func (d Dynbench) Grow(sizes ...int) (Growth, error) {
	if err := d.Validate(); err != nil {
		return Growth{}, err
	}
	if len(sizes) == 0 {
		return Growth{}, fmt.Errorf("indexbench: sizes: want at least one")
	}
	if d.Queries == 0 {
		d.Queries = 4000
	}
	ix := index.New(index.Config{Seed: seed, MaxBytes: 64 << 30})
	var g Growth
	one := d
	f := &feed{}
	held, s := 0, 0
	for _, size := range sizes {
		for held < size {
			for t := range d.Targets { // sequence s of every target
				held += f.sequence(one, ix, uint64(t), uint64(s))
			}
			s++
		}
		one.Seqs = s
		g.Memberships = append(g.Memberships, held)
		g.Lookup = append(g.Lookup, one.lookup(ix, "hit", d.Blocks))
	}
	if p := g.Lookup[0].P50; p > 0 {
		g.Ratio = g.Lookup[len(g.Lookup)-1].P50 / p
	}
	return g, nil
}

// sequence stores what target t doesn't hold yet of sequence s, and returns how
// many blocks that is.
func (f *feed) sequence(d Dynbench, ix *index.Index, t, s uint64) int {
	f.tokens = d.sequence(f.tokens[:0], t, s)
	f.hashes = engineSeed.Extend(f.hashes[:0], engineRoot, f.tokens, blockSize, nil)
	f.handles = f.handles[:0]
	for _, h := range f.hashes {
		f.handles = append(f.handles, kv.Handle(h))
	}
	at := 0
	if s >= prefixes {
		at = d.Blocks * 2 / 5
	}
	ev := kv.Event{Kind: kv.Stored, Target: kv.Target(t), BlockSize: blockSize, Root: at == 0,
		Handles: f.handles[at:], Tokens: f.tokens[at*blockSize:]}
	if at > 0 {
		ev.Parent = f.handles[at-1]
	}
	ix.Apply(&ev)
	return len(ev.Handles)
}
