package bpe

import "math/bits"

// none is the value of a pair that does not merge; it is above every rank.
const none = ^uint64(0)

// pairs maps two neighbouring ids to what they merge into: rank<<32 | id. Most
// questions are about pairs that do not merge. A bitmap small enough for the
// second-level cache answers those; the table behind it is some megabytes.
type pairs struct {
	bitmap []uint64
	slots  []slot
	shift  uint // of the hash, for slots
	narrow uint // of the hash, for bitmap words
}

type slot struct{ key, val uint64 }

func newPairs(ms []merge, rank func(i int) uint32) *pairs {
	size := uint(bits.Len(uint(len(ms) + len(ms)/2)))
	size = max(size, 4)
	p := &pairs{slots: make([]slot, 1<<size), shift: 64 - size}
	words := min(max(int(size)+2-6, 4), 15) // four bits a slot, and at most 256 KiB
	p.bitmap, p.narrow = make([]uint64, 1<<words), uint(64-words)
	for i := range p.slots {
		p.slots[i].val = none
	}
	for i, m := range ms {
		key := uint64(m.left)<<32 | uint64(m.right)
		h := key * mix1
		h ^= h >> 32
		h *= mix2
		p.bitmap[h>>p.narrow] |= 1 << (h & 63)
		j := h >> p.shift
		for p.slots[j].val != none && p.slots[j].key != key {
			j = (j + 1) & uint64(len(p.slots)-1)
		}
		p.slots[j] = slot{key, uint64(rank(i))<<32 | uint64(m.joined)} // of equal pairs the last counts
	}
	return p
}

func (p *pairs) find(left, right uint32) uint64 {
	key := uint64(left)<<32 | uint64(right)
	h := key * mix1
	h ^= h >> 32
	h *= mix2
	if p.bitmap[h>>(p.narrow&63)]>>(h&63)&1 == 0 {
		return none
	}
	for j := h >> (p.shift & 63); ; j = (j + 1) & uint64(len(p.slots)-1) {
		s := &p.slots[j]
		if s.val == none {
			return none
		}
		if s.key == key {
			return s.val
		}
	}
}
