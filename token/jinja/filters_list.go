package jinja

import (
	"sort"
	"strings"
)

// listFilters work on sequences. Those that are generators in jinja2 are generators here: they run
// when they are iterated and can be used once.
func listFilters() map[string]filterFunc {
	return map[string]filterFunc{
		"first": func(s *state, v Value, _ args) Value {
			c := s.iterate(v)
			if x, ok := c.next(s); ok {
				return x
			}
			return Value{kind: KindUndefined, ref: &undefined{hint: "No first item, sequence was empty."}}
		},
		"last": func(s *state, v Value, _ args) Value {
			if v.kind == KindIterator {
				fail("TypeError", "'generator' object is not reversible")
			}
			if items := s.collect(v); len(items) > 0 {
				return items[len(items)-1]
			}
			return Value{kind: KindUndefined, ref: &undefined{hint: "No last item, sequence was empty."}}
		},
		"list": func(s *state, v Value, _ args) Value {
			items := s.collect(v)
			s.makeValues(len(items))
			return ListOf(append([]Value(nil), items...))
		},
		"items": func(s *state, v Value, _ args) Value {
			i := 0
			return iterOf(func(s *state) (Value, bool) {
				if v.kind == KindUndefined || v.kind == KindMissing {
					return Value{}, false
				}
				d, ok := v.AsDict()
				if !ok {
					fail("TypeError", "Can only get item pairs from a mapping.")
				}
				if i >= d.Len() {
					return Value{}, false
				}
				i++
				return tupleOf(d.entries[i-1].keyValue(), d.entries[i-1].val), true
			})
		},
		"dictsort": dictsortFilter,
		"sort": func(s *state, v Value, a args) Value {
			items := append([]Value(nil), s.collect(v)...)
			s.makeValues(4 * len(items))
			fold := !a.bool(1, "case_sensitive", false)
			key := func(x Value) Value { return lowered(x, fold) }
			if attr := a.get(2, "attribute"); attr.kind == KindString {
				names := strings.Split(attr.str, ",")
				key = func(x Value) Value {
					keys := make([]Value, len(names))
					for i, n := range names {
						keys[i] = lowered(s.attrOf(x, Str(n), Value{}), fold)
					}
					return ListOf(keys)
				}
			} else if attr.kind == KindInt {
				key = func(x Value) Value { return lowered(s.getItem(x, attr), fold) }
			}
			sortValues(items, key, a.bool(0, "reverse", false))
			return ListOf(items)
		},
		"reverse": func(s *state, v Value, _ args) Value {
			if v.kind == KindString {
				return s.sliceString(v, 0, 0, -1, false, false)
			}
			items := s.collect(v)
			i := len(items)
			return iterOf(func(*state) (Value, bool) {
				if i == 0 {
					return Value{}, false
				}
				i--
				return items[i], true
			})
		},
		"unique": func(s *state, v Value, a args) Value {
			key := s.keyOf(a.get(1, "attribute"), !a.bool(0, "case_sensitive", false))
			var seen []Value
			c := s.iterate(v)
			return iterOf(func(s *state) (Value, bool) {
			next:
				for {
					x, ok := c.next(s)
					if !ok {
						return x, false
					}
					k := key(x)
					if !hashable(k) {
						fail("TypeError", "unhashable type: '%s'", typeName(k))
					}
					s.step(1 + len(seen)/4)
					for _, y := range seen {
						if equal(k, y) {
							continue next
						}
					}
					seen = append(seen, k)
					return x, true
				}
			})
		},
		"min":     extreme(opLt),
		"max":     extreme(opGt),
		"sum":     sumFilter,
		"batch":   batchFilter,
		"slice":   sliceFilter,
		"groupby": groupbyFilter,
		"map":     mapFilter,
		"select":  func(s *state, v Value, a args) Value { return s.selectFilter(v, a, false, true) },
		"reject":  func(s *state, v Value, a args) Value { return s.selectFilter(v, a, false, false) },
		"selectattr": func(s *state, v Value, a args) Value {
			return s.selectFilter(v, a, true, true)
		},
		"rejectattr": func(s *state, v Value, a args) Value {
			return s.selectFilter(v, a, true, false)
		},
	}
}

func lowered(v Value, fold bool) Value {
	if fold && v.kind == KindString {
		return Str(pyLower(v.str))
	}
	return v
}

// attrOf is Jinja's attribute getter: "a.b.0" is x["a"]["b"][0].
func (s *state) attrOf(x, attr, def Value) Value {
	if attr.kind == KindInt {
		x = s.getItem(x, attr)
	} else {
		if attr.kind != KindString {
			fail("TypeError", "an attribute must be a str or an int")
		}
		for _, part := range strings.Split(attr.str, ".") {
			index := Str(part)
			if part != "" && strings.Trim(part, "0123456789") == "" {
				index, _ = parseInt(part, 10)
			}
			x = s.getItem(x, index)
			if x.kind == KindUndefined && def.kind != KindMissing && def.kind != KindNone {
				x = def
			}
		}
		return x
	}
	if x.kind == KindUndefined && def.kind != KindMissing && def.kind != KindNone {
		return def
	}
	return x
}

func (s *state) keyOf(attr Value, fold bool) func(Value) Value {
	return func(x Value) Value {
		if attr.kind != KindMissing && attr.kind != KindNone {
			x = s.attrOf(x, attr, Value{})
		}
		return lowered(x, fold)
	}
}

// sortValues sorts stably by key, as Python's sorted.
func sortValues(items []Value, key func(Value) Value, reverse bool) {
	keys := make([]Value, len(items))
	order := make([]int, len(items))
	for i := range items {
		keys[i] = key(items[i])
		order[i] = i
	}
	sort.SliceStable(order, func(i, j int) bool {
		if reverse {
			return less(keys[order[j]], keys[order[i]])
		}
		return less(keys[order[i]], keys[order[j]])
	})
	out := make([]Value, len(items))
	for i, o := range order {
		out[i] = items[o]
	}
	copy(items, out)
}

func dictsortFilter(s *state, v Value, a args) Value {
	d, ok := v.AsDict()
	if !ok {
		if v.kind == KindUndefined {
			undefinedFail(v)
		}
		fail("AttributeError", "'%s' object has no attribute 'items'", typeName(v))
	}
	by := 0
	switch a.str(1, "by", "key") {
	case "key":
	case "value":
		by = 1
	default:
		fail("FilterArgumentError", `You can only sort by either "key" or "value"`)
	}
	fold := !a.bool(0, "case_sensitive", false)
	s.makeValues(8 * d.Len())
	items := make([]Value, d.Len())
	for i := range items {
		items[i] = tupleOf(d.entries[i].keyValue(), d.entries[i].val)
	}
	sortValues(items, func(x Value) Value { return lowered(x.items()[by], fold) }, a.bool(2, "reverse", false))
	return ListOf(items)
}

func extreme(op opCode) filterFunc {
	return func(s *state, v Value, a args) Value {
		key := s.keyOf(a.get(1, "attribute"), !a.bool(0, "case_sensitive", false))
		items := s.collect(v)
		if len(items) == 0 {
			return Value{kind: KindUndefined, ref: &undefined{hint: "No aggregated item, sequence was empty."}}
		}
		best, bestKey := items[0], key(items[0])
		for _, x := range items[1:] {
			s.step(1)
			if k := key(x); order(op, k, bestKey) {
				best, bestKey = x, k
			}
		}
		return best
	}
}

func sumFilter(s *state, v Value, a args) Value {
	attr := a.get(0, "attribute")
	total := a.get(1, "start")
	if total.kind == KindMissing {
		total = Int(0)
	}
	if total.kind == KindString {
		fail("TypeError", "sum() can't sum strings [use ''.join(seq) instead]")
	}
	for _, x := range s.collect(v) {
		if attr.kind != KindMissing && attr.kind != KindNone {
			x = s.attrOf(x, attr, Value{})
		}
		s.step(1)
		total = s.add(total, x)
	}
	return total
}

func batchFilter(_ *state, v Value, a args) Value {
	n := a.integer(0, "linecount", 0)
	fill := a.get(1, "fill_with")
	var c cursor
	started := false
	return iterOf(func(s *state) (Value, bool) {
		if !started {
			c, started = s.iterate(v), true
		}
		var row []Value
		for {
			x, ok := c.next(s)
			if !ok {
				break
			}
			s.makeValues(1)
			row = append(row, x)
			if len(row) == n {
				return ListOf(row), true
			}
		}
		if len(row) == 0 {
			return Value{}, false
		}
		if fill.kind != KindMissing && fill.kind != KindNone && n > len(row) {
			s.makeValues(n)
			for len(row) < n {
				row = append(row, fill)
			}
		}
		return ListOf(row), true
	})
}

func sliceFilter(_ *state, v Value, a args) Value {
	slices := a.integer(0, "slices", 0)
	fill := a.get(1, "fill_with")
	var items []Value
	i, offset := -1, 0
	return iterOf(func(s *state) (Value, bool) {
		if i < 0 {
			items = s.collect(v)
			i = 0
			if slices == 0 {
				fail("ZeroDivisionError", "integer division or modulo by zero")
			}
		}
		if i >= slices {
			return Value{}, false
		}
		s.step(1)
		per, extra := len(items)/slices, len(items)%slices
		start := offset + i*per
		if i < extra {
			offset++
		}
		s.makeValues(per + 1)
		row := append([]Value(nil), items[start:offset+(i+1)*per]...)
		if fill.kind != KindMissing && fill.kind != KindNone && i >= extra {
			row = append(row, fill)
		}
		i++
		return ListOf(row), true
	})
}

func groupbyFilter(s *state, v Value, a args) Value {
	attr, def := a.get(0, "attribute"), a.get(1, "default")
	fold := !a.bool(2, "case_sensitive", false)
	items := append([]Value(nil), s.collect(v)...)
	s.makeValues(4 * len(items))
	key := func(x Value) Value { return lowered(s.attrOf(x, attr, def), fold) }
	sortValues(items, key, false)
	var out []Value
	for i := 0; i < len(items); {
		j := i + 1
		for j < len(items) && equal(key(items[i]), key(items[j])) {
			j++
		}
		out = append(out, Value{kind: KindObject, ref: &groupPair{s.attrOf(items[i], attr, def), ListOf(items[i:j:j])}})
		i = j
	}
	return ListOf(out)
}

func mapFilter(s *state, v Value, a args) Value {
	c := cursor{}
	started := false
	var f func(s *state, x Value) Value
	if len(a.pos) == 0 && a.find("attribute") >= 0 {
		attr, def := a.get(-1, "attribute"), a.get(-1, "default")
		for _, n := range a.names {
			if n != "attribute" && n != "default" {
				fail("FilterArgumentError", "Unexpected keyword argument '%s'", n)
			}
		}
		f = func(s *state, x Value) Value { return s.attrOf(x, attr, def) }
	} else {
		if len(a.pos) == 0 {
			fail("FilterArgumentError", "map requires a filter argument")
		}
		name := toStr(a.pos[0])
		fn := filters[name]
		if fn == nil {
			if unsupportedFilters[name] {
				failUnsupported("the filter '%s'", name)
			}
			fail("TemplateRuntimeError", "No filter named '%s'.", name)
		}
		rest := args{append([]Value(nil), a.pos[1:]...), a.names, append([]Value(nil), a.vals...)}
		f = func(s *state, x Value) Value { return fn(s, x, rest) }
	}
	return iterOf(func(s *state) (Value, bool) {
		if !v.truth(s) { // "if value:" in jinja2
			return Value{}, false
		}
		if !started {
			c, started = s.iterate(v), true
		}
		x, ok := c.next(s)
		if !ok {
			return x, false
		}
		s.step(1)
		return f(s, x), true
	})
}

// selectFilter keeps the elements (or those whose attribute) for which a test says keep.
func (s *state) selectFilter(v Value, a args, attr, keep bool) Value {
	var name Value
	off := 0
	if attr {
		if len(a.pos) == 0 {
			fail("FilterArgumentError", "Missing parameter for attribute name")
		}
		name, off = a.pos[0], 1
	}
	check := func(s *state, x Value) bool { return x.truth(s) }
	if len(a.pos) > off {
		testName := toStr(a.pos[off])
		fn := tests[testName]
		if fn == nil {
			fail("TemplateRuntimeError", "No test named '%s'.", testName)
		}
		rest := args{append([]Value(nil), a.pos[off+1:]...), a.names, append([]Value(nil), a.vals...)}
		check = func(s *state, x Value) bool { return fn(s, x, rest) }
	}
	c := cursor{}
	started := false
	return iterOf(func(s *state) (Value, bool) {
		if !v.truth(s) {
			return Value{}, false
		}
		if !started {
			c, started = s.iterate(v), true
		}
		for {
			x, ok := c.next(s)
			if !ok {
				return x, false
			}
			s.step(1)
			y := x
			if attr {
				y = s.attrOf(x, name, Value{})
			}
			if check(s, y) == keep {
				return x, true
			}
		}
	})
}
