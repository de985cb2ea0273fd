package proxy

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// maxDepth bounds the nesting of JSON that is read. Python's own reader, behind
// vLLM, gives up at about a thousand.
const maxDepth = 4096

// A cursor walks over one JSON document in place: nothing is decoded but what is
// asked for, nothing is allocated. Every element must be consumed exactly once,
// by one of the methods; the first error sticks, and then all of them return
// zero values at once.
//
// It accepts what Python's json module accepts, NaN and lone surrogates
// included, and a little more (any escape, any byte in a string): what is wrong
// inside a string is for the engine to say.
type cursor struct {
	b   []byte
	i   int
	err string // "" or what was wrong at i

	work int // bytes looked at and steps made; counted with the tag invariants only
}

// did counts work: TestHostileBodies holds it against the length.
func (c *cursor) did(n int) {
	if invariants {
		c.work += n
	}
}

func (c *cursor) fail(what string) {
	if c.err == "" {
		c.err = what
	}
}

// Err returns the error that stopped the cursor, or nil.
func (c *cursor) Err() error {
	if c.err == "" {
		return nil
	}
	if c.i >= len(c.b) {
		return fmt.Errorf("%s at byte %d, the end", c.err, c.i)
	}
	return fmt.Errorf("%s at byte %d (%q)", c.err, c.i, c.b[c.i])
}

// peek skips white space and returns the next byte, 0 at the end.
func (c *cursor) peek() byte {
	c.did(1)
	for c.i < len(c.b) {
		c.did(1)
		switch x := c.b[c.i]; x {
		case ' ', '\n', '\r', '\t':
			c.i++
		default:
			return x
		}
	}
	return 0
}

// open steps into an object ('{') or an array ('['). It consumes nothing and
// returns false if there is something else.
func (c *cursor) open(with byte) bool {
	if c.err != "" || c.peek() != with {
		return false
	}
	c.i++
	return true
}

// more reports whether the object or array, up to its closing byte, has another
// element, and steps to it. n counts them for the caller, from 0.
func (c *cursor) more(closing byte, n *int) bool {
	if c.err != "" {
		return false
	}
	x := c.peek()
	if x == closing {
		c.i++
		return false
	}
	if *n > 0 {
		if x != ',' {
			c.fail("want ',' or '" + string(closing) + "'")
			return false
		}
		c.i++
		if c.peek() == closing {
			c.fail("want a value after ','")
			return false
		}
	}
	*n++
	return true
}

// key reads a member's name and the colon. The bytes are valid until the next
// call and unescaped only if the name has escapes.
func (c *cursor) key() []byte {
	if c.err == "" && c.peek() != '"' {
		c.fail("want a name in quotes")
	}
	k := c.text()
	if c.err != "" {
		return nil
	}
	if c.peek() != ':' {
		c.fail("want ':'")
		return nil
	}
	c.i++
	if len(k) <= 6*maxName && bytes.IndexByte(k, '\\') >= 0 {
		return []byte(unescape(k))
	}
	return k
}

// maxName bounds the names that we look for, in bytes.
const maxName = 64

// unescape decodes the inside of a JSON string.
func unescape(raw []byte) string {
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw)
	}
	var s string
	q := make([]byte, 0, len(raw)+2)
	q = append(append(append(q, '"'), raw...), '"')
	if json.Unmarshal(q, &s) != nil {
		return string(raw)
	}
	return s
}

// text reads a string and returns what is between its quotes, as it stands.
// Anything else is skipped, and nil returned.
func (c *cursor) text() []byte {
	if c.err != "" {
		return nil
	}
	if c.peek() != '"' {
		c.skip()
		return nil
	}
	c.i++
	start := c.i
	for {
		n := bytes.IndexByte(c.b[c.i:], '"')
		if n < 0 {
			c.did(len(c.b) - c.i)
			c.i = len(c.b)
			c.fail("string without an end")
			return nil
		}
		c.i += n + 1
		// A quote behind an odd number of backslashes is part of the string. Runs
		// of backslashes don't overlap, so counting back is linear in all.
		j := c.i - 2
		for j >= start && c.b[j] == '\\' {
			j--
		}
		c.did(n + 1 + c.i - 2 - j)
		if (c.i-2-j)%2 == 0 {
			return c.b[start : c.i-1]
		}
	}
}

// number reads an integer of at most 18 digits. ok is false for anything else,
// which is skipped.
func (c *cursor) number() (n int, ok bool) {
	if c.err != "" {
		return 0, false
	}
	c.peek()
	start := c.i
	c.skip()
	raw := c.b[start:c.i]
	if c.err != "" || len(raw) == 0 || len(raw) > 19 {
		return 0, false
	}
	neg := raw[0] == '-'
	if neg {
		raw = raw[1:]
	}
	if len(raw) == 0 || len(raw) > 18 {
		return 0, false
	}
	for _, x := range raw {
		if x < '0' || x > '9' {
			return 0, false
		}
		n = n*10 + int(x-'0')
	}
	if neg {
		n = -n
	}
	return n, true
}

// is reads a literal and reports whether it was lit. Anything else is skipped.
func (c *cursor) is(lit string) bool {
	c.peek()
	start := c.i
	c.skip()
	return c.err == "" && string(c.b[start:c.i]) == lit
}

// end reports whether only white space is left.
func (c *cursor) end() {
	if c.err == "" && c.peek() != 0 {
		c.fail("unexpected data after the document")
	}
	if c.err == "" && c.i < len(c.b) {
		c.fail("unexpected NUL")
	}
}

// skip reads any value.
func (c *cursor) skip() {
	if c.err != "" {
		return
	}
	switch c.peek() {
	case '{', '[':
		c.skipNested()
	case '"':
		c.text()
	default:
		c.scalar()
	}
}

// scalar reads a number or a literal.
func (c *cursor) scalar() {
	rest := c.b[c.i:]
	for _, lit := range [...]string{"true", "false", "null", "NaN", "Infinity", "-Infinity"} {
		if len(rest) >= len(lit) && string(rest[:len(lit)]) == lit {
			c.i += len(lit)
			return
		}
	}
	start := c.i
	if c.at('-') {
		c.i++
	}
	switch {
	case c.at('0'):
		c.i++
	case !c.digits():
		c.i = start
		c.fail("want a value")
		return
	}
	if c.at('.') {
		c.i++
		if !c.digits() {
			c.fail("want a digit")
			return
		}
	}
	if c.at('e') || c.at('E') {
		c.i++
		if c.at('+') || c.at('-') {
			c.i++
		}
		if !c.digits() {
			c.fail("want a digit")
		}
	}
}

func (c *cursor) at(x byte) bool { return c.i < len(c.b) && c.b[c.i] == x }

func (c *cursor) digits() bool {
	start := c.i
	for c.i < len(c.b) && c.b[c.i] >= '0' && c.b[c.i] <= '9' {
		c.i++
	}
	c.did(c.i - start)
	return c.i > start
}

// skipNested reads an object or array of any bounded depth without recursion:
// one bit per level says whether it is an object.
func (c *cursor) skipNested() {
	var object [maxDepth / 64]uint64
	depth := 0
	for {
		// Here a value begins.
		switch c.peek() {
		case '{':
			c.i++
			if c.peek() == '}' {
				c.i++
				break
			}
			if !c.deeper(&object, &depth, true) {
				return
			}
			if c.name(); c.err != "" {
				return
			}
			continue
		case '[':
			c.i++
			if c.peek() == ']' {
				c.i++
				break
			}
			if !c.deeper(&object, &depth, false) {
				return
			}
			continue
		case '"':
			c.text()
		default:
			c.scalar()
		}
		// Here a value has ended: close what it closes, and step to the next one.
		for {
			if c.err != "" || depth == 0 {
				return
			}
			inObject := object[(depth-1)/64]&(1<<((depth-1)%64)) != 0
			x := c.peek()
			if x == ',' {
				c.i++
				if inObject {
					if c.name(); c.err != "" {
						return
					}
				}
				break
			}
			if inObject && x != '}' || !inObject && x != ']' {
				c.fail("want ',' or the end of an object or array")
				return
			}
			c.i++
			depth--
		}
	}
}

func (c *cursor) deeper(object *[maxDepth / 64]uint64, depth *int, isObject bool) bool {
	if *depth == maxDepth {
		c.fail(fmt.Sprintf("nested deeper than %d", maxDepth))
		return false
	}
	bit := uint64(1) << (*depth % 64)
	object[*depth/64] &^= bit
	if isObject {
		object[*depth/64] |= bit
	}
	*depth++
	return true
}

// name reads a member's name and the colon, and forgets it.
func (c *cursor) name() {
	if c.peek() != '"' {
		c.fail("want a name in quotes")
		return
	}
	c.text()
	if c.err == "" && c.peek() != ':' {
		c.fail("want ':'")
		return
	}
	c.i++
}
