package jinja

import (
	"strconv"
	"unicode"
	"unicode/utf8"
)

// maxDepth bounds the nesting of values when they are printed or compared.
const maxDepth = 400

// toStr is Python's str(v).
func toStr(v Value) string {
	switch v.kind {
	case KindString:
		return v.str
	case KindUndefined, KindMissing:
		return ""
	}
	return string(appendStr(nil, v))
}

// appendStr appends str(v).
func appendStr(dst []byte, v Value) []byte {
	switch v.kind {
	case KindString:
		return append(dst, v.str...)
	case KindUndefined, KindMissing:
		return dst
	}
	return appendRepr(dst, v, 0)
}

// appendRepr appends repr(v).
func appendRepr(dst []byte, v Value, depth int) []byte {
	if depth > maxDepth {
		fail("RecursionError", "maximum recursion depth exceeded while getting the repr of an object")
	}
	switch v.kind {
	case KindUndefined, KindMissing:
		return append(dst, "Undefined"...)
	case KindNone:
		return append(dst, "None"...)
	case KindBool:
		if v.num != 0 {
			return append(dst, "True"...)
		}
		return append(dst, "False"...)
	case KindInt:
		if v.ref == nil {
			return strconv.AppendInt(dst, v.int(), 10)
		}
		return append(dst, formatInt(v)...)
	case KindFloat:
		return append(dst, formatFloat(v.float())...)
	case KindString:
		if v.markup {
			return append(appendQuoted(append(dst, "Markup("...), v.str), ')')
		}
		return appendQuoted(dst, v.str)
	case KindList:
		return append(appendItems(append(dst, '['), v.items(), depth), ']')
	case KindTuple:
		dst = appendItems(append(dst, '('), v.items(), depth)
		if len(v.items()) == 1 {
			dst = append(dst, ',')
		}
		return append(dst, ')')
	case KindDict:
		return appendDict(dst, v.ref.(*Dict), depth)
	case KindView:
		w := v.ref.(*view)
		dst = append(append(dst, typeName(v)...), "(["...)
		for i := range w.dict.entries {
			if i > 0 {
				dst = append(dst, ", "...)
			}
			dst = appendRepr(dst, w.at(i), depth+1)
		}
		return append(dst, "])"...)
	case KindRange:
		r := v.ref.(*pyRange)
		dst = strconv.AppendInt(append(dst, "range("...), r.start, 10)
		dst = strconv.AppendInt(append(dst, ", "...), r.stop, 10)
		if r.step != 1 {
			dst = strconv.AppendInt(append(dst, ", "...), r.step, 10)
		}
		return append(dst, ')')
	case KindNamespace:
		dst = appendDict(append(dst, "<Namespace "...), v.ref.(*namespace).attrs, depth+1)
		return append(dst, '>')
	}
	if g, ok := v.ref.(*groupPair); ok {
		return appendRepr(dst, tupleOf(g.grouper, g.list), depth+1)
	}
	if m, ok := v.ref.(*macroFunc); ok {
		return append(appendQuoted(append(dst, "<Macro "...), m.node.name), '>')
	}
	// Python prints the address of the object: no two runs agree.
	failUnsupported("the printed form of a %s object", typeName(v))
	return nil
}

func appendItems(dst []byte, items []Value, depth int) []byte {
	for i, x := range items {
		if i > 0 {
			dst = append(dst, ", "...)
		}
		dst = appendRepr(dst, x, depth+1)
	}
	return dst
}

func appendDict(dst []byte, d *Dict, depth int) []byte {
	dst = append(dst, '{')
	for i := range d.entries {
		if i > 0 {
			dst = append(dst, ", "...)
		}
		dst = appendRepr(dst, d.entries[i].keyValue(), depth+1)
		dst = append(dst, ": "...)
		dst = appendRepr(dst, d.entries[i].val, depth+1)
	}
	return append(dst, '}')
}

// appendQuoted is Python's repr of a str: single quotes unless the text has those and no double ones.
func appendQuoted(dst []byte, s string) []byte {
	quote := byte('\'')
	single := false
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '\'':
			single = true
		case '"':
			quote = 0
		}
	}
	if single && quote != 0 {
		quote = '"'
	} else {
		quote = '\''
	}
	const hex = "0123456789abcdef"
	dst = append(dst, quote)
	for _, r := range s {
		switch {
		case r == rune(quote) || r == '\\':
			dst = append(dst, '\\', byte(r))
		case r == '\n':
			dst = append(dst, `\n`...)
		case r == '\r':
			dst = append(dst, `\r`...)
		case r == '\t':
			dst = append(dst, `\t`...)
		case r >= ' ' && r < 0x7f:
			dst = append(dst, byte(r))
		case isPyPrintable(r):
			dst = utf8.AppendRune(dst, r)
		case r < 0x100:
			dst = append(dst, '\\', 'x', hex[r>>4], hex[r&15])
		case r < 0x10000:
			dst = append(dst, '\\', 'u', hex[r>>12], hex[r>>8&15], hex[r>>4&15], hex[r&15])
		default:
			dst = append(dst, '\\', 'U', '0', '0', hex[r>>20&15], hex[r>>16&15], hex[r>>12&15], hex[r>>8&15], hex[r>>4&15], hex[r&15])
		}
	}
	return append(dst, quote)
}

// isPyPrintable: not Cc, Cf, Cs, Co, Cn, Zl, Zp, nor Zs other than the space.
func isPyPrintable(r rune) bool {
	return r == ' ' || unicode.IsGraphic(r) && !unicode.Is(unicode.Zs, r)
}
