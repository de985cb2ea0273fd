package wire

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
)

// pack is a small msgpack encoder for tests: ints in their shortest form,
// strings, bin, nil, float64, lists, and maps as kvs lists (order kept).
func pack(dst []byte, v any) []byte {
	switch v := v.(type) {
	case nil:
		return append(dst, 0xc0)
	case raw:
		return append(dst, v...)
	case int:
		if v < 0 {
			if v >= -32 {
				return append(dst, byte(int8(v)))
			}
			return binary.BigEndian.AppendUint64(append(dst, 0xd3), uint64(v))
		}
		return packUint(dst, uint64(v))
	case uint64:
		return packUint(dst, v)
	case uint32:
		return packUint(dst, uint64(v))
	case float64:
		return binary.BigEndian.AppendUint64(append(dst, 0xcb), math.Float64bits(v))
	case string:
		return append(header(dst, len(v), 0xa0, 31, 0xd9), v...)
	case []byte:
		if len(v) > 255 {
			panic("bin")
		}
		return append(append(dst, 0xc4, byte(len(v))), v...)
	case list:
		dst = header(dst, len(v), 0x90, 15, 0xdb)
		for _, x := range v {
			dst = pack(dst, x)
		}
		return dst
	case kvs:
		dst = header(dst, len(v)/2, 0x80, 15, 0xdd)
		for _, x := range v {
			dst = pack(dst, x)
		}
		return dst
	}
	panic(fmt.Sprintf("pack: %T", v))
}

type (
	list []any
	kvs  []any // key, value, key, value, …
	raw  []byte
)

func packUint(dst []byte, v uint64) []byte {
	switch {
	case v < 0x80:
		return append(dst, byte(v))
	case v <= 0xff:
		return append(dst, 0xcc, byte(v))
	case v <= 0xffff:
		return binary.BigEndian.AppendUint16(append(dst, 0xcd), uint16(v))
	case v <= 0xffffffff:
		return binary.BigEndian.AppendUint32(append(dst, 0xce), uint32(v))
	}
	return binary.BigEndian.AppendUint64(append(dst, 0xcf), v)
}

// header appends a fix, 8-bit (strings only) or 16-bit header.
func header(dst []byte, n int, fix byte, max int, first byte) []byte {
	switch {
	case n <= max:
		return append(dst, fix|byte(n))
	case first == 0xd9 && n <= 0xff:
		return append(dst, 0xd9, byte(n))
	}
	return binary.BigEndian.AppendUint16(append(dst, first+1), uint16(n))
}

// tokens is n token ids from first on.
func tokens(first, n int) list {
	var l list
	for i := range n {
		l = append(l, first+i)
	}
	return l
}

// store is a map event with the fields that are always there, and more.
func store(hashes list, parent any, toks list, bs int, more ...any) kvs {
	e := kvs{"type", "BlockStored", "block_hashes", hashes, "parent_block_hash", parent,
		"token_ids", toks, "block_size", bs, "lora_id", nil, "medium", "GPU"}
	if !slices.Contains(more, any("lora_name")) {
		e = append(e, "lora_name", nil)
	}
	return append(e, more...)
}

func batch(events ...any) []byte { return pack(nil, list{1.5, list(events), 0}) }
