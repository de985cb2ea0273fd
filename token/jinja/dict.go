package jinja

import "math"

// indexAbove is the size from which a Dict keeps an index beside its entries: below it a scan over
// the keys is faster than a map.
const indexAbove = 8

// Dict is Python's dict: it keeps the order in which keys were first set.
type Dict struct {
	entries []entry
	index   map[string]int // string keys only; nil for small dicts
	odd     bool           // some key is not a string
}

type entry struct {
	key    string
	oddKey *Value // a key that is not a str; then key holds its type and text, for lookups
	val    Value
}

func (e *entry) keyValue() Value {
	if e.oddKey != nil {
		return *e.oddKey
	}
	return Str(e.key)
}

// NewDict makes an empty dict with room for n keys.
func NewDict(n int) *Dict { return &Dict{entries: make([]entry, 0, n)} }

// Len gives the number of keys.
func (d *Dict) Len() int { return len(d.entries) }

// At gives the key, as a str prints it, and the value of entry i, in order.
func (d *Dict) At(i int) (string, Value) {
	e := &d.entries[i]
	if e.oddKey != nil {
		return toStr(*e.oddKey), e.val
	}
	return e.key, e.val
}

func (d *Dict) find(key string) int {
	if d.index != nil {
		if i, ok := d.index[key]; ok {
			return i
		}
		return -1
	}
	for i := range d.entries {
		if e := &d.entries[i]; e.key == key && e.oddKey == nil {
			return i
		}
	}
	return -1
}

// Get gives the value of a key, or the missing Value.
func (d *Dict) Get(key string) Value {
	if i := d.find(key); i >= 0 {
		return d.entries[i].val
	}
	return Value{}
}

// Set sets a key; a key that is there keeps its place, as in Python.
func (d *Dict) Set(key string, v Value) {
	if i := d.find(key); i >= 0 {
		d.entries[i].val = v
		return
	}
	d.entries = append(d.entries, entry{key: key, val: v})
	d.reindex()
}

func (d *Dict) reindex() {
	n := len(d.entries)
	if n <= indexAbove {
		return
	}
	if d.index == nil {
		d.index = make(map[string]int, 2*n)
		for i := range d.entries {
			if d.entries[i].oddKey == nil {
				d.index[d.entries[i].key] = i
			}
		}
		return
	}
	if e := &d.entries[n-1]; e.oddKey == nil {
		d.index[e.key] = n - 1
	}
}

// Delete removes a key and keeps the order of the others.
func (d *Dict) Delete(key string) {
	i := d.find(key)
	if i < 0 {
		return
	}
	d.entries = append(d.entries[:i], d.entries[i+1:]...)
	d.index = nil
	if len(d.entries) > indexAbove {
		d.reindex()
	}
}

// Clone makes a copy whose keys can be set without changing d; the values are shared.
func (d *Dict) Clone() *Dict {
	c := NewDict(len(d.entries) + 2)
	c.entries = append(c.entries, d.entries...)
	c.odd = d.odd
	if len(c.entries) > indexAbove {
		c.reindex()
	}
	return c
}

// findValue looks a key of any hashable type up.
func (d *Dict) findValue(k Value) int {
	if k.kind == KindString {
		return d.find(k.str)
	}
	if !d.odd {
		return -1
	}
	for i := range d.entries {
		if o := d.entries[i].oddKey; o != nil && equal(*o, k) {
			return i
		}
	}
	return -1
}

func (d *Dict) setValue(k, v Value) {
	if k.kind == KindString {
		d.Set(k.str, v)
		return
	}
	if !hashable(k) {
		fail("TypeError", "unhashable type: '%s'", typeName(k))
	}
	if i := d.findValue(k); i >= 0 {
		d.entries[i].val = v
		return
	}
	d.odd = true
	d.entries = append(d.entries, entry{oddKey: &k, val: v})
	d.reindex()
}

func hashable(v Value) bool {
	switch v.kind {
	case KindList, KindDict:
		return false
	case KindTuple:
		for _, x := range v.items() {
			if !hashable(x) {
				return false
			}
		}
	}
	return true
}

// equal is Python's a == b.
func equal(a, b Value) bool { return equalDepth(a, b, 0) }

func equalDepth(a, b Value, depth int) bool {
	if depth > maxDepth {
		fail("RecursionError", "maximum recursion depth exceeded in comparison")
	}
	if a.kind == KindString && b.kind == KindString {
		return a.str == b.str
	}
	if isNumber(a) && isNumber(b) {
		if a.kind != KindFloat && b.kind != KindFloat && a.ref == nil && b.ref == nil {
			return a.num == b.num
		}
		return compareNumbers(a, b) == 0 && !isNaN(a) && !isNaN(b)
	}
	if a.kind != b.kind {
		return false
	}
	switch a.kind {
	case KindNone, KindUndefined, KindMissing:
		return true
	case KindList, KindTuple:
		x, y := a.items(), b.items()
		if len(x) != len(y) {
			return false
		}
		for i := range x {
			if !equalDepth(x[i], y[i], depth+1) {
				return false
			}
		}
		return true
	case KindDict:
		x, y := a.ref.(*Dict), b.ref.(*Dict)
		if x.Len() != y.Len() {
			return false
		}
		for i := range x.entries {
			j := y.findValue(x.entries[i].keyValue())
			if j < 0 || !equalDepth(x.entries[i].val, y.entries[j].val, depth+1) {
				return false
			}
		}
		return true
	case KindRange:
		x, y := a.ref.(*pyRange), b.ref.(*pyRange)
		return x.len() == y.len() && (x.len() == 0 || *x.at0(y) == *y.at0(x))
	}
	return a.ref == b.ref
}

// at0 gives what decides the equality of two ranges of the same length.
func (r *pyRange) at0(o *pyRange) *pyRange {
	n := *r
	n.stop = 0
	if r.len() == 1 {
		n.step = 1
	}
	return &n
}

func isNaN(v Value) bool { return v.kind == KindFloat && math.IsNaN(v.float()) }
func isNumber(v Value) bool {
	return v.kind == KindInt || v.kind == KindFloat || v.kind == KindBool
}
