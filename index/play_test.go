package index

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"kvasir/kv"
)

// A tape is a list of bytes that is read as choices; at its end all are 0.
type tape struct{ b []byte }

func (t *tape) n(n int) int {
	if len(t.b) == 0 || n <= 1 {
		return 0
	}
	v := int(t.b[0])
	t.b = t.b[1:]
	return v % n
}

func (t *tape) one(in int) bool { return t.n(in) == 1 }

// A player turns a tape into events and prompts over a small world, in which
// names collide, chains branch, and everything is stored, removed and cleared in
// any order.
type player struct {
	tape
	targets int
	handles int
	sizes   []int
	hybrid  bool
	tiers   bool
	long    bool    // chains of many rows
	paths   [][]int // contents of chains stored, by label
}

func (p *player) path() []int {
	if p.long {
		var out []int
		if len(p.paths) > 0 && !p.one(8) {
			base := p.paths[p.n(len(p.paths))]
			out = append(out, base[:min(len(base), p.n(256)+p.n(256))]...)
		}
		for range p.n(3) {
			label := p.n(3)
			for range p.n(100) {
				out = append(out, label)
			}
		}
		return out[:min(len(out), 600)]
	}
	if len(p.paths) > 0 && !p.one(4) {
		base := p.paths[p.n(len(p.paths))]
		cut := p.n(len(base) + 1)
		out := append([]int(nil), base[:cut]...)
		for range p.n(6) {
			out = append(out, p.n(3))
		}
		return out
	}
	var out []int
	for range 1 + p.n(24) {
		out = append(out, p.n(2))
	}
	return out
}

// nameAt is the name of the block that ends path, in an engine's dialect: by
// content (engines agree), by target (they don't), or one of a few (they clash).
func (p *player) nameAt(path []int, key kv.Key, target kv.Target, bs, dialect int) kv.Handle {
	h := uint64(bs + 100*len(key.Salt))
	for _, l := range path {
		h = mum(h^uint64(l+1), 0x9e3779b97f4a7c15) + 1
	}
	switch dialect {
	case 0:
		return kv.Handle(h)
	case 1:
		return kv.Handle(h + uint64(target) + 1)
	}
	return kv.Handle(h%uint64(p.handles) + 1)
}

func (p *player) event() *kv.Event {
	ev := &kv.Event{Target: kv.Target(p.n(p.targets))}
	if p.tiers && p.one(3) {
		ev.Tier = kv.Tier(p.n(3))
	}
	bs := p.sizes[p.n(len(p.sizes))]
	if len(p.sizes) > 1 && p.n(8) > 0 {
		bs = p.sizes[int(ev.Target)%len(p.sizes)]
	}
	ev.BlockSize = int32(bs)
	if p.hybrid {
		if ev.Group = uint16(p.n(3)); ev.Group == 1 {
			ev.Attention, ev.Window = kv.Sliding, int32(3*bs)
		}
		if p.one(20) {
			ev.Attention = kv.Sparse
		}
	}
	dialect := 0
	if int(ev.Target) > p.targets/2 {
		dialect = 1 + int(ev.Target)%2
	}
	path, key := p.path(), p.key()
	from := 0
	if p.one(3) {
		from = p.n(len(path) + 1)
	}
	for i := from; i < len(path); i++ {
		ev.Handles = append(ev.Handles, p.nameAt(path[:i+1], key, ev.Target, bs, dialect))
	}
	if ev.Root = from == 0; ev.Root {
		ev.Key = key
	} else {
		ev.Parent = p.nameAt(path[:from], key, ev.Target, bs, dialect)
	}
	switch k := p.n(20); {
	case k < 10:
		p.paths = append(p.paths, path)
		if len(p.paths) > 40 {
			p.paths = p.paths[1:]
		}
		ev.Tokens = content(path[from:], bs)
		ev.Reused = p.one(12)
		if p.one(30) && len(ev.Handles) > 0 {
			ev.Extras = []kv.Extra{{Block: p.n(len(ev.Handles)), Digest: uint64(p.n(2))}}
		}
		switch {
		case p.one(25):
			ev.Tokens = ev.Tokens[:p.n(len(ev.Tokens)+1)]
		case ev.Tier != kv.GPU && p.one(3):
			ev.Tokens, ev.BlockSize = nil, int32([]int{0, bs, 2 * bs, 4 * bs}[p.n(4)])
		case ev.Tier != kv.GPU && p.one(3):
			n := len(ev.Handles) / 2 * 2
			ev.Handles, ev.Tokens, ev.BlockSize = ev.Handles[:n], ev.Tokens[:n*bs], int32(2*bs)
		}
	case k < 16:
		ev.Kind = kv.Removed
		if n := len(ev.Handles); n > 0 {
			i := p.n(n)
			ev.Handles = ev.Handles[i:min(n, i+1+p.n(8))]
		}
		if p.one(6) {
			for range ev.Handles {
				ev.Copies = append(ev.Copies, int32(p.n(4))-1)
			}
		}
	case k == 16 && p.one(4):
		ev.Kind, ev.AllTiers, ev.Handles = kv.Cleared, p.one(2), nil
	case k < 18:
		ev.Source = kv.Dispatch
		ev.Hashes = testSeed.Extend(nil, testSeed.Root(kv.Key{}, kv.ChainSize(bs)), content(path, bs), kv.ChainSize(bs), nil)
		ev.Handles = nil
	default:
		ev.Source, ev.Kind = kv.Dispatch, kv.Removed
		ev.Hashes = testSeed.Extend(nil, testSeed.Root(kv.Key{}, kv.ChainSize(bs)), content(path, bs), kv.ChainSize(bs), nil)
		ev.Handles = nil
	}
	return ev
}

// key is that of most chains, or of a few.
func (p *player) key() (k kv.Key) {
	if p.one(9) {
		k.Salt = "a"
	}
	return k
}

func (p *player) prompt(path []int) *kv.Prompt {
	q := &kv.Prompt{}
	seen := map[int]bool{}
	key := p.key()
	for _, bs := range p.sizes {
		tokens := content(path, bs)
		q.Tokens = max(q.Tokens, len(tokens)+p.n(3))
		if size := kv.ChainSize(bs); !seen[size] {
			q.Chains = append(q.Chains, kv.Chain{BlockSize: size, Hashes: testSeed.Extend(nil, testSeed.Root(key, size), tokens, size, nil)})
			seen[size] = len(p.sizes) > 1
		}
	}
	return q
}

// play runs a tape on an index and its twin, and fails at the first difference.
// With less, the index may know less than the twin, but never more.
func play(t *testing.T, data []byte, less bool) (applied int) {
	p := &player{tape: tape{data}, targets: 6, handles: 30}
	p.sizes = [][]int{{16}, {16, 32}, {4}, {1, 16}, {5, 4, 2}, {16}, {16}, {32, 8},
		{1}, {1}, {2}, {3}, {7}, {8, 1}, {1, 2, 15}, {4, 6}}[p.n(16)]
	p.hybrid, p.tiers, p.long = p.one(3), p.one(2), p.one(4) && len(p.sizes) == 1
	c := Config{Seed: testSeed, MaxCopies: 5, Orphans: 40, OrphansPerTarget: 30}
	if less {
		c.MaxBytes = minBytes
	}
	ix, tw := New(c), newTwin(c)
	ix.ahead = []int{64, 3, 5, 2}[p.n(4)]
	over, want := make([]kv.Overlap, p.targets), make([]kv.Overlap, p.targets)
	compare := func(q *kv.Prompt, what string) {
		t.Helper()
		ix.Match(q, over)
		tw.Match(q, want)
		for i := range over {
			o, w := over[i], want[i]
			if less {
				if o.GPU > w.GPU || o.GPU+o.Host > w.GPU+w.Host || o.Held() > w.Held() { // facts; a prediction for a forgotten fact is right
					t.Fatalf("%s: target %d: index says %+v, more than the twin's %+v", what, i, o, w)
				}
			} else if o != w {
				t.Fatalf("%s: target %d: index says %+v, twin says %+v", what, i, o, w)
			}
		}
	}
	for step := 0; len(p.b) > 0; step++ {
		if less { // at most a handful of rows fit, whatever the tape
			ix.cfg.MaxBytes = ix.tables.Bytes() + ix.headTables.Bytes() + 12*rowBytes + 4096
			if p.one(3) {
				ix.evict(0)
			}
		}
		if p.one(150) {
			id := kv.Target(p.n(p.targets))
			ix.Forget(id)
			tw.Forget(id)
		}
		if p.one(100) {
			id, tc := kv.Target(p.n(p.targets)), TargetConfig{Copies: CopyMode(p.n(4))}
			if p.one(2) && !less { // who knows fewer blocks expires others
				tc.Tiers[p.n(3)] = TierLimit{Blocks: p.n(12), Events: p.n(20)}
			}
			ix.SetTarget(id, tc)
			tw.SetTarget(id, tc)
		}
		ev := p.event()
		got, exp := ix.Apply(ev), tw.Apply(ev)
		applied++
		if !less && got != exp {
			t.Fatalf("step %d: %s: index says %+v, twin says %+v", step, show(ev), got, exp)
		}
		if l := ix.targets[ev.Target].pred; !less && l != nil && int(l.count[kv.GPU]) != len(tw.target(ev.Target).pred) {
			t.Fatalf("step %d, after %s: %d predictions, twin has %d", step, show(ev), l.count[kv.GPU], len(tw.target(ev.Target).pred))
		}
		if step%7 == 0 {
			ix.mustHold(t)
		}
		compare(p.prompt(p.path()), fmt.Sprintf("step %d, after %s", step, show(ev)))
		if len(p.paths) > 0 {
			compare(p.prompt(p.paths[len(p.paths)-1]), fmt.Sprintf("step %d, after %s", step, show(ev)))
		}
	}
	ix.mustHold(t)
	for id := range p.targets {
		ix.Forget(kv.Target(id))
	}
	ix.tidy()
	ix.tidy()
	ix.mustHold(t)
	if ix.blocks != 0 || ix.rows.inUse != 0 || ix.common.Len() != 0 || ix.heads.Len() != 0 || ix.sets.count != 0 || len(ix.byAlias) != 0 ||
		len(ix.aliasOf) != 0 || len(ix.copies) != 0 || ix.orphanUnits != 0 || len(ix.waiting) != 0 || len(ix.orphaned) != 0 ||
		ix.pageMemory != 0 || ix.slidNames != 0 || len(ix.freeLanes) != maxLanes {
		t.Fatalf("forgetting every target leaves a residue: %d blocks, %d rows, %d names, %d heads, %d sets, %d aliases, %d copies, %d orphans, %d of pages, %d sliding, %d lanes free",
			ix.blocks, ix.rows.inUse, ix.common.Len(), ix.heads.Len(), ix.sets.count, len(ix.byAlias)+len(ix.aliasOf), len(ix.copies), ix.orphanUnits,
			ix.pageMemory, ix.slidNames, len(ix.freeLanes))
	}
	return applied
}

func show(ev *kv.Event) string {
	return fmt.Sprintf("{kind %d source %d target %d tier %v group %d att %d bs %d root %v parent %x handles %x tokens %d copies %v}", ev.Kind, ev.Source, ev.Target,
		ev.Tier, ev.Group, ev.Attention, ev.BlockSize, ev.Root, ev.Parent, ev.Handles, len(ev.Tokens), ev.Copies)
}

// mustHold fails if an invariant of doc.go doesn't hold.
func (ix *Index) mustHold(t *testing.T) {
	t.Helper()
	if err := ix.check(); err != nil {
		t.Fatal(err)
	}
}

func randomTape(seed uint64, n int) []byte {
	r := rand.New(rand.NewPCG(seed, 1))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// TestTwin plays random tapes on the index and on plain maps.
func TestTwin(t *testing.T) {
	n := 400
	if testing.Short() {
		n = 40
	}
	for seed := range uint64(n) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { play(t, randomTape(seed, 6000), false) })
		if t.Failed() {
			return
		}
	}
}

func FuzzTwin(f *testing.F) {
	for seed := range uint64(16) {
		f.Add(randomTape(seed, 500))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 20000 {
			return
		}
		play(t, data, false)
	})
}

// TestBoundNeverOverbelieves plays on an index that is short of memory, which
// forgets as it likes but must not believe more than the twin.
func TestBoundNeverOverbelieves(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { play(t, randomTape(1000+seed, 3000), true) })
		if t.Failed() {
			return
		}
	}
}
