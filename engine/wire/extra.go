package wire

import (
	"slices"
	"strconv"
	"unsafe"

	"kvasir/kv"
)

// contents reads what tells blocks with equal tokens apart: vLLM's extra_keys,
// TensorRT-LLM's mm_keys and its tokens that are strings. It returns false if
// that can't be assigned to the blocks of e; then nobody knows what is in them.
//
// An element of extra_keys is, untagged on the wire: a str equal to the
// adapter's name: the adapter; another str in the first block of a chain: the
// salt; [str, int]: multimodal content and where it begins, counted from the
// block's first token; bytes: a digest of embeddings. The tagged forms that
// vLLM 0.31 hashes are taken too. What we don't know becomes an Extra of its
// own: such a block then matches no prompt, instead of a wrong one.
func (d *Decoder) contents(payload []byte, f *fields, e *kv.Event) bool {
	s := d.s
	if f.extraAt > 0 && !d.extraKeys(&reader{b: payload, i: f.extraAt}, f, e) {
		return false
	}
	if f.mmAt > 0 && !d.mmKeys(&reader{b: payload, i: f.mmAt}, e) {
		return false
	}
	if f.strTokens > 0 {
		d.stringTokens(payload, f, e)
	}
	e.Extras = s.extras[f.extras:]
	if len(e.Extras) == 0 {
		e.Extras = nil
	} else if f.mmAt > 0 || f.strTokens > 0 {
		slices.SortStableFunc(e.Extras, func(a, b kv.Extra) int { return a.Block - b.Block })
	}
	return true
}

func (d *Decoder) extraKeys(r *reader, f *fields, e *kv.Event) bool {
	n, ok := r.arrayLen()
	if !ok {
		return false
	}
	if n != len(e.Handles) {
		return n == 0
	}
	for block := range n {
		if r.isNil() {
			continue
		}
		k, ok := r.arrayLen()
		if !ok {
			d.unknownExtra(r, block)
			continue
		}
		var salt []byte // the last str that can be one
		lora := f.lora
		for range k {
			c := r.peek()
			switch {
			case isStr(c):
				p, _ := r.bytes()
				switch {
				case lora != "" && string(p) == lora:
					lora = "" // once; a salt may have the same letters
				case e.Root && block == 0:
					if salt != nil {
						d.extra(block, salt, 0)
					}
					salt = p
				default:
					d.extra(block, p, 0)
				}
			case isArray(c):
				d.extraTuple(r, block, e)
			case isBin(c):
				p, _ := r.bytes()
				d.s.extras = append(d.s.extras, kv.Extra{Block: block, Digest: d.Seed.Extra("embeds:"+string(p), 0)})
			case c == 0xc0:
				r.i++
			case isInt(c) && f.loraID > 0:
				at := r.i
				if v, _, _ := r.integer(); int64(v) != f.loraID {
					r.i = at
					d.unknownExtra(r, block)
				}
			default:
				d.unknownExtra(r, block)
			}
		}
		if len(salt) > 0 {
			e.Key.Salt = d.names.of(salt)
		}
	}
	return true
}

// extraTuple reads [hash, offset], and the tagged ["cache_salt", s],
// ["lora", name, path] and [tag, hash, offset].
func (d *Decoder) extraTuple(r *reader, block int, e *kv.Event) {
	start := r.i
	n, _ := r.arrayLen()
	if n == 2 || n == 3 {
		first, ok := r.bytes()
		if ok && n == 2 && isInt(r.peek()) {
			if off, ok := r.small(-maxBlock, maxBlock); ok {
				d.extra(block, first, int(off))
				return
			}
		} else if second, ok2 := r.bytes(); ok && ok2 {
			switch {
			case string(first) == "cache_salt" && n == 2 && e.Root && block == 0:
				e.Key.Salt = d.names.of(second)
				return
			case string(first) == "lora" && string(second) == e.Key.LoRA && r.skip(n-2):
				return
			case n == 3 && isInt(r.peek()):
				if off, ok := r.small(-maxBlock, maxBlock); ok {
					d.extra(block, second, int(off))
					return
				}
			}
		}
	}
	r.i = start
	d.unknownExtra(r, block)
}

// mmKeys reads TensorRT-LLM's form: for each block nil or a list of
// {"type": "mm_key", "hash": hex, "start_offset": n}, where n tokens of the item
// lie before the block.
func (d *Decoder) mmKeys(r *reader, e *kv.Event) bool {
	n, ok := r.arrayLen()
	if !ok {
		return false
	}
	if n != len(e.Handles) {
		return n == 0
	}
	for block := range n {
		if r.isNil() {
			continue
		}
		k, ok := r.arrayLen()
		if !ok {
			d.unknownExtra(r, block)
			continue
		}
		for range k {
			d.mmKey(r, block)
		}
	}
	return true
}

func (d *Decoder) mmKey(r *reader, block int) {
	start := r.i
	n, ok := r.mapLen()
	var hash []byte
	var off int64
	for i := 0; ok && i < n; i++ {
		var key []byte
		if key, ok = r.bytes(); !ok {
			break
		}
		switch string(key) {
		case "hash":
			hash, ok = r.bytes()
		case "start_offset":
			off, ok = r.small(0, maxBlock)
		default:
			ok = r.skip(1)
		}
	}
	if ok && len(hash) > 0 {
		d.extra(block, hash, -int(off))
		return
	}
	r.i = start
	d.unknownExtra(r, block)
}

// stringTokens walks the tokens a second time for the strings among them.
func (d *Decoder) stringTokens(payload []byte, f *fields, e *kv.Event) {
	r := reader{b: payload, i: f.tokensAt}
	n, _ := r.arrayLen()
	for i := range n {
		if c := r.peek(); !isStr(c) && !isBin(c) {
			r.skip(1)
			continue
		}
		p, _ := r.bytes()
		bs := int(e.BlockSize)
		d.extra(i/bs, p, i%bs)
	}
}

func (d *Decoder) extra(block int, id []byte, offset int) {
	digest := d.Seed.Extra(unsafe.String(unsafe.SliceData(id), len(id)), offset) // not kept
	d.s.extras = append(d.s.extras, kv.Extra{Block: block, Digest: digest})
}

// unknownExtra makes the bytes of a value an Extra.
func (d *Decoder) unknownExtra(r *reader, block int) {
	start := r.i
	r.skip(1)
	d.s.extras = append(d.s.extras, kv.Extra{Block: block, Digest: d.Seed.Extra("unknown:"+string(r.b[start:r.i]), 0)})
}

// names keeps one string for each adapter and salt, so that an event costs none.
type names map[string]string

const maxNames = 1024

func (n *names) of(p []byte) string {
	if s, ok := (*n)[string(p)]; ok {
		return s
	}
	s := string(p)
	if len(p) <= 256 {
		if *n == nil || len(*n) >= maxNames {
			*n = make(names)
		}
		(*n)[s] = s
	}
	return s
}

// name reads the name of an adapter, or a salt.
func (d *Decoder) name(r *reader) (string, bool) {
	p, ok := bytesOrNil(r)
	if len(p) == 0 {
		return "", ok
	}
	return d.names.of(p), ok
}

func (n *names) numbered(id int64) string {
	var buf [32]byte
	return n.of(strconv.AppendInt(append(buf[:0], "\x00lora_id="...), id, 10))
}
