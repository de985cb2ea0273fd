package jinja

import (
	"strings"
	"unicode/utf8"
)

func (c *constExpr) eval(*state) Value { return c.val }

func (n *nameExpr) eval(s *state) Value {
	if n.local >= 0 {
		if v := s.frame.slots[n.local]; v.kind != KindMissing {
			return v
		}
	}
	for _, r := range n.refs {
		f := s.frame
		for range r.up {
			f = f.parent
		}
		if v := f.slots[r.slot]; v.kind != KindMissing {
			return v
		}
	}
	if v := s.ctx[n.ctx]; v.kind != KindMissing {
		return v
	}
	return undefinedName(n.name)
}

func (a *attrExpr) eval(s *state) Value {
	obj := a.obj.eval(s)
	switch obj.kind {
	case KindDict:
		if a.direct {
			if v := obj.ref.(*Dict).Get(a.name); v.kind != KindMissing {
				return v
			}
			return undefinedAttr(obj, a.name)
		}
	case KindObject:
		if l, ok := obj.ref.(*loopObject); ok && a.loop != loopOther {
			return l.field(s, a.loop)
		}
	}
	return s.getAttr(obj, a.name)
}

func (i *itemExpr) eval(s *state) Value {
	obj, index := i.obj.eval(s), i.index.eval(s)
	if obj.kind == KindDict && index.kind == KindString {
		if v := obj.ref.(*Dict).Get(index.str); v.kind != KindMissing {
			return v
		}
	}
	return s.getItem(obj, index)
}

func (sl *sliceExpr) eval(s *state) Value {
	obj := sl.obj.eval(s)
	bound := func(e expr) (int, bool) {
		if e == nil {
			return 0, false
		}
		v := e.eval(s)
		switch v.kind {
		case KindNone:
			return 0, false
		case KindInt, KindBool:
			if v.isBig() {
				if asBig(v).Sign() < 0 {
					return -1 << 62, true
				}
				return 1 << 62, true
			}
			return int(max(min(v.int(), 1<<62), -1<<62)), true
		}
		fail("TypeError", "slice indices must be integers or None or have an __index__ method")
		return 0, false
	}
	lo, hasLo := bound(sl.start)
	hi, hasHi := bound(sl.stop)
	step, hasStep := bound(sl.step)
	if !hasStep {
		step = 1
	}
	if step == 0 {
		fail("ValueError", "slice step cannot be zero")
	}
	switch obj.kind {
	case KindString:
		return s.sliceString(obj, lo, hi, step, hasLo, hasHi)
	case KindList, KindTuple:
		items := obj.items()
		lo, n := sliceRange(len(items), lo, hi, step, hasLo, hasHi)
		if step == 1 {
			return Value{kind: obj.kind, ref: &List{items[lo : lo+n : lo+n]}}
		}
		s.makeValues(n)
		out := make([]Value, n)
		for i := range out {
			out[i] = items[lo+i*step]
		}
		return Value{kind: obj.kind, ref: &List{out}}
	case KindRange:
		r := obj.ref.(*pyRange)
		lo, n := sliceRange(r.len(), lo, hi, step, hasLo, hasHi)
		start, st := r.start+int64(lo)*r.step, r.step*int64(step)
		return Value{kind: KindRange, ref: &pyRange{start, start + int64(n)*st, st}}
	case KindUndefined, KindMissing:
		undefinedFail(obj)
	}
	if sl.constant {
		// an error or undefined, depending on what jinja2's optimizer makes of its surroundings
		failUnsupported("a slice of a constant %s", typeName(obj))
	}
	if obj.kind == KindDict {
		fail("TypeError", "unhashable type: 'slice'")
	}
	fail("TypeError", "'%s' object is not subscriptable", typeName(obj))
	return obj
}

// sliceRange turns Python's slice bounds into a first index and a count.
func sliceRange(n, lo, hi, step int, hasLo, hasHi bool) (first, count int) {
	clip := func(i, low, high int) int {
		if i < 0 {
			i += n
		}
		return max(low, min(i, high))
	}
	if step > 0 {
		first, last := 0, n
		if hasLo {
			first = clip(lo, 0, n)
		}
		if hasHi {
			last = clip(hi, 0, n)
		}
		if last <= first {
			return first, 0
		}
		return first, (last-first-1)/step + 1
	}
	first, last := n-1, -1
	if hasLo {
		first = clip(lo, -1, n-1)
	}
	if hasHi {
		last = clip(hi, -1, n-1)
	}
	if first <= last {
		return 0, 0
	}
	return first, (first-last-1)/-step + 1
}

func isASCII(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

func (s *state) sliceString(v Value, lo, hi, step int, hasLo, hasHi bool) Value {
	str := v.str
	s.charge(len(str))
	out := Value{kind: KindString, markup: v.markup}
	if isASCII(str) {
		first, n := sliceRange(len(str), lo, hi, step, hasLo, hasHi)
		if step == 1 {
			out.str = str[first : first+n]
			return out
		}
		b := make([]byte, n)
		for i := range b {
			b[i] = str[first+i*step]
		}
		out.str = string(b)
		return out
	}
	s.take(4 * len(str))
	runes := []rune(str)
	first, n := sliceRange(len(runes), lo, hi, step, hasLo, hasHi)
	var b strings.Builder
	for i := range n {
		b.WriteRune(runes[first+i*step])
	}
	out.str = b.String()
	return out
}

// A boolExpr knows its truth without making a Value of it.
type boolExpr interface {
	truth(s *state) bool
}

type valueTest struct{ e expr }

func (t valueTest) truth(s *state) bool { return t.e.eval(s).truth(s) }

func asBool(e expr) boolExpr {
	if b, ok := e.(boolExpr); ok {
		return b
	}
	return valueTest{e}
}

// truth is Truth, in the form of a boolExpr.
func (v Value) truth(*state) bool {
	return v.Truth()
}

func (a *andExpr) eval(s *state) Value {
	if v := a.left.eval(s); !v.truth(s) {
		return v
	}
	return a.right.eval(s)
}

func (o *orExpr) eval(s *state) Value {
	if v := o.left.eval(s); v.truth(s) {
		return v
	}
	return o.right.eval(s)
}

func (n *notExpr) eval(s *state) Value { return Bool(!n.test.truth(s)) }
func (n *notExpr) truth(s *state) bool { return !n.test.truth(s) }
func (a *andExpr) truth(s *state) bool { return a.tests[0].truth(s) && a.tests[1].truth(s) }
func (o *orExpr) truth(s *state) bool  { return o.tests[0].truth(s) || o.tests[1].truth(s) }

func (c *condExpr) eval(s *state) Value {
	if c.cond.truth(s) {
		return c.yes.eval(s)
	}
	if c.no == nil {
		return Value{kind: KindUndefined, ref: &undefined{hint: "the inline if-expression evaluated to false and no else section was defined."}}
	}
	return c.no.eval(s)
}

func (l *listExpr) eval(s *state) Value {
	s.makeValues(len(l.items))
	items := make([]Value, len(l.items))
	for i, x := range l.items {
		items[i] = x.eval(s)
	}
	if l.tuple {
		return Value{kind: KindTuple, ref: &List{items}}
	}
	return ListOf(items)
}

func (d *dictExpr) eval(s *state) Value {
	out := NewDict(len(d.keys))
	for i, k := range d.keys {
		out.setValue(k.eval(s), d.vals[i].eval(s))
	}
	return DictOf(out)
}

func (u *unaryExpr) eval(s *state) Value {
	v := u.obj.eval(s)
	switch v.kind {
	case KindFloat:
		if u.op == '-' {
			return Float(-v.float())
		}
		return v
	case KindInt, KindBool:
		if u.op == '+' {
			return arith(opAdd, v, Int(0))
		}
		if v.kind == KindInt && v.ref == nil && v.num == 0 {
			return v
		}
		return arith(opSub, Int(0), v)
	case KindUndefined, KindMissing:
		undefinedFail(v)
	}
	fail("TypeError", "bad operand type for unary %c: '%s'", u.op, typeName(v))
	return v
}

func (b *binaryExpr) eval(s *state) Value { return s.binary(b.op, b.left.eval(s), b.right.eval(s)) }

func (s *state) binary(op opCode, a, b Value) Value {
	if isNumber(a) && isNumber(b) {
		return arith(op, a, b)
	}
	if a.kind == KindUndefined {
		undefinedFail(a)
	}
	if op == opMod && a.kind == KindString {
		return s.percent(a, b)
	}
	if b.kind == KindUndefined {
		undefinedFail(b)
	}
	if op == opMul {
		if isSequence(b) && (a.kind == KindInt || a.kind == KindBool) {
			a, b = b, a
		}
		if isSequence(a) && (b.kind == KindInt || b.kind == KindBool) {
			return s.repeat(a, b)
		}
		if isSequence(a) {
			fail("TypeError", "can't multiply sequence by non-int of type '%s'", typeName(b))
		}
	}
	shown := [...]string{opAdd: "+", opSub: "-", opMul: "*", opDiv: "/", opFloor: "//", opMod: "%", opPow: "** or pow()"}[op]
	fail("TypeError", "unsupported operand type(s) for %s: '%s' and '%s'", shown, typeName(a), typeName(b))
	return a
}

func isSequence(v Value) bool {
	return v.kind == KindString || v.kind == KindList || v.kind == KindTuple
}

func (s *state) repeat(a, n Value) Value {
	if n.isBig() && asBig(n).Sign() > 0 {
		fail("OverflowError", "cannot fit 'int' into an index-sized integer")
	}
	count := int(max(n.int(), 0))
	if n.isBig() {
		count = 0
	}
	if a.kind == KindString {
		if len(a.str) > 0 && count > s.limits.Output/len(a.str) {
			failLimit("a text of more than %d bytes", s.limits.Output)
		}
		s.charge(len(a.str) * count)
		return Value{kind: KindString, markup: a.markup, str: strings.Repeat(a.str, count)}
	}
	items := a.items()
	if len(items) > 0 && count > s.limits.Steps/len(items) {
		failLimit("a list of more than %d elements", s.limits.Steps)
	}
	s.makeValues(len(items) * count)
	out := make([]Value, 0, len(items)*count)
	for range count {
		out = append(out, items...)
	}
	return Value{kind: a.kind, ref: &List{out}}
}

func (a *addExpr) eval(s *state) Value {
	v := a.parts[0].eval(s)
	for i := 1; i < len(a.parts); i++ {
		b := a.parts[i].eval(s)
		if v.kind == KindString && !v.markup && b.kind == KindString && !b.markup && i+1 < len(a.parts) {
			return a.join(s, v, b, i+1)
		}
		v = s.add(v, b)
	}
	return v
}

// join goes on with a sum that began with two strings, in one buffer.
func (a *addExpr) join(s *state, v, b Value, from int) Value {
	mark := len(s.out) // behind the output there is room for a text in the making
	s.out = append(append(s.out, v.str...), b.str...)
	for i := from; i < len(a.parts); i++ {
		x := a.parts[i].eval(s)
		if x.kind != KindString || x.markup {
			text := string(s.out[mark:])
			s.out = s.out[:mark]
			v = s.add(Str(text), x)
			for i++; i < len(a.parts); i++ {
				v = s.add(v, a.parts[i].eval(s))
			}
			return v
		}
		s.out = append(s.out, x.str...)
	}
	text := string(s.out[mark:])
	s.out = s.out[:mark]
	s.charge(len(text))
	return Str(text)
}

// write puts a sum to the output; a sum of strings goes there part by part.
func (a *addExpr) write(s *state) {
	mark := len(s.out)
	for i, part := range a.parts {
		x := part.eval(s)
		if x.kind == KindString && !x.markup {
			s.out = append(s.out, x.str...)
			continue
		}
		v := x
		if i > 0 {
			text := string(s.out[mark:])
			s.out = s.out[:mark]
			v = s.add(Str(text), x)
		}
		for _, rest := range a.parts[i+1:] {
			v = s.add(v, rest.eval(s))
		}
		s.out = appendStr(s.out, v)
		return
	}
}

// add is Python's a + b.
func (s *state) add(a, b Value) Value {
	switch {
	case a.kind == KindString && b.kind == KindString:
		s.charge(len(a.str) + len(b.str))
		if a.markup || b.markup {
			return markupOf(escaped(a) + escaped(b))
		}
		return Str(a.str + b.str)
	case isNumber(a) && isNumber(b):
		return arith(opAdd, a, b)
	case a.kind == KindUndefined:
		undefinedFail(a)
	case b.kind == KindUndefined:
		undefinedFail(b) // Undefined has __radd__
	case (a.kind == KindList || a.kind == KindTuple) && a.kind == b.kind:
		x, y := a.items(), b.items()
		s.makeValues(len(x) + len(y))
		return Value{kind: a.kind, ref: &List{append(append(make([]Value, 0, len(x)+len(y)), x...), y...)}}
	case a.kind == KindString || a.kind == KindList || a.kind == KindTuple:
		fail("TypeError", "can only concatenate %s (not \"%s\") to %s", typeName(a), typeName(b), typeName(a))
	}
	fail("TypeError", "unsupported operand type(s) for +: '%s' and '%s'", typeName(a), typeName(b))
	return a
}

// escaped gives a string as HTML, once.
func escaped(v Value) string {
	if v.markup {
		return v.str
	}
	return escapeHTML(toStr(v))
}

var htmlEscapes = strings.NewReplacer("&", "&amp;", ">", "&gt;", "<", "&lt;", "'", "&#39;", `"`, "&#34;")

func escapeHTML(s string) string { return htmlEscapes.Replace(s) }

func (c *concatExpr) eval(s *state) Value {
	// values first: a part may itself write to the buffer
	mark := len(s.args)
	for _, p := range c.parts {
		s.args = append(s.args, p.eval(s))
	}
	at := len(s.out)
	for _, v := range s.args[mark:] {
		s.out = appendStr(s.out, v)
	}
	s.args = s.args[:mark]
	text := string(s.out[at:])
	s.out = s.out[:at]
	s.charge(len(text))
	return Str(text) // with autoescape off, ~ gives a plain str even of Markup
}

func (c *cmpExpr) eval(s *state) Value { return Bool(c.truth(s)) }

func (c *cmpExpr) truth(s *state) bool {
	left := c.first.eval(s)
	for i := range c.ops {
		right := c.ops[i].right.eval(s)
		if !s.compare(c.ops[i].op, left, right) {
			return false
		}
		left = right
	}
	return true
}

func (s *state) compare(op opCode, a, b Value) bool {
	switch op {
	case opEq:
		return s.equal(a, b)
	case opNe:
		return !s.equal(a, b)
	case opIn:
		return s.contains(b, a)
	case opNotIn:
		return !s.contains(b, a)
	}
	return order(op, a, b)
}

func (s *state) equal(a, b Value) bool {
	if a.kind == KindString && b.kind == KindString {
		return a.str == b.str
	}
	if a.kind == KindList || a.kind == KindDict {
		s.step(8)
	}
	return equal(a, b)
}

// contains is Python's x in v.
func (s *state) contains(v, x Value) bool {
	switch v.kind {
	case KindString:
		if x.kind == KindUndefined {
			undefinedFail(x)
		}
		if x.kind != KindString {
			fail("TypeError", "'in <string>' requires string as left operand, not %s", typeName(x))
		}
		s.charge(len(v.str))
		return strings.Contains(v.str, x.str)
	case KindDict:
		if !hashable(x) {
			fail("TypeError", "unhashable type: '%s'", typeName(x))
		}
		return v.ref.(*Dict).findValue(x) >= 0
	case KindNone, KindBool, KindInt, KindFloat, KindNamespace, KindFunc:
		fail("TypeError", "argument of type '%s' is not iterable", typeName(v))
	case KindView:
		if w := v.ref.(*view); w.what == 1 {
			return w.dict.findValue(x) >= 0
		}
	}
	c := s.iterate(v)
	for {
		y, ok := c.next(s)
		if !ok {
			return false
		}
		s.step(1)
		if equal(x, y) {
			return true
		}
	}
}

// order is < <= > >=.
func order(op opCode, a, b Value) bool {
	var c int
	switch {
	case isNumber(a) && isNumber(b):
		if c = compareNumbers(a, b); c == 2 {
			return false
		}
	case a.kind == KindString && b.kind == KindString:
		c = strings.Compare(a.str, b.str) // UTF-8 keeps the order of code points
	case (a.kind == KindList || a.kind == KindTuple) && a.kind == b.kind:
		x, y := a.items(), b.items()
		for i := 0; i < len(x) && i < len(y); i++ {
			if !equal(x[i], y[i]) {
				return order(op, x[i], y[i])
			}
		}
		c = len(x) - len(y)
	case a.kind == KindUndefined:
		undefinedFail(a)
	case b.kind == KindUndefined:
		undefinedFail(b)
	default:
		fail("TypeError", "'%s' not supported between instances of '%s' and '%s'", [...]string{opLt: "<", opLe: "<=", opGt: ">", opGe: ">="}[op], typeName(a), typeName(b))
	}
	switch op {
	case opLt:
		return c < 0
	case opLe:
		return c <= 0
	case opGt:
		return c > 0
	}
	return c >= 0
}

func less(a, b Value) bool { return order(opLt, a, b) }

// undefinedFail raises what a use of something undefined raises.
func undefinedFail(v Value) {
	u, ok := v.ref.(*undefined)
	switch {
	case !ok:
		fail("UndefinedError", "undefined value")
	case u.security:
		fail("SecurityError", "access to attribute '%s' of '%s' object is unsafe.", u.name, u.owner)
	case u.hint != "":
		fail("UndefinedError", "%s", u.hint)
	case u.owner == "NoneType":
		fail("UndefinedError", "'None' has no attribute '%s'", u.name)
	case u.owner != "":
		fail("UndefinedError", "'%s object' has no attribute '%s'", u.owner, u.name)
	}
	fail("UndefinedError", "'%s' is undefined", u.name)
}
