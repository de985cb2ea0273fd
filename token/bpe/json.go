package bpe

import (
	"bytes"
	"fmt"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// A reader walks a JSON text once, front to back, without building values:
// a vocabulary and its merges are tens of megabytes, and encoding/json would
// make millions of strings of them. The first error stops it.
type reader struct {
	b   []byte
	i   int
	err error
	buf []byte // the last unescaped string
}

// maxDepth bounds nested values: the reader recurses.
const maxDepth = 64

func (r *reader) fail(what string) {
	if r.err == nil {
		r.err = fmt.Errorf("at byte %d: %s", r.i, what)
		r.i = len(r.b)
	}
}

func (r *reader) space() {
	for r.i < len(r.b) {
		switch r.b[r.i] {
		case ' ', '\n', '\r', '\t':
			r.i++
		default:
			return
		}
	}
}

// next is the next byte that is not white space, 0 at the end.
func (r *reader) next() byte {
	r.space()
	if r.i < len(r.b) {
		return r.b[r.i]
	}
	return 0
}

func (r *reader) expect(c byte) {
	if r.next() != c {
		r.fail("want '" + string(rune(c)) + "'")
		return
	}
	r.i++
}

// object calls each for every key; each must consume the value. The key is
// valid until the next string is read.
func (r *reader) object(each func(key []byte)) {
	r.list('{', '}', func() {
		k := r.string()
		r.expect(':')
		if r.err == nil {
			each(k)
		}
	})
}

// array calls each before every element; each must consume it.
func (r *reader) array(each func()) { r.list('[', ']', each) }

func (r *reader) list(open, end byte, each func()) {
	r.expect(open)
	if r.next() == end {
		r.i++
		return
	}
	for r.err == nil {
		each()
		if r.next() == end {
			r.i++
			return
		}
		r.expect(',')
	}
}

// string reads a string and returns its UTF-8 form: a part of the input if
// nothing was escaped, else the reader's buffer. Lone surrogates become U+FFFD.
func (r *reader) string() []byte {
	r.expect('"')
	if r.err != nil {
		return nil
	}
	start := r.i
	for r.i < len(r.b) {
		switch c := r.b[r.i]; {
		case c == '"':
			r.i++
			return r.b[start : r.i-1]
		case c == '\\':
			return r.escaped(start)
		case c < ' ':
			r.fail("control character in a string")
			return nil
		}
		r.i++
	}
	r.fail("string without an end")
	return nil
}

func (r *reader) escaped(start int) []byte {
	r.buf = append(r.buf[:0], r.b[start:r.i]...)
	for r.i < len(r.b) {
		c := r.b[r.i]
		r.i++
		switch {
		case c == '"':
			return r.buf
		case c < ' ':
			r.fail("control character in a string")
			return nil
		case c != '\\':
			r.buf = append(r.buf, c)
			continue
		case r.i == len(r.b):
			r.fail("string without an end")
			return nil
		}
		c = r.b[r.i]
		r.i++
		if k := bytes.IndexByte([]byte(`"\/bfnrt`), c); k >= 0 {
			r.buf = append(r.buf, "\"\\/\b\f\n\r\t"[k])
			continue
		}
		if c != 'u' {
			r.fail("unknown escape")
			return nil
		}
		u := r.hex4()
		if utf16.IsSurrogate(u) && r.i+1 < len(r.b) && r.b[r.i] == '\\' && r.b[r.i+1] == 'u' {
			at := r.i
			r.i += 2
			if x := utf16.DecodeRune(u, r.hex4()); x != utf8.RuneError {
				u = x
			} else {
				r.i = at
			}
		}
		r.buf = utf8.AppendRune(r.buf, u)
	}
	r.fail("string without an end")
	return nil
}

func (r *reader) hex4() rune {
	if r.i+4 <= len(r.b) {
		if u, err := strconv.ParseUint(string(r.b[r.i:r.i+4]), 16, 16); err == nil {
			r.i += 4
			return rune(u)
		}
	}
	r.fail("want four hexadecimal digits")
	return utf8.RuneError
}

// id reads a token id: an integer from 0 to maxID.
func (r *reader) id() uint32 {
	r.space()
	n, start := uint64(0), r.i
	for r.i < len(r.b) && '0' <= r.b[r.i] && r.b[r.i] <= '9' && n <= maxID {
		n = n*10 + uint64(r.b[r.i]-'0')
		r.i++
	}
	if r.i == start || n > maxID {
		r.fail(fmt.Sprintf("want a token id from 0 to %d", maxID))
	}
	return uint32(n)
}

// raw skips a value and returns its text.
func (r *reader) raw() []byte {
	r.space()
	start := r.i
	r.skip(0)
	if r.err != nil {
		return nil
	}
	return r.b[start:r.i]
}

func (r *reader) skip(depth int) {
	if depth > maxDepth {
		r.fail(fmt.Sprintf("nested deeper than %d", maxDepth))
		return
	}
	switch c := r.next(); c {
	case '{':
		r.object(func([]byte) { r.skip(depth + 1) })
	case '[':
		r.array(func() { r.skip(depth + 1) })
	case '"':
		r.string()
	default:
		start := r.i
		for r.i < len(r.b) && bytes.IndexByte([]byte(",]} \n\r\t"), r.b[r.i]) < 0 {
			r.i++
		}
		if r.i == start {
			r.fail("want a value")
		}
	}
}
