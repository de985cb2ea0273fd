package ledger

import (
	"math/bits"

	"kvasir/kv"
)

// A table counts how many requests of a target have each block: open addressing
// with linear probing, at most 3/4 full, no tombstones. A map would do, but it
// allocates when blocks come and go.
//
// owners is the sum of the entries that have the block. When only one is left,
// the sum is that one: so a block's sole owner is known without a list.
type table struct {
	slots []slot
	n     int
	shift uint // 64 - log2(len(slots))
}

type slot struct {
	hash   kv.Hash
	refs   uint32 // 0: empty
	owners uint32
}

const (
	minSlots  = 64
	keepSlots = 1 << 16 // an empty table bigger than this (1 MB) is given back
)

// home spreads hashes; those of kv are spread already, those of tests aren't.
func (t *table) home(h kv.Hash) int {
	return int(uint64(h) * 0x9e3779b97f4a7c15 >> t.shift)
}

func (t *table) find(h kv.Hash) (i int, found bool) {
	i = t.home(h)
	for t.slots[i].refs != 0 {
		if t.slots[i].hash == h {
			return i, true
		}
		if i++; i == len(t.slots) {
			i = 0
		}
	}
	return i, false
}

// add counts h once more, for owner. It returns the count after, and the one who
// had it alone if the count is now 2.
func (t *table) add(h kv.Hash, owner uint32) (refs, sole uint32) {
	if 4*(t.n+1) > 3*len(t.slots) {
		t.grow()
	}
	i, found := t.find(h)
	s := &t.slots[i]
	if !found {
		t.n++
		s.hash = h
	}
	sole = s.owners
	s.refs++
	s.owners += owner
	return s.refs, sole
}

// remove counts h once less. It returns the count after, and the one who has it
// alone if the count is now 1. h must be in the table.
func (t *table) remove(h kv.Hash, owner uint32) (refs, sole uint32) {
	i, found := t.find(h)
	if !found {
		return ^uint32(0), 0 // can't be; see check
	}
	s := &t.slots[i]
	s.refs--
	s.owners -= owner
	if s.refs > 0 {
		return s.refs, s.owners
	}
	t.n--
	*s = slot{}
	t.close(i)
	if t.n == 0 && len(t.slots) > keepSlots {
		*t = table{}
	}
	return 0, 0
}

// close moves later slots of the run into the hole at i.
func (t *table) close(i int) {
	mask := len(t.slots) - 1
	for j := (i + 1) & mask; t.slots[j].refs != 0; j = (j + 1) & mask {
		// j may fill the hole unless its home lies behind the hole.
		if (j-t.home(t.slots[j].hash))&mask >= (j-i)&mask {
			t.slots[i], t.slots[j] = t.slots[j], slot{}
			i = j
		}
	}
}

func (t *table) grow() {
	old := t.slots
	size := max(2*len(old), minSlots)
	t.slots = make([]slot, size)
	t.shift = uint(64 - bits.TrailingZeros(uint(size)))
	for _, s := range old {
		if s.refs != 0 {
			i, _ := t.find(s.hash)
			t.slots[i] = s
		}
	}
}

// prefix returns how many of hashes, one chain in order, are in the table from
// the first one on. Requests have whole prefixes, so what is in the table of one
// chain is a prefix of it, and its end can be found by halving.
func (t *table) prefix(hashes []kv.Hash) int {
	if t.n == 0 {
		return 0
	}
	// Grow the step first: most targets have nothing or little of a prompt.
	lo, step := 0, 1
	for lo+step <= len(hashes) {
		if _, ok := t.find(hashes[lo+step-1]); !ok {
			break
		}
		lo += step
		step *= 2
	}
	hi := min(lo+step, len(hashes)+1) // hashes[:lo] are in, hashes[:hi] are not
	for lo+1 < hi {
		m := int(uint(lo+hi) / 2)
		if _, ok := t.find(hashes[m-1]); ok {
			lo = m
		} else {
			hi = m
		}
	}
	return lo
}
