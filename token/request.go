package token

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"unsafe"

	"github.com/go-json-experiment/json/jsontext"
)

// errNotIDs says that a prompt is not written as token ids.
var errNotIDs = errors.New("the prompt is not token ids")

// newDecoder reads b where it lies, without a copy.
func newDecoder(b []byte) *jsontext.Decoder {
	return jsontext.NewDecoder(bytes.NewBuffer(b), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
}

// readValue returns the next value as a part of b, which dec reads.
func readValue(dec *jsontext.Decoder, b []byte) (_ jsontext.Value, err error) {
	defer fence(&err)
	v, err := dec.ReadValue()
	if err != nil {
		return nil, err
	}
	end := dec.InputOffset()
	return jsontext.Value(b[end-int64(len(v)) : end]), nil
}

// fields calls f with each member of the JSON object in body: its name and raw
// value, a part of body, in order. Of members that occur twice, the later is the
// one that counts (Python's rule): f simply overwrites.
func fields(body []byte, f func(name string, value jsontext.Value) error) (err error) {
	defer fence(&err)
	dec := newDecoder(body)
	tok, err := dec.ReadToken()
	if err != nil {
		return err
	}
	if tok.Kind() != '{' {
		return fmt.Errorf("the body is JSON %s, want an object", tok.Kind())
	}
	for dec.PeekKind() != '}' {
		name, err := dec.ReadToken()
		if err != nil {
			return err
		}
		key := name.String()
		value, err := readValue(dec, body)
		if err != nil {
			return err
		}
		if err := f(key, value); err != nil {
			return err
		}
	}
	if _, err := dec.ReadToken(); err != nil {
		return err
	}
	if _, err := dec.ReadToken(); err != io.EOF {
		return errors.New("something follows the JSON object")
	}
	return nil
}

// elements calls f with each element of the JSON array v.
func elements(v jsontext.Value, f func(jsontext.Value) error) (err error) {
	defer fence(&err)
	dec := newDecoder(v)
	if _, err := dec.ReadToken(); err != nil {
		return err
	}
	for dec.PeekKind() != ']' {
		e, err := readValue(dec, v)
		if err != nil {
			return err
		}
		if err := f(e); err != nil {
			return err
		}
	}
	return nil
}

// unquoteExact reads a JSON string whose text we have to know exactly. A lone
// surrogate has none (vLLM refuses it), and bytes that are not UTF-8 neither.
func unquoteExact(v jsontext.Value, to *string) (err error) {
	defer fence(&err)
	b, err := jsontext.AppendUnquote(make([]byte, 0, len(v)), v)
	*to = unsafe.String(unsafe.SliceData(b), len(b)) // nobody else has b
	return err
}

func isNull(v jsontext.Value) bool { return len(v) == 0 || v.Kind() == 'n' }

// idPrompts reads a completions prompt that is written as token ids: [1,2,3] or
// [[1,2],[3]]. errNotIDs if it is text.
func idPrompts(v jsontext.Value) ([]Prompt, error) {
	p := idParser{b: v}
	p.space()
	if !p.eat('[') {
		return nil, errNotIDs
	}
	p.space()
	if p.peek() != '[' {
		ids, err := p.list()
		if err != nil {
			return nil, err
		}
		return []Prompt{{IDs: ids}}, nil
	}
	var out []Prompt
	for {
		p.space()
		if !p.eat('[') {
			return nil, errNotIDs
		}
		ids, err := p.list()
		if err != nil {
			return nil, err
		}
		out = append(out, Prompt{IDs: ids})
		p.space()
		if p.eat(']') {
			return out, nil
		}
		if !p.eat(',') {
			return nil, errNotIDs
		}
	}
}

// idParser reads lists of non-negative integers out of JSON that is known to be
// well formed.
type idParser struct {
	b []byte
	i int
}

func (p *idParser) peek() byte {
	if p.i < len(p.b) {
		return p.b[p.i]
	}
	return 0
}

func (p *idParser) eat(c byte) bool {
	if p.peek() == c {
		p.i++
		return true
	}
	return false
}

func (p *idParser) space() {
	for p.i < len(p.b) && (p.b[p.i] == ' ' || p.b[p.i] == '\t' || p.b[p.i] == '\n' || p.b[p.i] == '\r') {
		p.i++
	}
}

// list reads what follows '[' up to and with ']'.
func (p *idParser) list() ([]uint32, error) {
	out := make([]uint32, 0, min((len(p.b)-p.i)/2, 1<<16))
	p.space()
	if p.eat(']') {
		return out, nil
	}
	for {
		p.space()
		start := p.i
		for c := p.peek(); c >= '0' && c <= '9'; c = p.peek() {
			p.i++
		}
		if p.i == start {
			return nil, errNotIDs
		}
		n, err := strconv.ParseUint(string(p.b[start:p.i]), 10, 32)
		if err != nil {
			return nil, fmt.Errorf("token id %s: want 0 to 4294967295", p.b[start:p.i])
		}
		out = append(out, uint32(n))
		p.space()
		if p.eat(']') {
			return out, nil
		}
		if !p.eat(',') {
			return nil, errNotIDs
		}
	}
}
