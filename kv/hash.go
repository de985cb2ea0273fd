package kv

import (
	"math/bits"
	"slices"
	"sync/atomic"
)

// A Seed starts every chain, per process or per cluster, so that hashes can't be
// prepared from outside.
type Seed uint64

// Multipliers with well-spread bits (fractional parts of sqrt of small primes).
const (
	m0 = 0x6a09e667f3bcc909
	m1 = 0xbb67ae8584caa73b
	m2 = 0x3c6ef372fe94f82b
	m3 = 0xa54ff53a5f1d36f1
)

// mix is the folded product of wyhash (github.com/wangyi-fudan/wyhash, public
// domain), in its form that keeps both factors: where one of them is 0, the
// other still shows, so no input makes everything after it collide.
func mix(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo ^ a ^ b
}

// keys are the secrets of a seed, one for each place where they are used. The
// seed goes through mix more than once, so that keys don't differ by a constant
// that anyone knows.
type keys struct {
	a, b, c, d uint64
	n          [8]uint64 // of the words of a block, see content
}

// keys returns the keys of s, in own unless they are known.
func (s Seed) keys(own *keys) *keys {
	if f := first.Load(); f != nil && f.seed == s {
		return &f.keys
	}
	own.expand(s)
	if first.Load() == nil {
		first.CompareAndSwap(nil, &expanded{s, *own})
	}
	return own
}

func (k *keys) expand(s Seed) {
	x := mix(uint64(s)^m0, m1)
	x = mix(x^m2, m3)
	k.a, k.b, k.c, k.d = mix(x^m0, m2), mix(x^m1, m3), mix(x^m2, m0), mix(x^m3, m1)
	for i := range k.n {
		k.n[i] = mix(x+uint64(i+1)*m0, m1)
	}
}

// first has the keys of the first seed that was used. A process has one, and to
// expand it costs as much as to hash a block. It never changes again.
var first atomic.Pointer[expanded]

type expanded struct {
	seed Seed
	keys keys
}

// Root returns what the first block of a chain under key chains to. The block
// size is part of it: chains of different block sizes never meet. Each part is
// tagged and length-prefixed, so ("ab","c") and ("a","bc") differ.
func (s Seed) Root(key Key, blockSize int) Hash {
	var own keys
	k := s.keys(&own)
	h := mix(k.a^m0, uint64(blockSize)^k.b)
	h = mixString(k, h, 1, key.Model)
	h = mixString(k, h, 2, key.LoRA)
	h = mixString(k, h, 3, key.Salt)
	return Hash(h)
}

// Extra returns the digest of extra content id, which begins offset tokens after
// the block's first token (negative if before).
func (s Seed) Extra(id string, offset int) uint64 {
	var own keys
	k := s.keys(&own)
	return mix(mixString(k, k.c^m2, 4, id)^m3, uint64(int64(offset))^k.d)
}

// Extend appends the hashes of the full blocks of tokens to dst and returns it.
// parent is Root's result or the hash of the block before. extras are in order
// of Block. A partial tail is not hashed.
func (s Seed) Extend(dst []Hash, parent Hash, tokens []uint32, blockSize int, extras []Extra) []Hash {
	if blockSize <= 0 {
		return dst
	}
	var own keys
	k := s.keys(&own)
	h := uint64(parent)
	dst = slices.Grow(dst, len(tokens)/blockSize)
	if blockSize == 16 && len(extras) == 0 {
		return k.extend16(dst, h, tokens)
	}
	for b := 0; len(tokens) >= blockSize; b++ {
		// The content of a block doesn't depend on its parent, so successive
		// blocks overlap in the processor's pipeline; only the second line waits.
		c := k.content(tokens[:blockSize])
		h = mix(h^k.c, c)
		tokens = tokens[blockSize:]
		for len(extras) > 0 && extras[0].Block <= b {
			if extras[0].Block == b {
				h = mix(h^k.d, extras[0].Digest^k.a)
			}
			extras = extras[1:]
		}
		dst = append(dst, Hash(h))
	}
	return dst
}

// content hashes the tokens of one block, independent of its parent: the
// products of NH (UMAC; Black et al., CRYPTO 1999, RFC 4418) on 64-bit words, 16
// tokens at a time. Every word meets a secret key before it is multiplied, so
// two blocks that differ in one pair of words collide with a chance of 2^-63
// over the keys, whatever they contain. (Products are combined by xor instead of
// NH's sum, which costs the proof for several pairs and saves the carries.) The
// length is part of the block's root.
func (k *keys) content(t []uint32) uint64 {
	var acc uint64
	for len(t) > 16 {
		acc = mix(acc^k.a, k.words((*[16]uint32)(t))^k.b)
		t = t[16:]
	}
	if len(t) == 16 {
		return acc ^ k.words((*[16]uint32)(t))
	}
	var last [16]uint32
	copy(last[:], t)
	return acc ^ k.words(&last)
}

// extend16 is Extend for the block size that most engines have, seen whole by
// the compiler.
func (k *keys) extend16(dst []Hash, h uint64, tokens []uint32) []Hash {
	c, d := k.c, k.d
	for len(tokens) >= 16 {
		p := (*[16]uint32)(tokens)
		hi, lo := bits.Mul64(pair(p[0], p[1])+k.n[0], pair(p[2], p[3])+k.n[1])
		hi1, lo1 := bits.Mul64(pair(p[4], p[5])+k.n[2], pair(p[6], p[7])+k.n[3])
		hi2, lo2 := bits.Mul64(pair(p[8], p[9])+k.n[4], pair(p[10], p[11])+k.n[5])
		hi3, lo3 := bits.Mul64(pair(p[12], p[13])+k.n[6], pair(p[14], p[15])+k.n[7])
		hi ^= hi1 ^ hi2 ^ hi3
		lo ^= lo1 ^ lo2 ^ lo3
		h = mix(h^c, mix(lo^c, hi^d))
		dst = append(dst, Hash(h))
		tokens = tokens[16:]
	}
	return dst
}

// words is NH of 16 tokens, folded to 64 bits.
func (k *keys) words(p *[16]uint32) uint64 {
	hi, lo := bits.Mul64(pair(p[0], p[1])+k.n[0], pair(p[2], p[3])+k.n[1])
	hi1, lo1 := bits.Mul64(pair(p[4], p[5])+k.n[2], pair(p[6], p[7])+k.n[3])
	hi2, lo2 := bits.Mul64(pair(p[8], p[9])+k.n[4], pair(p[10], p[11])+k.n[5])
	hi3, lo3 := bits.Mul64(pair(p[12], p[13])+k.n[6], pair(p[14], p[15])+k.n[7])
	return mix(lo^lo1^lo2^lo3^k.c, hi^hi1^hi2^hi3^k.d)
}

func pair(a, b uint32) uint64 { return uint64(a) | uint64(b)<<32 }

func mixString(k *keys, h uint64, tag uint64, s string) uint64 {
	h = mix(h^tag, uint64(len(s))^k.c)
	for len(s) >= 8 {
		w := uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
			uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
		h = mix(h^w, k.d)
		s = s[8:]
	}
	var w uint64
	for i := 0; i < len(s); i++ {
		w |= uint64(s[i]) << (8 * i)
	}
	return mix(h^w, k.a)
}
