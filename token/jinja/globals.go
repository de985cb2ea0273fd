package jinja

// globals are the names that the environment gives every template.
var globals = map[string]Value{}

func init() {
	for name, fn := range map[string]func(*state, args) Value{
		"range": rangeFunc, "dict": dictFunc, "namespace": namespaceFunc, "joiner": joinerFunc, "cycler": cyclerFunc,
		"raise_exception": func(_ *state, a args) Value {
			fail("TemplateError", "%s", toStr(a.get(0, "message")))
			return None
		},
		"strftime_now": func(s *state, a args) Value { return Str(strftime(s.env.Now, a.str(0, "format", ""))) },
		"lipsum": func(*state, args) Value {
			failUnsupported("lipsum() makes random text")
			return None
		},
	} {
		globals[name] = funcOf(name, fn)
	}
}

// maxRange is the sandbox's own limit.
const maxRange = 100_000

func rangeFunc(_ *state, a args) Value {
	if len(a.pos) == 0 || len(a.pos) > 3 {
		fail("TypeError", "range expected 1 to 3 arguments, got %d", len(a.pos))
	}
	r := &pyRange{0, int64(a.integer(0, "", 0)), 1}
	if len(a.pos) > 1 {
		r.start, r.stop = r.stop, int64(a.integer(1, "", 0))
		r.step = int64(a.integer(2, "", 1))
	}
	const far = 1 << 60
	if r.step == 0 {
		fail("ValueError", "range() arg 3 must not be zero")
	}
	if max(r.start, r.stop, r.step) > far || min(r.start, r.stop, r.step) < -far || r.len() > maxRange {
		fail("OverflowError", "Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d).", maxRange)
	}
	return Value{kind: KindRange, ref: r}
}

// dictFunc is Python's dict().
func dictFunc(s *state, a args) Value {
	a0 := a.get(0, "")
	out := NewDict(4)
	switch {
	case a0.kind == KindMissing:
	case a0.kind == KindDict:
		out = a0.ref.(*Dict).Clone()
	default:
		for i, pair := range s.collect(a0) {
			kv := s.collect(pair)
			if len(kv) != 2 {
				fail("ValueError", "dictionary update sequence element #%d has length %d; 2 is required", i, len(kv))
			}
			out.setValue(kv[0], kv[1])
		}
	}
	for i, name := range a.names {
		out.Set(name, a.vals[i])
	}
	return DictOf(out)
}

func namespaceFunc(s *state, a args) Value {
	d, _ := dictFunc(s, a).AsDict()
	return Value{kind: KindNamespace, ref: &namespace{d}}
}

// joiner prints nothing the first time and its separator after that.
type joiner struct {
	sep  Value
	used bool
}

func joinerFunc(_ *state, a args) Value {
	sep := a.get(0, "sep")
	if sep.kind == KindMissing {
		sep = Str(", ")
	}
	return Value{kind: KindObject, ref: &joiner{sep: sep}}
}

func (j *joiner) typeName() string { return "Joiner" }
func (j *joiner) attr(_ *state, name string) (Value, bool) {
	switch name {
	case "sep":
		return j.sep, true
	case "used":
		return Bool(j.used), true
	}
	return Value{}, false
}

func (j *joiner) call() Value {
	if !j.used {
		j.used = true
		return Str("")
	}
	return j.sep
}

// cycler goes round its items.
type cycler struct {
	items []Value
	pos   int
}

func cyclerFunc(_ *state, a args) Value {
	if len(a.pos) == 0 {
		fail("RuntimeError", "at least one item has to be provided")
	}
	return Value{kind: KindObject, ref: &cycler{items: append([]Value(nil), a.pos...)}}
}

func (c *cycler) typeName() string { return "Cycler" }
func (c *cycler) attr(_ *state, name string) (Value, bool) {
	switch name {
	case "current":
		return c.items[c.pos], true
	case "pos":
		return Int(int64(c.pos)), true
	case "next":
		return funcOf("next", func(*state, args) Value {
			v := c.items[c.pos]
			c.pos = (c.pos + 1) % len(c.items)
			return v
		}), true
	case "reset":
		return funcOf("reset", func(*state, args) Value { c.pos = 0; return None }), true
	}
	return Value{}, false
}

// groupPair is an element of groupby: a pair with names.
type groupPair struct{ grouper, list Value }

func (g *groupPair) typeName() string { return "_GroupTuple" }
func (g *groupPair) attr(_ *state, name string) (Value, bool) {
	switch name {
	case "grouper":
		return g.grouper, true
	case "list":
		return g.list, true
	}
	return Value{}, false
}
