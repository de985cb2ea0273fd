package wire

import (
	"encoding/binary"
	"math"
)

// A reader walks msgpack (https://github.com/msgpack/msgpack/blob/master/spec.md)
// in place. Its methods return ok=false when the next value is of another type,
// in which case the position has not moved, or when bytes are missing, in which
// case short is set and everything after it fails.
type reader struct {
	b     []byte
	i     int
	short bool
}

// peek returns the type byte of the next value; 0xc1, which msgpack never uses,
// at the end.
func (r *reader) peek() byte {
	if r.i >= len(r.b) {
		r.short = true
		return 0xc1
	}
	return r.b[r.i]
}

// need reports whether n bytes follow.
func (r *reader) need(n int) bool {
	if n < 0 || len(r.b)-r.i < n {
		r.short = true
		return false
	}
	return true
}

// isNil consumes a nil.
func (r *reader) isNil() bool {
	if r.i < len(r.b) && r.b[r.i] == 0xc0 {
		r.i++
		return true
	}
	return false
}

// nils consumes an array of nothing but nils, and returns how many.
func (r *reader) nils() (int, bool) {
	if r.i >= len(r.b) || !isArray(r.b[r.i]) {
		return 0, false
	}
	start := r.i
	n, ok := r.arrayLen()
	if !ok {
		return 0, false
	}
	p := r.b[r.i : r.i+n]
	for len(p) >= 8 && binary.LittleEndian.Uint64(p) == 0xc0c0c0c0c0c0c0c0 {
		p = p[8:]
	}
	for len(p) > 0 && p[0] == 0xc0 {
		p = p[1:]
	}
	if len(p) > 0 {
		r.i = start
		return 0, false
	}
	r.i += n
	return n, true
}

// uintAt returns n big-endian bytes, 1, 2, 4 or 8, after the type byte and moves past them.
func (r *reader) uintAt(n int) (v uint64, ok bool) {
	if !r.need(1 + n) {
		return 0, false
	}
	p := r.b[r.i+1 : r.i+1+n]
	switch n {
	case 1:
		v = uint64(p[0])
	case 2:
		v = uint64(binary.BigEndian.Uint16(p))
	case 4:
		v = uint64(binary.BigEndian.Uint32(p))
	default:
		v = binary.BigEndian.Uint64(p)
	}
	r.i += 1 + n
	return v, true
}

// length consumes the header of an array or a map, and refuses one that claims
// more elements than bytes are left (an element takes at least one, a pair two).
func (r *reader) length(fix, mask, h16 byte, each int) (int, bool) {
	c := r.peek()
	start := r.i
	var n uint64
	switch {
	case c&^mask == fix:
		n = uint64(c & mask)
		r.i++
	case c == h16 || c == h16+1:
		v, ok := r.uintAt(2 << (c - h16))
		if !ok {
			return 0, false
		}
		n = v
	default:
		return 0, false
	}
	if n*uint64(each) > uint64(len(r.b)-r.i) {
		r.i, r.short = start, true
		return 0, false
	}
	return int(n), true
}

func (r *reader) arrayLen() (int, bool) {
	if r.i < len(r.b) { // most are short
		if n := int(r.b[r.i]) - 0x90; uint(n) < 16 && n < len(r.b)-r.i {
			r.i++
			return n, true
		}
	}
	return r.length(0x90, 0x0f, 0xdc, 1)
}

func (r *reader) mapLen() (int, bool) { return r.length(0x80, 0x0f, 0xde, 2) }

func isArray(c byte) bool { return c&0xf0 == 0x90 || c == 0xdc || c == 0xdd }
func isMap(c byte) bool   { return c&0xf0 == 0x80 || c == 0xde || c == 0xdf }
func isStr(c byte) bool   { return c&0xe0 == 0xa0 || (c >= 0xd9 && c <= 0xdb) }
func isBin(c byte) bool   { return c >= 0xc4 && c <= 0xc6 }
func isInt(c byte) bool   { return c < 0x80 || c >= 0xe0 || (c >= 0xcc && c <= 0xd3) }
func is64(c byte) bool    { return c == 0xcf || c == 0xd3 } // an int of 8 bytes

// bytes consumes a str or a bin; the result aliases the payload.
func (r *reader) bytes() ([]byte, bool) {
	c := r.peek()
	start := r.i
	n := 0
	switch {
	case c&0xe0 == 0xa0:
		n = int(c & 0x1f)
		r.i++
	case isStr(c), isBin(c):
		w := 1 << (c - 0xd9)
		if c <= 0xc6 {
			w = 1 << (c - 0xc4)
		}
		v, ok := r.uintAt(w)
		if !ok {
			return nil, false
		}
		n = int(v) // at most 2^32-1
	default:
		return nil, false
	}
	if !r.need(n) {
		r.i = start
		return nil, false
	}
	p := r.b[r.i : r.i+n]
	r.i += n
	return p, true
}

// integer consumes an int of any width. neg says that v is to be read as int64.
func (r *reader) integer() (v uint64, neg, ok bool) {
	c := r.peek()
	switch {
	case c < 0x80:
		r.i++
		return uint64(c), false, true
	case c >= 0xe0:
		r.i++
		return uint64(int64(int8(c))), true, true
	case c >= 0xcc && c <= 0xcf:
		v, ok = r.uintAt(1 << (c - 0xcc))
		return v, false, ok
	case c >= 0xd0 && c <= 0xd3:
		w := 1 << (c - 0xd0)
		v, ok = r.uintAt(w)
		shift := 64 - 8*w
		s := int64(v<<shift) >> shift
		return uint64(s), s < 0, ok
	}
	return 0, false, false
}

// small consumes an int from min to max.
func (r *reader) small(min, max int64) (int64, bool) {
	start := r.i
	v, neg, ok := r.integer()
	if !ok {
		return 0, false
	}
	if s := int64(v); (neg || v <= math.MaxInt64) && s >= min && s <= max {
		return s, true
	}
	r.i = start
	return 0, false
}

// float consumes a float or an int.
func (r *reader) float() (float64, bool) {
	switch r.peek() {
	case 0xcb:
		v, ok := r.uintAt(8)
		return math.Float64frombits(v), ok
	case 0xca:
		v, ok := r.uintAt(4)
		return float64(math.Float32frombits(uint32(v))), ok
	}
	v, neg, ok := r.integer()
	if neg {
		return float64(int64(v)), ok
	}
	return float64(v), ok
}

// skip consumes n values with everything in them. It counts instead of
// recursing, and each step consumes at least a byte, so nesting costs nothing.
func (r *reader) skip(n int) bool {
	for left := uint64(n); left > 0; left-- {
		c := r.peek()
		switch {
		case r.short:
			return false
		case c < 0x80, c >= 0xe0, c == 0xc0, c == 0xc2, c == 0xc3:
			r.i++
		case isArray(c):
			k, ok := r.arrayLen()
			if !ok {
				return false
			}
			left += uint64(k)
		case isMap(c):
			k, ok := r.mapLen()
			if !ok {
				return false
			}
			left += 2 * uint64(k)
		case isStr(c), isBin(c):
			if _, ok := r.bytes(); !ok {
				return false
			}
		default:
			w := fixedWidth(c)
			if w == 0 { // an ext, or 0xc1
				v, ok := r.ext(c)
				if !ok {
					return false
				}
				w = v
			}
			if !r.need(w) {
				return false
			}
			r.i += w
		}
	}
	return true
}

// fixedWidth returns the size of a value with its type byte, 0 if c doesn't tell.
func fixedWidth(c byte) int {
	switch {
	case c == 0xca:
		return 5
	case c == 0xcb:
		return 9
	case c >= 0xcc && c <= 0xcf:
		return 1 + 1<<(c-0xcc)
	case c >= 0xd0 && c <= 0xd3:
		return 1 + 1<<(c-0xd0)
	case c >= 0xd4 && c <= 0xd8:
		return 2 + 1<<(c-0xd4)
	}
	return 0
}

// ext consumes the length of an ext 8, 16 or 32 and returns how many bytes of type and data follow.
func (r *reader) ext(c byte) (int, bool) {
	if c < 0xc7 || c > 0xc9 {
		r.short = true // 0xc1: nothing after it can be trusted
		return 0, false
	}
	v, ok := r.uintAt(1 << (c - 0xc7))
	return int(v) + 1, ok
}
