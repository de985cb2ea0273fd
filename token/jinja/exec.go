package jinja

func (o *outputStmt) exec(s *state) flow {
	s.line = o.line
	s.step(1)
	if o.sum != nil {
		o.sum.write(s)
	} else {
		s.out = appendStr(s.out, o.val.eval(s))
	}
	s.checkOutput()
	return goOn
}

func (c *ifStmt) exec(s *state) flow {
	s.line = c.line
	s.step(1)
	for i, cond := range c.conds {
		if cond == nil || cond.truth(s) {
			return s.run(c.bodies[i])
		}
	}
	return goOn
}

func (st *setStmt) exec(s *state) flow {
	s.line = st.line
	s.step(1)
	s.assign(st.target, st.val.eval(s))
	return goOn
}

func (st *setBlockStmt) exec(s *state) flow {
	s.line = st.line
	s.step(1)
	st.scope.clear(s.frame)
	v := Str(s.capture(st.body))
	if st.filter != nil {
		v = s.withBlock(v, st.filter)
	}
	s.assign(st.target, v)
	return goOn
}

// withBlock runs the filters of a block over its text.
func (s *state) withBlock(text Value, f expr) Value {
	saved := s.block
	s.block = text
	v := f.eval(s)
	s.block = saved
	return v
}

func (st *filterBlockStmt) exec(s *state) flow {
	s.line = st.line
	s.step(1)
	st.scope.clear(s.frame)
	s.out = appendStr(s.out, s.withBlock(Str(s.capture(st.body)), st.filter))
	s.checkOutput()
	return goOn
}

func (st *withStmt) exec(s *state) flow {
	s.line = st.line
	s.step(1)
	st.scope.clear(s.frame)
	for i, v := range st.vals {
		s.assign(st.targets[i], v.eval(s))
	}
	return s.run(st.body)
}

// assign stores v in a name, in several, or in an attribute of a namespace.
func (s *state) assign(target expr, v Value) {
	switch t := target.(type) {
	case *nameExpr:
		s.frame.slots[t.refs[0].slot] = present(v)
	case *listExpr:
		if (v.kind == KindTuple || v.kind == KindList) && len(v.items()) == len(t.items) {
			for i, x := range t.items {
				s.assign(x, v.items()[i])
			}
			return
		}
		it := s.iterate(v)
		for i, x := range t.items {
			e, ok := it.next(s)
			if !ok {
				fail("ValueError", "not enough values to unpack (expected %d, got %d)", len(t.items), i)
			}
			s.assign(x, e)
		}
		if _, more := it.next(s); more {
			fail("ValueError", "too many values to unpack (expected %d)", len(t.items))
		}
	case *nsTarget:
		ns, ok := t.ns.eval(s).ref.(*namespace)
		if !ok {
			fail("TemplateRuntimeError", "cannot assign attribute on non-namespace object")
		}
		ns.attrs.Set(t.attr, present(v))
	}
}

// present keeps "never set" apart from "set to something undefined".
func present(v Value) Value {
	if v.kind == KindMissing {
		return undefinedName("")
	}
	return v
}

// cursor walks over an iterable. For lists it is a position; for the rest a function.
type cursor struct {
	list []Value
	pos  int
	pull func(s *state) (Value, bool)
}

func (c *cursor) next(s *state) (Value, bool) {
	if c.pull != nil {
		return c.pull(s)
	}
	if c.pos >= len(c.list) {
		return Value{}, false
	}
	c.pos++
	return c.list[c.pos-1], true
}

// iterate starts a walk over v, as Python's iter(v).
func (s *state) iterate(v Value) cursor {
	switch v.kind {
	case KindList, KindTuple:
		return cursor{list: v.items()}
	case KindUndefined, KindMissing:
		return cursor{}
	case KindIterator:
		return cursor{pull: v.ref.(*iterator).next}
	}
	return cursor{list: s.collect(v)}
}

// collect gives all elements of an iterable.
func (s *state) collect(v Value) []Value {
	var out []Value
	switch v.kind {
	case KindList, KindTuple:
		return v.items()
	case KindUndefined, KindMissing, KindIterator:
		c := s.iterate(v)
		for {
			x, ok := c.next(s)
			if !ok {
				return out
			}
			s.makeValues(1)
			out = append(out, x)
		}
	case KindString:
		s.makeValues(len(v.str))
		out = make([]Value, 0, len(v.str))
		for i, n := 0, 0; i < len(v.str); i += n {
			n = runeLen(v.str[i:])
			out = append(out, Str(v.str[i:i+n])) // plain, of Markup too
		}
		return out
	case KindDict:
		d := v.ref.(*Dict)
		s.makeValues(d.Len())
		out = make([]Value, d.Len())
		for i := range out {
			out[i] = d.entries[i].keyValue()
		}
		return out
	case KindView:
		w := v.ref.(*view)
		s.makeValues(3 * w.dict.Len()) // pairs
		out = make([]Value, w.dict.Len())
		for i := range out {
			out[i] = w.at(i)
		}
		return out
	case KindRange:
		r := v.ref.(*pyRange)
		s.makeValues(r.len())
		out = make([]Value, r.len())
		for i := range out {
			out[i] = r.at(i)
		}
		return out
	}
	if g, ok := v.ref.(*groupPair); ok {
		return []Value{g.grouper, g.list}
	}
	fail("TypeError", "'%s' object is not iterable", typeName(v))
	return nil
}

func (f *forStmt) exec(s *state) flow {
	s.line = f.line
	s.step(1)
	s.loop(f, f.iter.eval(s), 0)
	return goOn
}

// loop runs a for statement over v; depth counts the recursion of {% for ... recursive %}.
func (s *state) loop(f *forStmt, v Value, depth int) {
	cur := s.iterate(v)
	fr := s.frame
	if f.test != nil {
		inner := cur
		cur = cursor{pull: func(s *state) (Value, bool) {
			for {
				x, ok := inner.next(s)
				if !ok {
					return x, false
				}
				s.step(1)
				// the test sees the candidate as the loop's variable, and the body is in between
				saved := append([]Value(nil), fr.slots[f.scope.lo:f.scope.hi]...)
				s.assign(f.target, x)
				keep := f.cond.truth(s)
				copy(fr.slots[f.scope.lo:f.scope.hi], saved)
				if keep {
					return x, true
				}
			}
		}}
	}
	lo := &loopObject{f: f, fr: fr, cur: cur, index: -1, depth: depth}
	if !f.usesLoop {
		lo = nil
	}
	ran := false
	name, single := f.target.(*nameExpr)
	for stop := false; !stop; {
		var x Value
		var ok bool
		if lo != nil {
			x, ok = lo.advance(s)
		} else {
			x, ok = cur.next(s)
		}
		if !ok {
			break
		}
		s.step(1)
		f.scope.clear(fr)
		if single {
			fr.slots[name.refs[0].slot] = present(x)
		} else {
			s.assign(f.target, x)
		}
		if lo != nil {
			fr.slots[f.loopSlot] = Value{kind: KindObject, ref: lo}
		}
		switch s.run(f.body) {
		case breakLoop:
			stop = true
		case goOn:
			ran = true // jinja2 notes it at the end of the body: break and continue pass it by
		}
	}
	f.scope.clear(fr)
	if !ran && f.elseScope != nil {
		f.elseScope.clear(fr)
		s.run(f.orElse)
	}
}

// loopObject is the variable loop.
type loopObject struct {
	f       *forStmt
	fr      *frame
	cur     cursor
	index   int // of the current element
	depth   int
	prev    Value
	now     Value
	ahead   []Value // elements that were looked at before their turn
	changed []Value
}

func (l *loopObject) typeName() string { return "LoopContext" }

func (l *loopObject) advance(s *state) (Value, bool) {
	l.prev = l.now
	var ok bool
	if len(l.ahead) > 0 {
		l.now, ok = l.ahead[0], true
		l.ahead = l.ahead[1:]
	} else {
		l.now, ok = l.cur.next(s)
	}
	l.index++
	return l.now, ok
}

// peek looks at the element after the current one.
func (l *loopObject) peek(s *state) (Value, bool) {
	if len(l.ahead) > 0 {
		return l.ahead[0], true
	}
	if l.cur.pull == nil {
		if l.cur.pos < len(l.cur.list) {
			return l.cur.list[l.cur.pos], true
		}
		return Value{}, false
	}
	x, ok := l.cur.next(s)
	if ok {
		l.ahead = append(l.ahead, x)
	}
	return x, ok
}

func (l *loopObject) length(s *state) int {
	if l.cur.pull == nil {
		return len(l.cur.list)
	}
	for {
		x, ok := l.cur.next(s)
		if !ok {
			return l.index + 1 + len(l.ahead)
		}
		s.makeValues(1)
		l.ahead = append(l.ahead, x)
	}
}

// A loopField is an attribute of loop.
type loopField uint8

const (
	loopOther loopField = iota
	loopIndex
	loopIndex0
	loopFirst
	loopLast
	loopLength
	loopRevindex
	loopRevindex0
	loopPrevitem
	loopNextitem
	loopDepth
	loopDepth0
	loopCycle
	loopChanged
)

var loopFields = map[string]loopField{
	"index": loopIndex, "index0": loopIndex0, "first": loopFirst, "last": loopLast, "length": loopLength,
	"revindex": loopRevindex, "revindex0": loopRevindex0, "previtem": loopPrevitem, "nextitem": loopNextitem,
	"depth": loopDepth, "depth0": loopDepth0, "cycle": loopCycle, "changed": loopChanged,
}

func (l *loopObject) attr(s *state, name string) (Value, bool) {
	f := loopFields[name]
	if f == loopOther {
		return Value{}, false
	}
	return l.field(s, f), true
}

func (l *loopObject) field(s *state, f loopField) Value {
	switch f {
	case loopIndex:
		return Int(int64(l.index + 1))
	case loopIndex0:
		return Int(int64(l.index))
	case loopFirst:
		return Bool(l.index == 0)
	case loopLast:
		_, more := l.peek(s)
		return Bool(!more)
	case loopLength:
		return Int(int64(l.length(s)))
	case loopRevindex:
		return Int(int64(l.length(s) - l.index))
	case loopRevindex0:
		return Int(int64(l.length(s) - l.index - 1))
	case loopPrevitem:
		if l.index == 0 {
			return Value{kind: KindUndefined, ref: &undefined{hint: "there is no previous item"}}
		}
		return l.prev
	case loopNextitem:
		x, ok := l.peek(s)
		if !ok {
			return Value{kind: KindUndefined, ref: &undefined{hint: "there is no next item"}}
		}
		return x
	case loopDepth:
		return Int(int64(l.depth + 1))
	case loopDepth0:
		return Int(int64(l.depth))
	case loopCycle:
		return funcOf("cycle", func(s *state, a args) Value {
			if len(a.pos) == 0 {
				fail("TypeError", "no items for cycling given")
			}
			return a.pos[l.index%len(a.pos)]
		})
	}
	return funcOf("changed", func(s *state, a args) Value {
		now := append([]Value{}, a.pos...)
		if l.changed != nil && equal(tupleOf(l.changed...), tupleOf(now...)) {
			return Bool(false)
		}
		l.changed = now
		return Bool(true)
	})
}

// again is loop(x) in a recursive loop: the body over x, as text.
func (l *loopObject) again(s *state, v Value) Value {
	if !l.f.recursive {
		fail("TypeError", "The loop must have the 'recursive' marker to be called recursively.")
	}
	if l.depth+1 >= s.limits.Depth {
		failLimit("a loop that calls itself more than %d times", s.limits.Depth)
	}
	sc := l.f.scope
	caller := s.frame
	s.frame = l.fr
	saved := append([]Value(nil), l.fr.slots[sc.lo:sc.hi]...)
	mark := len(s.out)
	s.loop(l.f, v, l.depth+1)
	copy(l.fr.slots[sc.lo:sc.hi], saved)
	s.frame = caller
	text := string(s.out[mark:])
	s.out = s.out[:mark]
	s.charge(len(text))
	return Str(text)
}
