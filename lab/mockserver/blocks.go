package mockserver

import (
	"crypto/sha256"
	"encoding/binary"

	"kvasir/kv"
)

// A hasher computes vLLM's block hashes with --prefix-caching-hash-algo
// sha256_cbor (vllm/v1/core/kv_cache_utils.py; recorded vectors in testdata):
// SHA-256 over the canonical CBOR of [parent digest, [token ids], extra keys or
// null]. On the wire stands the last 8 bytes of the digest, big-endian.
type hasher struct {
	none [sha256.Size]byte // parent of a first block
	buf  []byte
}

// newHasher takes the seed that vLLM takes from PYTHONHASHSEED; "" is vLLM's
// fixed default since 0.30.
func newHasher(seed string) *hasher {
	if seed == "" {
		seed = "vllm-none-hash"
	}
	h := &hasher{}
	h.none = sha256.Sum256(cborText(nil, seed))
	return h
}

// blocks appends the wire hashes of the full blocks of tokens. salt, if any, is
// in the first block's key (and so in all).
func (h *hasher) blocks(dst []kv.Hash, tokens []uint32, blockSize int, salt string) []kv.Hash {
	parent := h.none
	for first := true; len(tokens) >= blockSize; first = false {
		b := append(h.buf[:0], 0x83)
		b = cborHead(b, 2, uint64(len(parent)))
		b = append(b, parent[:]...)
		b = cborHead(b, 4, uint64(blockSize))
		for _, t := range tokens[:blockSize] {
			b = cborHead(b, 0, uint64(t))
		}
		if first && salt != "" { // (("cache_salt", salt),): tagged since 0.31
			b = append(b, 0x81, 0x82)
			b = cborText(b, "cache_salt")
			b = cborText(b, salt)
		} else {
			b = append(b, 0xf6)
		}
		h.buf = b
		parent = sha256.Sum256(b)
		dst = append(dst, kv.Hash(binary.BigEndian.Uint64(parent[sha256.Size-8:])))
		tokens = tokens[blockSize:]
	}
	return dst
}

// cborHead appends the head of an item of this major type (RFC 8949, shortest form).
func cborHead(b []byte, major byte, n uint64) []byte {
	m := major << 5
	switch {
	case n < 24:
		return append(b, m|byte(n))
	case n < 1<<8:
		return append(b, m|24, byte(n))
	case n < 1<<16:
		return binary.BigEndian.AppendUint16(append(b, m|25), uint16(n))
	case n < 1<<32:
		return binary.BigEndian.AppendUint32(append(b, m|26), uint32(n))
	}
	return binary.BigEndian.AppendUint64(append(b, m|27), n)
}

func cborText(b []byte, s string) []byte { return append(cborHead(b, 3, uint64(len(s))), s...) }
