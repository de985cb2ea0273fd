package jinja

import (
	"strings"
)

type testFunc func(s *state, v Value, a args) bool

var tests map[string]testFunc

func kindTest(kinds ...Kind) testFunc {
	return func(_ *state, v Value, _ args) bool {
		for _, k := range kinds {
			if v.kind == k {
				return true
			}
		}
		return false
	}
}

func orderTest(op opCode) testFunc {
	return func(s *state, v Value, a args) bool { return s.compare(op, v, a.get(0, "b")) }
}

func init() {
	integer := func(v Value) Value {
		if v.kind == KindUndefined {
			undefinedFail(v)
		}
		if !isNumber(v) {
			if v.kind == KindString {
				fail("TypeError", "not all arguments converted during string formatting")
			}
			fail("TypeError", "unsupported operand type(s) for %%: '%s' and 'int'", typeName(v))
		}
		return v
	}
	tests = map[string]testFunc{
		"boolean":  kindTest(KindBool),
		"callable": func(_ *state, v Value, _ args) bool { return isCallable(v) },
		"defined":  func(_ *state, v Value, _ args) bool { return v.kind != KindUndefined },
		"divisibleby": func(s *state, v Value, a args) bool {
			return equal(s.binary(opMod, integer(v), a.get(0, "num")), Int(0))
		},
		"escaped":   func(_ *state, v Value, _ args) bool { return v.markup },
		"even":      func(_ *state, v Value, _ args) bool { return equal(arith(opMod, integer(v), Int(2)), Int(0)) },
		"odd":       func(_ *state, v Value, _ args) bool { return equal(arith(opMod, integer(v), Int(2)), Int(1)) },
		"false":     func(_ *state, v Value, _ args) bool { return v.kind == KindBool && v.num == 0 },
		"true":      func(_ *state, v Value, _ args) bool { return v.kind == KindBool && v.num == 1 },
		"filter":    func(_ *state, v Value, _ args) bool { return v.kind == KindString && filters[v.str] != nil },
		"test":      func(_ *state, v Value, _ args) bool { return v.kind == KindString && tests[v.str] != nil },
		"float":     kindTest(KindFloat),
		"integer":   kindTest(KindInt),
		"number":    kindTest(KindInt, KindFloat, KindBool),
		"none":      kindTest(KindNone),
		"mapping":   kindTest(KindDict),
		"string":    kindTest(KindString),
		"undefined": kindTest(KindUndefined, KindMissing),
		"iterable": func(_ *state, v Value, _ args) bool {
			switch v.kind {
			case KindNone, KindBool, KindInt, KindFloat, KindFunc, KindNamespace:
				return false
			case KindObject:
				_, group := v.ref.(*groupPair)
				_, loop := v.ref.(*loopObject)
				return group || loop
			}
			return true
		},
		"sequence": func(_ *state, v Value, _ args) bool {
			switch v.kind {
			case KindString, KindList, KindTuple, KindDict, KindRange, KindUndefined:
				return true
			}
			_, group := v.ref.(*groupPair)
			return group
		},
		"lower": func(_ *state, v Value, _ args) bool { return isLower(toStr(v)) },
		"upper": func(_ *state, v Value, _ args) bool { return isUpper(toStr(v)) },
		"sameas": func(_ *state, v Value, a args) bool {
			o := a.get(0, "other")
			return v.kind == o.kind && v.num == o.num && v.str == o.str && (v.ref == o.ref || v.isBig() && equal(v, o))
		},
		"in":          func(s *state, v Value, a args) bool { return s.contains(a.get(0, "seq"), v) },
		"eq":          orderTest(opEq),
		"ne":          orderTest(opNe),
		"lt":          orderTest(opLt),
		"le":          orderTest(opLe),
		"gt":          orderTest(opGt),
		"ge":          orderTest(opGe),
		"equalto":     orderTest(opEq),
		"lessthan":    orderTest(opLt),
		"greaterthan": orderTest(opGt),
	}
	for name, op := range map[string]opCode{"==": opEq, "!=": opNe, "<": opLt, "<=": opLe, ">": opGt, ">=": opGe} {
		tests[name] = orderTest(op)
	}
}

func isCallable(v Value) bool {
	switch v.ref.(type) {
	case *joiner, *loopObject:
		return true
	}
	return v.kind == KindFunc || v.kind == KindUndefined // Undefined defines __call__
}

// isLower is str.islower: some letter, and none upper case.
func isLower(s string) bool { return s != "" && pyLower(s) == s && pyUpper(s) != s }

// isUpper is str.isupper.
func isUpper(s string) bool { return s != "" && strings.ToUpper(s) == s && pyLower(s) != s }
