package jinja

import (
	"math"
	"math/big"
)

// Kind says which Python type a Value stands for.
type Kind uint8

// The kinds. KindMissing is never seen by a template: it marks a variable that was not set.
const (
	KindMissing Kind = iota
	KindUndefined
	KindNone
	KindBool
	KindInt // int64, or any size when ref holds a *big.Int
	KindFloat
	KindString
	KindList
	KindTuple
	KindDict
	KindView // dict.items(), dict.keys(), dict.values()
	KindRange
	KindIterator // a generator: usable once
	KindNamespace
	KindFunc
	KindObject // loop, cycler, joiner, groupby's pairs
)

// Value is a Python value as a template sees it. Values that came from JSON are immutable, as the
// sandbox allows no method that changes them, so they may be shared between renders and goroutines.
// The zero Value is "missing".
type Value struct {
	kind   Kind
	markup bool   // KindString made by the safe or escape filter (markupsafe.Markup)
	num    uint64 // bool, int64 or the bits of a float64
	str    string
	ref    any // *List, *Dict, *big.Int, ...
}

// List is the storage of a list or tuple.
type List struct{ items []Value }

// undefined is the Undefined of Jinja: it prints as nothing and fails when used.
type undefined struct {
	owner    string // type name of the object that lacks the attribute; "" for a variable
	name     string
	hint     string // the message, where it is not made of owner and name
	security bool   // the sandbox hid it: use raises SecurityError
}

// None is Python's None.
var None = Value{kind: KindNone}

// Bool is the scalar b; Int, Float and Str make the others.
func Bool(b bool) Value {
	v := Value{kind: KindBool}
	if b {
		v.num = 1
	}
	return v
}

// Int makes an int.
func Int(i int64) Value { return Value{kind: KindInt, num: uint64(i)} }

// Float makes a float.
func Float(f float64) Value { return Value{kind: KindFloat, num: math.Float64bits(f)} }

// Str makes a str; s must be valid UTF-8.
func Str(s string) Value { return Value{kind: KindString, str: s} }

// ListOf makes a list that owns items.
func ListOf(items []Value) Value { return Value{kind: KindList, ref: &List{items}} }

// DictOf makes a dict value of d, which must not change afterwards.
func DictOf(d *Dict) Value { return Value{kind: KindDict, ref: d} }

func tupleOf(items ...Value) Value { return Value{kind: KindTuple, ref: &List{items}} }
func markupOf(s string) Value      { return Value{kind: KindString, markup: true, str: s} }

func bigOf(i *big.Int) Value {
	if i.IsInt64() {
		return Int(i.Int64())
	}
	return Value{kind: KindInt, ref: i}
}

func undefinedName(name string) Value {
	return Value{kind: KindUndefined, ref: &undefined{name: name}}
}

func undefinedAttr(owner Value, name string) Value {
	return Value{kind: KindUndefined, ref: &undefined{owner: typeName(owner), name: name}}
}

// Kind tells the type of v.
func (v Value) Kind() Kind { return v.kind }

// IsNone reports Python's None.
func (v Value) IsNone() bool { return v.kind == KindNone }

// IsMissing reports the zero Value: a key or variable that is not there.
func (v Value) IsMissing() bool { return v.kind == KindMissing }

// AsString gives the text of a str.
func (v Value) AsString() (string, bool) { return v.str, v.kind == KindString }

// AsBool gives the truth of a bool, not of other kinds (see Truth).
func (v Value) AsBool() (b, ok bool) { return v.num != 0, v.kind == KindBool }

// AsInt gives an int that fits int64.
func (v Value) AsInt() (int64, bool) { return int64(v.num), v.kind == KindInt && v.ref == nil }

// AsList gives the items of a list; the caller must not change them.
func (v Value) AsList() ([]Value, bool) {
	if v.kind != KindList {
		return nil, false
	}
	return v.ref.(*List).items, true
}

// AsDict gives the dict; the caller must not change it.
func (v Value) AsDict() (*Dict, bool) {
	if v.kind != KindDict {
		return nil, false
	}
	return v.ref.(*Dict), true
}

func (v Value) int() int64     { return int64(v.num) }
func (v Value) float() float64 { return math.Float64frombits(v.num) }
func (v Value) isBig() bool    { return v.kind == KindInt && v.ref != nil }

// items gives the elements of a list or tuple.
func (v Value) items() []Value { return v.ref.(*List).items }

// Truth is Python's bool(v).
func (v Value) Truth() bool {
	switch v.kind {
	case KindMissing, KindUndefined, KindNone:
		return false
	case KindBool:
		return v.num != 0
	case KindInt:
		return v.num != 0 || v.ref != nil
	case KindFloat:
		return v.float() != 0
	case KindString:
		return v.str != ""
	case KindList, KindTuple:
		return len(v.items()) > 0
	case KindDict:
		return v.ref.(*Dict).Len() > 0
	case KindView:
		return v.ref.(*view).dict.Len() > 0
	case KindRange:
		return v.ref.(*pyRange).len() > 0
	}
	return true
}

// typeName is Python's type(v).__name__ as error messages show it.
func typeName(v Value) string {
	switch v.kind {
	case KindMissing, KindUndefined:
		return "Undefined"
	case KindNone:
		return "NoneType"
	case KindBool:
		return "bool"
	case KindInt:
		return "int"
	case KindFloat:
		return "float"
	case KindString:
		if v.markup {
			return "Markup"
		}
		return "str"
	case KindList:
		return "list"
	case KindTuple:
		return "tuple"
	case KindDict:
		return "dict"
	case KindView:
		return [...]string{"dict_items", "dict_keys", "dict_values"}[v.ref.(*view).what]
	case KindRange:
		return "range"
	case KindIterator:
		return "generator"
	case KindNamespace:
		return "Namespace"
	case KindFunc:
		if _, ok := v.ref.(*macroFunc); ok {
			return "Macro"
		}
		return "function"
	}
	if o, ok := v.ref.(object); ok {
		return o.typeName()
	}
	return "object"
}

// object is a value with attributes of its own: loop, cycler, joiner.
type object interface {
	typeName() string
	attr(s *state, name string) (Value, bool)
}

// iterator is Python's generator: next gives the following element until ok is false.
type iterator struct {
	next func(s *state) (v Value, ok bool)
}

func iterOf(next func(s *state) (Value, bool)) Value {
	return Value{kind: KindIterator, ref: &iterator{next}}
}

type view struct {
	dict *Dict
	what uint8 // 0 items, 1 keys, 2 values
}

// at gives entry i of the view.
func (w *view) at(i int) Value {
	e := &w.dict.entries[i]
	switch w.what {
	case 0:
		return tupleOf(e.keyValue(), e.val)
	case 1:
		return e.keyValue()
	}
	return e.val
}

type pyRange struct{ start, stop, step int64 }

func (r *pyRange) len() int {
	if r.step > 0 && r.start < r.stop {
		return int((uint64(r.stop-r.start)-1)/uint64(r.step)) + 1
	}
	if r.step < 0 && r.start > r.stop {
		return int((uint64(r.start-r.stop)-1)/uint64(-r.step)) + 1
	}
	return 0
}

func (r *pyRange) at(i int) Value { return Int(r.start + int64(i)*r.step) }

// namespace is the result of namespace(): the one thing a template can change.
type namespace struct{ attrs *Dict }

// AsFloat gives a float.
func (v Value) AsFloat() (float64, bool) { return v.float(), v.kind == KindFloat }
