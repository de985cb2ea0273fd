package index

import (
	"slices"

	"kvasir/index/pagetable"
	"kvasir/kv"
)

// Engines with small pages (SGLang: 1 to 16 tokens) would need an entry for
// every few tokens. Their pages are collected, along the parent chain, into
// chunks of ChainSize tokens, and only chunks are blocks of the index: a chunk is
// held while all of its pages are. Pages form a tree, so that branches share what
// they have in common, also inside a chunk; a page that is not held stays only
// while something held lies below it.
//
// Pages lie in strips (pagestrip.go). One table (package pagetable) finds what belongs
// to a lane: pages by name, the strip that continues a path by its first page, the
// first fork after a page, roots, and the last chunk in a row of the index.
type pages struct {
	pageTree
	ix      *Index
	l       *lane    // whose pages they are
	counted int64    // in Index.pageMemory
	hand    uint32   // of the clock of evict
	stuck   [2]int64 // see pageRoom
}

// A pageTree is the pages of one lane as a tree. It knows content, names and who is
// held, but no rows and no Index.
type pageTree struct {
	seed    kv.Seed
	secret  uint64
	size    int // tokens of a page
	per     int // pages of a chunk
	strips  stripStore
	index   pagetable.Table
	digests map[pageRef][]uint64 // extras of a page
	extras  int                  // in digests
	copies  map[uint64]int32     // where there are several, by pageRef<<2 | tier

	refs   []pageRef // scratch
	tokbuf []uint32
	hashes []kv.Hash
}

// pageBytes is what a page of n tokens costs, about, with what finds it.
func pageBytes(n int) int64 {
	per := kv.ChainSize(n) / n
	return stripBytes(per, n)/int64(per) + pagetable.EntryBytes + 2
}

const (
	digestBytes = 64 // of an entry of digests, about, and 8 for each digest
)

func (ix *Index) setPage(l *lane, size int32) {
	l.page, l.pages = size, nil
	if size > 0 {
		n := int(size)
		l.pages = &pages{ix: ix, l: l, pageTree: pageTree{seed: ix.cfg.Seed, secret: ix.secret, size: n, per: kv.ChainSize(n) / n,
			digests: map[pageRef][]uint64{}, copies: map[uint64]int32{}}}
	}
}

// bytes is what the pages take; free strips are as good as free.
func (p *pages) bytes() int64 {
	return int64(p.strips.used)*stripBytes(p.per, p.size) + p.index.Bytes() +
		int64(len(p.digests))*digestBytes + int64(p.extras)*8 + int64(len(p.copies))*copyBytes
}

// account brings pageMemory in line with p.
func (p *pages) account() {
	b := p.bytes()
	p.ix.pageMemory += b - p.counted
	p.counted = b
}

// regenerate starts l anew with another page size: the engine has restarted.
func (ix *Index) regenerate(l *lane, page int32, r *Result) {
	ix.dropOrphans(&l.t.orphans, func(o *orphan) bool { return o.l == l }, r)
	ix.forgetPages(l)
	ix.sweep(l, 1<<planes-1)
	for _, a := range l.limits {
		a.reset()
	}
	ix.setPage(l, page)
}

// forgetPages forgets the pages of l, whose chunks will be swept.
func (ix *Index) forgetPages(l *lane) {
	if l.pages != nil {
		ix.pageMemory -= l.pages.counted
		ix.setPage(l, l.page)
	}
}

// store stores the pages of ev, and says whether their parent is known.
func (p *pages) store(u *run, ev *kv.Event, r *Result) bool {
	if ev.Root {
		p.storeRun(u, 0, p.ix.cfg.Seed.Root(ev.Key, p.size*p.per), ev.Tokens, ev.Extras, r)
		return true
	}
	parent := p.named(p.ix.keyOf(ev.Parent), ev.Parent)
	if parent == 0 {
		return false
	}
	p.storeRun(u, parent, 0, ev.Tokens, ev.Extras, r)
	return true
}

func (p *pages) join(u *run, o *orphan, r *Result) {
	p.storeRun(u, p.named(p.ix.keyOf(o.parent), o.parent), 0, o.tokens, o.extras, r)
}

// storeRun stores pages after page parent or, if that is 0, at the root with
// the given hash. work has the tags of their names.
func (p *pages) storeRun(u *run, parent pageRef, root kv.Hash, tokens []uint32, extras []kv.Extra, r *Result) {
	tags := p.l.t.work.tags
	if p.index.Len()+2*len(u.handles) > pagetable.MaxEntries || p.strips.used+len(u.handles) > maxStrips {
		r.skip(Full, len(u.handles))
		return
	}
	live := func(i int) bool { return u.live == nil || u.live[i] }
	at := parent
	if at == 0 {
		at = p.root(root)
	}
	known := p.follow(at, tokens, extras)
	lost := false
	for i, h := range u.handles { // names of this run that other pages have are free now
		if i%maxAhead == 0 {
			p.index.Touch(tags[i:min(i+maxAhead, len(tags))])
		}
		if n := p.named(tags[i], h); n != 0 && live(i) && (i >= len(known) || known[i] != n) {
			p.lose(n, kv.GPU, kv.NumTiers-1)
			r.Rebound++
			lost = true
		}
	}
	if lost {
		if parent == 0 {
			at = p.root(root)
		}
		known = p.follow(at, tokens, extras)
	}
	if at == 0 {
		at = p.newRoot(root)
	}
	first := pageRef(0) // newly held of the pages in at's strip
	for i, h := range u.handles {
		last := at
		if i < len(known) {
			at = known[i]
		} else {
			at = p.addPage(at, tokens[i*p.size:(i+1)*p.size], takeExtras(&extras, i))
		}
		if at.strip() != last.strip() {
			p.holdBelow(first, u.tier)
			first = 0
		}
		if live(i) && p.hold(u, at, tags[i], h, r) && first == 0 {
			first = at
		}
	}
	p.holdBelow(first, u.tier)
	p.prune(at.strip())
	if cap(p.refs) > 1<<14 {
		p.refs = nil
	}
	p.ix.age(p.l, u.tier, r)
	p.account()
}

// takeExtras returns the extras of page i and steps over those of pages before.
func takeExtras(extras *[]kv.Extra, i int) []kv.Extra {
	es := *extras
	for len(es) > 0 && es[0].Block < i {
		es = es[1:]
	}
	n := 0
	for n < len(es) && es[n].Block == i {
		n++
	}
	*extras = es[n:]
	return es[:n]
}

// follow returns, of the pages after at that have the given content, those that
// exist.
func (p *pageTree) follow(at pageRef, tokens []uint32, extras []kv.Extra) []pageRef {
	p.refs = p.refs[:0]
	for i := 0; at != 0 && len(tokens) >= p.size; i++ {
		if at = p.next(at, tokens[:p.size], takeExtras(&extras, i)); at != 0 {
			p.refs = append(p.refs, at)
		}
		tokens = tokens[p.size:]
	}
	return p.refs
}

// next returns the page after at that has the given content, or 0.
func (p *pageTree) next(at pageRef, tokens []uint32, extras []kv.Extra) pageRef {
	s, place := p.at(at.strip()), at.place()
	if place+1 < s.end && p.same(s, at+1, tokens, extras) {
		return at + 1
	}
	switch {
	case int(place) < p.per-1 && s.forks>>place&1 == 0 || int(place) == p.per-1 && s.kids == 0:
		return 0
	case int(place) == p.per-1 && s.flags&stripOnly != 0:
		if c := refAt(s.kids, 0); p.same(p.at(s.kids), c, tokens, extras) {
			return c
		}
		return 0
	}
	for k := p.index.Seek(p.childKey(at, tokens, extras)); ; {
		c := pageRef(k.Next())
		if c == 0 {
			return 0
		}
		if s := p.at(c.strip()); s.flags&stripRoot == 0 && s.from == c.place() && p.before(s) == at && p.same(s, c, tokens, extras) {
			return c
		}
	}
}

// same says that page at, of strip s, has the given content.
func (p *pageTree) same(s *strip, at pageRef, tokens []uint32, extras []kv.Extra) bool {
	if !slices.Equal(p.tokens(at), tokens) {
		return false
	}
	if s.flags&stripExtra == 0 {
		return len(extras) == 0
	}
	return slices.EqualFunc(p.digests[at], extras, func(d uint64, e kv.Extra) bool { return d == e.Digest })
}

// addPage makes a page after page at, which doesn't exist yet: at the end of at's
// strip, or in a new one.
func (p *pageTree) addPage(at pageRef, tokens []uint32, extras []kv.Extra) pageRef {
	s, place := p.at(at.strip()), at.place()
	page := at + 1
	if int(place) == p.per-1 || place+1 != s.end {
		from := uint8(0)
		if int(place) != p.per-1 {
			from = place + 1
		}
		page = refAt(p.newStrip(at, from), from)
		p.link(at, page, tokens, extras)
		s = p.at(page.strip())
	}
	s.end++
	copy(p.tokens(page), tokens)
	for _, e := range extras {
		s.flags |= stripExtra
		p.digests[page] = append(p.digests[page], e.Digest)
		p.extras++
	}
	if p.complete(s) {
		s.hash = p.chunkHash(page.strip())
	}
	return page
}

// chunkHash computes the block that ends in strip n.
func (p *pageTree) chunkHash(n uint32) kv.Hash {
	s := p.at(n)
	flags, end := s.flags, s.end
	var tokens []uint32
	if s.from == 0 {
		tokens = p.strips.slabs[n/slabStrips].tokens[int(n%slabStrips)*p.per*p.size:][:p.per*p.size]
	} else {
		tokens = slices.Grow(p.tokbuf[:0], p.per*p.size)[:p.per*p.size]
		p.tokbuf = tokens
		for m := n; ; m, end = s.up, s.from {
			s = p.at(m)
			flags |= s.flags
			for k := s.from; k < end; k++ {
				copy(tokens[int(k)*p.size:], p.tokens(refAt(m, k)))
			}
			if s.from == 0 {
				break
			}
		}
	}
	var extras []kv.Extra
	if flags&stripExtra != 0 {
		extras = p.chunkExtras(n)
	}
	p.hashes = p.seed.Extend(p.hashes[:0], p.at(s.up).hash, tokens, len(tokens), extras)
	return p.hashes[0]
}

// chunkExtras returns the extras of the pages of the chunk that ends in strip n.
func (p *pageTree) chunkExtras(n uint32) (extras []kv.Extra) {
	at := refAt(n, uint8(p.per-1))
	for k := p.per - 1; k >= 0; k-- {
		var own []kv.Extra
		for _, d := range p.digests[at] {
			own = append(own, kv.Extra{Digest: chunkDigest(d, k)})
		}
		extras = append(own, extras...)
		if s := p.at(at.strip()); at.place() == s.from {
			at = p.before(s)
		} else {
			at--
		}
	}
	return extras
}

// chunkDigest is the digest, within a chunk, of an extra of its page k. What an
// extra's digest covers is relative to its page, so prompts with such content
// match only up to the chunk before.
func chunkDigest(d uint64, k int) uint64 { return d ^ uint64(k+1)*0x9e3779b97f4a7c15 }
