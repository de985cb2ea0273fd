package index

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"

	"kvasir/kv"
)

// A snapshot is a sequence of frames after a magic number: kind (1 byte), length
// of the payload (uvarint, at most maxFrame), payload, CRC-32C of kind and
// payload (4 bytes, little endian). Numbers are uvarints, hashes and handles 8
// bytes little endian. Frames:
//
//	H  version, digest of the seed (8 bytes)
//	L  lanes: each target, group, kind, window, block size, page size
//	S  names of a sliding lane: lane, then handle and a count for each tier
//	P  pages of a lane: lane, then runs of pages, parents first: each the number of
//	   the page before (1: the first page of the lane; 0: none, then follow 8 bytes
//	   of what the first chunk chains to) and the number of pages, then of each page
//	   the copies for each tier, the handle if there are any, tokens, number of
//	   extras, extras
//	R  rows: each depth<<1 | it begins at the root, n, n hashes, then of each slot
//	   its holders
//	E  how many lanes, names, runs of pages and rows there are
//
// Holders of a slot are one more than their number, then each (lane, planes,
// handle, extra copies for each plane); 0 stands for the holders of the slot
// before, all by the one handle that follows, without extra copies. Predictions, orphans and tiers that expire by TierLimit are left
// out: what is not in a snapshot is not believed.
const (
	snapshotMagic   = "kvasirix"
	snapshotVersion = 2
	maxFrame        = 1 << 21 // a row with 4,096 holders of each slot fits
	frameTarget     = 1 << 15 // a frame is closed when it is that long
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Snapshot writes what the index believes at one moment. Engines' events wait
// until it is done; lookups and dispatches don't: the lock is let go every few
// thousand blocks, and not held while w is written to.
func (ix *Index) Snapshot(w io.Writer) error {
	for t := range ix.targets {
		ix.targets[t].busy.Lock()
		defer ix.targets[t].busy.Unlock()
	}
	ix.lock()
	defer ix.mu.Unlock()
	s := &snapshotWriter{w: w, ix: ix}
	s.out = append(s.out, snapshotMagic...)
	s.u(snapshotVersion)
	s.u64(ix.seedDigest())
	s.flush('H')
	s.lanes()
	for i, l := range s.order {
		s.names(i, l)
		s.pages(i, l)
	}
	for row := uint32(0); row < uint32(len(*ix.rows.slabs.Load()))*slabRows; row++ {
		s.row(row)
		if len(s.b) >= frameTarget || row%4096 == 4095 {
			s.flush('R')
			s.breathe()
		}
	}
	s.flush('R')
	for _, n := range s.n {
		s.u(uint64(n))
	}
	s.flush('E')
	s.breathe()
	if s.err != nil {
		return fmt.Errorf("index: snapshot: %w", s.err)
	}
	return nil
}

// seedDigest tells snapshots of other seeds apart without giving the seed away.
func (ix *Index) seedDigest() uint64 {
	return uint64(ix.cfg.Seed.Root(kv.Key{Salt: "snapshot of an index"}, 0))
}

type snapshotWriter struct {
	ix    *Index
	w     io.Writer
	b     []byte // payload of the next frame
	out   []byte // frames to be written
	err   error
	order []*lane
	index [maxLanes]int // of a lane in order, plus 1
	n     [4]int        // lanes, names, runs of pages, rows
}

func (s *snapshotWriter) u(v uint64)   { s.b = binary.AppendUvarint(s.b, v) }
func (s *snapshotWriter) u64(v uint64) { s.b = binary.LittleEndian.AppendUint64(s.b, v) }

func (s *snapshotWriter) flush(kind byte) {
	if len(s.b) > 0 {
		s.out = binary.AppendUvarint(append(s.out, kind), uint64(len(s.b)))
		s.out = append(s.out, s.b...)
		sum := crc32.Update(crc32.Checksum([]byte{kind}, castagnoli), castagnoli, s.b)
		s.out = binary.LittleEndian.AppendUint32(s.out, sum)
	}
	s.b = s.b[:0]
}

// breathe writes what there is and lets others have the lock meanwhile. Dispatches
// may then predict blocks, which aren't written, and evict others, which the
// engine holds all the same.
func (s *snapshotWriter) breathe() {
	s.ix.mu.Unlock()
	if s.err == nil && len(s.out) > 0 {
		_, s.err = s.w.Write(s.out)
	}
	s.out = s.out[:0]
	s.ix.lock()
}

func (s *snapshotWriter) lanes() {
	for t := range s.ix.targets {
		for _, l := range s.ix.targets[t].lanes {
			s.order = append(s.order, l)
			s.index[l.id] = len(s.order)
			for _, v := range []int{t, int(l.group), int(l.kind), int(l.window), int(l.bs), int(l.page)} {
				s.u(uint64(uint32(v)))
			}
			s.n[0]++
			if len(s.b) >= frameTarget {
				s.flush('L')
			}
		}
	}
	s.flush('L')
}

func (s *snapshotWriter) names(i int, l *lane) {
	for h, c := range l.slid {
		if len(s.b) >= frameTarget {
			s.flush('S')
			s.breathe()
		}
		if len(s.b) == 0 {
			s.u(uint64(i))
		}
		s.u64(uint64(h))
		for _, n := range c {
			s.u(uint64(n))
		}
		s.n[1]++
	}
	s.flush('S')
}

// planes returns the planes of l that go into the snapshot.
func (s *snapshotWriter) planes(l *lane) uint8 {
	if l.kind != laneDense || l.page != 0 { // follow from names and pages
		return 0
	}
	m := uint8(1<<planes - 1)
	for t, a := range l.limits {
		if a != nil {
			m &^= planesOf(kv.Tier(t))
		}
	}
	return m
}

// row writes one row, if anyone holds a block of it that goes into the snapshot.
func (s *snapshotWriter) row(row uint32) {
	ix := s.ix
	sl, m := ix.rows.peek(row)
	if sl == nil || m.fill.Load() == 0 {
		return
	}
	fill, from, any := int(m.fill.Load()), len(s.b), false
	root := uint64(0)
	if m.up == atRoot {
		root = 1
	}
	s.u(uint64(m.depth)<<1 | root)
	s.u(uint64(fill))
	for _, h := range sl.hashes(row)[:fill] {
		s.u64(uint64(h))
	}
	last := uint32(0)
	for p := range fill {
		at := slotAt(row, p)
		id := ix.setOf(at)
		plain := m.named>>p&1 == 1 && (m.alias|m.extra)>>p&1 == 0
		if plain && p > 0 && id == last && (m.alias|m.extra)>>(p-1)&1 == 0 {
			s.u(0)
			s.u64(uint64(sl.handles(row)[p]))
			continue
		}
		last = id
		if !plain {
			last = 0
		}
		mark, n := len(s.b), 0
		ix.sets.each(id, func(lane uint16, mask uint8) {
			l := ix.lanes[lane]
			if l == nil || s.index[lane] == 0 {
				return
			}
			if mask &= s.planes(l); mask == 0 {
				return
			}
			n++
			any = true
			s.u(uint64(s.index[lane] - 1))
			s.u(uint64(mask))
			s.u64(uint64(ix.nameOf(l, at)))
			for q := uint8(1); q < 1<<planes; q <<= 1 {
				if mask&q != 0 {
					s.u(uint64(ix.copies[ix.copyKey(l, at, q)]))
				}
			}
		})
		// the count goes before the holders
		var num [binary.MaxVarintLen64]byte
		k := binary.PutUvarint(num[:], uint64(n+1))
		s.b = append(s.b, num[:k]...)
		copy(s.b[mark+k:], s.b[mark:len(s.b)-k])
		copy(s.b[mark:], num[:k])
	}
	if !any {
		s.b = s.b[:from]
		return
	}
	s.n[3]++
}

// pages writes the pages of l, parents first.
func (s *snapshotWriter) pages(i int, l *lane) {
	p := l.pages
	if p == nil {
		return
	}
	number := make([]uint32, len(p.strips.slabs)*slabStrips) // of the first page of a strip
	next := uint32(1)
	var path []uint32
	for n := range uint32(len(number)) {
		if p.peek(n) == nil {
			continue
		}
		if len(s.out) >= frameTarget {
			s.breathe()
			if p.peek(n) == nil {
				continue
			}
		}
		for up := n; number[up] == 0 && p.at(up).flags&stripRoot == 0; up = p.at(up).up {
			path = append(path, up)
		}
		for len(path) > 0 {
			up := path[len(path)-1]
			path = path[:len(path)-1]
			number[up] = next
			next += uint32(p.at(up).end - p.at(up).from)
			if len(s.b) >= frameTarget {
				s.flush('P')
			}
			if len(s.b) == 0 {
				s.u(uint64(i))
			}
			s.strip(l, up, number)
		}
	}
	s.flush('P')
}

// strip writes the pages of strip n.
func (s *snapshotWriter) strip(l *lane, n uint32, number []uint32) {
	p := l.pages
	st := p.at(n)
	at := p.before(st)
	if up := p.at(at.strip()); up.flags&stripRoot != 0 {
		s.u(0)
		s.u64(uint64(up.hash))
	} else {
		s.u(uint64(number[at.strip()] + uint32(at.place()-up.from)))
	}
	s.u(uint64(st.end - st.from))
	for k := st.from; k < st.end; k++ {
		at, held := refAt(n, k), false
		for t := kv.GPU; t < kv.NumTiers; t++ {
			c := int32(0)
			if l.limits[t] == nil && st.held[t]>>k&1 == 1 {
				c, held = p.several(at, t), true
			}
			s.u(uint64(c))
		}
		if held {
			s.u64(uint64(p.names(n)[k]))
		}
		for _, tok := range p.tokens(at) {
			s.u(uint64(tok))
		}
		s.u(uint64(len(p.digests[at])))
		for _, d := range p.digests[at] {
			s.u64(d)
		}
	}
	s.n[2]++
}
