package index

import (
	"slices"

	"kvasir/kv"
)

// twin is the index as plain maps and sets: slow, unbounded in blocks, and the
// definition of what every operation means. The fast index must answer alike.
type twin struct {
	cfg     Config
	targets map[kv.Target]*twinTarget
	orphans []*twinOrphan // oldest first
	waiting int           // blocks in orphans
	seen    handleSet
}

type twinTarget struct {
	cfg    TargetConfig
	lanes  []*twinLane // in order of creation
	pred   map[kv.Hash]int
	events int
}

type twinLane struct {
	t      *twinTarget
	id     kv.Target
	group  uint16
	slide  bool
	window int32
	bs     int32 // block size: of the GPU tier (dense), of the last event (sliding)
	page   int32 // page size where pages are collected into chunks, otherwise 0
	bound  map[kv.Handle]*twinBlock
	byHash map[kv.Hash]*twinBlock
	pages  map[kv.Hash]*twinPage
	chunks map[kv.Hash][][]kv.Hash
	slid   map[kv.Handle]*[kv.NumTiers]int
	seq    int
}

// The planes of a block's holders: a tier, or the inside of a lower tier's
// chunk, where no credit may end.
const (
	tGPU = iota
	tHost
	tDisk
	tHostIn
	tDiskIn
	tPlanes
)

// innerOf returns the plane of the inside of a chunk; GPU has no chunks.
func innerOf(t kv.Tier) int {
	if t == kv.GPU {
		return tGPU
	}
	return int(t) + 2
}

type twinBlock struct {
	handle  kv.Handle
	hash    kv.Hash
	n       [tPlanes]int
	seq     [kv.NumTiers]int  // order of the last store
	event   [kv.NumTiers]int  // the target's event of the last store
	tracked [kv.NumTiers]bool // a TierLimit was set at the last store
}

func (b *twinBlock) held(t kv.Tier) bool { return b.n[t] > 0 || b.n[innerOf(t)] > 0 }

// A twinPage is what a page contains, and the path to it: facts about content,
// true whoever holds it.
type twinPage struct {
	index   int // in the prompt
	before  kv.Hash
	tokens  []uint32 // since the start of its chunk
	digests []uint64
	members []kv.Hash
	chunk   kv.Hash // if it ends one
}

type twinOrphan struct {
	l       *twinLane
	tier    kv.Tier
	parent  kv.Handle
	handles []kv.Handle
	live    []bool
	tokens  []uint32
	extras  []kv.Extra
	unit    int
	chunk   int
	reused  bool
}

func (o *twinOrphan) units() int { return max(len(o.handles), (len(o.tokens)+15)/16) }

func newTwin(c Config) *twin {
	return &twin{cfg: c.withDefaults(), targets: map[kv.Target]*twinTarget{}}
}

func (w *twin) target(t kv.Target) *twinTarget {
	tt := w.targets[t]
	if tt == nil {
		tt = &twinTarget{cfg: w.cfg.Target, pred: map[kv.Hash]int{}}
		w.targets[t] = tt
	}
	return tt
}

func (w *twin) SetTarget(t kv.Target, c TargetConfig) {
	w.target(t).cfg = c
	for _, l := range w.target(t).lanes {
		for _, b := range l.bound {
			for tier, lim := range c.Tiers {
				b.tracked[tier] = b.tracked[tier] && lim != TierLimit{}
			}
		}
	}
}

func (tt *twinTarget) lane(group uint16) *twinLane {
	for _, l := range tt.lanes {
		if l.group == group {
			return l
		}
	}
	return nil
}

func (tt *twinTarget) primary() *twinLane {
	for _, l := range tt.lanes {
		if !l.slide {
			return l
		}
	}
	return nil
}

func (l *twinLane) reset() {
	l.bound, l.byHash = map[kv.Handle]*twinBlock{}, map[kv.Hash]*twinBlock{}
	l.pages, l.chunks = map[kv.Hash]*twinPage{}, map[kv.Hash][][]kv.Hash{}
	l.slid = map[kv.Handle]*[kv.NumTiers]int{}
}

func (tt *twinTarget) addLane(ev *kv.Event, slide bool) *twinLane {
	if len(tt.lanes) >= maxGroups {
		return nil
	}
	l := &twinLane{t: tt, id: ev.Target, group: ev.Group, slide: slide}
	l.reset()
	tt.lanes = append(tt.lanes, l)
	return l
}

func (w *twin) Apply(ev *kv.Event) (r Result) {
	n := len(ev.Handles)
	if ev.Source == kv.Dispatch {
		n = len(ev.Hashes)
	}
	if ev.Target >= kv.MaxTargets || ev.Tier >= kv.NumTiers || ev.Kind > kv.Cleared || ev.Source > kv.Dispatch {
		r.skip(BadTarget, n)
		return r
	}
	tt := w.target(ev.Target)
	if ev.Source == kv.Dispatch {
		w.dispatch(tt, ev, &r)
		return r
	}
	tt.events++
	w.expire(tt, &r)
	switch ev.Kind {
	case kv.Stored:
		w.stored(tt, ev, &r)
	case kv.Removed:
		w.removed(tt, ev, &r)
	case kv.Cleared:
		w.cleared(tt, ev, &r)
	}
	return r
}

func (w *twin) dispatch(tt *twinTarget, ev *kv.Event, r *Result) {
	for _, h := range ev.Hashes {
		switch ev.Kind {
		case kv.Stored:
			if l := tt.primary(); l != nil && l.has(h, kv.GPU) {
				r.Copies++
				continue
			}
			if tt.pred[h]++; tt.pred[h] == 1 {
				r.Stored++
			} else {
				r.Copies++
			}
			tt.pred[h] = min(tt.pred[h], w.cfg.MaxCopies)
		case kv.Removed:
			switch tt.pred[h] {
			case 0:
				r.Unknown++
			case 1:
				delete(tt.pred, h)
				r.Removed++
			default:
				tt.pred[h]--
				r.Kept++
			}
		}
	}
	if ev.Kind == kv.Cleared {
		r.Removed += int32(len(tt.pred))
		clear(tt.pred)
	}
}

// has says that the block of the lane's chain is wholly held in a tier's planes.
func (l *twinLane) has(h kv.Hash, t kv.Tier) bool {
	if l.page == 0 {
		b := l.byHash[h]
		return b != nil && b.held(t)
	}
	for _, members := range l.chunks[h] {
		if !slices.ContainsFunc(members, func(m kv.Hash) bool {
			b := l.byHash[m]
			return b == nil || !b.held(t)
		}) {
			return true
		}
	}
	return false
}

// ends says that credit in tier t may end after block h.
func (l *twinLane) ends(h kv.Hash, t kv.Tier) bool {
	if l.page != 0 {
		return l.has(h, t)
	}
	b := l.byHash[h]
	return b != nil && b.n[t] > 0
}

func (w *twin) stored(tt *twinTarget, ev *kv.Event, r *Result) {
	n := len(ev.Handles)
	l := tt.lane(ev.Group)
	if ev.Attention != kv.Dense {
		if ev.Attention != kv.Sliding {
			r.skip(SparseGroup, n)
			return
		}
		if l == nil {
			l = tt.addLane(ev, true)
		}
		switch {
		case l == nil:
			r.skip(Full, n)
		case !l.slide:
			r.skip(BadShape, n)
		default:
			l.window, l.bs = ev.Window, ev.BlockSize
			w.slide(l, ev, r)
		}
		return
	}
	if l != nil && l.slide {
		r.skip(BadShape, n)
		return
	}
	if n == 0 {
		return
	}
	if hasDuplicate(ev, &w.seen) {
		r.skip(Cycle, n)
		return
	}
	if len(ev.Tokens) == 0 {
		w.placeholder(l, ev, r)
		return
	}
	unit, chunk, ok := shape(ev, l != nil, l.size())
	page := int32(0)
	if unit < kv.MinChunk {
		page = int32(unit)
	}
	if !ok || l != nil && l.page != page && ev.Tier != kv.GPU {
		r.skip(BadShape, n)
		return
	}
	if l == nil {
		if l = tt.addLane(ev, false); l == nil {
			r.skip(Full, n)
			return
		}
		l.page = page
	}
	if l.page != page {
		w.dropOrphans(func(o *twinOrphan) bool { return o.l == l }, r)
		l.reset()
		l.page = page
	}
	if ev.Tier == kv.GPU || l.bs == 0 {
		l.bs = ev.BlockSize
	}
	o := &twinOrphan{l: l, tier: ev.Tier, parent: ev.Parent, handles: slices.Clone(ev.Handles), live: make([]bool, n),
		tokens: slices.Clone(ev.Tokens), extras: slices.Clone(ev.Extras), unit: unit, chunk: chunk, reused: ev.Reused}
	for i := range o.live {
		o.live[i] = true
	}
	if !ev.Root && l.bound[ev.Parent] == nil {
		w.wait(o, r)
		return
	}
	if ev.Root {
		w.chain(o, w.cfg.Seed.Root(ev.Key, unit), w.cfg.Seed.Root(ev.Key, kv.ChainSize(unit)), r)
	} else {
		w.chain(o, l.bound[ev.Parent].hash, 0, r)
	}
	work := slices.Clone(o.handles)
	for len(work) > 0 {
		h := work[0]
		work = work[1:]
		if l.bound[h] == nil {
			continue
		}
		for _, c := range slices.Clone(w.orphans) {
			if c.l != l || c.parent != h || !slices.Contains(w.orphans, c) || l.bound[h] == nil {
				continue
			}
			w.unwait(c)
			for _, live := range c.live {
				if live {
					r.Joined++
				}
			}
			w.chain(c, l.bound[h].hash, 0, r)
			work = append(work, c.handles...)
		}
	}
}

func (l *twinLane) size() int32 {
	if l == nil {
		return 0
	}
	return l.bs
}

// chain applies the live blocks of o after the block parent.
func (w *twin) chain(o *twinOrphan, parent, chunkRoot kv.Hash, r *Result) {
	l := o.l
	hashes := w.cfg.Seed.Extend(nil, parent, o.tokens, o.unit, o.extras)
	for i, h := range o.handles { // names of this run that other blocks have are free now
		if old := l.bound[h]; o.live[i] && old != nil && old.hash != hashes[i] {
			l.drop(old)
			r.Rebound++
		}
	}
	for i, h := range hashes {
		if l.page != 0 {
			l.page1(w.cfg.Seed, h, parent, chunkRoot, o, i)
		}
		parent = h
		if !o.live[i] {
			continue
		}
		if old := l.byHash[h]; old != nil && old.handle != o.handles[i] {
			l.drop(old)
			r.Rebound++
		}
		b := l.byHash[h]
		if b == nil {
			b = &twinBlock{handle: o.handles[i], hash: h}
			l.byHash[h], l.bound[b.handle] = b, b
		}
		plane := int(o.tier)
		if i%o.chunk != o.chunk-1 {
			plane = innerOf(o.tier)
		}
		w.hold(l, b, o.tier, plane, o.reused, r)
	}
	w.limit(l, o.tier, r)
}

// page1 registers the content of page h.
func (l *twinLane) page1(seed kv.Seed, h, parent, chunkRoot kv.Hash, o *twinOrphan, i int) {
	if l.pages[h] != nil {
		return
	}
	per := kv.ChainSize(o.unit) / o.unit
	p := &twinPage{before: chunkRoot}
	if up := l.pages[parent]; up != nil {
		p.index = up.index + 1
		if p.index%per == 0 {
			p.before = up.chunk
		} else {
			p.before = up.before
			p.tokens, p.digests, p.members = slices.Clone(up.tokens), slices.Clone(up.digests), slices.Clone(up.members)
		}
	}
	p.tokens = append(p.tokens, o.tokens[i*o.unit:(i+1)*o.unit]...)
	for _, e := range o.extras {
		if e.Block == i {
			p.digests = append(p.digests, chunkDigest(e.Digest, p.index%per))
		}
	}
	p.members = append(p.members, h)
	if p.index%per == per-1 {
		var extras []kv.Extra
		for _, d := range p.digests {
			extras = append(extras, kv.Extra{Digest: d})
		}
		p.chunk = seed.Extend(nil, p.before, p.tokens, kv.ChainSize(o.unit), extras)[0]
		l.chunks[p.chunk] = append(l.chunks[p.chunk], p.members)
	}
	l.pages[h] = p
}

func (l *twinLane) drop(b *twinBlock) {
	delete(l.bound, b.handle)
	delete(l.byHash, b.hash)
	b.n = [tPlanes]int{}
}

func (w *twin) hold(l *twinLane, b *twinBlock, t kv.Tier, plane int, reused bool, r *Result) {
	before := b.held(t)
	if before {
		r.Copies++
	} else {
		r.Stored++
	}
	if b.n[plane] == 0 || !reused && b.n[plane] < w.cfg.MaxCopies {
		b.n[plane]++
	}
	l.seq++
	b.seq[t], b.event[t] = l.seq, l.t.events
	b.tracked[t] = l.t.cfg.Tiers[t] != TierLimit{}
	if t == kv.GPU && !(l.page != 0 && before) {
		l.fact(b.hash)
	}
}

// limit forgets what is more than the tier can hold.
func (w *twin) limit(l *twinLane, t kv.Tier, r *Result) {
	for limit := l.t.cfg.Tiers[t].Blocks; limit > 0; {
		n, oldest := 0, (*twinBlock)(nil)
		for _, b := range l.bound {
			if b.held(t) && b.tracked[t] {
				n++
				if oldest == nil || b.seq[t] < oldest.seq[t] {
					oldest = b
				}
			}
		}
		if n <= limit {
			return
		}
		l.dropTier(oldest, t)
		r.Expired++
	}
}

// fact turns the prediction of a block that is now reported into nothing.
func (l *twinLane) fact(h kv.Hash) {
	if l.page == 0 {
		delete(l.t.pred, h)
		return
	}
	if p := l.pages[h]; p != nil {
		for ch, lists := range l.chunks {
			for _, members := range lists {
				if slices.Contains(members, h) && l.has(ch, kv.GPU) {
					delete(l.t.pred, ch)
				}
			}
		}
	}
}

func (l *twinLane) dropTier(b *twinBlock, t kv.Tier) {
	b.n[t], b.n[innerOf(t)] = 0, 0
	l.settle(b)
}

func (l *twinLane) settle(b *twinBlock) {
	if b.n == [tPlanes]int{} {
		l.drop(b)
	}
}

func (w *twin) expire(tt *twinTarget, r *Result) {
	for _, l := range tt.lanes {
		for t := kv.GPU; t < kv.NumTiers; t++ {
			if ttl := tt.cfg.Tiers[t].Events; ttl > 0 {
				for _, b := range l.bound {
					if b.held(t) && b.tracked[t] && tt.events-b.event[t] > ttl {
						l.dropTier(b, t)
						r.Expired++
					}
				}
			}
		}
	}
}

// placeholder applies a store without tokens: only handles that are known have
// a position.
func (w *twin) placeholder(l *twinLane, ev *kv.Event, r *Result) {
	n := len(ev.Handles)
	if l == nil {
		r.skip(NoTokens, n)
		return
	}
	chunk := 1
	if bs := ev.BlockSize; ev.Tier != kv.GPU && l.page == 0 && l.bs > 0 && bs > l.bs {
		if bs%l.bs != 0 || n%int(bs/l.bs) != 0 {
			r.skip(BadShape, n)
			return
		}
		chunk = int(bs / l.bs)
	}
	for i := 0; i < n; i += chunk {
		hs := ev.Handles[i : i+chunk]
		if slices.ContainsFunc(hs, func(h kv.Handle) bool { return l.bound[h] == nil }) {
			r.skip(NoTokens, chunk)
			continue
		}
		for k, h := range hs {
			plane := int(ev.Tier)
			if k != chunk-1 {
				plane = innerOf(ev.Tier)
			}
			if b := l.bound[h]; b != nil {
				w.hold(l, b, ev.Tier, plane, ev.Reused, r)
			}
		}
	}
	w.limit(l, ev.Tier, r)
}

func (w *twin) Forget(t kv.Target) {
	if tt := w.targets[t]; tt != nil {
		w.dropOrphans(func(o *twinOrphan) bool { return o.l.t == tt }, &Result{})
		delete(w.targets, t)
	}
}
