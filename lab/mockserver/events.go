package mockserver

import (
	"encoding/binary"
	"fmt"
	"math"

	"kvasir/kv"
)

// A Dialect is how an engine writes its KV events.
type Dialect string

// The dialects (fixtures/vllm, "How it changed over releases").
const (
	Maps   Dialect = "map"   // vLLM since 0.25: an event is a map with a key "type"
	Arrays Dialect = "array" // vLLM 0.22 to 0.24: an event is an array, its tag first
)

func (d Dialect) validate() error {
	if d == Maps || d == Arrays {
		return nil
	}
	return fmt.Errorf("dialect %q, want map or array", string(d))
}

// A stored is what a BlockStored event says.
type stored struct {
	hashes    []kv.Hash
	parent    kv.Hash
	root      bool // no parent
	tokens    []uint32
	blockSize int
	salt      string // in the extra key of the first block; root only
	session   string
}

// batch builds one message's payload: [ts, [event...], rank].
type batch struct {
	dialect Dialect
	n       int
	body    []byte // the events
}

func (b *batch) reset() { b.n, b.body = 0, b.body[:0] }

// payload returns the whole batch; it appends to dst.
func (b *batch) payload(dst []byte, ts float64, rank int) []byte {
	dst = append(dst, 0x93, 0xcb)
	dst = binary.BigEndian.AppendUint64(dst, math.Float64bits(ts))
	dst = packArray(dst, b.n)
	dst = append(dst, b.body...)
	return packUint(dst, uint64(rank))
}

func (b *batch) stored(s *stored) {
	b.n++
	o := b.body
	if b.dialect == Arrays {
		o = packArray(o, 12)
		o = packString(o, "BlockStored")
		o = packHashes(o, s.hashes)
		o = packParent(o, s)
		o = packTokens(o, s.tokens)
		o = packUint(o, uint64(s.blockSize))
		o = append(o, 0xc0) // lora_id
		o = packString(o, "GPU")
		o = append(o, 0xc0) // lora_name
		o = packExtra(o, s)
		o = packUint(o, 0) // group_idx
		o = packString(o, "full_attention")
		b.body = append(o, 0xc0) // kv_cache_spec_sliding_window
		return
	}
	n := 11
	if len(s.hashes) == 0 {
		n--
	}
	if s.session != "" {
		n++
	}
	o = packMap(o, n)
	o = packString(packString(o, "type"), "BlockStored")
	o = packHashes(packString(o, "block_hashes"), s.hashes)
	o = packParent(packString(o, "parent_block_hash"), s)
	o = packTokens(packString(o, "token_ids"), s.tokens)
	o = packUint(packString(o, "block_size"), uint64(s.blockSize))
	o = append(packString(o, "lora_id"), 0xc0)
	o = packString(packString(o, "medium"), "GPU")
	o = append(packString(o, "lora_name"), 0xc0)
	if len(s.hashes) > 0 {
		o = packExtra(packString(o, "extra_keys"), s)
	}
	o = packUint(packString(o, "group_idx"), 0)
	o = packString(packString(o, "kv_cache_spec_kind"), "full_attention")
	if s.session != "" {
		o = packString(packString(o, "session_id"), s.session)
	}
	b.body = o
}

func (b *batch) removed(h kv.Hash) {
	b.n++
	o := b.body
	if b.dialect == Arrays {
		o = packString(packArray(o, 4), "BlockRemoved")
		o = packHashes(o, []kv.Hash{h})
		o = packString(o, "GPU")
		b.body = packUint(o, 0)
		return
	}
	o = packString(packString(packMap(o, 4), "type"), "BlockRemoved")
	o = packHashes(packString(o, "block_hashes"), []kv.Hash{h})
	o = packString(packString(o, "medium"), "GPU")
	b.body = packUint(packString(o, "group_idx"), 0)
}

func (b *batch) cleared() {
	b.n++
	if b.dialect == Arrays {
		b.body = packString(packArray(b.body, 1), "AllBlocksCleared")
		return
	}
	b.body = packString(packString(packMap(b.body, 1), "type"), "AllBlocksCleared")
}

func packParent(o []byte, s *stored) []byte {
	if s.root {
		return append(o, 0xc0)
	}
	return packUint(o, uint64(s.parent))
}

func packHashes(o []byte, hs []kv.Hash) []byte {
	o = packArray(o, len(hs))
	for _, h := range hs {
		o = packUint(o, uint64(h))
	}
	return o
}

func packTokens(o []byte, ts []uint32) []byte {
	o = packArray(o, len(ts))
	for _, t := range ts {
		o = packUint(o, uint64(t))
	}
	return o
}

// packExtra writes extra_keys: one entry a block, nil or a list; the salt stands
// in the first block only.
func packExtra(o []byte, s *stored) []byte {
	o = packArray(o, len(s.hashes))
	for i := range s.hashes {
		if i == 0 && s.root && s.salt != "" {
			o = packString(packArray(o, 1), s.salt)
		} else {
			o = append(o, 0xc0)
		}
	}
	return o
}

// The msgpack writers: shortest forms, as msgspec writes them.

func packUint(o []byte, n uint64) []byte {
	switch {
	case n < 1<<7:
		return append(o, byte(n))
	case n < 1<<8:
		return append(o, 0xcc, byte(n))
	case n < 1<<16:
		return binary.BigEndian.AppendUint16(append(o, 0xcd), uint16(n))
	case n < 1<<32:
		return binary.BigEndian.AppendUint32(append(o, 0xce), uint32(n))
	}
	return binary.BigEndian.AppendUint64(append(o, 0xcf), n)
}

func packArray(o []byte, n int) []byte { return packLen(o, n, 0x90, 0xdc) }
func packMap(o []byte, n int) []byte   { return packLen(o, n, 0x80, 0xde) }

func packLen(o []byte, n int, fix, wide byte) []byte {
	switch {
	case n < 16:
		return append(o, fix|byte(n))
	case n < 1<<16:
		return binary.BigEndian.AppendUint16(append(o, wide), uint16(n))
	}
	return binary.BigEndian.AppendUint32(append(o, wide+1), uint32(n))
}

func packString(o []byte, s string) []byte {
	switch n := len(s); {
	case n < 32:
		o = append(o, 0xa0|byte(n))
	case n < 1<<8:
		o = append(o, 0xd9, byte(n))
	case n < 1<<16:
		o = binary.BigEndian.AppendUint16(append(o, 0xda), uint16(n))
	default:
		o = binary.BigEndian.AppendUint32(append(o, 0xdb), uint32(n))
	}
	return append(o, s...)
}
