package jinja

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf8"
	"unsafe"
)

// string reads a string; p.pos is at its opening quote.
func (p *Parser) string() (string, error) {
	p.pos++
	start := p.pos
	src := p.src
	i := start + plain(src[start:])
	p.pos = i
	switch {
	case i >= len(src):
		return "", p.fail("a string is not closed")
	case src[i] == '"':
		p.pos = i + 1
		return src[start:i], nil
	case src[i] == '\\':
		return p.escaped(start)
	}
	return "", p.fail("control character %q in a string", src[i])
}

// escaped goes on with a string that has an escape at p.pos. A text is never longer than its spelling,
// so there is room for it where it is written to.
func (p *Parser) escaped(start int) (string, error) {
	src := p.src
	dst := p.texts.room(len(src) - start)
	i := p.pos
	n := copy(dst, src[start:i])
	for i < len(src) {
		for len(src)-i >= 8 && len(dst)-n >= 8 {
			x := load64(src[i:])
			binary.LittleEndian.PutUint64(dst[n:], x)
			if m := special(x); m != 0 {
				k := bits.TrailingZeros64(m) / 8
				i, n = i+k, n+k
				break
			}
			i, n = i+8, n+8
		}
		if i >= len(src) {
			break
		}
		c := src[i]
		if plainInString[c] { // one of the last few bytes
			dst[n] = c
			i, n = i+1, n+1
			continue
		}
		if c == '"' {
			p.pos = i + 1
			if p.ReuseTexts {
				p.texts.taken(n)
				return unsafe.String(unsafe.SliceData(dst), n), nil
			}
			return string(dst[:n]), nil
		}
		p.pos = i
		if c != '\\' {
			return "", p.fail("control character %q in a string", c)
		}
		if i+1 >= len(src) {
			break
		}
		switch c = unescaped[src[i+1]]; c {
		case 0:
			p.pos++
			return "", p.fail("unknown escape \\%c", src[p.pos])
		case 'u':
			p.pos += 2
			r, err := p.codePoint()
			if err != nil {
				return "", err
			}
			n = len(utf8.AppendRune(dst[:n], r))
			i = p.pos
		default:
			dst[n] = c
			i, n = i+2, n+1
		}
	}
	p.pos = len(src)
	return "", p.fail("a string is not closed")
}

// unescaped gives what an escape of one letter stands for; u stays, 0 is none.
var unescaped = [256]byte{'"': '"', '\\': '\\', '/': '/', 'n': '\n', 't': '\t', 'r': '\r', 'b': '\b', 'f': '\f', 'u': 'u'}

// arena is where texts are written, one behind the other.
type arena struct {
	free []byte
	all  []byte // the current chunk, to be used again after reset
	made int    // bytes of all chunks since the last reset
	want int    // the least size of the next chunk
}

// keepTexts bounds what an arena keeps over a reset, in bytes.
const keepTexts = 4 << 20

// room gives n bytes or more, which are free until taken says how many are used.
func (a *arena) room(n int) []byte {
	if n > len(a.free) {
		a.all = make([]byte, max(n+n/8, a.want))
		a.free = a.all
		a.made += len(a.all)
	}
	return a.free
}

func (a *arena) taken(n int) { a.free = a.free[n:] }

func (a *arena) reset() {
	if a.made > len(a.all) {
		a.want = min(a.made, keepTexts)
	}
	if len(a.all) > keepTexts {
		a.all = nil
	}
	a.free, a.made = a.all, len(a.all)
}

// plain counts the bytes at the start of s that stand for themselves in a string.
func plain(s string) int {
	i := 0
	for ; i+8 <= len(s); i += 8 {
		if m := special(load64(s[i:])); m != 0 {
			return i + bits.TrailingZeros64(m)/8
		}
	}
	for i < len(s) && plainInString[s[i]] {
		i++
	}
	return i
}

// special marks the highest bit of the first of eight bytes that is a quote, a backslash or below the
// space; it may mark bytes after that one too. 0: there is none.
func special(x uint64) uint64 {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	quote, slash := x^'"'*ones, x^'\\'*ones
	return ((x-' '*ones)&^x | (quote-ones)&^quote | (slash-ones)&^slash) & highs
}

func load64(s string) uint64 {
	_ = s[7]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}

// plainInString marks the bytes that stand for themselves in a string.
var plainInString = func() (t [256]bool) {
	for c := range t {
		t[c] = c >= ' ' && c != '"' && c != '\\'
	}
	return t
}()

func (p *Parser) hex4() (rune, bool) {
	if p.pos+4 > len(p.src) {
		return 0, false
	}
	var r rune
	for _, c := range []byte(p.src[p.pos : p.pos+4]) {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			c = c | 0x20 - 'a' + 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	p.pos += 4
	return r, true
}

func (p *Parser) codePoint() (rune, error) {
	r, ok := p.hex4()
	if !ok {
		return 0, p.fail("\\u needs four hexadecimal digits")
	}
	if r < 0xd800 || r > 0xdfff {
		return r, nil
	}
	if r < 0xdc00 && p.pos+6 <= len(p.src) && p.src[p.pos] == '\\' && p.src[p.pos+1] == 'u' {
		p.pos += 2
		if lo, ok := p.hex4(); ok && lo >= 0xdc00 && lo <= 0xdfff {
			return 0x10000 + (r-0xd800)<<10 + (lo - 0xdc00), nil
		}
	}
	// Python keeps it and the engine's tokenizer then fails on it.
	return 0, p.beyond("a lone surrogate: no text has it and no engine tokenizes it")
}
