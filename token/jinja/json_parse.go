package jinja

import (
	"bytes"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"unicode/utf8"
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
	// ReuseTexts lets texts with escapes lie in memory of p too, which Reset takes back: for callers
	// that keep no string of any value.
	ReuseTexts bool
	texts      arena
	values     slab[Value] // memory that finished lists and dicts are cut from
	entries    slab[entry]
	dicts      slab[Dict]
	lists      slab[List]
}

// Reset lets the memory of all values that p has read be used again. The caller keeps none of them.
func (p *Parser) Reset() {
	p.src = ""
	p.texts.reset()
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
