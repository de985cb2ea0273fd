package jinja

import (
	"bytes"
	"fmt"
	"math"
	"math/big"
	"math/bits"
	"strconv"
	"unicode/utf8"
	"unsafe"
)

// maxJSONDepth bounds nesting. Python's own limit is near 1,000 levels.
const maxJSONDepth = 200

// maxIntDigits is Python's limit for reading an int.
const maxIntDigits = 4300

// JSONError says where and why a text is not JSON that Python's json.loads would take.
type JSONError struct {
	Offset int
	Reason string
	// Beyond is set for text that Python's parser might take, or fails on in another way than on
	// bad JSON: lone surrogates, deep nesting, very long integers.
	Beyond bool
}

func (e *JSONError) Error() string { return fmt.Sprintf("JSON at byte %d: %s", e.Offset, e.Reason) }

// ParseJSON reads one JSON text into a Value, as Python's json.loads does: key order kept, a repeated
// key keeps its first place and its last value, integers of any size, 1E5 is the float 100000.0,
// NaN and Infinity are numbers. Strings without escapes share data's single copy. Lone surrogates,
// invalid UTF-8 and nesting beyond 200 levels are errors.
func ParseJSON(data []byte) (Value, error) {
	var p Parser
	return p.Parse(string(bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))))
}

// Parse is ParseJSON for a string, which the Value keeps parts of. One Parser may read many texts,
// one after the other: their values then share memory.
func (p *Parser) Parse(text string) (Value, error) {
	p.src, p.pos, p.items, p.fields = text, 0, p.items[:0], p.fields[:0]
	if !utf8.ValidString(text) {
		return Value{}, p.fail("the text is not valid UTF-8")
	}
	v, err := p.value(0)
	if err != nil {
		return Value{}, err
	}
	if p.space(); p.pos < len(p.src) {
		return Value{}, p.fail("more text after the value")
	}
	return v, nil
}

// Parser reads JSON texts; the zero value is ready.
type Parser struct {
	src    string
	pos    int
	items  []Value // stack of the elements of lists that are being read
	fields []entry // the same for dicts
	buf    []byte
	// ReuseTexts lets texts with escapes lie in memory of p too, which Reset takes back: for callers
	// that keep no string of any value.
	ReuseTexts bool
	texts      slab[byte]
	values     slab[Value] // memory that finished lists and dicts are cut from
	entries    slab[entry]
	dicts      slab[Dict]
	lists      slab[List]
}

// Reset lets the memory of all values that p has read be used again. The caller keeps none of them.
func (p *Parser) Reset() {
	p.src = ""
	p.texts.reset(64 * keepSlab)
	p.values.reset(keepSlab)
	p.entries.reset(keepSlab)
	p.dicts.reset(keepSlab)
	p.lists.reset(keepSlab)
}

// Dict makes an empty dict with room for n keys, out of the memory of p.
func (p *Parser) Dict(n int) *Dict {
	d := &p.dicts.take(1)[0]
	*d = Dict{entries: p.entries.take(n)[:0]}
	return d
}

// List makes a list of n items to fill in, out of the memory of p.
func (p *Parser) List(n int) (items []Value, list Value) {
	items = p.values.take(n)
	l := &p.lists.take(1)[0]
	l.items = items
	return items, Value{kind: KindList, ref: l}
}

// slab hands out short slices of one long one. What is taken may hold old values.
type slab[T any] struct {
	free []T
	all  []T // the current chunk, to be used again after reset
	need int // taken since the last reset
}

// keepSlab bounds what Reset keeps, in elements.
const keepSlab = 1 << 16

func (s *slab[T]) take(n int) []T {
	s.need += n
	if n > len(s.free) {
		s.all = make([]T, max(n, min(2*len(s.all), 4096), 16))
		s.free = s.all
	}
	t := s.free[:n:n]
	s.free = s.free[n:]
	return t
}

// reset begins anew, with one chunk for as much as was taken, if that is at most keep.
func (s *slab[T]) reset(keep int) {
	if s.need > len(s.all) && s.need <= keep {
		s.all = make([]T, s.need+s.need/4)
	} else if len(s.all) > keep+keep/4 {
		s.all = nil
	}
	s.need = 0
	s.free = s.all
}

func (p *Parser) fail(format string, args ...any) error {
	return &JSONError{Offset: p.pos, Reason: fmt.Sprintf(format, args...)}
}

func (p *Parser) beyond(format string, args ...any) error {
	return &JSONError{Offset: p.pos, Reason: fmt.Sprintf(format, args...), Beyond: true}
}

func (p *Parser) space() {
	for p.pos < len(p.src) {
		switch p.src[p.pos] {
		case ' ', '\t', '\n', '\r':
			p.pos++
		default:
			return
		}
	}
}

func (p *Parser) value(depth int) (Value, error) {
	p.space()
	if p.pos >= len(p.src) {
		return Value{}, p.fail("a value was expected, the text ends")
	}
	switch c := p.src[p.pos]; c {
	case '"':
		s, err := p.string()
		return Str(s), err
	case '{':
		if depth >= maxJSONDepth {
			return Value{}, p.beyond("nested deeper than %d levels", maxJSONDepth)
		}
		return p.object(depth)
	case '[':
		if depth >= maxJSONDepth {
			return Value{}, p.beyond("nested deeper than %d levels", maxJSONDepth)
		}
		return p.array(depth)
	case 't':
		return Bool(true), p.word("true")
	case 'f':
		return Bool(false), p.word("false")
	case 'n':
		return None, p.word("null")
	case 'N':
		return Float(math.NaN()), p.word("NaN")
	case 'I':
		return Float(math.Inf(1)), p.word("Infinity")
	default:
		if c == '-' || c >= '0' && c <= '9' {
			return p.number()
		}
		return Value{}, p.fail("a value was expected, not %q", c)
	}
}

func (p *Parser) word(w string) error {
	if len(p.src)-p.pos < len(w) || p.src[p.pos:p.pos+len(w)] != w {
		return p.fail("%s was expected", w)
	}
	p.pos += len(w)
	return nil
}

func (p *Parser) digits() int {
	start := p.pos
	for p.pos < len(p.src) && p.src[p.pos]-'0' <= 9 {
		p.pos++
	}
	return p.pos - start
}

func (p *Parser) number() (Value, error) {
	start := p.pos
	if p.src[p.pos] == '-' {
		if p.pos++; p.pos < len(p.src) && p.src[p.pos] == 'I' {
			return Float(math.Inf(-1)), p.word("Infinity")
		}
	}
	intStart := p.pos
	n := p.digits()
	if n == 0 || n > 1 && p.src[intStart] == '0' {
		p.pos = intStart
		return Value{}, p.fail("not a number")
	}
	isFloat := false
	if p.pos+1 < len(p.src) && p.src[p.pos] == '.' && p.src[p.pos+1]-'0' <= 9 {
		p.pos++
		p.digits()
		isFloat = true
	}
	if p.pos < len(p.src) && p.src[p.pos]|0x20 == 'e' {
		mark := p.pos
		if p.pos++; p.pos < len(p.src) && (p.src[p.pos] == '+' || p.src[p.pos] == '-') {
			p.pos++
		}
		if p.digits() > 0 {
			isFloat = true
		} else {
			p.pos = mark
		}
	}
	text := p.src[start:p.pos]
	if isFloat {
		f, _ := strconv.ParseFloat(text, 64) // overflow gives Inf, as in Python
		return Float(f), nil
	}
	if len(text) < 19 {
		i, _ := strconv.ParseInt(text, 10, 64)
		return Int(i), nil
	}
	if n > maxIntDigits {
		p.pos = start
		return Value{}, p.beyond("an integer of more than %d digits", maxIntDigits)
	}
	b, ok := new(big.Int).SetString(text, 10)
	if !ok {
		return Value{}, p.fail("not a number")
	}
	return bigOf(b), nil
}

func (p *Parser) array(depth int) (Value, error) {
	p.pos++
	mark := len(p.items)
	if p.space(); p.pos < len(p.src) && p.src[p.pos] == ']' {
		p.pos++
		return p.list(nil), nil
	}
	for {
		v, err := p.value(depth + 1)
		if err != nil {
			return Value{}, err
		}
		p.items = append(p.items, v)
		p.space()
		if p.pos >= len(p.src) {
			return Value{}, p.fail("a list is not closed")
		}
		switch p.src[p.pos] {
		case ',':
			p.pos++
		case ']':
			p.pos++
			v := p.list(p.items[mark:])
			p.items = p.items[:mark]
			return v, nil
		default:
			return Value{}, p.fail("',' or ']' was expected, not %q", p.src[p.pos])
		}
	}
}

// list copies the items out of the stack into memory of their own size.
func (p *Parser) list(items []Value) Value {
	out, v := p.List(len(items))
	copy(out, items)
	return v
}

func (p *Parser) object(depth int) (Value, error) {
	p.pos++
	mark := len(p.fields)
	if p.space(); p.pos < len(p.src) && p.src[p.pos] == '}' {
		p.pos++
		return p.dict(nil), nil
	}
	for {
		if p.space(); p.pos >= len(p.src) || p.src[p.pos] != '"' {
			return Value{}, p.fail("a key in double quotes was expected")
		}
		key, err := p.string()
		if err != nil {
			return Value{}, err
		}
		if p.space(); p.pos >= len(p.src) || p.src[p.pos] != ':' {
			return Value{}, p.fail("':' was expected")
		}
		p.pos++
		v, err := p.value(depth + 1)
		if err != nil {
			return Value{}, err
		}
		p.fields = append(p.fields, entry{key: key, val: v})
		p.space()
		if p.pos >= len(p.src) {
			return Value{}, p.fail("an object is not closed")
		}
		switch p.src[p.pos] {
		case ',':
			p.pos++
		case '}':
			p.pos++
			v := p.dict(p.fields[mark:])
			p.fields = p.fields[:mark]
			return v, nil
		default:
			return Value{}, p.fail("',' or '}' was expected, not %q", p.src[p.pos])
		}
	}
}

func (p *Parser) dict(fields []entry) Value {
	n := len(fields)
	if n > indexAbove {
		d := &p.dicts.take(1)[0]
		*d = Dict{entries: make([]entry, 0, n)}
		for i := range fields {
			d.Set(fields[i].key, fields[i].val)
		}
		return Value{kind: KindDict, ref: d}
	}
	d := p.Dict(n)
	for i := range fields {
		if j := d.find(fields[i].key); j >= 0 {
			d.entries[j].val = fields[i].val
		} else {
			d.entries = append(d.entries, fields[i])
		}
	}
	d.entries = d.entries[:len(d.entries):len(d.entries)]
	return Value{kind: KindDict, ref: d}
}

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

// escaped goes on with a string that has an escape at p.pos.
func (p *Parser) escaped(start int) (string, error) {
	buf := append(p.buf[:0], p.src[start:p.pos]...)
	src := p.src
	for p.pos < len(src) {
		c := src[p.pos]
		switch {
		case c == '"':
			p.pos++
			p.buf = buf
			return p.text(buf), nil
		case c < ' ':
			return "", p.fail("control character %q in a string", c)
		case c != '\\':
			from := p.pos
			p.pos += plain(src[from:])
			buf = append(buf, src[from:p.pos]...)
			continue
		}
		if p.pos+1 >= len(src) {
			break
		}
		p.pos += 2
		switch src[p.pos-1] {
		case '"', '\\', '/':
			buf = append(buf, src[p.pos-1])
		case 'n':
			buf = append(buf, '\n')
		case 't':
			buf = append(buf, '\t')
		case 'r':
			buf = append(buf, '\r')
		case 'b':
			buf = append(buf, '\b')
		case 'f':
			buf = append(buf, '\f')
		case 'u':
			r, err := p.codePoint()
			if err != nil {
				return "", err
			}
			buf = utf8.AppendRune(buf, r)
		default:
			p.pos--
			return "", p.fail("unknown escape \\%c", src[p.pos])
		}
	}
	return "", p.fail("a string is not closed")
}

// text copies b to where it may stay.
func (p *Parser) text(b []byte) string {
	if !p.ReuseTexts || len(b) == 0 {
		return string(b)
	}
	t := p.texts.take(len(b))
	copy(t, b)
	return unsafe.String(&t[0], len(t))
}

// plain counts the bytes at the start of s that stand for themselves in a string: eight at a time, as
// long as none of them is a quote, a backslash or below the space. (The sums may mark bytes above
// the first such byte too, never below it.)
func plain(s string) int {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	i := 0
	for ; i+8 <= len(s); i += 8 {
		x := uint64(s[i]) | uint64(s[i+1])<<8 | uint64(s[i+2])<<16 | uint64(s[i+3])<<24 |
			uint64(s[i+4])<<32 | uint64(s[i+5])<<40 | uint64(s[i+6])<<48 | uint64(s[i+7])<<56
		quote, slash := x^'"'*ones, x^'\\'*ones
		if m := ((x-' '*ones)&^x | (quote-ones)&^quote | (slash-ones)&^slash) & highs; m != 0 {
			return i + bits.TrailingZeros64(m)/8
		}
	}
	for i < len(s) && plainInString[s[i]] {
		i++
	}
	return i
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
