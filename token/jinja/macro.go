package jinja

// macroFunc is a macro bound to the frame it was defined in.
type macroFunc struct {
	node *macroStmt
	up   *frame
}

func (m *macroStmt) exec(s *state) flow {
	s.assign(m.target, Value{kind: KindFunc, ref: &macroFunc{m, s.frame}})
	return goOn
}

func (c *callBlockStmt) exec(s *state) flow {
	s.line = c.line
	s.step(1)
	caller := Value{kind: KindFunc, ref: &macroFunc{c.macro, s.frame}}
	s.out = appendStr(s.out, c.call.call(s, caller))
	s.checkOutput()
	return goOn
}

// call runs a macro and gives its text. Arguments are bound as jinja2's Macro does: missing ones are
// undefined, unless they have a default.
func (m *macroFunc) call(s *state, a args) Value {
	n := m.node
	if s.depth++; s.depth > s.limits.Depth {
		failLimit("macros that call each other more than %d levels deep", s.limits.Depth)
	}
	s.step(4)
	s.take(64)
	fr := s.newFrame(m)
	saved, line := s.frame, s.line
	s.frame = fr
	given := min(len(a.pos), len(n.params))
	for i, p := range n.params {
		slot := p.refs[0].slot
		switch {
		case i < given:
			fr.slots[slot] = present(a.pos[i])
			if j := a.find(p.name); j >= 0 {
				fail("TypeError", "macro '%s' got multiple values for argument '%s'", n.name, p.name)
			}
		default:
			if j := a.find(p.name); j >= 0 {
				fr.slots[slot] = present(a.vals[j])
			}
		}
	}
	for i := given; i < len(n.params); i++ {
		p := n.params[i]
		if slot := p.refs[0].slot; fr.slots[slot].kind == KindMissing {
			if d := i - (len(n.params) - len(n.defaults)); d >= 0 {
				fr.slots[slot] = present(n.defaults[d].eval(s))
			} else {
				fr.slots[slot] = Value{kind: KindUndefined, ref: &undefined{name: p.name, hint: "parameter '" + p.name + "' was not provided"}}
			}
		}
	}
	m.special(fr, a, given)
	text := s.capture(n.body)
	s.frame, s.line = saved, line
	s.freeFrame(m, fr)
	s.depth--
	return Str(text)
}

// special binds caller, varargs and kwargs, and refuses what the macro has no place for.
func (m *macroFunc) special(fr *frame, a args, given int) {
	n := m.node
	rest := NewDict(0)
	for i, name := range a.names {
		known := false
		for _, p := range n.params {
			known = known || p.name == name
		}
		if known {
			continue
		}
		if name == "caller" && n.caller != nil {
			fr.slots[n.caller.refs[0].slot] = a.vals[i]
			continue
		}
		if n.kwargs == nil {
			if name == "caller" {
				fail("TypeError", "macro '%s' was invoked with two values for the special caller argument. This is most likely a bug.", n.name)
			}
			fail("TypeError", "macro '%s' takes no keyword argument '%s'", n.name, name)
		}
		rest.Set(name, a.vals[i])
	}
	if n.caller != nil && fr.slots[n.caller.refs[0].slot].kind == KindMissing {
		fr.slots[n.caller.refs[0].slot] = Value{kind: KindUndefined, ref: &undefined{name: "caller", hint: "No caller defined"}}
	}
	if n.kwargs != nil {
		fr.slots[n.kwargs.refs[0].slot] = DictOf(rest)
	}
	if n.varargs != nil {
		fr.slots[n.varargs.refs[0].slot] = tupleOf(append([]Value(nil), a.pos[given:]...)...)
	} else if len(a.pos) > len(n.params) {
		fail("TypeError", "macro '%s' takes not more than %d argument(s)", n.name, len(n.params))
	}
}

func (s *state) newFrame(m *macroFunc) *frame {
	if list := s.free[m.node]; len(list) > 0 {
		fr := list[len(list)-1]
		s.free[m.node] = list[:len(list)-1]
		fr.parent = m.up
		return fr
	}
	return &frame{slots: make([]Value, m.node.fn.slots), parent: m.up}
}

// freeFrame keeps a frame for the next call, unless a macro inside may still refer to it.
func (s *state) freeFrame(m *macroFunc, fr *frame) {
	if m.node.fn.captured {
		return
	}
	clear(fr.slots)
	if s.free == nil {
		s.free = map[*macroStmt][]*frame{}
	}
	s.free[m.node] = append(s.free[m.node], fr)
}
