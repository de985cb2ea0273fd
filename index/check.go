package index

import (
	"fmt"

	"kvasir/index/table"
	"kvasir/kv"
)

// verify panics if the index breaks one of the invariants of doc.go. A check costs
// as much as the index is large, so the next one has to wait until events have
// named twice as many blocks as it looked at: a small index is checked after nearly every
// event, a large one every now and then. Nothing is checked while an event that has
// let go of the lock is half done.
func (ix *Index) verify(blocks int) {
	if ix.unchecked += 1 + blocks; ix.unchecked < 0 || ix.away > 0 {
		return
	}
	looked, err := ix.checked()
	if err != nil {
		panic("index: " + err.Error())
	}
	ix.unchecked = -2 * looked
}

// A census is what the index has, counted anew.
type census struct {
	rows, blocks, names, detached int
	refs                          map[uint32]int64 // slots by set
	held                          map[uint16][kv.NumTiers]int64
	kids                          map[uint32]uint32
	copies                        int
	looked                        int // holders of slots, and pages
}

// check compares everything that the index counts with what it has, and returns
// the invariant of doc.go that doesn't hold. mu is held.
func (ix *Index) check() error {
	_, err := ix.checked()
	return err
}

// checked also returns how much it looked at.
func (ix *Index) checked() (looked int, err error) {
	c := &census{refs: map[uint32]int64{}, held: map[uint16][kv.NumTiers]int64{}, kids: map[uint32]uint32{}}
	end := uint32(len(*ix.rows.slabs.Load())) * slabRows
	for r := range end {
		if err := ix.checkRow(c, r); err != nil {
			return 0, err
		}
	}
	for r := range end {
		if s, m := ix.rows.peek(r); s != nil && m.kids != c.kids[r] {
			return 0, fmt.Errorf("U4: row %d has %d child rows, counted %d", r, m.kids, c.kids[r])
		}
	}
	if c.detached != ix.detached {
		return 0, fmt.Errorf("U4: %d detached rows, counted %d", ix.detached, c.detached)
	}
	if c.copies != len(ix.copies) {
		return 0, fmt.Errorf("U13: %d counts of copies, %d of them of what is held", len(ix.copies), c.copies)
	}
	for _, part := range []func(*census) error{ix.checkSets, ix.checkTables, ix.checkLanes, ix.checkOrphans} {
		if err := part(c); err != nil {
			return 0, err
		}
	}
	return c.looked + int(end)/16, nil
}

// checkRow checks row r, if it is in use, and adds it to c.
func (ix *Index) checkRow(c *census, r uint32) error {
	s, m := ix.rows.peek(r)
	if s == nil {
		return nil
	}
	follower := false
	fill := int(m.fill.Load())
	if fill > 0 {
		c.rows++
		if up := ix.parentRow(m); up.row != nil {
			c.kids[m.up.row()]++
			follower = follows(m.up, r)
		} else if m.up != atRoot {
			c.detached++
		}
		if got := ix.head(s.hashes(r)[0]); got != r {
			return fmt.Errorf("U1: row %d is not found by its head, but %d", r, got)
		}
	}
	if k := r % slabRows; k > 0 && follower != (s.row[k-1].next.Load() == 1) {
		return fmt.Errorf("U4: row %d follows its parent: %v, the row before says %d", r, follower, s.row[k-1].next.Load())
	}
	live := uint16(0)
	for p := range fill {
		id := ix.setOf(slotAt(r, p))
		if id == 0 {
			continue
		}
		live |= 1 << p
		c.blocks++
		c.refs[id]++
		if err := ix.checkSlot(c, slotAt(r, p), id); err != nil {
			return err
		}
	}
	if fill > 0 && (live != m.live || live == 0 || (m.named|m.alias|m.extra)&^live != 0) {
		return fmt.Errorf("U3: row %d: live %b, holders say %b; named %b, aliases %b, copies %b", r, m.live, live, m.named, m.alias, m.extra)
	}
	return nil
}

// checkSlot checks a slot with the holders of set id.
func (ix *Index) checkSlot(c *census, at slot, id uint32) (err error) {
	s, m := ix.rows.at(at.row())
	ix.sets.each(id, func(lane uint16, mask uint8) {
		if e := ix.checkHolder(c, at, ix.lanes[lane], lane, mask); e != nil {
			err = e
		}
	})
	if err != nil || m.named>>at.pos()&1 == 0 {
		return err
	}
	c.names++
	h := s.handles(at.row())[at.pos()]
	if got := ix.named(ix.namesOf(m), h, ix.keyOf(h)); got != at {
		return fmt.Errorf("U12: slot %d: its name %x belongs to %d", at, h, got)
	}
	if m.names != inCommon && ix.resolve(ix.lanes[m.names], h) != at {
		return fmt.Errorf("U12: slot %d: its name %x is in the table of lane %d, which doesn't hold it", at, h, m.names)
	}
	return nil
}

// checkHolder checks that lane l, with this number, rightly holds a slot in planes.
func (ix *Index) checkHolder(c *census, at slot, l *lane, lane uint16, mask uint8) error {
	if l == nil {
		return fmt.Errorf("U8: slot %d is held by lane %d, which isn't in use", at, lane)
	}
	c.looked++
	n := c.held[lane]
	for t := range n {
		if mask&planesOf(kv.Tier(t)) != 0 {
			n[t]++
		}
	}
	c.held[lane] = n
	if g := at.row() / groupRows; int(g/64) >= len(l.groups) || l.groups[g/64]>>(g%64)&1 == 0 {
		return fmt.Errorf("U9: lane %d holds row %d, but not its group", lane, at.row())
	}
	if l.kind == laneDense && l.page == 0 {
		if h := ix.nameOf(l, at); ix.resolve(l, h) != at {
			return fmt.Errorf("U11: lane %d slot %d: name %x resolves to %d", lane, at, h, ix.resolve(l, h))
		}
	}
	_, m := ix.rows.at(at.row())
	for p := uint8(1); p < 1<<planes; p <<= 1 {
		if ix.copies[ix.copyKey(l, at, p)] == 0 {
			continue
		}
		if c.copies++; mask&p == 0 || m.extra>>at.pos()&1 == 0 {
			return fmt.Errorf("U13: lane %d slot %d: copies in plane %b, held in %b, row says %b", lane, at, p, mask, m.extra)
		}
	}
	return nil
}

// checkSets checks the sets of holders.
func (ix *Index) checkSets(c *census) error {
	interned := 0
	for id, n := range c.refs {
		if id < firstInterned {
			continue
		}
		interned++
		if h := ix.sets.get(id); h == nil || h.refs != n || ix.sets.bySum[h.sum] != id {
			return fmt.Errorf("U7: set %d is of %d slots; it is %+v", id, n, h)
		}
	}
	if interned != len(ix.sets.bySum) {
		return fmt.Errorf("U7: %d sets, of which %d are used", len(ix.sets.bySum), interned)
	}
	return nil
}

// checkTables checks the tables of names and heads, and what they take.
func (ix *Index) checkTables(c *census) error {
	none := func(uint32, uint32) error { return nil }
	if err := ix.heads.Check(none); err != nil {
		return fmt.Errorf("U1: heads: %w", err)
	}
	tables := []*table.Table{&ix.common}
	for _, l := range ix.lanes {
		if l != nil {
			tables = append(tables, &l.names)
		}
	}
	names, bytes := 0, int64(0)
	for _, t := range tables {
		if err := t.Check(none); err != nil {
			return fmt.Errorf("U12: names: %w", err)
		}
		names += t.Len()
		bytes += t.Bytes()
	}
	switch {
	case c.rows != ix.heads.Len():
		return fmt.Errorf("U1: %d rows have %d heads", c.rows, ix.heads.Len())
	case c.names != names:
		return fmt.Errorf("U12: %d names of slots, %d in tables", c.names, names)
	case c.blocks != ix.blocks || bytes != ix.tables.Bytes() || ix.heads.Bytes() != ix.headTables.Bytes():
		return fmt.Errorf("U18: %d blocks, tables of %d and %d bytes; counted %d, %d, %d",
			ix.blocks, ix.tables.Bytes(), ix.headTables.Bytes(), c.blocks, bytes, ix.heads.Bytes())
	case c.rows+ix.retiredRows != ix.rows.inUse:
		return fmt.Errorf("U6: %d rows taken, of which %d are in use and %d retired", ix.rows.inUse, c.rows, ix.retiredRows)
	}
	return nil
}

// checkLanes checks what is counted of each lane, and what readers see of it.
func (ix *Index) checkLanes(c *census) error {
	aliases, slid, pageMemory := 0, 0, int64(0)
	for id, l := range ix.lanes {
		if l == nil {
			continue
		}
		aliases += l.aliases
		slid += len(l.slid)
		if l.kind != laneSliding && l.count != c.held[uint16(id)] {
			return fmt.Errorf("U8: lane %d counts %v, holds %v", id, l.count, c.held[uint16(id)])
		}
		plain := len(l.t.lanes) == 1 && l.kind == laneDense
		v := laneInfo(ix.info[id].Load())
		if special := ix.special[id/64].Load()>>(id%64)&1 == 1; special == plain || v.plain() != plain || v.kind() != l.kind || v.target() != int(l.t.id) {
			return fmt.Errorf("U10: lane %d of target %d, kind %d, plain: %v; readers see %x, special: %v", id, l.t.id, l.kind, plain, v, special)
		}
		if l.pages != nil {
			if err := l.pages.check(c.held[uint16(id)]); err != nil {
				return fmt.Errorf("lane %d: %w", id, err)
			}
			pageMemory += l.pages.counted
			c.looked += 2 * l.pages.index.Len()
		}
	}
	if aliases != len(ix.aliasOf) || aliases != len(ix.byAlias) {
		return fmt.Errorf("U11: %d names of one's own, in tables %d and %d", aliases, len(ix.aliasOf), len(ix.byAlias))
	}
	if slid != ix.slidNames || pageMemory != ix.pageMemory {
		return fmt.Errorf("U18: %d sliding names, %d bytes of pages; counted %d, %d", ix.slidNames, ix.pageMemory, slid, pageMemory)
	}
	return nil
}

// checkOrphans checks who waits for what.
func (ix *Index) checkOrphans(*census) error {
	all, names := 0, 0
	per := map[*target]int{}
	for o := ix.orphans.first; o != nil; o = o.inAll.after {
		n := units(len(o.handles), len(o.tokens))
		all += n
		per[o.l.t] += n
		names += len(o.handles)
		if ix.knows(o.l, o.parent) {
			return fmt.Errorf("U19: an orphan of lane %d waits for %x, which is known", o.l.id, o.parent)
		}
	}
	inMap := 0
	for _, list := range ix.orphaned {
		inMap += len(list)
	}
	if all != ix.orphanUnits || all > ix.cfg.Orphans || names != inMap {
		return fmt.Errorf("U19: orphans of %d units, counted %d of at most %d; %d names, in the table %d", ix.orphanUnits, all, ix.cfg.Orphans, names, inMap)
	}
	for t, n := range per {
		if n != t.orphanUnits || n > ix.cfg.OrphansPerTarget {
			return fmt.Errorf("U19: target %d: orphans of %d units, counted %d of at most %d", t.id, t.orphanUnits, n, ix.cfg.OrphansPerTarget)
		}
	}
	return nil
}
