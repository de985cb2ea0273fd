package jinja

// args are the arguments of a call. The slices are the state's scratch space: a function that keeps
// one copies it.
type args struct {
	pos   []Value
	names []string
	vals  []Value // of the keyword arguments
}

func (a args) find(name string) int {
	for i, n := range a.names {
		if n == name {
			return i
		}
	}
	return -1
}

// get gives parameter i, which may also be given by name; missing when absent.
func (a args) get(i int, name string) Value {
	if i >= 0 && i < len(a.pos) {
		return a.pos[i]
	}
	if j := a.find(name); j >= 0 {
		return a.vals[j]
	}
	return Value{}
}

func (a args) str(i int, name, def string) string {
	v := a.get(i, name)
	switch v.kind {
	case KindMissing:
		return def
	case KindString:
		return v.str
	}
	fail("TypeError", "argument '%s' must be str, not %s", name, typeName(v))
	return ""
}

func (a args) integer(i int, name string, def int) int {
	v := a.get(i, name)
	switch v.kind {
	case KindMissing:
		return def
	case KindInt, KindBool:
		if !v.isBig() {
			return int(v.int())
		}
	case KindUndefined:
		undefinedFail(v)
	}
	fail("TypeError", "'%s' object cannot be interpreted as an integer", typeName(v))
	return 0
}

func (a args) bool(i int, name string, def bool) bool {
	v := a.get(i, name)
	if v.kind == KindMissing {
		return def
	}
	return v.Truth()
}

// most checks that no more than n arguments were given in all.
func (a args) most(fn string, n int) {
	if len(a.pos)+len(a.names) > n {
		fail("TypeError", "%s() takes at most %d arguments (%d given)", fn, n, len(a.pos)+len(a.names))
	}
}

// builtin is a function of the engine.
type builtin struct {
	name string
	fn   func(s *state, a args) Value
}

func funcOf(name string, fn func(s *state, a args) Value) Value {
	return Value{kind: KindFunc, ref: &builtin{name, fn}}
}

// evalArgs evaluates arguments onto the state's stack; release gives the space back.
func (s *state) evalArgs(c *callArgs) (a args, mark int) {
	mark = len(s.args)
	if len(c.pos) == 0 && len(c.kw) == 0 && c.simple {
		return a, mark
	}
	for _, e := range c.pos {
		v := e.eval(s)
		s.args = append(s.args, v)
	}
	if !c.simple {
		if c.star != nil {
			s.args = append(s.args, s.collect(c.star.eval(s))...)
		}
	}
	n := len(s.args)
	for _, e := range c.kw {
		v := e.eval(s)
		s.args = append(s.args, v)
	}
	names := c.names
	if c.dstar != nil {
		v := c.dstar.eval(s)
		d, ok := v.AsDict()
		if !ok {
			fail("TypeError", "argument after ** must be a mapping, not %s", typeName(v))
		}
		names = append([]string(nil), names...)
		for i := range d.entries {
			names = append(names, d.entries[i].key)
			s.args = append(s.args, d.entries[i].val)
		}
	}
	return args{pos: s.args[mark:n:n], names: names, vals: s.args[n:len(s.args):len(s.args)]}, mark
}

func (c *callExpr) eval(s *state) Value { return c.call(s, Value{}) }

// call calls the function, with a caller when a {% call %} block goes with it.
func (c *callExpr) call(s *state, caller Value) Value {
	s.step(1)
	if at := c.method; at != nil && caller.kind == KindMissing {
		obj := at.obj.eval(s)
		var m stringMethod
		switch obj.kind {
		case KindString:
			m = c.ofString
		case KindDict:
			m = c.ofDict
		}
		if m != nil {
			a, mark := s.evalArgs(&c.args)
			v := m(s, obj, a)
			s.args = s.args[:mark]
			return v
		}
		return s.invoke(s.getAttr(obj, at.name), &c.args, caller)
	}
	return s.invoke(c.fn.eval(s), &c.args, caller)
}

func (s *state) invoke(fn Value, c *callArgs, caller Value) Value {
	a, mark := s.evalArgs(c)
	if caller.kind != KindMissing {
		a.names = append(append([]string(nil), a.names...), "caller")
		a.vals = append(append([]Value(nil), a.vals...), caller)
	}
	v := s.callValue(fn, a)
	s.args = s.args[:mark]
	return v
}

// callValue calls any value.
func (s *state) callValue(fn Value, a args) Value {
	switch f := fn.ref.(type) {
	case *macroFunc:
		return f.call(s, a)
	case *builtin:
		return f.fn(s, a)
	case *loopObject:
		return f.again(s, a.get(0, "iterable"))
	case *joiner:
		return f.call()
	}
	if fn.kind == KindUndefined {
		undefinedFail(fn)
	}
	fail("TypeError", "'%s' object is not callable", typeName(fn))
	return Value{}
}

func (f *filterExpr) eval(s *state) Value {
	s.step(1)
	var v Value
	if f.obj == nil {
		v = s.block
	} else {
		v = f.obj.eval(s)
	}
	if f.fn == nil {
		fail("TemplateRuntimeError", "No filter named '%s' found.", f.name)
	}
	a, mark := s.evalArgs(&f.args)
	v = f.fn(s, v, a)
	s.args = s.args[:mark]
	return v
}

func (t *testExpr) eval(s *state) Value { return Bool(t.truth(s)) }

func (t *testExpr) truth(s *state) bool {
	v := t.obj.eval(s)
	if t.fn == nil {
		fail("TemplateRuntimeError", "No test named '%s' found.", t.name)
	}
	a, mark := s.evalArgs(&t.args)
	ok := t.fn(s, v, a)
	s.args = s.args[:mark]
	return ok != t.neg
}
