package jinja

import "strings"

// Attributes that Python's own types have. A template that names one of these on a dict gets the
// method and not the key, as jinja2 tries attributes first.
var pythonAttrs = setOf(`capitalize casefold center count encode endswith expandtabs find format
	format_map index isalnum isalpha isascii isdecimal isdigit isidentifier islower isnumeric isprintable
	isspace istitle isupper join ljust lower lstrip maketrans partition removeprefix removesuffix replace
	rfind rindex rjust rpartition rsplit rstrip split splitlines startswith strip swapcase title translate
	upper zfill append clear copy extend insert pop remove reverse sort fromkeys get items keys popitem
	setdefault update values as_integer_ratio bit_count bit_length conjugate denominator from_bytes imag
	numerator real to_bytes fromhex hex is_integer start step stop`)

var typeAttrs = map[Kind]map[string]bool{
	KindString: setOf(`capitalize casefold center count encode endswith expandtabs find format format_map index
		isalnum isalpha isascii isdecimal isdigit isidentifier islower isnumeric isprintable isspace istitle
		isupper join ljust lower lstrip maketrans partition removeprefix removesuffix replace rfind rindex rjust
		rpartition rsplit rstrip split splitlines startswith strip swapcase title translate upper zfill`),
	KindList:  setOf("append clear copy count extend index insert pop remove reverse sort"),
	KindTuple: setOf("count index"),
	KindDict:  setOf("clear copy fromkeys get items keys pop popitem setdefault update values"),
	KindInt:   setOf("as_integer_ratio bit_count bit_length conjugate denominator from_bytes imag numerator real to_bytes"),
	KindBool:  setOf("as_integer_ratio bit_count bit_length conjugate denominator from_bytes imag numerator real to_bytes"),
	KindFloat: setOf("as_integer_ratio conjugate fromhex hex imag is_integer real"),
	KindRange: setOf("count index start step stop"),
}

// mutators are what the immutable sandbox hides.
var mutators = map[Kind]map[string]bool{
	KindList: setOf("append clear pop reverse insert sort extend remove"),
	KindDict: setOf("clear pop popitem setdefault update"),
}

func setOf(words string) map[string]bool {
	m := map[string]bool{}
	for _, w := range strings.Fields(words) {
		m[w] = true
	}
	return m
}

// dunders are the double-underscore names that objects of every type have; the sandbox hides them.
var dunders = setOf(`__class__ __doc__ __delattr__ __dir__ __eq__ __format__ __ge__ __getattribute__ __gt__
	__hash__ __init__ __init_subclass__ __le__ __lt__ __ne__ __new__ __reduce__ __reduce_ex__ __repr__
	__setattr__ __sizeof__ __str__ __subclasshook__ __len__ __iter__ __contains__ __getitem__ __add__
	__mul__ __getstate__ __class_getitem__ __getnewargs__ __mod__ __rmod__ __rmul__ __or__ __ror__ __bool__`)

// getAttr is obj.name in a template: the attribute if there is one, else the item.
func (s *state) getAttr(obj Value, name string) Value {
	switch obj.kind {
	case KindUndefined, KindMissing:
		if dunders[name] {
			return hidden(obj, name)
		}
		undefinedFail(obj)
	case KindNamespace:
		if v := obj.ref.(*namespace).attrs.Get(name); v.kind != KindMissing {
			return v
		}
		return undefinedAttr(obj, name)
	case KindDict:
		if !pythonAttrs[name] && name[0] != '_' {
			if v := obj.ref.(*Dict).Get(name); v.kind != KindMissing {
				return v
			}
			return undefinedAttr(obj, name)
		}
	}
	if o, ok := obj.ref.(object); ok {
		if v, ok := o.attr(s, name); ok {
			return v
		}
	}
	if typeAttrs[obj.kind][name] {
		if mutators[obj.kind][name] {
			return hidden(obj, name)
		}
		return method(obj, name)
	}
	if dunders[name] {
		return hidden(obj, name)
	}
	if obj.kind == KindDict {
		if v := obj.ref.(*Dict).Get(name); v.kind != KindMissing {
			return v
		}
	}
	return undefinedAttr(obj, name)
}

func hidden(obj Value, name string) Value {
	return Value{kind: KindUndefined, ref: &undefined{owner: typeName(obj), name: name, security: true}}
}

// method binds a method to its object.
func method(obj Value, name string) Value {
	var m func(*state, Value, args) Value
	switch obj.kind {
	case KindString:
		m = stringMethods[name]
	case KindDict:
		m = dictMethods[name]
	case KindList, KindTuple:
		m = listMethods[name]
	case KindRange:
		r := obj.ref.(*pyRange)
		switch name {
		case "start":
			return Int(r.start)
		case "stop":
			return Int(r.stop)
		case "step":
			return Int(r.step)
		}
	case KindInt, KindBool, KindFloat:
		switch {
		case name == "real":
			return arith(opAdd, obj, Int(0))
		case name == "imag" && obj.kind == KindFloat:
			return Float(0)
		case name == "imag":
			return Int(0)
		case name == "numerator":
			return arith(opAdd, obj, Int(0))
		case name == "denominator":
			return Int(1)
		case name == "is_integer" && obj.kind == KindFloat:
			return funcOf(name, func(*state, args) Value { return Bool(obj.float() == float64(int64(obj.float()))) })
		}
	}
	if m == nil {
		failUnsupported("the method '%s' of '%s'", name, typeName(obj))
	}
	return funcOf(name, func(s *state, a args) Value { return m(s, obj, a) })
}

// getItem is obj[index]: the item if there is one, else the attribute, else undefined.
func (s *state) getItem(obj, index Value) Value {
	switch obj.kind {
	case KindUndefined, KindMissing:
		undefinedFail(obj)
	case KindDict:
		if hashable(index) {
			if i := obj.ref.(*Dict).findValue(index); i >= 0 {
				return obj.ref.(*Dict).entries[i].val
			}
		}
	case KindList, KindTuple:
		if i, ok := position(index, len(obj.items())); ok {
			return obj.items()[i]
		}
	case KindRange:
		r := obj.ref.(*pyRange)
		if i, ok := position(index, r.len()); ok {
			return r.at(i)
		}
	case KindString:
		if index.kind == KindInt || index.kind == KindBool {
			s.charge(len(obj.str))
			n := runeCount(obj.str)
			if i, ok := position(index, n); ok {
				return Value{kind: KindString, markup: obj.markup, str: runeAt(obj.str, i)}
			}
		}
	}
	if g, ok := obj.ref.(*groupPair); ok {
		if i, ok := position(index, 2); ok {
			return []Value{g.grouper, g.list}[i]
		}
	}
	if index.kind == KindString && index.str != "" {
		if obj.kind == KindNamespace || obj.kind != KindDict && typeAttrs[obj.kind][index.str] || obj.kind == KindDict && pythonAttrs[index.str] && typeAttrs[KindDict][index.str] || dunders[index.str] || obj.kind == KindObject {
			return s.getAttr(obj, index.str)
		}
	}
	return undefinedAttr(obj, toStr(index))
}

func position(index Value, n int) (int, bool) {
	if index.kind != KindInt && index.kind != KindBool || index.isBig() {
		return 0, false
	}
	i := index.int()
	if i < 0 {
		i += int64(n)
	}
	return int(i), i >= 0 && i < int64(n)
}

var dictMethods = map[string]func(*state, Value, args) Value{
	"items":  func(_ *state, d Value, a args) Value { return viewOf(d, 0, a) },
	"keys":   func(_ *state, d Value, a args) Value { return viewOf(d, 1, a) },
	"values": func(_ *state, d Value, a args) Value { return viewOf(d, 2, a) },
	"get": func(_ *state, d Value, a args) Value {
		if len(a.pos) == 0 || len(a.pos) > 2 || len(a.names) > 0 {
			fail("TypeError", "get expected 1 or 2 arguments, got %d", len(a.pos))
		}
		if !hashable(a.pos[0]) {
			fail("TypeError", "unhashable type: '%s'", typeName(a.pos[0]))
		}
		if i := d.ref.(*Dict).findValue(a.pos[0]); i >= 0 {
			return d.ref.(*Dict).entries[i].val
		}
		if len(a.pos) == 2 {
			return a.pos[1]
		}
		return None
	},
	"copy": func(_ *state, d Value, a args) Value {
		a.most("copy", 0)
		return DictOf(d.ref.(*Dict).Clone())
	},
}

func viewOf(d Value, what uint8, a args) Value {
	a.most("dict view", 0)
	return Value{kind: KindView, ref: &view{d.ref.(*Dict), what}}
}

var listMethods = map[string]func(*state, Value, args) Value{
	"count": func(s *state, l Value, a args) Value {
		n := 0
		s.step(len(l.items()))
		for _, x := range l.items() {
			if equal(x, a.get(0, "")) {
				n++
			}
		}
		return Int(int64(n))
	},
	"index": func(s *state, l Value, a args) Value {
		s.step(len(l.items()))
		lo, n := sliceRange(len(l.items()), a.integer(1, "", 0), a.integer(2, "", len(l.items())), 1, true, true)
		for i, x := range l.items()[lo : lo+n] {
			if equal(x, a.get(0, "")) {
				return Int(int64(lo + i))
			}
		}
		if l.kind == KindTuple {
			fail("ValueError", "tuple.index(x): x not in tuple")
		}
		fail("ValueError", "%s is not in list", appendRepr(nil, a.get(0, ""), 0))
		return None
	},
	"copy": func(_ *state, l Value, _ args) Value { return l },
}
