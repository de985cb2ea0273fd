package jinja

import (
	"math"
	"math/big"
	"net/url"
	"strings"
	"unicode"
)

// A filterFunc is a filter: v | name(args).
type filterFunc func(s *state, v Value, a args) Value

var filters map[string]filterFunc

// unsupportedFilters exist in jinja2; templates that use them are rendered by the engine.
var unsupportedFilters = setOf("filesizeformat random urlize wordwrap xmlattr")

// textFilter works on str(v) and keeps Markup.
func textFilter(f func(string) string) filterFunc {
	return func(s *state, v Value, a args) Value {
		v = softStr(v)
		s.charge(len(v.str))
		return like(v, f(v.str))
	}
}

// softStr is markupsafe.soft_str: str(v), but Markup stays Markup.
func softStr(v Value) Value {
	if v.kind == KindString {
		return v
	}
	if v.kind == KindUndefined {
		return Str("")
	}
	return Str(toStr(v))
}

func init() {
	filters = map[string]filterFunc{
		"abs": func(_ *state, v Value, _ args) Value {
			if v.kind == KindFloat {
				return Float(math.Abs(v.float()))
			}
			if !isNumber(v) {
				if v.kind == KindUndefined {
					undefinedFail(v)
				}
				fail("TypeError", "bad operand type for abs(): '%s'", typeName(v))
			}
			return bigOf(new(big.Int).Abs(asBig(v)))
		},
		"attr": func(s *state, v Value, a args) Value {
			name := a.str(0, "name", "")
			if name == "" || v.kind == KindDict && !typeAttrs[KindDict][name] && !dunders[name] {
				return undefinedAttr(v, name)
			}
			return s.getAttr(v, name)
		},
		"capitalize": textFilter(pyCapitalize),
		"center": func(s *state, v Value, a args) Value {
			v = softStr(v)
			return like(v, s.center(v.str, a.integer(0, "width", 80), args{}))
		},
		"default":     defaultFilter,
		"d":           defaultFilter,
		"escape":      escapeFilter,
		"e":           escapeFilter,
		"forceescape": func(_ *state, v Value, _ args) Value { return markupOf(escapeHTML(toStr(v))) },
		"float": func(_ *state, v Value, a args) Value {
			switch {
			case isNumber(v):
				return Float(asFloat(v))
			case v.kind == KindString:
				if f, ok := parseFloat(v.str); ok {
					return Float(f)
				}
			case v.kind == KindUndefined:
				undefinedFail(v)
			}
			if d := a.get(0, "default"); d.kind != KindMissing {
				return d
			}
			return Float(0)
		},
		"format": func(s *state, v Value, a args) Value {
			v = softStr(v)
			if len(a.names) == 0 {
				return s.percent(v, tupleOf(append([]Value(nil), a.pos...)...))
			}
			if len(a.pos) > 0 {
				fail("FilterArgumentError", "can't handle positional and keyword arguments at the same time")
			}
			d := NewDict(len(a.names))
			for i, n := range a.names {
				d.Set(n, a.vals[i])
			}
			return s.percent(v, DictOf(d))
		},
		"indent": indentFilter,
		"int":    intFilter,
		"join": func(s *state, v Value, a args) Value {
			sep := a.get(0, "d")
			attr := a.get(1, "attribute")
			mark := len(s.out)
			c := s.iterate(v)
			for n := 0; ; n++ {
				x, ok := c.next(s)
				if !ok {
					break
				}
				s.step(1)
				if attr.kind != KindMissing && attr.kind != KindNone {
					x = s.attrOf(x, attr, Value{})
				}
				if n > 0 {
					s.out = appendStr(s.out, sep)
				}
				s.out = appendStr(s.out, x)
				s.checkOutput()
			}
			text := string(s.out[mark:])
			s.out = s.out[:mark]
			s.charge(len(text))
			return Str(text)
		},
		"length": lengthFilter,
		"count":  lengthFilter,
		"lower":  textFilter(pyLower),
		"upper":  textFilter(pyUpper),
		"title": func(s *state, v Value, _ args) Value {
			text := toStr(v)
			s.charge(len(text))
			return Str(titleFilter(text))
		},
		"pprint": func(_ *state, v Value, _ args) Value { return Str(prettyPrint(v)) },
		"replace": func(s *state, v Value, a args) Value {
			n := -1
			if c := a.get(2, "count"); c.kind != KindMissing && c.kind != KindNone {
				n = a.integer(2, "count", -1)
			}
			return Str(s.replace(toStr(v), toStr(a.get(0, "old")), toStr(a.get(1, "new")), n))
		},
		"round":     roundFilter,
		"safe":      func(_ *state, v Value, _ args) Value { return markupOf(toStr(v)) },
		"string":    func(_ *state, v Value, _ args) Value { return softStr(v) },
		"striptags": func(_ *state, v Value, _ args) Value { return Str(stripTags(toStr(v))) },
		"tojson":    tojsonFilter,
		"trim": func(s *state, v Value, a args) Value {
			v = softStr(v)
			s.charge(len(v.str))
			return like(v, strip(v.str, a.get(0, "chars"), true, true))
		},
		"truncate":  truncateFilter,
		"urlencode": urlencodeFilter,
		"wordcount": func(_ *state, v Value, _ args) Value {
			n, in := 0, false
			for _, r := range toStr(v) {
				word := r == '_' || unicode.IsLetter(r) || unicode.IsNumber(r)
				if word && !in {
					n++
				}
				in = word
			}
			return Int(int64(n))
		},
	}
	for name, f := range listFilters() {
		filters[name] = f
	}
}

func defaultFilter(s *state, v Value, a args) Value {
	if v.kind == KindUndefined || v.kind == KindMissing || a.bool(1, "boolean", false) && !v.truth(s) {
		if d := a.get(0, "default_value"); d.kind != KindMissing {
			return d
		}
		return Str("")
	}
	return v
}

func escapeFilter(_ *state, v Value, _ args) Value {
	if v.markup {
		return v
	}
	return markupOf(escapeHTML(toStr(v)))
}

func lengthFilter(_ *state, v Value, _ args) Value {
	switch v.kind {
	case KindString:
		return Int(int64(runeCount(v.str)))
	case KindList, KindTuple:
		return Int(int64(len(v.items())))
	case KindDict:
		return Int(int64(v.ref.(*Dict).Len()))
	case KindView:
		return Int(int64(v.ref.(*view).dict.Len()))
	case KindRange:
		return Int(int64(v.ref.(*pyRange).len()))
	case KindUndefined, KindMissing:
		return Int(0)
	}
	if _, ok := v.ref.(*groupPair); ok {
		return Int(2)
	}
	fail("TypeError", "object of type '%s' has no len()", typeName(v))
	return None
}

func intFilter(_ *state, v Value, a args) Value {
	def := a.get(0, "default")
	if def.kind == KindMissing {
		def = Int(0)
	}
	switch {
	case v.kind == KindString:
		if i, ok := parseInt(v.str, a.integer(1, "base", 10)); ok {
			return i
		}
		if f, ok := parseFloat(v.str); ok && !math.IsInf(f, 0) && !math.IsNaN(f) {
			return truncFloat(f)
		}
	case v.kind == KindFloat:
		if f := v.float(); !math.IsInf(f, 0) && !math.IsNaN(f) {
			return truncFloat(f)
		}
	case isNumber(v):
		return arith(opAdd, v, Int(0))
	case v.kind == KindUndefined:
		undefinedFail(v)
	}
	return def
}

func truncFloat(f float64) Value {
	i, _ := big.NewFloat(math.Trunc(f)).Int(nil)
	return bigOf(i)
}

// indentFilter puts blanks before all lines but the first.
func indentFilter(s *state, v Value, a args) Value {
	switch v.kind {
	case KindString:
	case KindUndefined, KindMissing:
		undefinedFail(v)
	case KindList:
		fail("AttributeError", "'list' object has no attribute 'splitlines'")
	case KindTuple:
		fail("TypeError", "can only concatenate tuple (not \"str\") to tuple")
	default:
		fail("TypeError", "unsupported operand type(s) for +=: '%s' and 'str'", typeName(v))
	}
	pad := ""
	if w := a.get(0, "width"); w.kind == KindString {
		pad = w.str
	} else {
		n := a.integer(0, "width", 4)
		s.charge(max(n, 0))
		pad = strings.Repeat(" ", max(n, 0))
	}
	first, blank := a.bool(1, "first", false), a.bool(2, "blank", false)
	rows := lines(v.str+"\n", false)
	s.charge(len(v.str) + len(rows)*len(pad))
	var b strings.Builder
	if first {
		b.WriteString(pad)
	}
	for i, row := range rows {
		if i > 0 {
			b.WriteByte('\n')
			if row != "" || blank {
				b.WriteString(pad)
			}
		}
		b.WriteString(row)
	}
	return like(v, b.String())
}

// titleFilter is Jinja's own title: words begin after blanks, dashes and opening brackets.
func titleFilter(text string) string {
	var b strings.Builder
	start := true
	rest := text
	for rest != "" {
		i := strings.IndexFunc(rest, func(r rune) bool { return IsSpace(r) || strings.ContainsRune("-({[<", r) })
		switch {
		case i == 0:
			n := runeLen(rest)
			b.WriteString(rest[:n])
			rest, start = rest[n:], true
			continue
		case i < 0:
			i = len(rest)
		}
		if start {
			n := runeLen(rest)
			b.WriteString(pyUpper(rest[:n]))
			b.WriteString(pyLower(rest[n:i]))
		}
		rest, start = rest[i:], false
	}
	return b.String()
}

func roundFilter(_ *state, v Value, a args) Value {
	prec := a.integer(0, "precision", 0)
	how := a.str(1, "method", "common")
	if v.kind == KindUndefined {
		undefinedFail(v)
	}
	if !isNumber(v) {
		fail("TypeError", "type %s doesn't define __round__ method", typeName(v))
	}
	if prec < -300 || prec > 300 {
		failUnsupported("round to %d digits", prec)
	}
	scale := math.Pow(10, float64(prec))
	switch how {
	case "common":
		if v.kind != KindFloat {
			if prec >= 0 {
				return arith(opAdd, v, Int(0))
			}
			failUnsupported("round of an int to tens")
		}
		return Float(roundHalfEven(v.float(), prec))
	case "ceil":
		return Float(math.Ceil(asFloat(v)*scale) / scale)
	case "floor":
		return Float(math.Floor(asFloat(v)*scale) / scale)
	}
	fail("FilterArgumentError", "method must be common, ceil or floor")
	return v
}

// roundHalfEven rounds the exact binary value, as Python does.
func roundHalfEven(f float64, prec int) float64 {
	if math.IsInf(f, 0) || math.IsNaN(f) {
		return f
	}
	if prec >= 0 {
		r, _ := parseFloat(formatFixed(f, prec))
		return math.Copysign(r, f)
	}
	p := math.Pow(10, float64(-prec))
	return math.RoundToEven(f/p) * p
}

func stripTags(text string) string {
	for {
		i := strings.Index(text, "<!--")
		if i < 0 {
			break
		}
		j := strings.Index(text[i:], "-->")
		if j < 0 {
			break
		}
		text = text[:i] + text[i+j+3:]
	}
	for {
		i := strings.IndexByte(text, '<')
		if i < 0 {
			break
		}
		j := strings.IndexByte(text[i:], '>')
		if j < 0 {
			break
		}
		text = text[:i] + text[i+j+1:]
	}
	text = strings.Join(strings.FieldsFunc(text, IsSpace), " ")
	if strings.IndexByte(text, '&') >= 0 {
		failUnsupported("striptags of text with an entity")
	}
	return text
}

func truncateFilter(s *state, v Value, a args) Value {
	n := a.integer(0, "length", 255)
	kill := a.bool(1, "killwords", false)
	end := a.str(2, "end", "...")
	leeway := 5
	if l := a.get(3, "leeway"); l.kind != KindMissing && l.kind != KindNone {
		leeway = a.integer(3, "leeway", 5)
	}
	if n < runeCount(end) {
		fail("AssertionError", "expected length >= %d, got %d", runeCount(end), n)
	}
	if leeway < 0 {
		fail("AssertionError", "expected leeway >= 0, got %d", leeway)
	}
	if size, _ := lengthFilter(s, v, args{}).AsInt(); int(size) <= n+leeway {
		return v
	}
	if v.kind != KindString {
		failUnsupported("truncate of a %s", typeName(v))
	}
	cut := v.str[:byteOffset(v.str, n-runeCount(end))]
	if !kill {
		if i := strings.LastIndexByte(cut, ' '); i >= 0 {
			cut = cut[:i]
		}
	}
	return like(v, cut+end)
}

func urlencodeFilter(s *state, v Value, _ args) Value {
	if v.kind != KindString {
		failUnsupported("urlencode of a %s", typeName(v))
	}
	s.charge(3 * len(v.str))
	q := strings.ReplaceAll(url.QueryEscape(v.str), "+", "%20")
	return Str(strings.NewReplacer("%2F", "/").Replace(q))
}

// tojsonFilter is json.dumps with the arguments that transformers lets through.
func tojsonFilter(s *state, v Value, a args) Value {
	st := jsonStyle{itemSep: ", ", keySep: ": ", charge: s.charge}
	st.ascii = a.bool(0, "ensure_ascii", false)
	switch indent := a.get(1, "indent"); indent.kind {
	case KindMissing, KindNone:
	case KindString:
		st.pretty, st.indent = true, indent.str
	default:
		n := a.integer(1, "indent", 0)
		if n > 1000 {
			failLimit("tojson with an indent of %d", n)
		}
		st.pretty, st.indent = true, strings.Repeat(" ", max(n, 0))
	}
	if st.pretty {
		st.itemSep = ","
	}
	if sep := a.get(2, "separators"); sep.kind == KindTuple || sep.kind == KindList {
		if p := sep.items(); len(p) == 2 && p[0].kind == KindString && p[1].kind == KindString {
			st.itemSep, st.keySep = p[0].str, p[1].str
		} else {
			fail("ValueError", "separators must be a pair of str")
		}
	} else if sep.kind != KindMissing && sep.kind != KindNone {
		fail("TypeError", "separators must be a pair of str")
	}
	st.sortKeys = a.bool(3, "sort_keys", false)
	mark := len(s.out)
	s.out = st.append(s.out, v, 0)
	text := string(s.out[mark:])
	s.out = s.out[:mark]
	s.charge(len(text))
	return Str(text)
}

// prettyPrint is pprint.pformat for what fits a line: keys are sorted.
func prettyPrint(v Value) string {
	text := string(appendRepr(nil, sortedKeys(v), 0))
	if len(text) > 79 {
		failUnsupported("pprint of more than a line")
	}
	return text
}

func sortedKeys(v Value) Value {
	switch v.kind {
	case KindList, KindTuple:
		out := make([]Value, len(v.items()))
		for i, x := range v.items() {
			out[i] = sortedKeys(x)
		}
		return Value{kind: v.kind, ref: &List{out}}
	case KindDict:
		d := v.ref.(*Dict)
		items := make([]Value, d.Len())
		for i := range items {
			items[i] = d.entries[i].keyValue()
		}
		sortValues(items, func(x Value) Value { return x }, false)
		out := NewDict(len(items))
		for _, k := range items {
			out.setValue(k, sortedKeys(d.entries[d.findValue(k)].val))
		}
		return DictOf(out)
	}
	return v
}
