package bpe

import (
	"encoding/binary"
	"sync/atomic"
)

// A cache remembers the ids of short words. It is one fixed table shared by
// all goroutines of a tokenizer: no lock, no allocation, no growth; a newcomer
// overwrites what lies in its place. An entry is one cache line, guarded by a
// sequence number in the first word: a reader that sees it change forgets what
// it read, a writer that finds it taken goes away.
type cache struct {
	entries []entry
	shift   uint
}

// entry: sequence<<17 | busy<<16 | number of ids<<8 | length of the word, four
// words of key (31 bytes), three words of ids, three ids to a word.
type entry [8]atomic.Uint64

const (
	cacheBits = 15 // 32,768 entries of 64 bytes: 2 MiB
	busy      = 1 << 16
	maxKey    = 31
	maxIDs    = 9
	idBits    = 21
	idMask    = 1<<idBits - 1
	partial   = 0x80 // in the length: part of a word, where that makes a difference
)

func newCache() *cache {
	return &cache{entries: make([]entry, 1<<cacheBits), shift: 64 - cacheBits}
}

// key is a word of up to maxKey bytes, padded with zeros.
type key [4]uint64

// load reads b[i:j]. It reads whole machine words where b is long enough.
func (k *key) load(b []byte, i, j int) {
	n := uint(j - i)
	if i+32 > len(b) {
		var tail [32]byte
		copy(tail[:], b[i:j])
		b, i = tail[:], 0
	}
	c := b[i : i+32]
	k[0] = binary.LittleEndian.Uint64(c)
	k[1] = binary.LittleEndian.Uint64(c[8:])
	if n < 8 {
		k[0], k[1] = k[0]&(1<<(8*n)-1), 0
		return
	}
	if n < 16 {
		k[1] &= 1<<(8*(n-8)) - 1
		return
	}
	k[2] = binary.LittleEndian.Uint64(c[16:])
	k[3] = binary.LittleEndian.Uint64(c[24:])
	if n < 24 {
		k[2], k[3] = k[2]&(1<<(8*(n-16))-1), 0
		return
	}
	k[3] &= 1<<(8*(n-24)) - 1
}

func (c *cache) place(k *key, n uint64) *entry {
	h := fold(k[0]^mix2, k[1]^mix1^n<<56)
	if n&^partial >= 16 {
		h ^= fold(k[2]^mix1, k[3]^mix2)
	}
	return &c.entries[h*mix1>>(c.shift&63)]
}

// get appends the ids of the word, if it is known. n is its length, with
// partial if need be.
func (c *cache) get(dst []uint32, k *key, n uint64) ([]uint32, bool) {
	e := c.place(k, n)
	m := e[0].Load()
	if m&(busy|0xff) != n || e[1].Load() != k[0] || e[2].Load() != k[1] {
		return dst, false
	}
	if n&^partial >= 16 && (e[3].Load() != k[2] || e[4].Load() != k[3]) {
		return dst, false
	}
	was := len(dst)
	v := e[5].Load()
	dst = append(dst, uint32(v)&idMask)
	if count := int(m >> 8 & 0xff); count > 1 {
		for i := 1; i < count; i++ {
			if v >>= idBits; i%3 == 0 {
				v = e[5+i/3].Load()
			}
			dst = append(dst, uint32(v)&idMask)
		}
	}
	if e[0].Load() != m {
		return dst[:was], false
	}
	return dst, true
}

// put remembers a word of up to maxKey bytes and 1 to maxIDs ids.
func (c *cache) put(k *key, n uint64, ids []uint32) {
	if len(ids) == 0 || len(ids) > maxIDs {
		return
	}
	e := c.place(k, n)
	m := e[0].Load()
	if m&busy != 0 || !e[0].CompareAndSwap(m, m|busy) {
		return
	}
	e[1].Store(k[0])
	e[2].Store(k[1])
	if n&^partial >= 16 {
		e[3].Store(k[2])
		e[4].Store(k[3])
	}
	var v uint64
	for i, id := range ids {
		v |= uint64(id) << (i % 3 * idBits)
		if i%3 == 2 || i == len(ids)-1 {
			e[5+i/3].Store(v)
			v = 0
		}
	}
	e[0].Store((m>>17+1)<<17 | uint64(len(ids))<<8 | n)
}
