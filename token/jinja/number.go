package jinja

import (
	"math"
	"math/big"
	"strconv"
	"strings"
)

// maxBits bounds integers: 2 ** 100000 is refused, as a template needs no such number.
const maxBits = 1 << 14

// formatFloat is Python's repr of a float: the shortest digits that read back, exponent form below
// 1e-4 and from 1e16 on.
func formatFloat(f float64) string {
	switch {
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	case math.IsNaN(f):
		return "nan"
	case f == 0:
		if math.Signbit(f) {
			return "-0.0"
		}
		return "0.0"
	}
	var buf [32]byte
	e := strconv.AppendFloat(buf[:0], f, 'e', -1, 64)
	i := len(e) - 1
	for e[i] != 'e' {
		i--
	}
	exp, _ := strconv.Atoi(string(e[i+1:]))
	if exp < -4 || exp >= 16 {
		return string(e) // Go writes at least two exponent digits, as Python does
	}
	s := strconv.FormatFloat(f, 'f', -1, 64)
	if strings.IndexByte(s, '.') < 0 {
		s += ".0"
	}
	return s
}

func formatInt(v Value) string {
	if v.ref != nil {
		return v.ref.(*big.Int).String()
	}
	return strconv.FormatInt(v.int(), 10)
}

// asBig gives an int or bool as a big integer.
func asBig(v Value) *big.Int {
	if v.isBig() {
		return v.ref.(*big.Int)
	}
	return big.NewInt(v.int())
}

func asFloat(v Value) float64 {
	switch {
	case v.kind == KindFloat:
		return v.float()
	case v.isBig():
		f, _ := new(big.Float).SetInt(v.ref.(*big.Int)).Float64()
		if math.IsInf(f, 0) {
			fail("OverflowError", "int too large to convert to float")
		}
		return f
	}
	return float64(v.int())
}

// compareNumbers orders two numbers; NaN compares as 2.
func compareNumbers(a, b Value) int {
	if a.kind == KindFloat || b.kind == KindFloat {
		if isNaN(a) || isNaN(b) {
			return 2
		}
		if a.kind == KindFloat && math.IsInf(a.float(), 0) || b.kind == KindFloat && math.IsInf(b.float(), 0) {
			x, y := floatSign(a), floatSign(b)
			switch {
			case x < y:
				return -1
			case x > y:
				return 1
			}
			return 0
		}
		return asBigFloat(a).Cmp(asBigFloat(b)) // exact: Python compares int and float by value
	}
	if a.ref == nil && b.ref == nil {
		switch x, y := a.int(), b.int(); {
		case x < y:
			return -1
		case x > y:
			return 1
		}
		return 0
	}
	return asBig(a).Cmp(asBig(b))
}

func floatSign(v Value) int {
	if v.kind == KindFloat && math.IsInf(v.float(), 0) {
		return int(math.Copysign(1, v.float()))
	}
	return 0
}

func asBigFloat(v Value) *big.Float {
	if v.kind == KindFloat {
		return big.NewFloat(v.float())
	}
	return new(big.Float).SetInt(asBig(v))
}

// arith does + - * / // % ** on numbers.
func arith(op opCode, a, b Value) Value {
	if op == opDiv {
		y := asFloat(b)
		if y == 0 {
			if a.kind == KindFloat || b.kind == KindFloat {
				fail("ZeroDivisionError", "float division by zero")
			}
			fail("ZeroDivisionError", "division by zero")
		}
		if a.kind != KindFloat && b.kind != KindFloat && (a.ref != nil || b.ref != nil) {
			q, _ := new(big.Rat).SetFrac(asBig(a), asBig(b)).Float64()
			return Float(q)
		}
		return Float(asFloat(a) / y)
	}
	if a.kind == KindFloat || b.kind == KindFloat {
		return Float(floatArith(op, asFloat(a), asFloat(b)))
	}
	if a.ref == nil && b.ref == nil {
		if v, ok := smallArith(op, a.int(), b.int()); ok {
			return v
		}
	}
	return bigArith(op, asBig(a), asBig(b))
}

func floatArith(op opCode, x, y float64) float64 {
	switch op {
	case opAdd:
		return x + y
	case opSub:
		return x - y
	case opMul:
		return x * y
	case opPow:
		if x == 0 && y < 0 {
			fail("ZeroDivisionError", "0.0 cannot be raised to a negative power")
		}
		r := math.Pow(x, y)
		if math.IsInf(r, 0) && !math.IsInf(x, 0) && !math.IsInf(y, 0) {
			fail("OverflowError", "(34, 'Numerical result out of range')")
		}
		if math.IsNaN(r) && !math.IsNaN(x) && !math.IsNaN(y) {
			failUnsupported("a complex number")
		}
		return r
	}
	if y == 0 {
		if op == opMod {
			fail("ZeroDivisionError", "float modulo")
		}
		fail("ZeroDivisionError", "float floor division by zero")
	}
	mod := math.Mod(x, y)
	if mod != 0 && (mod < 0) != (y < 0) {
		mod += y
	} else if mod == 0 {
		mod = math.Copysign(0, y)
	}
	if op == opMod {
		return mod
	}
	div := (x - mod) / y
	if div == 0 {
		return math.Copysign(0, x/y)
	}
	fl := math.Floor(div)
	if div-fl > 0.5 {
		fl++
	}
	return fl
}

// smallArith does it in int64; ok is false when the result might not fit.
func smallArith(op opCode, x, y int64) (Value, bool) {
	switch op {
	case opAdd:
		r := x + y
		return Int(r), (r > x) == (y > 0)
	case opSub:
		r := x - y
		return Int(r), (r < x) == (y > 0)
	case opMul:
		if x > math.MinInt32 && x < math.MaxInt32 && y > math.MinInt32 && y < math.MaxInt32 {
			return Int(x * y), true
		}
	case opFloor, opMod:
		if y == 0 {
			divisionByZero(op)
		}
		if x == math.MinInt64 || y == math.MinInt64 {
			return Value{}, false
		}
		q, r := x/y, x%y
		if r != 0 && (r < 0) != (y < 0) {
			q, r = q-1, r+y
		}
		if op == opMod {
			return Int(r), true
		}
		return Int(q), true
	}
	return Value{}, false
}

func divisionByZero(op opCode) {
	if op == opMod {
		fail("ZeroDivisionError", "integer modulo by zero")
	}
	fail("ZeroDivisionError", "integer division or modulo by zero")
}

func bigArith(op opCode, x, y *big.Int) Value {
	z := new(big.Int)
	switch op {
	case opAdd:
		z.Add(x, y)
	case opSub:
		z.Sub(x, y)
	case opMul:
		if x.BitLen()+y.BitLen() > maxBits {
			failLimit("an integer of more than %d bits", maxBits)
		}
		z.Mul(x, y)
	case opPow:
		if y.Sign() < 0 {
			fx, fy := asFloat(bigOf(x)), asFloat(bigOf(y))
			if fx == 0 {
				fail("ZeroDivisionError", "0.0 cannot be raised to a negative power")
			}
			return Float(math.Pow(fx, fy))
		}
		if x.BitLen() > 1 && (!y.IsInt64() || y.Int64() > maxBits || y.Int64()*int64(x.BitLen()) > maxBits) {
			failLimit("an integer of more than %d bits", maxBits)
		}
		if x.BitLen() <= 1 && !y.IsInt64() {
			y = new(big.Int).And(y, big.NewInt(1)) // 0, 1 and -1: only the parity matters
			if x.Sign() == 0 {
				return Int(0)
			}
		}
		z.Exp(x, y, nil)
	default:
		if y.Sign() == 0 {
			divisionByZero(op)
		}
		m := new(big.Int)
		z.QuoRem(x, y, m)
		if m.Sign() != 0 && (m.Sign() < 0) != (y.Sign() < 0) {
			z.Sub(z, big.NewInt(1))
			m.Add(m, y)
		}
		if op == opMod {
			z = m
		}
	}
	return bigOf(z)
}

// parseInt is Python's int(text, base): spaces around, a sign, single underscores.
func parseInt(text string, base int) (Value, bool) {
	t := strings.TrimFunc(text, IsSpace)
	neg := false
	if t != "" && (t[0] == '-' || t[0] == '+') {
		neg, t = t[0] == '-', t[1:]
	}
	if len(t) > 2 && t[0] == '0' {
		if p := map[byte]int{'x': 16, 'o': 8, 'b': 2}[t[1]|0x20]; p != 0 && (base == p || base == 0) {
			base, t = p, strings.TrimPrefix(t[2:], "_")
		}
	}
	if t == "" || len(t) > 4300 || strings.HasPrefix(t, "_") || strings.HasSuffix(t, "_") || strings.Contains(t, "__") ||
		strings.ContainsAny(t, "+-") {
		return Value{}, false
	}
	if base == 0 {
		base = 10
	}
	if base < 2 || base > 36 {
		return Value{}, false
	}
	i, ok := new(big.Int).SetString(strings.ReplaceAll(t, "_", ""), base)
	if !ok {
		return Value{}, false
	}
	if neg {
		i.Neg(i)
	}
	return bigOf(i), true
}

// parseFloat is Python's float(text).
func parseFloat(text string) (float64, bool) {
	t := strings.TrimFunc(text, IsSpace)
	if strings.HasPrefix(t, "_") || strings.HasSuffix(t, "_") || strings.Contains(t, "__") || strings.ContainsAny(t, "xXpP") {
		return 0, false
	}
	f, err := strconv.ParseFloat(strings.ReplaceAll(t, "_", ""), 64)
	if err != nil && !math.IsInf(f, 0) {
		return 0, false
	}
	return f, true
}
