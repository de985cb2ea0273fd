package bpe

import (
	"encoding/binary"
	"sync/atomic"
)

// A cache remembers the ids of short words. Its tables are fixed and shared by
// all goroutines of a tokenizer: no lock, no allocation, no growth; a newcomer
// overwrites what lies in its place. Each entry begins with a sequence number,
// odd while it is written: a reader that sees it change forgets what it read, a
// writer that finds it taken goes away.
//
// Memory latency is what a warm encode costs, so the usual word, up to 15 bytes
// and five ids, has half a cache line, and the two entries of a line may hold
// any word that falls on it.
type cache struct {
	short []line // two entries each: sequence, ids, key (2)
	long  []line // one entry: sequence<<8 | ids, ids (3), key (4)
}

type line [8]atomic.Uint64

const (
	shortBits = 15 // 32,768 lines of 64 bytes: 2 MiB, 65,536 words
	longBits  = 13 // 8,192 lines: 512 KiB

	shortKey = 15
	longKey  = 31
	shortIDs = 5
	longIDs  = 9
	idBits   = 21
	idMask   = 1<<idBits - 1 // not an id: maxID is below
	partial  = 0x80          // in the length: part of a word, where that makes a difference
)

func newCache() *cache {
	return &cache{make([]line, 1<<shortBits), make([]line, 1<<longBits)}
}

// masks keep the first n bytes of two machine words. The byte behind the longest
// word that they hold is free, and has its length.
var masks = func() (m [shortKey + 1][2]uint64) {
	for n := range m {
		m[n] = [2]uint64{1<<(8*min(n, 8)) - 1, 1<<(8*max(n-8, 0)) - 1}
	}
	return m
}()

// shortWord loads b[i:j], up to 15 bytes, in two machine words.
func shortWord(b []byte, i, j int) (k0, k1 uint64) {
	n := j - i
	m := &masks[n&shortKey]
	if i+16 > len(b) {
		var tail [16]byte
		copy(tail[:shortKey], b[i:j])
		k0, k1 = binary.LittleEndian.Uint64(tail[:]), binary.LittleEndian.Uint64(tail[8:])
	} else {
		c := b[i : i+16]
		k0, k1 = binary.LittleEndian.Uint64(c), binary.LittleEndian.Uint64(c[8:])
	}
	return k0 & m[0], k1&m[1] | uint64(n)<<56
}

func (c *cache) lineOf(k0, k1 uint64) *line {
	h := (k0*mix1 ^ k1) * mix2
	h ^= h >> 32
	return &c.short[h*mix1>>(64-shortBits)&(1<<shortBits-1)]
}

// The head of a short entry is its sequence number in the upper 22 bits and the
// fourth and fifth id below.
const headBits = 2 * idBits

// getShort appends the ids of a short word, if it is known.
func (c *cache) getShort(dst []uint32, k0, k1 uint64) ([]uint32, bool) {
	l := c.lineOf(k0, k1)
	head, v := l[0].Load(), l[1].Load()
	if l[2].Load() != k0 || l[3].Load() != k1 || head>>headBits&1 != 0 || l[0].Load() != head {
		head, v = l[4].Load(), l[5].Load()
		if l[6].Load() != k0 || l[7].Load() != k1 || head>>headBits&1 != 0 || l[4].Load() != head {
			return dst, false
		}
	}
	dst = append(dst, uint32(v)&idMask)
	v >>= idBits
	if v&idMask == idMask {
		return dst, true
	}
	dst = append(dst, uint32(v)&idMask)
	v = v>>idBits&idMask | head<<idBits
	for n := 2; n < shortIDs && v&idMask != idMask; n++ {
		dst = append(dst, uint32(v)&idMask)
		v >>= idBits
	}
	return dst, true
}

// putShort remembers 1 to 5 ids. It takes the entry that has been written less
// often, which spreads the words of a line over both.
func (c *cache) putShort(k0, k1 uint64, ids []uint32) {
	v, more := ^uint64(0), uint64(1<<headBits-1)
	for i := len(ids) - 1; i >= 0; i-- {
		if i < 3 {
			v = v<<idBits | uint64(ids[i])
		} else {
			more = more<<idBits&(1<<headBits-1) | uint64(ids[i])
		}
	}
	l := c.lineOf(k0, k1)
	a, b := l[0].Load(), l[4].Load()
	at := 0
	if b>>headBits < a>>headBits {
		a, at = b, 4
	}
	seq := a >> headBits
	if seq&1 != 0 || !l[at].CompareAndSwap(a, (seq+1)<<headBits) {
		return
	}
	l[at+1].Store(v)
	l[at+2].Store(k0)
	l[at+3].Store(k1)
	l[at].Store((seq+2)<<headBits | more)
}

// longWord loads b[i:j], up to 31 bytes.
func longWord(b []byte, i, j int) (k [4]uint64) {
	var tail [32]byte
	copy(tail[:longKey], b[i:j])
	tail[longKey] = byte(j - i)
	for x := range k {
		k[x] = binary.LittleEndian.Uint64(tail[8*x:])
	}
	return k
}

func (c *cache) longLine(k *[4]uint64) *line {
	h := fold(k[0]^mix2, k[1]^mix1) ^ fold(k[2]^mix1, k[3]^mix2)
	return &c.long[h*mix1>>(64-longBits)&(1<<longBits-1)]
}

func (c *cache) getLong(dst []uint32, k *[4]uint64) ([]uint32, bool) {
	l := c.longLine(k)
	head := l[0].Load()
	if head>>8&1 != 0 || l[4].Load() != k[0] || l[5].Load() != k[1] || l[6].Load() != k[2] || l[7].Load() != k[3] {
		return dst, false
	}
	was := len(dst)
	var v uint64
	for i := range int(head & 0xff) {
		if i%3 == 0 {
			v = l[1+i/3].Load()
		}
		dst = append(dst, uint32(v)&idMask)
		v >>= idBits
	}
	if l[0].Load() != head {
		return dst[:was], false
	}
	return dst, true
}

func (c *cache) putLong(k *[4]uint64, ids []uint32) {
	l := c.longLine(k)
	head := l[0].Load()
	if head>>8&1 != 0 || !l[0].CompareAndSwap(head, head+1<<8) {
		return
	}
	for x := range k {
		l[4+x].Store(k[x])
	}
	var v uint64
	for i, id := range ids {
		v |= uint64(id) << (i % 3 * idBits)
		if i%3 == 2 || i == len(ids)-1 {
			l[1+i/3].Store(v)
			v = 0
		}
	}
	l[0].Store((head>>8+2)<<8 | uint64(len(ids)))
}
