package jinja

import (
	"math"
	"math/big"
	"strconv"
	"strings"
)

// maxWidth bounds the width and precision of a format.
const maxWidth = 10_000

// percent is Python's text % value.
func (s *state) percent(v, arg Value) Value {
	var b strings.Builder
	str := v.str
	next := 0
	single := arg.kind != KindTuple
	take := func() Value {
		if single {
			if next > 0 {
				fail("TypeError", "not enough arguments for format string")
			}
			next++
			return arg
		}
		if next >= len(arg.items()) {
			fail("TypeError", "not enough arguments for format string")
		}
		next++
		return arg.items()[next-1]
	}
	named := false
	for i := 0; i < len(str); i++ {
		if str[i] != '%' {
			b.WriteByte(str[i])
			continue
		}
		i++
		key, hasKey := "", false
		if i < len(str) && str[i] == '(' {
			j := strings.IndexByte(str[i:], ')')
			if j < 0 {
				fail("ValueError", "incomplete format key")
			}
			key, hasKey, named = str[i+1:i+j], true, true
			i += j + 1
		}
		sp := spec{fill: ' ', prec: -1}
		for ; i < len(str) && strings.IndexByte("-+ #0", str[i]) >= 0; i++ {
			switch str[i] {
			case '-':
				sp.align = '<'
			case '+':
				sp.sign = '+'
			case ' ':
				if sp.sign == 0 {
					sp.sign = ' '
				}
			case '#':
				sp.alt = true
			case '0':
				sp.zero = true
			}
		}
		number := func() int {
			if i < len(str) && str[i] == '*' {
				i++
				n, ok := take().AsInt()
				if !ok {
					fail("TypeError", "* wants int")
				}
				return int(n)
			}
			n := 0
			for ; i < len(str) && str[i] >= '0' && str[i] <= '9'; i++ {
				if n = n*10 + int(str[i]-'0'); n > maxWidth {
					failLimit("a format width of more than %d", maxWidth)
				}
			}
			return n
		}
		if sp.width = number(); sp.width < 0 {
			sp.align, sp.width = '<', -sp.width
		}
		if i < len(str) && str[i] == '.' {
			i++
			sp.prec = number()
		}
		for i < len(str) && strings.IndexByte("hlL", str[i]) >= 0 {
			i++
		}
		if i >= len(str) {
			fail("ValueError", "incomplete format")
		}
		sp.verb = str[i]
		if sp.verb == '%' {
			b.WriteByte('%')
			continue
		}
		var x Value
		if hasKey {
			d, ok := arg.AsDict()
			if !ok {
				fail("TypeError", "format requires a mapping")
			}
			if x = d.Get(key); x.kind == KindMissing {
				fail("KeyError", "'%s'", key)
			}
		} else {
			x = take()
		}
		text := sp.percentText(x, v.markup)
		s.charge(len(text) + sp.width)
		b.WriteString(text)
	}
	// Python lets what has items, but is no tuple or str, pass as a mapping that nobody asked
	mapping := arg.kind == KindDict || arg.kind == KindList || arg.kind == KindRange || arg.kind == KindUndefined
	if !named && (single && next == 0 && !mapping || !single && next < len(arg.items())) {
		fail("TypeError", "not all arguments converted during string formatting")
	}
	return like(v, b.String())
}

// spec is one conversion: of % or of a format string.
type spec struct {
	fill   rune
	align  byte
	sign   byte
	alt    bool
	zero   bool
	width  int
	group  byte
	prec   int
	verb   byte
	noPrec bool
}

func (sp *spec) percentText(x Value, markup bool) string {
	if sp.width > maxWidth || sp.prec > maxWidth {
		failLimit("a format width of more than %d", maxWidth)
	}
	text := ""
	switch sp.verb {
	case 's', 'r', 'a':
		if text = toStr(x); sp.verb != 's' {
			text = string(appendRepr(nil, x, 0))
			if sp.verb == 'a' && !isASCII(text) {
				failUnsupported("%%a of text that is not ASCII")
			}
		}
		if markup {
			text = escaped(like(x, text))
		}
		if sp.prec >= 0 {
			text = text[:byteOffset(text, sp.prec)]
		}
		return sp.pad(text, false)
	case 'c':
		if n, ok := x.AsInt(); ok && n >= 0 && n <= 0x10ffff {
			return sp.pad(string(rune(n)), false)
		}
		if x.kind == KindString && runeCount(x.str) == 1 {
			return sp.pad(x.str, false)
		}
		fail("TypeError", "%%c requires int or char")
	case 'd', 'i', 'u', 'x', 'X', 'o':
		if !isNumber(x) {
			fail("TypeError", "%%%c format: a real number is required, not %s", sp.verb, typeName(x))
		}
		if x.kind == KindFloat {
			if sp.verb == 'x' || sp.verb == 'X' || sp.verb == 'o' {
				fail("TypeError", "%%%c format: an integer is required, not float", sp.verb)
			}
			if math.IsInf(x.float(), 0) || math.IsNaN(x.float()) {
				fail("OverflowError", "cannot convert float to integer")
			}
			x = truncFloat(x.float())
		}
		return sp.integer(x)
	case 'f', 'F', 'e', 'E', 'g', 'G':
		if !isNumber(x) {
			fail("TypeError", "must be real number, not %s", typeName(x))
		}
		return sp.float(asFloat(x))
	default:
		fail("ValueError", "unsupported format character '%c' (0x%x) at index", sp.verb, sp.verb)
	}
	return text
}

// signed puts the sign before digits and pads.
func (sp *spec) signed(neg bool, prefix, digits string) string {
	sign := ""
	switch {
	case neg:
		sign = "-"
	case sp.sign == '+' || sp.sign == ' ':
		sign = string(sp.sign)
	}
	if n := sp.width - len(sign) - len(prefix) - len(digits); sp.zero && sp.align != '<' && n > 0 {
		return sign + prefix + strings.Repeat("0", n) + digits
	}
	return sp.pad(sign+prefix+digits, true)
}

func (sp *spec) pad(text string, right bool) string {
	n := sp.width - runeCount(text)
	if n <= 0 {
		return text
	}
	fill := sp.fill
	if fill == 0 {
		fill = ' '
	}
	switch {
	case sp.align == '<':
		return text + strings.Repeat(string(fill), n)
	case sp.align == '^':
		return strings.Repeat(string(fill), n/2) + text + strings.Repeat(string(fill), n-n/2)
	case sp.align == '>' || right || sp.verb != 0 && sp.align == 0 && !sp.noPrec:
		return strings.Repeat(string(fill), n) + text
	}
	return text + strings.Repeat(string(fill), n)
}

func (sp *spec) integer(x Value) string {
	n := asBig(x)
	base, prefix := 10, ""
	switch sp.verb {
	case 'x', 'X':
		base, prefix = 16, "0x"
	case 'o':
		base, prefix = 8, "0o"
	case 'b':
		base, prefix = 2, "0b"
	}
	digits := new(big.Int).Abs(n).Text(base)
	if sp.verb == 'X' {
		digits, prefix = strings.ToUpper(digits), "0X"
	}
	if !sp.alt {
		prefix = ""
	}
	if pad := sp.prec - len(digits); pad > 0 {
		digits = strings.Repeat("0", pad) + digits
	}
	return sp.signed(n.Sign() < 0, prefix, sp.grouped(digits))
}

func (sp *spec) grouped(digits string) string {
	if sp.group == 0 {
		return digits
	}
	whole, rest := digits, ""
	if i := strings.IndexAny(digits, ".eE"); i >= 0 {
		whole, rest = digits[:i], digits[i:]
	}
	var b strings.Builder
	for i, c := range whole {
		if i > 0 && (len(whole)-i)%3 == 0 {
			b.WriteByte(sp.group)
		}
		b.WriteRune(c)
	}
	return b.String() + rest
}

func formatFixed(f float64, prec int) string { return strconv.FormatFloat(f, 'f', prec, 64) }

func (sp *spec) float(f float64) string {
	prec := sp.prec
	if prec < 0 {
		prec = 6
	}
	neg := math.Signbit(f) && !math.IsNaN(f)
	a := math.Abs(f)
	upper := sp.verb >= 'A' && sp.verb <= 'Z'
	var digits string
	switch {
	case math.IsInf(a, 0):
		digits = "inf"
	case math.IsNaN(a):
		digits = "nan"
	case sp.verb|0x20 == 'f':
		digits = formatFixed(a, prec)
	case sp.verb|0x20 == 'e':
		digits = strconv.FormatFloat(a, 'e', prec, 64)
	default:
		digits = generalFloat(a, max(prec, 1), sp.alt)
	}
	if upper {
		digits = strings.ToUpper(digits)
	}
	return sp.signed(neg, "", sp.grouped(digits))
}

// generalFloat is %g: prec significant digits, trailing zeros dropped.
func generalFloat(f float64, prec int, keep bool) string {
	e := strconv.FormatFloat(f, 'e', prec-1, 64)
	i := strings.IndexByte(e, 'e')
	exp, _ := strconv.Atoi(e[i+1:])
	if exp < -4 || exp >= prec {
		mant := e[:i]
		if !keep && strings.IndexByte(mant, '.') >= 0 {
			mant = strings.TrimRight(strings.TrimRight(mant, "0"), ".")
		}
		return mant + e[i:]
	}
	t := formatFixed(f, prec-1-exp)
	if !keep && strings.IndexByte(t, '.') >= 0 {
		t = strings.TrimRight(strings.TrimRight(t, "0"), ".")
	}
	return t
}

// formatMethod is str.format as the sandbox allows it.
func (s *state) formatMethod(v Value, a args) Value {
	var b strings.Builder
	str := v.str
	auto := 0
	for i := 0; i < len(str); i++ {
		c := str[i]
		switch {
		case (c == '{' || c == '}') && i+1 < len(str) && str[i+1] == c:
			b.WriteByte(c)
			i++
		case c == '}':
			fail("ValueError", "Single '}' encountered in format string")
		case c == '{':
			j := strings.IndexByte(str[i:], '}')
			if j < 0 {
				fail("ValueError", "expected '}' before end of string")
			}
			field := str[i+1 : i+j]
			if strings.IndexByte(field, '{') >= 0 {
				failUnsupported("a nested field in str.format")
			}
			text := s.formatField(field, a, &auto)
			if v.markup {
				text = escapeHTML(text)
			}
			s.charge(len(text))
			b.WriteString(text)
			i += j
		default:
			b.WriteByte(c)
		}
	}
	return like(v, b.String())
}

func (s *state) formatField(field string, a args, auto *int) string {
	name, form, _ := strings.Cut(field, ":")
	name, conv, hasConv := strings.Cut(name, "!")
	end := strings.IndexAny(name, ".[")
	first, path := name, ""
	if end >= 0 {
		first, path = name[:end], name[end:]
	}
	var x Value
	if first == "" {
		first = strconv.Itoa(*auto)
		*auto++
	}
	if n, err := strconv.Atoi(first); err == nil {
		if n < 0 || n >= len(a.pos) {
			fail("IndexError", "Replacement index %d out of range for positional args tuple", n)
		}
		x = a.pos[n]
	} else if j := a.find(first); j >= 0 {
		x = a.vals[j]
	} else {
		fail("KeyError", "'%s'", first)
	}
	for path != "" {
		var index Value
		if path[0] == '.' {
			failUnsupported("an attribute in str.format")
		}
		j := strings.IndexByte(path, ']')
		if path[0] != '[' || j < 0 {
			fail("ValueError", "Missing ']' in format string")
		}
		index = Str(path[1:j])
		if n, err := strconv.Atoi(index.str); err == nil {
			index = Int(int64(n))
		}
		if x = s.getItem(x, index); x.kind == KindUndefined {
			fail("KeyError", "%s", toStr(index))
		}
		path = path[j+1:]
	}
	if hasConv {
		switch conv {
		case "s":
			x = Str(toStr(x))
		case "r":
			x = Str(string(appendRepr(nil, x, 0)))
		default:
			failUnsupported("the conversion !%s in str.format", conv)
		}
	}
	if form == "" {
		return toStr(x)
	}
	return s.formatSpec(x, form)
}

// formatSpec is format(x, spec) for numbers and text.
func (s *state) formatSpec(x Value, form string) string {
	sp := spec{prec: -1}
	rest := []rune(form)
	isAlign := func(r rune) bool { return r == '<' || r == '>' || r == '^' }
	if len(rest) > 1 && isAlign(rest[1]) {
		sp.fill, sp.align = rest[0], byte(rest[1])
		rest = rest[2:]
	} else if len(rest) > 0 && isAlign(rest[0]) {
		sp.align = byte(rest[0])
		rest = rest[1:]
	}
	text := string(rest)
	eat := func(c byte) bool {
		if text != "" && text[0] == c {
			text = text[1:]
			return true
		}
		return false
	}
	for _, c := range []byte("+- ") {
		if eat(c) {
			sp.sign = c
			break
		}
	}
	sp.alt = eat('#')
	sp.zero = eat('0') && sp.align == 0
	number := func() int {
		i := 0
		for i < len(text) && text[i] >= '0' && text[i] <= '9' {
			i++
		}
		n, err := strconv.Atoi("0" + text[:i])
		if err != nil || n > maxWidth {
			failLimit("a format width of more than %d", maxWidth)
		}
		text = text[i:]
		return n
	}
	sp.width = number()
	if eat(',') {
		sp.group = ','
	} else if eat('_') {
		sp.group = '_'
	}
	if eat('.') {
		sp.prec = number()
	}
	if len(text) > 1 {
		fail("ValueError", "Invalid format specifier")
	}
	if text != "" {
		sp.verb = text[0]
	}
	s.charge(sp.width)
	switch {
	case x.kind == KindString:
		if sp.verb != 0 && sp.verb != 's' {
			fail("ValueError", "Unknown format code '%c' for object of type 'str'", sp.verb)
		}
		t := x.str
		if sp.prec >= 0 {
			t = t[:byteOffset(t, sp.prec)]
		}
		sp.verb = 0
		return sp.pad(t, false)
	case x.kind == KindInt && strings.IndexByte("\x00dxXob", sp.verb) >= 0:
		return sp.integer(x)
	case isNumber(x) && x.kind != KindBool && sp.verb == '%':
		sp.verb = 'f'
		sp.width = max(sp.width-1, 0)
		return sp.float(asFloat(x)*100) + "%"
	case isNumber(x) && x.kind != KindBool && strings.IndexByte("fFeEgG", sp.verb) >= 0 && sp.verb != 0:
		return sp.float(asFloat(x))
	}
	failUnsupported("the format '%s' of a %s", form, typeName(x))
	return ""
}
