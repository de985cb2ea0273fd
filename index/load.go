package index

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/bits"

	"kvasir/index/pagetable"
	"kvasir/index/table"
	"kvasir/kv"
)

// Load reads a snapshot into a new index. Memory is bounded by c and by what was
// read: a snapshot larger than c.MaxBytes is loaded in part. Targets may have other
// numbers than when the snapshot was written: as gives each its own. They have the
// settings of c.Target; their streams decide from here on, and until they have, the
// caller should not call them exact. An error means that nothing was loaded.
func Load(r io.Reader, c Config, as func(kv.Target) kv.Target) (*Index, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	s := &snapshotReader{r: bufio.NewReaderSize(r, 1<<16), ix: New(c), as: as}
	if err := s.read(); err != nil {
		return nil, fmt.Errorf("index: load: %w", err)
	}
	return s.ix, nil
}

var errShort = errors.New("a record ends too early")

type snapshotReader struct {
	ix     *Index
	as     func(kv.Target) kv.Target
	r      *bufio.Reader
	frame  []byte
	b      []byte // rest of the frame
	bad    error
	lanes  []*lane
	pages  map[*lane][]pageRef // by number, 0 for those left out
	n      [4]int
	before []member // holders of the slot before
}

// A member is a holder of a slot, as read.
type member struct {
	lane   int
	mask   uint8
	handle kv.Handle
	extra  [planes]uint64
}

func (s *snapshotReader) fail(format string, a ...any) {
	if s.bad == nil {
		s.bad = fmt.Errorf(format, a...)
	}
	s.b = nil
}

func (s *snapshotReader) u() uint64 {
	v, n := binary.Uvarint(s.b)
	if n <= 0 {
		if s.bad == nil {
			s.bad = errShort
		}
		s.b = nil
		return 0
	}
	s.b = s.b[n:]
	return v
}

// below reads a number and requires it to be less than limit.
func (s *snapshotReader) below(limit uint64, what string) int {
	v := s.u()
	if v >= limit {
		s.fail("%s %d: want less than %d", what, v, limit)
		return 0
	}
	return int(v)
}

func (s *snapshotReader) u64() uint64 {
	if len(s.b) < 8 {
		if s.bad == nil {
			s.bad = errShort
		}
		s.b = nil
		return 0
	}
	v := binary.LittleEndian.Uint64(s.b)
	s.b = s.b[8:]
	return v
}

func (s *snapshotReader) read() error {
	magic := make([]byte, len(snapshotMagic))
	if _, err := io.ReadFull(s.r, magic); err != nil || string(magic) != snapshotMagic {
		return fmt.Errorf("not a snapshot of an index: begins with %q, want %q", magic, snapshotMagic)
	}
	s.pages = map[*lane][]pageRef{}
	for first := true; ; first = false {
		kind, err := s.next()
		if err != nil {
			return err
		}
		if first != (kind == 'H') {
			return fmt.Errorf("frame %q out of place", kind)
		}
		switch kind {
		case 'H':
			if v := s.u(); v != snapshotVersion {
				return fmt.Errorf("version %d: this program reads version %d; let the index fill from the engines", v, snapshotVersion)
			}
			if s.u64() != s.ix.seedDigest() {
				return errors.New("written with another hash seed: its blocks can't be compared with ours")
			}
		case 'L':
			for len(s.b) > 0 {
				s.lane()
			}
		case 'S':
			l := s.laneOf(laneSliding)
			for len(s.b) > 0 && l != nil {
				s.name(l)
			}
		case 'P':
			l := s.laneOf(laneDense)
			if l != nil && l.page == 0 {
				s.fail("pages of a lane without pages")
			}
			for len(s.b) > 0 {
				s.run(l)
			}
		case 'R':
			for len(s.b) > 0 {
				s.row()
			}
		case 'E':
			for i, n := range s.n {
				if got := s.u(); s.bad == nil && got != uint64(n) {
					return fmt.Errorf("incomplete: %d of %d records of kind %d", n, got, i)
				}
			}
			if s.bad == nil {
				s.finish()
			}
			return s.bad
		default:
			return fmt.Errorf("unknown frame %q", kind)
		}
		if s.bad != nil {
			return s.bad
		}
	}
}

// next reads a frame and checks it. Its memory grows with what really comes.
func (s *snapshotReader) next() (byte, error) {
	kind, err := s.r.ReadByte()
	if err != nil {
		return 0, fmt.Errorf("no end: %w", err)
	}
	n, err := binary.ReadUvarint(s.r)
	if err != nil {
		return 0, fmt.Errorf("length of frame %q: %w", kind, err)
	}
	if n > maxFrame {
		return 0, fmt.Errorf("frame %q of %d bytes: want at most %d", kind, n, maxFrame)
	}
	buf := bytes.NewBuffer(s.frame[:0])
	if got, err := io.CopyN(buf, s.r, int64(n)+4); err != nil {
		return 0, fmt.Errorf("frame %q: %d of %d bytes: %w", kind, got, n+4, err)
	}
	s.frame = buf.Bytes()
	s.b = s.frame[:n]
	sum := crc32.Update(crc32.Checksum([]byte{kind}, castagnoli), castagnoli, s.b)
	if sum != binary.LittleEndian.Uint32(s.frame[n:]) {
		return 0, fmt.Errorf("frame %q: checksum doesn't fit", kind)
	}
	return kind, nil
}

func (s *snapshotReader) lane() {
	t := s.below(kv.MaxTargets, "target")
	group := s.below(1<<16, "group")
	kind := laneKind(s.below(uint64(lanePredicted), "kind of lane"))
	window := s.below(1<<32, "window")
	bs := s.below(1<<32, "block size")
	page := s.below(kv.MinChunk, "page size")
	if s.bad != nil {
		return
	}
	if kind == laneUnused || kind == laneSliding && page != 0 {
		s.fail("lane of kind %d with pages of %d", kind, page)
		return
	}
	if t = int(s.as(kv.Target(t))); t >= kv.MaxTargets {
		s.fail("target %d: want less than %d", t, kv.MaxTargets)
		return
	}
	tt := s.ix.target(kv.Target(t))
	if tt.lane(uint16(group)) != nil {
		s.fail("target %d, group %d: twice", t, group)
		return
	}
	l := s.ix.addLane(tt, kind, uint16(group))
	if l == nil {
		s.fail("target %d: more groups than %d", t, maxGroups)
		return
	}
	l.window, l.bs = int32(uint32(window)), int32(uint32(bs))
	if kind == laneSliding {
		l.slid = map[kv.Handle]*[kv.NumTiers]int32{}
	} else {
		s.ix.setPage(l, int32(page))
	}
	s.ix.showLanes(tt)
	s.lanes = append(s.lanes, l)
	s.n[0]++
}

func (s *snapshotReader) laneOf(kind laneKind) *lane {
	i := s.below(uint64(len(s.lanes)), "lane")
	if s.bad != nil {
		return nil
	}
	if s.lanes[i].kind != kind {
		s.fail("lane %d is of another kind", i)
		return nil
	}
	return s.lanes[i]
}

// copies reads a count of copies.
func (s *snapshotReader) copies() int32 {
	return int32(min(s.u(), uint64(s.ix.cfg.MaxCopies)))
}

func (s *snapshotReader) full() bool { return s.ix.bytes() > s.ix.cfg.MaxBytes }

func (s *snapshotReader) name(l *lane) {
	h := kv.Handle(s.u64())
	var c [kv.NumTiers]int32
	for t := range c {
		c[t] = s.copies()
	}
	if s.n[1]++; s.bad != nil || l.slid[h] != nil || c == [kv.NumTiers]int32{} || len(l.slid) >= maxSliding || s.full() {
		return
	}
	l.slid[h] = &c
	s.ix.slidNames++
	for t, n := range c {
		if n > 0 {
			l.count[t]++
		}
	}
}

// run reads pages that follow each other.
func (s *snapshotReader) run(l *lane) {
	before := s.below(uint64(len(s.pages[l]))+1, "page before")
	at, root := pageRef(0), kv.Hash(0)
	if before == 0 {
		root = kv.Hash(s.u64())
	} else {
		at = s.pages[l][before-1]
	}
	n := s.below(uint64(l.pages.per)+1, "pages of a run")
	if n == 0 {
		s.fail("a run without pages")
	}
	for i := range n {
		out := i > 0 && at == 0 || i == 0 && before > 0 && at == 0 // and so what lies below
		at = s.page(l, at, root, out)
		if s.bad != nil {
			return
		}
		s.pages[l] = append(s.pages[l], at)
	}
	l.pages.account()
	s.n[2]++
}

// page reads a page that follows page at or, if that is 0, a root. It returns 0 if
// the page is left out.
func (s *snapshotReader) page(l *lane, at pageRef, root kv.Hash, out bool) pageRef {
	var c [kv.NumTiers]int32
	held, name := false, kv.Handle(0)
	for t := range c {
		c[t] = s.copies()
		held = held || c[t] > 0
	}
	if held {
		name = kv.Handle(s.u64())
	}
	p := l.pages
	tokens := make([]uint32, p.size)
	for i := range tokens {
		tokens[i] = uint32(s.below(1<<32, "token"))
	}
	extras := make([]kv.Extra, s.below(uint64(len(s.b)/8+1), "number of extras"))
	for i := range extras {
		extras[i].Digest = s.u64()
	}
	ix := s.ix
	tag := ix.keyOf(name)
	if s.bad != nil || out || held && p.named(tag, name) != 0 || s.full() || ix.pageMemory > ix.cfg.MaxBytes/2 ||
		p.strips.used >= maxStrips || p.index.Len() >= pagetable.MaxEntries {
		return 0
	}
	if at == 0 {
		if at = p.root(root); at == 0 {
			at = p.newRoot(root)
		}
	}
	if p.next(at, tokens, extras) != 0 {
		return 0
	}
	at = p.addPage(at, tokens, extras)
	if held {
		st := p.at(at.strip())
		p.names(at.strip())[at.place()] = name
		p.index.Insert(tag, uint32(at))
		for t, n := range c {
			if n > 0 {
				st.held[t] |= 1 << at.place()
				p.setSeveral(at, kv.Tier(t), n)
			}
		}
	}
	return at
}

func (s *snapshotReader) row() {
	depth := s.below(1<<32, "depth")
	n := s.below(rowSlots+1, "slots of a row")
	if n == 0 {
		s.fail("a row without slots")
	}
	var hs [rowSlots]kv.Hash
	for i := range n {
		hs[i] = kv.Hash(s.u64())
	}
	known := s.bad != nil || s.full() || s.ix.head(hs[0]) != 0
	var at slot
	s.before = s.before[:0]
	for p := range n {
		s.holders()
		if s.bad != nil {
			return
		}
		if known || len(s.before) == 0 {
			continue
		}
		if at == 0 {
			at = s.ix.loadRow(uint32(depth>>1), depth&1 == 1, hs[:n])
		}
		for _, m := range s.before {
			s.hold(s.lanes[m.lane], at+slot(p), m)
		}
	}
	if at != 0 {
		s.ix.dropEmpty(at.row())
	}
	s.n[3]++
}

// holders reads the holders of a slot into s.before.
func (s *snapshotReader) holders() {
	n := s.below(maxLanes+2, "holders")
	if s.bad != nil {
		return
	}
	if n == 0 {
		h := kv.Handle(s.u64())
		for i := range s.before {
			s.before[i].handle, s.before[i].extra = h, [planes]uint64{}
		}
		return
	}
	s.before = s.before[:0]
	for range n - 1 {
		m := member{lane: s.below(uint64(len(s.lanes)), "lane"), mask: uint8(s.below(1<<planes, "planes")), handle: kv.Handle(s.u64())}
		for q := range planes {
			if m.mask>>q&1 == 1 {
				m.extra[q] = s.u()
			}
		}
		if s.bad != nil {
			return
		}
		if l := s.lanes[m.lane]; m.mask == 0 || l.kind != laneDense || l.page != 0 {
			s.fail("lane %d can't hold a row's block in planes %d", m.lane, m.mask)
			return
		}
		s.before = append(s.before, m)
	}
}

// hold makes l hold a slot as read, unless that would leave two meanings to a
// name, which no index writes.
func (s *snapshotReader) hold(l *lane, at slot, m member) {
	ix := s.ix
	if ix.mask(at, l) != 0 || ix.resolve(l, m.handle) != 0 {
		return
	}
	ix.bind(l, m.handle, at)
	ix.setMask(l, at, m.mask)
	l.recount(0, m.mask, 1)
	for q := range planes {
		if m.extra[q] > 0 && m.mask>>q&1 == 1 {
			ix.setCopies(l, at, 1<<q, int(min(m.extra[q], uint64(ix.cfg.MaxCopies))+1))
		}
	}
}

// loadRow makes a row that nobody holds yet; dropEmpty frees it if that remains
// so.
func (ix *Index) loadRow(depth uint32, root bool, hs []kv.Hash) slot {
	r := ix.rows.alloc(0)
	s, m := ix.rows.at(r)
	copy(s.hashes(r)[:], hs)
	m.depth, m.live, m.named, m.alias, m.extra = depth, 0, 0, 0, 0
	if root {
		ix.born(r, atRoot)
	} else {
		ix.born(r, 0)
	}
	m.used.Store(usedStored)
	m.sets.Store(0)
	m.fill.Store(uint32(len(hs)))
	ix.heads.Insert(table.Tag(uint64(hs[0])), r)
	return slotAt(r, 0)
}

func (ix *Index) dropEmpty(r uint32) {
	if _, m := ix.rows.at(r); m.fill.Load() != 0 && bits.OnesCount16(m.live) == 0 {
		ix.freeRow(r)
	}
}

// finish brings windows and chunks in line with the names and pages read.
func (s *snapshotReader) finish() {
	for _, l := range s.lanes {
		if l.kind == laneSliding {
			for h := range l.slid {
				s.ix.showWindow(l, h)
			}
		}
		if l.page == 0 {
			continue
		}
		l.pages.finish()
	}
}
