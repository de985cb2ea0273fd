package index

import "kvasir/kv"

// Engines with small pages (SGLang: 1 to 16 tokens) would need an entry for
// every few tokens. Their pages are collected, along the parent chain, into
// chunks of ChainSize tokens, and only chunks are blocks of the index: a chunk is
// held while all of its pages are. Pages form a tree, so that branches share what
// they have in common, also inside a chunk; a page that is not held stays only
// while something held lies below it.
type pages struct {
	size    int // tokens of a page
	per     int // pages of a chunk
	nodes   []pageNode
	tokens  []uint32 // size for each node
	free    []int32
	byName  map[kv.Handle]int32 // held pages
	byPath  map[kv.Hash]int32   // all pages
	bySlot  map[slot]int32      // ends of held chunks
	ends    map[int32]*chunkEnd // pages that end a chunk
	digests map[int32][]uint64  // extras of a page
}

// A pageNode is a page at the end of its path from the root. Node 0 is none.
type pageNode struct {
	name   kv.Handle
	path   kv.Hash // of all tokens up to here, page by page
	before kv.Hash // of the chunk before the one that the page is in
	parent int32
	child  int32 // first child in the same chunk; prev and next link siblings
	next   int32
	prev   int32
	kids   int32 // children, also those that begin the next chunk
	n      [kv.NumTiers]int32
	pos    uint8 // in its chunk
}

func (n *pageNode) held() bool { return n.n != [kv.NumTiers]int32{} }

type chunkEnd struct {
	hash    kv.Hash
	slot    slot // valid while the chunk is held in any tier
	missing [kv.NumTiers]int8
}

// pageBytes is what a page of n tokens costs, about, with the maps that find it.
func pageBytes(n int) int64 { return int64(80 + 4*n + 48 + 8) }

func (l *lane) setPage(size int32) {
	l.page, l.pages = size, nil
	if size > 0 {
		n := int(size)
		l.pages = &pages{
			size: n, per: ChainSize(n) / n, nodes: make([]pageNode, 1), tokens: make([]uint32, n),
			byName: map[kv.Handle]int32{}, byPath: map[kv.Hash]int32{}, bySlot: map[slot]int32{},
			ends: map[int32]*chunkEnd{}, digests: map[int32][]uint64{},
		}
	}
}

func (p *pages) held(h kv.Handle) bool { return p.byName[h] != 0 }

func (p *pages) count() int { return len(p.nodes) - 1 - len(p.free) }

// regenerate starts l anew with another page size: the engine has restarted.
func (ix *Index) regenerate(l *lane, page int32, r *Result) {
	ix.dropOrphans(&l.t.orphans, func(o *orphan) bool { return o.l == l }, r)
	ix.sweep(l, 1<<planes-1)
	ix.forgetPages(l)
	for _, a := range l.limits {
		a.reset()
	}
	l.setPage(page)
}

// forgetPages forgets the pages of l, whose chunks were swept already or will be.
func (ix *Index) forgetPages(l *lane) {
	if l.pages != nil {
		ix.pageMemory -= int64(l.pages.count()) * pageBytes(l.pages.size)
		l.setPage(l.page)
	}
}

// storePages stores the pages of ev, and says whether their parent is known.
func (ix *Index) storePages(u *run, ev *kv.Event, r *Result) bool {
	p := u.l.pages
	if ev.Root {
		ix.storePageRun(u, 0, ix.cfg.Seed.Root(ev.Key, p.size), ix.cfg.Seed.Root(ev.Key, p.size*p.per), ev.Tokens, ev.Extras, r)
		return true
	}
	parent := p.byName[ev.Parent]
	if parent == 0 {
		return false
	}
	ix.storePageRun(u, parent, p.nodes[parent].path, 0, ev.Tokens, ev.Extras, r)
	return true
}

func (ix *Index) joinPages(u *run, o *orphan, r *Result) {
	parent := u.l.pages.byName[o.parent]
	ix.storePageRun(u, parent, u.l.pages.nodes[parent].path, 0, o.tokens, o.extras, r)
}

func (ix *Index) storePageRun(u *run, parent int32, path, root kv.Hash, tokens []uint32, extras []kv.Extra, r *Result) {
	l, p := u.l, u.l.pages
	l.t.work.hashes = ix.cfg.Seed.Extend(l.t.work.hashes[:0], path, tokens, p.size, extras)
	paths := l.t.work.hashes
	live := func(i int) bool { return u.live == nil || u.live[i] }
	for i, h := range u.handles {
		if n := p.byName[h]; n != 0 && live(i) && p.nodes[n].path != paths[i] {
			ix.losePage(l, n, kv.GPU, kv.NumTiers-1)
			r.Rebound++
		}
	}
	for i := range paths {
		at := p.byPath[paths[i]]
		if at == 0 {
			at = ix.addPage(l, parent, paths[i], root, tokens[i*p.size:(i+1)*p.size], i, extras)
		}
		parent = at
		if live(i) {
			ix.holdPage(u, at, u.handles[i], r)
		}
	}
	ix.prune(l, parent)
	ix.age(l, u.tier, r)
}

// addPage makes a page below parent; root is what the first chunk chains to.
func (ix *Index) addPage(l *lane, parent int32, path, root kv.Hash, tokens []uint32, i int, extras []kv.Extra) int32 {
	p := l.pages
	n := pageNode{path: path, parent: parent, before: root}
	if parent != 0 {
		up := &p.nodes[parent]
		up.kids++
		n.pos = up.pos + 1
		if n.before = up.before; int(n.pos) == p.per {
			n.pos, n.before = 0, p.ends[parent].hash
		}
	}
	at := int32(len(p.nodes))
	if k := len(p.free); k > 0 {
		at = p.free[k-1]
		p.free = p.free[:k-1]
	} else {
		p.nodes = append(p.nodes, pageNode{})
		p.tokens = append(p.tokens, tokens...)
	}
	ix.pageMemory += pageBytes(p.size)
	copy(p.tokens[int(at)*p.size:], tokens)
	for _, e := range extras {
		if e.Block == i {
			p.digests[at] = append(p.digests[at], e.Digest)
		}
	}
	if n.pos > 0 {
		n.next = p.nodes[parent].child
		if n.next != 0 {
			p.nodes[n.next].prev = at
		}
		p.nodes[parent].child = at
	}
	p.nodes[at] = n
	p.byPath[path] = at
	if int(n.pos) == p.per-1 {
		p.ends[at] = ix.endChunk(p, at)
	}
	return at
}

// endChunk computes the block that page at completes.
func (ix *Index) endChunk(p *pages, at int32) *chunkEnd {
	e := &chunkEnd{}
	var extras []kv.Extra
	tokens := make([]uint32, p.per*p.size)
	before := p.nodes[at].before
	for k := p.per - 1; k >= 0; k-- {
		copy(tokens[k*p.size:], p.tokens[int(at)*p.size:int(at+1)*p.size])
		var own []kv.Extra
		for _, d := range p.digests[at] {
			own = append(own, kv.Extra{Digest: chunkDigest(d, k)})
		}
		extras = append(own, extras...)
		for t, n := range p.nodes[at].n {
			if n == 0 {
				e.missing[t]++
			}
		}
		at = p.nodes[at].parent
	}
	e.hash = ix.cfg.Seed.Extend(nil, before, tokens, len(tokens), extras)[0]
	return e
}

// chunkDigest is the digest, within a chunk, of an extra of its page k. What an
// extra's digest covers is relative to its page, so prompts with such content
// match only up to the chunk before.
func chunkDigest(d uint64, k int) uint64 { return d ^ uint64(k+1)*0x9e3779b97f4a7c15 }

// holdPage makes l hold page at by name h in the run's tier.
func (ix *Index) holdPage(u *run, at int32, h kv.Handle, r *Result) {
	l, p := u.l, u.l.pages
	n := &p.nodes[at]
	if n.held() && n.name != h {
		r.Rebound++
		n.kids++ // stays
		ix.losePage(l, at, kv.GPU, kv.NumTiers-1)
		n.kids--
	}
	n.name = h
	p.byName[h] = at
	if a := l.limits[u.tier]; a != nil {
		a.touch(h, l.t.events)
	}
	if n.n[u.tier] > 0 {
		r.Copies++
		if !u.reused && int(n.n[u.tier]) < ix.cfg.MaxCopies {
			n.n[u.tier]++
		}
		return
	}
	r.Stored++
	n.n[u.tier] = 1
	p.below(at, func(end int32) {
		e := p.ends[end]
		if e.missing[u.tier]--; e.missing[u.tier] == 0 {
			ix.holdChunk(l, end, e, u.tier)
		}
	})
}

// below calls f for every page that ends a chunk which page at is part of.
func (p *pages) below(at int32, f func(end int32)) {
	if int(p.nodes[at].pos) == p.per-1 {
		f(at)
		return
	}
	for c := p.nodes[at].child; c != 0; c = p.nodes[c].next {
		p.below(c, f)
	}
}

// losePage takes page at out of the tiers from first to last, and out of the
// tree if nothing needs it any more.
func (ix *Index) losePage(l *lane, at int32, first, last kv.Tier) {
	p := l.pages
	n := &p.nodes[at]
	for t := first; t <= last; t++ {
		if n.n[t] == 0 {
			continue
		}
		n.n[t] = 0
		if a := l.limits[t]; a != nil {
			a.forget(n.name)
		}
		p.below(at, func(end int32) {
			e := p.ends[end]
			if e.missing[t] == 0 {
				ix.loseChunk(l, end, e, t)
			}
			e.missing[t]++
		})
	}
	if !n.held() {
		if p.byName[n.name] == at {
			delete(p.byName, n.name)
		}
		ix.prune(l, at)
	}
}

// prune frees page at and the pages above it that nothing needs.
func (ix *Index) prune(l *lane, at int32) {
	p := l.pages
	for at != 0 {
		n := &p.nodes[at]
		if n.held() || n.kids > 0 {
			return
		}
		if n.pos > 0 {
			if n.prev != 0 {
				p.nodes[n.prev].next = n.next
			} else {
				p.nodes[n.parent].child = n.next
			}
			if n.next != 0 {
				p.nodes[n.next].prev = n.prev
			}
		}
		delete(p.byPath, n.path)
		delete(p.ends, at)
		delete(p.digests, at)
		p.free = append(p.free, at)
		ix.pageMemory -= pageBytes(p.size)
		up := n.parent
		*n = pageNode{}
		if up != 0 {
			p.nodes[up].kids--
		}
		at = up
	}
}

// holdChunk makes l hold the block that page end completes.
func (ix *Index) holdChunk(l *lane, end int32, e *chunkEnd, t kv.Tier) {
	old := uint8(0)
	if e.slot == 0 {
		s := ix.chunkSlot(l, end, e, inGPU<<t)
		if _, taken := l.pages.bySlot[s]; taken {
			return // two paths to one block: only a forged snapshot has that
		}
		e.slot = s
		l.pages.bySlot[s] = end
	} else {
		old = ix.mask(e.slot, l)
	}
	now := old | inGPU<<t
	ix.setMask(l, e.slot, now)
	l.recount(old, now, 1)
	if t == kv.GPU {
		ix.fact(l.t, e.slot)
	}
}

func (ix *Index) loseChunk(l *lane, end int32, e *chunkEnd, t kv.Tier) {
	if e.slot == 0 {
		return
	}
	old := ix.mask(e.slot, l)
	now := old &^ (inGPU << t)
	l.recount(old, now, 1)
	s := e.slot
	if now == 0 {
		delete(l.pages.bySlot, s)
		e.slot = 0
	}
	ix.setMask(l, s, now)
}

// chunkSlot finds or makes the slot of the block that page end completes, from
// the nearest block before it that l holds on. A new slot is held in plane.
func (ix *Index) chunkSlot(l *lane, end int32, e *chunkEnd, plane uint8) slot {
	p := l.pages
	prev := atRoot
	var between []kv.Hash // from the nearest to the farthest
	for at := p.chunkBefore(end); at != 0; at = p.chunkBefore(at) {
		b := p.ends[at]
		if b.slot != 0 {
			prev = b.slot
			break
		}
		between = append(between, b.hash)
	}
	for i := len(between) - 1; i >= 0; i-- {
		prev = ix.find(prev, between[i])
	}
	if s := ix.find(prev, e.hash); s != 0 {
		return s
	}
	s := ix.create(prev, ix.place(prev), []kv.Hash{e.hash}, single(l.id, plane))
	l.near(s.row())
	return s
}

// chunkBefore returns the page that ends the chunk before end's, or 0.
func (p *pages) chunkBefore(end int32) int32 {
	for range p.per {
		end = p.nodes[end].parent
	}
	return end
}

func (ix *Index) pagePlaceholder(l *lane, ev *kv.Event, r *Result) {
	u := run{l: l, tier: ev.Tier, handles: ev.Handles, chunk: 1, reused: ev.Reused}
	for _, h := range ev.Handles {
		if at := l.pages.byName[h]; at != 0 {
			ix.holdPage(&u, at, h, r)
		} else {
			r.skip(NoTokens, 1)
		}
	}
	ix.age(l, ev.Tier, r)
}

func (ix *Index) removedPages(l *lane, ev *kv.Event, r *Result) {
	p := l.pages
	for i, h := range ev.Handles {
		left := told(ev, i)
		at := p.byName[h]
		if at == 0 || p.nodes[at].n[ev.Tier] == 0 {
			if !ix.removedOrphan(l, h, ev.Tier, left, r) {
				r.Unknown++
			}
			continue
		}
		n := &p.nodes[at]
		switch {
		case left > 0:
			n.n[ev.Tier] = min(left, int32(ix.cfg.MaxCopies))
		case left < 0 && !l.t.cfg.Copies.drops() && n.n[ev.Tier] > 1:
			n.n[ev.Tier]--
		default:
			r.Removed++
			ix.losePage(l, at, ev.Tier, ev.Tier)
			continue
		}
		r.Kept++
	}
}

func (ix *Index) dropPage(l *lane, h kv.Handle, t kv.Tier) {
	if at := l.pages.byName[h]; at != 0 {
		ix.losePage(l, at, t, t)
	}
}

// clearPages forgets the pages that l holds in a tier.
func (ix *Index) clearPages(l *lane, t kv.Tier) (n int) {
	for _, at := range l.pages.byName {
		if l.pages.nodes[at].n[t] == 0 {
			continue
		}
		ix.losePage(l, at, t, t)
		if n++; n%1024 == 0 {
			ix.yield()
		}
	}
	return n
}

// evictChunk forgets the pages of the block in slot s, which l is to lose.
func (ix *Index) evictChunk(l *lane, s slot) {
	p := l.pages
	at, ok := p.bySlot[s]
	if !ok {
		return
	}
	var members []int32
	for range p.per {
		members = append(members, at)
		at = p.nodes[at].parent
	}
	for _, at := range members {
		if p.nodes[at].held() {
			ix.losePage(l, at, kv.GPU, kv.NumTiers-1)
		}
	}
}
