package kv

import "math/bits"

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

func mix(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo
}

// Root returns what the first block of a chain under key chains to. The block
// size is part of it: chains of different block sizes never meet. Each part is
// tagged and length-prefixed, so ("ab","c") and ("a","bc") differ.
func (s Seed) Root(key Key, blockSize int) Hash {
	h := mix(uint64(s)^m0, uint64(blockSize)^m1)
	h = mixString(h, 1, key.Model)
	h = mixString(h, 2, key.LoRA)
	h = mixString(h, 3, key.Salt)
	return Hash(h)
}

// Extra returns the digest of extra content id, which begins offset tokens after
// the block's first token (negative if before).
func (s Seed) Extra(id string, offset int) uint64 {
	return mix(mixString(uint64(s)^m2, 4, id)^m3, uint64(int64(offset))^m1)
}

// Extend appends the hashes of the full blocks of tokens to dst and returns it.
// parent is Root's result or the hash of the block before. extras are in order
// of Block. A partial tail is not hashed.
func (s Seed) Extend(dst []Hash, parent Hash, tokens []uint32, blockSize int, extras []Extra) []Hash {
	if blockSize <= 0 {
		return dst
	}
	h := uint64(parent)
	for b := 0; len(tokens) >= blockSize; b++ {
		h = mix(h^m1, hashBlock(tokens[:blockSize])^m2)
		for len(extras) > 0 && extras[0].Block <= b {
			if extras[0].Block == b {
				h = mix(h^m3, extras[0].Digest^m0)
			}
			extras = extras[1:]
		}
		dst = append(dst, Hash(h))
		tokens = tokens[blockSize:]
	}
	return dst
}

// hashBlock hashes the tokens of one block, independent of its parent, so that
// successive blocks overlap in the processor's pipeline.
func hashBlock(t []uint32) uint64 {
	a, b := uint64(m0)^uint64(len(t)), uint64(m1)
	for len(t) >= 4 {
		a = mix(a^(uint64(t[0])|uint64(t[1])<<32), m2)
		b = mix(b^(uint64(t[2])|uint64(t[3])<<32), m3)
		t = t[4:]
	}
	for _, v := range t {
		a = mix(a^uint64(v), m3)
	}
	return mix(a^m3, b^m2)
}

func mixString(h uint64, tag uint64, s string) uint64 {
	h = mix(h^tag, uint64(len(s))^m2)
	for len(s) >= 8 {
		w := uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
			uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
		h = mix(h^w, m1)
		s = s[8:]
	}
	var w uint64
	for i := 0; i < len(s); i++ {
		w |= uint64(s[i]) << (8 * i)
	}
	return mix(h^w, m3)
}
