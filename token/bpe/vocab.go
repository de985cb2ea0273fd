package bpe

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"unicode/utf8"
)

const noID = ^uint32(0)

// tokens maps ids to bytes and back. The bytes of all tokens lie in one blob,
// so that a vocabulary is four allocations and no pointers for the collector.
type tokens struct {
	blob    []byte
	spans   []span   // by id; a hole has off noID
	index   []uint32 // open addressing by content, noID = free
	shift   uint
	n       int               // tokens present
	longest int               // bytes of the longest
	odd     map[string]uint32 // names in a byte-level vocabulary that spell no bytes
}

type span struct{ off, len uint32 }

func (v *tokens) bytes(id uint32) []byte {
	if int64(id) >= int64(len(v.spans)) || v.spans[id].off == noID {
		return nil
	}
	s := v.spans[id]
	return v.blob[s.off : s.off+s.len : s.off+s.len]
}

// add sets the bytes of id; build has to follow.
func (v *tokens) add(id uint32, b []byte) error {
	for int64(id) >= int64(len(v.spans)) {
		v.spans = append(v.spans, span{off: noID})
	}
	if v.spans[id].off != noID {
		return fmt.Errorf("%q and %q both have id %d", v.bytes(id), b, id)
	}
	if len(v.blob)+len(b) > 1<<31 {
		return fmt.Errorf("tokens of more than 2 GiB")
	}
	v.spans[id] = span{uint32(len(v.blob)), uint32(len(b))}
	v.blob = append(v.blob, b...)
	v.n++
	v.longest = max(v.longest, len(b))
	return nil
}

// build makes the index over the ids that are in use.
func (v *tokens) build(skip func(id uint32) bool) {
	size := uint(bits.Len(uint(2*v.n + 1)))
	v.shift = 64 - size
	v.index = make([]uint32, 1<<size)
	for i := range v.index {
		v.index[i] = noID
	}
	for id := range v.spans {
		if v.spans[id].off == noID || skip(uint32(id)) {
			continue
		}
		b := v.bytes(uint32(id))
		i := hash(b) >> v.shift
		for v.index[i] != noID && string(v.bytes(v.index[i])) != string(b) {
			i = (i + 1) & uint64(len(v.index)-1)
		}
		v.index[i] = uint32(id)
	}
}

// find gives the id of the token with these bytes, or noID.
func (v *tokens) find(b []byte) uint32 {
	for i := hash(b) >> v.shift; ; i = (i + 1) & uint64(len(v.index)-1) {
		id := v.index[i]
		if id == noID {
			return noID
		}
		if s := v.spans[id]; int(s.len) == len(b) && string(v.blob[s.off:s.off+s.len]) == string(b) {
			return id
		}
	}
}

const (
	mix1 = 0x9E3779B97F4A7C15
	mix2 = 0xD6E8FEB86659FD93
)

// hash is for tables in memory only; its high bits are the good ones.
func hash(b []byte) uint64 {
	h := uint64(len(b)) * mix2
	for len(b) >= 8 {
		h = fold(h^binary.LittleEndian.Uint64(b), mix1)
		b = b[8:]
	}
	var last uint64
	for i, c := range b {
		last |= uint64(c) << (8 * i)
	}
	return fold(h^last, mix2) * mix1
}

func fold(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo
}

// unmap undoes GPT-2's spelling of bytes as printable characters: 0x21-7E,
// A1-AC and AE-FF stand for themselves, the other 68 bytes are U+0100 and on,
// in order. It appends to dst; false says that s spells no bytes.
func unmap(dst, s []byte) ([]byte, bool) {
	for len(s) > 0 {
		r, n := utf8.DecodeRune(s)
		if r >= rune(len(spelled)) || spelled[r] < 0 {
			return dst, false
		}
		dst = append(dst, byte(spelled[r]))
		s = s[n:]
	}
	return dst, true
}

// spelled gives the byte that a character of a byte-level vocabulary stands
// for, or -1.
var spelled = func() (t [324]int16) {
	for i := range t {
		t[i] = -1
	}
	next := 256
	for b := range 256 {
		if b >= 0x21 && b <= 0x7E || b >= 0xA1 && b <= 0xAC || b >= 0xAE {
			t[b] = int16(b)
		} else {
			t[next] = int16(b)
			next++
		}
	}
	return t
}()

func (s *spec) readVocab(data []byte) error {
	r := &reader{b: data}
	v := &s.vocab
	v.blob = make([]byte, 0, len(data)/2)
	v.spans = make([]span, 0, len(data)/40)
	v.odd = map[string]uint32{}
	odd := map[uint32]bool{}
	var buf []byte
	var failed error
	r.object(func(key []byte) {
		b, ok := key, true // the key is valid until the next string is read
		if s.byteLevel {
			if buf, ok = unmap(buf[:0], key); ok {
				b = buf
			}
		}
		id := r.id()
		if r.err != nil || failed != nil {
			return
		}
		if failed = v.add(id, b); !ok {
			v.odd[string(key)] = id
			odd[id] = true
		}
	})
	if r.err != nil {
		return r.err
	}
	if failed != nil {
		return failed
	}
	v.build(func(id uint32) bool { return odd[id] })
	return nil
}

// A merge joins two neighbours; its rank is its place in the list.
type merge struct{ left, right, joined uint32 }

func (s *spec) readMerges(data []byte) error {
	r := &reader{b: data}
	s.merges = make([]merge, 0, len(data)/24)
	var failed error
	var left, right, both []byte
	r.array(func() {
		ok := true
		if r.next() == '[' {
			part := 0
			r.array(func() {
				t := r.string()
				switch part {
				case 0:
					left = append(left[:0], t...)
				case 1:
					right = append(right[:0], t...)
				}
				part++
			})
			ok = part == 2
		} else {
			t := r.string()
			at := -1
			for i, c := range t {
				if c == ' ' {
					ok = ok && at < 0
					at = i
				}
			}
			if ok = ok && at >= 0; ok {
				left, right = append(left[:0], t[:at]...), append(right[:0], t[at+1:]...)
			}
		}
		if r.err != nil || failed != nil {
			return
		}
		if !ok {
			failed = fmt.Errorf("merge %d: want two tokens", len(s.merges))
			return
		}
		if s.byteLevel {
			left, right = respell(left), respell(right)
		}
		both = append(append(both[:0], left...), right...)
		m := merge{s.vocab.find(left), s.vocab.find(right), s.vocab.find(both)}
		if m.left == noID || m.right == noID || m.joined == noID {
			failed = fmt.Errorf("merge %d: %q + %q = %q: not all of them are in the vocabulary", len(s.merges), left, right, both)
			return
		}
		s.merges = append(s.merges, m)
	})
	if r.err != nil {
		return r.err
	}
	return failed
}

// respell unmaps in place; what spells no bytes is left, and not found later.
func respell(b []byte) []byte {
	out, ok := unmap(make([]byte, 0, 64), b)
	if !ok {
		return b
	}
	return append(b[:0], out...)
}
