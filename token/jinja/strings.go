package jinja

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

func runeLen(s string) int {
	_, n := utf8.DecodeRuneInString(s)
	return n
}

func runeCount(s string) int { return utf8.RuneCountInString(s) }

func runeAt(s string, i int) string {
	if isASCII(s) {
		return s[i : i+1]
	}
	at := byteOffset(s, i)
	return s[at : at+runeLen(s[at:])]
}

// byteOffset gives the byte position of code point i.
func byteOffset(s string, i int) int {
	at := 0
	for ; i > 0 && at < len(s); i-- {
		at += runeLen(s[at:])
	}
	return at
}

type stringMethod = func(s *state, v Value, a args) Value

var stringMethods map[string]stringMethod

// like gives text the type of v: methods of Markup return Markup.
func like(v Value, text string) Value {
	return Value{kind: KindString, markup: v.markup, str: text}
}

// textArg gives a str argument; a method of Markup escapes what it is given.
func textArg(v Value, a args, i int, name, def string) string {
	x := a.get(i, name)
	if x.kind == KindMissing || x.kind == KindNone && def != "\x00" {
		return def
	}
	if x.kind != KindString {
		if x.kind == KindUndefined {
			fail("TypeError", "expected str, got Undefined")
		}
		fail("TypeError", "must be str, not %s", typeName(x))
	}
	if v.markup {
		return escaped(x)
	}
	return x.str
}

// required is textArg without a default.
func required(v Value, a args, i int, name string) string {
	if x := a.get(i, name); x.kind == KindMissing {
		fail("TypeError", "missing argument %d", i+1)
	} else if x.kind == KindNone {
		fail("TypeError", "must be str, not NoneType")
	}
	return textArg(v, a, i, name, "\x00")
}

func mapText(f func(string) string) stringMethod {
	return func(s *state, v Value, a args) Value {
		a.most("method", 0)
		s.charge(len(v.str))
		return like(v, f(v.str))
	}
}

func allRunes(ok func(r rune) bool) stringMethod {
	return func(_ *state, v Value, _ args) Value {
		for _, r := range v.str {
			if !ok(r) {
				return Bool(false)
			}
		}
		return Bool(v.str != "")
	}
}

// strip removes the code points in set, or white space, from the sides asked for.
func strip(s string, set Value, left, right bool) string {
	cut := IsSpace
	if set.kind == KindString {
		cut = func(r rune) bool { return strings.ContainsRune(set.str, r) }
	} else if set.kind != KindMissing && set.kind != KindNone {
		if set.kind == KindUndefined {
			fail("TypeError", "strip arg must be None or str, not Undefined")
		}
		fail("TypeError", "strip arg must be None or str, not %s", typeName(set))
	}
	if left {
		s = strings.TrimLeftFunc(s, cut)
	}
	if right {
		s = strings.TrimRightFunc(s, cut)
	}
	return s
}

func stripMethod(left, right bool) stringMethod {
	return func(s *state, v Value, a args) Value {
		a.most("strip", 1)
		s.charge(len(v.str))
		return like(v, strip(v.str, a.get(0, ""), left, right))
	}
}

// affix is startswith and endswith, with a tuple of choices and optional bounds.
func affix(has func(s, x string) bool) stringMethod {
	return func(s *state, v Value, a args) Value {
		str := window(v.str, a)
		x := a.get(0, "")
		switch x.kind {
		case KindString:
			return Bool(has(str, x.str))
		case KindTuple:
			for _, y := range x.items() {
				if y.kind != KindString {
					fail("TypeError", "tuple for startswith must only contain str, not %s", typeName(y))
				}
				if has(str, y.str) {
					return Bool(true)
				}
			}
			return Bool(false)
		}
		fail("TypeError", "startswith first arg must be str or a tuple of str, not %s", typeName(x))
		return None
	}
}

// window cuts a string to the optional start and end arguments 1 and 2.
func window(str string, a args) string {
	if len(a.pos) < 2 {
		return str
	}
	n := runeCount(str)
	hi := n
	if len(a.pos) > 2 && a.pos[2].kind != KindNone {
		hi = a.integer(2, "", n)
	}
	lo := 0
	if a.pos[1].kind != KindNone {
		lo = a.integer(1, "", 0)
	}
	first, count := sliceRange(n, lo, hi, 1, true, true)
	from := byteOffset(str, first)
	return str[from : from+byteOffset(str[from:], count)]
}

// find is the family of find, rfind, index and rindex.
func find(search func(s, x string) int, must bool) stringMethod {
	return func(s *state, v Value, a args) Value {
		s.charge(len(v.str))
		str := window(v.str, a)
		i := search(str, required(Value{}, a, 0, ""))
		if i < 0 {
			if must {
				fail("ValueError", "substring not found")
			}
			return Int(-1)
		}
		lo := 0
		if len(a.pos) > 1 && a.pos[1].kind != KindNone {
			lo, _ = sliceRange(runeCount(v.str), a.integer(1, "", 0), 0, 1, true, false)
		}
		return Int(int64(lo + runeCount(str[:i])))
	}
}

func pad(left bool) stringMethod {
	return func(s *state, v Value, a args) Value {
		n := a.integer(0, "", 0) - runeCount(v.str)
		if n <= 0 {
			return v
		}
		fill := s.fillText(a, n)
		if left {
			return like(v, fill+v.str)
		}
		return like(v, v.str+fill)
	}
}

func (s *state) fillText(a args, n int) string {
	fill := a.str(1, "", " ")
	if runeCount(fill) != 1 {
		fail("TypeError", "The fill character must be exactly one character long")
	}
	s.charge(n * len(fill))
	return strings.Repeat(fill, n)
}

// center is str.center, whose odd blank goes as CPython puts it.
func (s *state) center(str string, width int, a args) string {
	n := width - runeCount(str)
	if n <= 0 {
		return str
	}
	left := n/2 + (n & width & 1)
	fill := s.fillText(a, n)
	one := len(fill) / n
	return fill[:left*one] + str + fill[left*one:]
}

func init() {
	stringMethods = map[string]stringMethod{
		"upper":      mapText(pyUpper),
		"lower":      mapText(pyLower),
		"casefold":   mapText(func(s string) string { return foldCase(s) }),
		"title":      mapText(pyTitle),
		"capitalize": mapText(pyCapitalize),
		"swapcase": mapText(func(s string) string {
			var b strings.Builder
			for _, r := range s {
				if unicode.IsUpper(r) {
					b.WriteString(pyLower(string(r)))
				} else {
					b.WriteString(pyUpper(string(r)))
				}
			}
			return b.String()
		}),
		"strip":      stripMethod(true, true),
		"lstrip":     stripMethod(true, false),
		"rstrip":     stripMethod(false, true),
		"split":      splitMethod(false),
		"rsplit":     splitMethod(true),
		"splitlines": splitLines,
		"partition":  partition(strings.Index, false),
		"rpartition": partition(strings.LastIndex, true),
		"replace":    replaceMethod,
		"startswith": affix(strings.HasPrefix),
		"endswith":   affix(strings.HasSuffix),
		"find":       find(strings.Index, false),
		"rfind":      find(strings.LastIndex, false),
		"index":      find(strings.Index, true),
		"rindex":     find(strings.LastIndex, true),
		"join":       joinMethod,
		"ljust":      pad(false),
		"rjust":      pad(true),
		"center":     func(s *state, v Value, a args) Value { return like(v, s.center(v.str, a.integer(0, "", 0), a)) },
		"zfill":      zfill,
		"removeprefix": func(_ *state, v Value, a args) Value {
			return like(v, strings.TrimPrefix(v.str, required(v, a, 0, "")))
		},
		"removesuffix": func(_ *state, v Value, a args) Value {
			return like(v, strings.TrimSuffix(v.str, required(v, a, 0, "")))
		},
		"count": func(s *state, v Value, a args) Value {
			s.charge(len(v.str))
			return Int(int64(strings.Count(window(v.str, a), required(Value{}, a, 0, ""))))
		},
		"expandtabs": expandTabs,
		"format":     func(s *state, v Value, a args) Value { return s.formatMethod(v, a) },
		"isalpha":    allRunes(unicode.IsLetter),
		"isalnum":    allRunes(func(r rune) bool { return unicode.IsLetter(r) || unicode.IsNumber(r) }),
		"isdigit":    allRunes(func(r rune) bool { return unicode.IsDigit(r) || isDigitLike(r) }),
		"isdecimal":  allRunes(unicode.IsDigit),
		"isnumeric":  allRunes(unicode.IsNumber),
		"isspace":    allRunes(IsSpace),
		"isprintable": func(_ *state, v Value, _ args) Value {
			return Bool(strings.IndexFunc(v.str, func(r rune) bool { return !isPyPrintable(r) }) < 0)
		},
		"isascii":      func(_ *state, v Value, _ args) Value { return Bool(isASCII(v.str)) },
		"islower":      func(_ *state, v Value, _ args) Value { return Bool(isLower(v.str)) },
		"isupper":      func(_ *state, v Value, _ args) Value { return Bool(isUpper(v.str)) },
		"isidentifier": isIdentifier,
	}
}

// isDigitLike: superscripts and circled digits are digits to str.isdigit.
func isDigitLike(r rune) bool {
	switch {
	case r == 0xb2, r == 0xb3, r == 0xb9, r == 0x2070, r >= 0x2074 && r <= 0x2079, r >= 0x2080 && r <= 0x2089,
		r >= 0x2460 && r <= 0x2468, r >= 0x2474 && r <= 0x247c, r >= 0x2488 && r <= 0x2490:
		return true
	}
	return false
}

func isIdentifier(_ *state, v Value, _ args) Value {
	for i, r := range v.str {
		if r == '_' || unicode.IsLetter(r) || unicode.Is(unicode.Nl, r) ||
			i > 0 && unicode.In(r, unicode.Nd, unicode.Mn, unicode.Mc, unicode.Pc) {
			continue
		}
		return Bool(false)
	}
	return Bool(v.str != "")
}

// foldCase is casefold for what has no special folding but the letters of upperTable.
func foldCase(s string) string {
	if isASCII(s) {
		return strings.ToLower(s)
	}
	failUnsupported("casefold of text that is not ASCII")
	return ""
}

func zfill(s *state, v Value, a args) Value {
	n := a.integer(0, "", 0) - runeCount(v.str)
	if n <= 0 {
		return v
	}
	s.charge(n)
	sign, rest := "", v.str
	if rest != "" && (rest[0] == '+' || rest[0] == '-') {
		sign, rest = rest[:1], rest[1:]
	}
	return like(v, sign+strings.Repeat("0", n)+rest)
}

func expandTabs(s *state, v Value, a args) Value {
	size := a.integer(0, "tabsize", 8)
	var b strings.Builder
	col := 0
	for _, r := range v.str {
		switch r {
		case '\t':
			if size > 0 {
				n := size - col%size
				s.charge(n)
				b.WriteString(strings.Repeat(" ", n))
				col += n
			}
		default:
			b.WriteRune(r)
			if col++; r == '\n' || r == '\r' {
				col = 0
			}
		}
	}
	return like(v, b.String())
}

func splitMethod(fromRight bool) stringMethod {
	return func(s *state, v Value, a args) Value {
		s.charge(len(v.str))
		limit := a.integer(1, "maxsplit", -1)
		sep := a.get(0, "sep")
		var parts []string
		switch {
		case sep.kind == KindMissing || sep.kind == KindNone:
			parts = splitSpace(v.str, limit, fromRight)
		case sep.kind != KindString:
			fail("TypeError", "must be str or None, not %s", typeName(sep))
		case sep.str == "":
			fail("ValueError", "empty separator")
		case limit < 0:
			parts = strings.Split(v.str, sep.str)
		case !fromRight:
			parts = strings.SplitN(v.str, sep.str, limit+1)
		default:
			rest := v.str
			for ; limit > 0; limit-- {
				i := strings.LastIndex(rest, sep.str)
				if i < 0 {
					break
				}
				parts = append(parts, rest[i+len(sep.str):])
				rest = rest[:i]
			}
			parts = append(parts, rest)
			for i, j := 0, len(parts)-1; i < j; i, j = i+1, j-1 {
				parts[i], parts[j] = parts[j], parts[i]
			}
		}
		return s.textList(v, parts)
	}
}

func (s *state) textList(v Value, parts []string) Value {
	s.makeValues(len(parts))
	out := make([]Value, len(parts))
	for i, p := range parts {
		out[i] = like(v, p)
	}
	return ListOf(out)
}

func splitSpace(str string, limit int, fromRight bool) (parts []string) {
	if limit < 0 {
		return strings.FieldsFunc(str, IsSpace)
	}
	if fromRight {
		for str = strings.TrimRightFunc(str, IsSpace); str != ""; str = strings.TrimRightFunc(str, IsSpace) {
			i := strings.LastIndexFunc(str, IsSpace)
			if limit == 0 || i < 0 {
				parts = append([]string{str}, parts...)
				break
			}
			i += runeLen(str[i:])
			parts = append([]string{str[i:]}, parts...)
			str = str[:i]
			limit--
		}
		return parts
	}
	for str = strings.TrimLeftFunc(str, IsSpace); str != ""; str = strings.TrimLeftFunc(str, IsSpace) {
		i := strings.IndexFunc(str, IsSpace)
		if limit == 0 || i < 0 {
			return append(parts, str)
		}
		parts = append(parts, str[:i])
		str = str[i:]
		limit--
	}
	return parts
}

// splitLines is str.splitlines with Python's line ends.
func splitLines(s *state, v Value, a args) Value {
	keep := a.bool(0, "keepends", false)
	s.charge(len(v.str))
	return s.textList(v, lines(v.str, keep))
}

func lines(str string, keep bool) (parts []string) {
	start := 0
	for i := 0; i < len(str); {
		r, n := utf8.DecodeRuneInString(str[i:])
		switch {
		case r == '\r' && i+1 < len(str) && str[i+1] == '\n':
			n = 2
		case r >= '\n' && r <= '\r', r >= 0x1c && r <= 0x1e, r == 0x85, r == 0x2028, r == 0x2029:
		default:
			i += n
			continue
		}
		end := i
		i += n
		if keep {
			end = i
		}
		parts = append(parts, str[start:end])
		start = i
	}
	if start < len(str) {
		parts = append(parts, str[start:])
	}
	return parts
}

func partition(search func(s, x string) int, right bool) stringMethod {
	return func(s *state, v Value, a args) Value {
		s.charge(len(v.str))
		sep := required(v, a, 0, "")
		if sep == "" {
			fail("ValueError", "empty separator")
		}
		i := search(v.str, sep)
		switch {
		case i >= 0:
			return tupleOf(like(v, v.str[:i]), like(v, sep), like(v, v.str[i+len(sep):]))
		case right:
			return tupleOf(like(v, ""), like(v, ""), v)
		}
		return tupleOf(v, like(v, ""), like(v, ""))
	}
}

func replaceMethod(s *state, v Value, a args) Value {
	return like(v, s.replace(v.str, required(v, a, 0, "old"), required(v, a, 1, "new"), a.integer(2, "count", -1)))
}

func (s *state) replace(str, from, to string, n int) string {
	if grow := len(to) - len(from); grow > 0 {
		count := strings.Count(str, from)
		if n >= 0 {
			count = min(count, n)
		}
		s.charge(count * grow)
	}
	s.charge(len(str))
	return strings.Replace(str, from, to, n)
}

func joinMethod(s *state, v Value, a args) Value {
	var b strings.Builder
	for i, x := range s.collect(a.get(0, "")) {
		if x.kind != KindString {
			fail("TypeError", "sequence item %d: expected str instance, %s found", i, typeName(x))
		}
		if i > 0 {
			b.WriteString(v.str)
		}
		if v.markup {
			b.WriteString(escaped(x))
		} else {
			b.WriteString(x.str)
		}
		s.charge(len(v.str) + len(x.str))
	}
	return like(v, b.String())
}
