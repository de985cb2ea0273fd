package index

import (
	"strings"
	"testing"

	"kvasir/index/table"
	"kvasir/kv"
)

// broad returns an index with something of everything that invariants are about:
// rows that branch, shared and own names, copies, a lower tier, a sliding lane, a
// prediction, an orphan, and pages with a fork and a second key.
func broad(t *testing.T) *Index {
	t.Helper()
	ix := New(Config{Seed: testSeed})
	s := newSequences(3, 40)
	ix.Apply(s.store(0, 0, 0, 40))
	ix.Apply(s.store(1, 0, 0, 40))
	ix.Apply(s.store(1, 1, 0, 40))
	ix.Apply(s.store(1, 1, 0, 40)) // copies
	other := *s.store(2, 0, 0, 20)
	other.Handles = make([]kv.Handle, 20)
	for i := range other.Handles {
		other.Handles[i] = kv.Handle(9000 + i)
	}
	ix.Apply(&other) // names of its own
	host := s.store(0, 0, 0, 20)
	host.Tier = kv.Host
	ix.Apply(host)
	ix.Apply(&kv.Event{Target: 0, Group: 1, Attention: kv.Sliding, Window: 64, BlockSize: 16, Handles: s.handles[0][:20], Tokens: s.tokens[0][:320]})
	ix.Apply(&kv.Event{Source: kv.Dispatch, Target: 3, Hashes: s.hashes[2]})
	ix.Apply(&kv.Event{Target: 1, BlockSize: 16, Parent: 77, Handles: []kv.Handle{78}, Tokens: s.tokens[0][:16]})
	g := newPageLoad(4, 40, 20)
	g.begin(ix, 4)
	g.request(ix, 4)
	g.request(ix, 4)
	ix.mustHold(t)
	return ix
}

// heldRow returns the lowest row in use for which ok.
func heldRow(t *testing.T, ix *Index, ok func(uint32, rowRef) bool) (uint32, rowRef) {
	t.Helper()
	for r := range uint32(slabRows) {
		if s, m := ix.rows.peek(r); s != nil && m.fill.Load() > 0 && ok(r, m) {
			return r, m
		}
	}
	t.Fatal("no such row")
	return 0, rowRef{}
}

// someStrip returns the lowest strip for which ok.
func someStrip(t *testing.T, p *pages, ok func(*strip) bool) (uint32, *strip) {
	t.Helper()
	for n := range uint32(len(p.strips.slabs) * slabStrips) {
		if s := p.peek(n); s != nil && ok(s) {
			return n, s
		}
	}
	t.Fatal("no such strip")
	return 0, nil
}

// TestChecksFindDamage: each kind of damage is found, and named.
func TestChecksFindDamage(t *testing.T) {
	for _, c := range []struct {
		what, want string
		damage     func(*testing.T, *Index)
	}{
		{"a head is lost", "U1", func(t *testing.T, ix *Index) {
			r, _ := heldRow(t, ix, func(uint32, rowRef) bool { return true })
			s, _ := ix.rows.at(r)
			ix.heads.Delete(table.Tag(uint64(s.hashes(r)[0])), r)
		}},
		{"a slot is said to be held", "U3", func(t *testing.T, ix *Index) {
			_, m := heldRow(t, ix, func(_ uint32, m rowRef) bool { return m.fill.Load() < rowSlots })
			m.live |= 1 << 15
		}},
		{"an unheld slot is in use", "U3", func(t *testing.T, ix *Index) {
			_, m := heldRow(t, ix, func(_ uint32, m rowRef) bool { return m.live != 1<<rowSlots-1 })
			m.alias |= 1 << 15
		}},
		{"a child isn't counted", "U4", func(t *testing.T, ix *Index) {
			_, m := heldRow(t, ix, func(_ uint32, m rowRef) bool { return m.kids > 0 })
			m.kids--
		}},
		{"a row leads to the wrong one", "U4", func(t *testing.T, ix *Index) {
			_, m := heldRow(t, ix, func(_ uint32, m rowRef) bool { return m.next.Load() == 0 })
			m.next.Store(1)
		}},
		{"a detached row isn't counted", "U4", func(t *testing.T, ix *Index) { ix.detached++ }},
		{"a row is never given back", "U6", func(t *testing.T, ix *Index) { ix.rows.inUse++ }},
		{"a set loses a reference", "U7", func(t *testing.T, ix *Index) {
			_, m := heldRow(t, ix, func(_ uint32, m rowRef) bool {
				return m.sets.Load()&inDetail == 0 && m.sets.Load() >= firstInterned
			})
			ix.sets.get(m.sets.Load()).refs--
		}},
		{"a block isn't counted for its lane", "U8", func(t *testing.T, ix *Index) { ix.targets[0].lanes[0].count[kv.Host]-- }},
		{"a group of rows is forgotten", "U9", func(t *testing.T, ix *Index) { clear(ix.targets[0].lanes[0].groups) }},
		{"a lane is shown as plain", "U10", func(t *testing.T, ix *Index) { ix.showLane(ix.targets[0].lanes[0], true) }},
		{"a name of one's own is lost", "U11", func(t *testing.T, ix *Index) { clear(ix.byAlias) }},
		{"a name is lost", "U11", func(t *testing.T, ix *Index) {
			r, _ := heldRow(t, ix, func(_ uint32, m rowRef) bool { return m.named != 0 })
			s, m := ix.rows.at(r)
			for p := range rowSlots {
				if m.named>>p&1 == 1 {
					ix.namesOf(m).Delete(ix.keyOf(s.handles(r)[p]), uint32(slotAt(r, p)))
				}
			}
		}},
		{"a name belongs to nobody", "U12", func(t *testing.T, ix *Index) { ix.common.Insert(12345, 1<<20) }},
		{"copies of what isn't held", "U13", func(t *testing.T, ix *Index) { ix.copies[1<<60] = 1 }},
		{"a page is gone from its chunk", "U14", func(t *testing.T, ix *Index) {
			p := ix.targets[4].lanes[0].pages
			n, s := someStrip(t, p, func(s *strip) bool { return s.slot != 0 })
			s.held[kv.GPU] &^= 1 << s.from
			p.index.Delete(ix.keyOf(p.names(n)[s.from]), uint32(refAt(n, s.from)))
		}},
		{"pages that nothing needs", "U15", func(t *testing.T, ix *Index) {
			p := ix.targets[4].lanes[0].pages
			_, s := someStrip(t, p, func(s *strip) bool { return s.flags&stripRoot == 0 && s.kids == 0 && !p.complete(s) })
			s.end++
		}},
		{"a root isn't found", "U16", func(t *testing.T, ix *Index) {
			p := ix.targets[4].lanes[0].pages
			_, s := someStrip(t, p, func(s *strip) bool { return s.flags&stripRoot != 0 })
			s.hash++
		}},
		{"an entry of nothing", "U16", func(t *testing.T, ix *Index) { ix.targets[4].lanes[0].pages.index.Insert(7, 7) }},
		{"a row leads to an earlier chunk", "U17", func(t *testing.T, ix *Index) {
			p := ix.targets[4].lanes[0].pages
			_, s := someStrip(t, p, func(s *strip) bool { return s.slot != 0 && s.slot.pos() > 0 })
			n := p.rowEnd(s.slot.row())
			p.index.Replace(p.rowKey(s.slot.row()), uint32(refAt(n, 0)), uint32(refAt(p.chunkBefore(n), 0)))
		}},
		{"a block too many", "U18", func(t *testing.T, ix *Index) { ix.blocks++ }},
		{"bytes of pages", "U18", func(t *testing.T, ix *Index) { ix.pageMemory += 8 }},
		{"an orphan whose parent is there", "U19", func(t *testing.T, ix *Index) {
			o := ix.orphans.first
			o.parent = newSequences(1, 40).handles[0][3]
		}},
		{"orphans of no size", "U19", func(t *testing.T, ix *Index) { ix.orphanUnits-- }},
	} {
		t.Run(c.what, func(t *testing.T) {
			ix := broad(t)
			c.damage(t, ix)
			if err := ix.check(); err == nil || !strings.Contains(err.Error(), c.want+":") {
				t.Errorf("found: %v; want %s", err, c.want)
			}
		})
	}
}

// TestDamageStopsEvents: with the tag invariants the next event of a damaged index
// panics; without it, nothing is looked at.
func TestDamageStopsEvents(t *testing.T) {
	ix := broad(t)
	ix.blocks++
	ix.unchecked = 0
	defer func() {
		if got := recover(); (got != nil) != invariants {
			t.Errorf("invariants %v: Apply ended with %v", invariants, got)
		}
	}()
	ix.Apply(&kv.Event{Kind: kv.Removed, Handles: []kv.Handle{5}})
}
