package jinja

import (
	"sort"
	"unicode/utf8"
)

// jsonStyle is the part of json.dumps that templates reach.
type jsonStyle struct {
	ascii    bool   // ensure_ascii
	indent   string // one level; pretty says whether it counts
	pretty   bool
	itemSep  string
	keySep   string
	sortKeys bool
	charge   func(n int)
}

// AppendJSON appends v as Python's json.dumps(v, ensure_ascii=False) does. It fails on values that
// JSON has no word for and on nesting deeper than Python allows.
func AppendJSON(dst []byte, v Value) (out []byte, err error) {
	defer catch(&err)
	st := jsonStyle{itemSep: ", ", keySep: ": "}
	return st.append(dst, v, 0), nil
}

func (st *jsonStyle) append(dst []byte, v Value, depth int) []byte {
	if depth > maxDepth {
		fail("RecursionError", "maximum recursion depth exceeded while encoding a JSON object")
	}
	switch v.kind {
	case KindNone:
		return append(dst, "null"...)
	case KindBool:
		if v.num != 0 {
			return append(dst, "true"...)
		}
		return append(dst, "false"...)
	case KindInt:
		return append(dst, formatInt(v)...)
	case KindFloat:
		return append(dst, jsonFloat(v.float())...)
	case KindString:
		return appendJSONString(dst, v.str, st.ascii)
	case KindList, KindTuple:
		items := v.items()
		if len(items) == 0 {
			return append(dst, "[]"...)
		}
		dst = append(dst, '[')
		for i, x := range items {
			dst = st.append(st.between(dst, i, depth+1), x, depth+1)
		}
		return append(st.newline(dst, depth), ']')
	case KindDict:
		return st.appendDict(dst, v.ref.(*Dict), depth)
	}
	if g, ok := v.ref.(*groupPair); ok {
		return st.append(dst, tupleOf(g.grouper, g.list), depth)
	}
	fail("TypeError", "Object of type %s is not JSON serializable", typeName(v))
	return nil
}

func (st *jsonStyle) appendDict(dst []byte, d *Dict, depth int) []byte {
	if d.Len() == 0 {
		return append(dst, "{}"...)
	}
	entries := d.entries
	if st.sortKeys {
		entries = append([]entry(nil), entries...)
		sort.SliceStable(entries, func(i, j int) bool { return less(entries[i].keyValue(), entries[j].keyValue()) })
	}
	dst = append(dst, '{')
	for i := range entries {
		e := &entries[i]
		dst = st.between(dst, i, depth+1)
		if e.oddKey == nil {
			dst = appendJSONString(dst, e.key, st.ascii)
		} else {
			switch e.oddKey.kind {
			case KindNone, KindBool, KindInt, KindFloat:
				dst = st.append(append(dst, '"'), *e.oddKey, depth)
				dst = append(dst, '"')
			default:
				fail("TypeError", "keys must be str, int, float, bool or None, not %s", typeName(*e.oddKey))
			}
		}
		dst = append(dst, st.keySep...)
		dst = st.append(dst, e.val, depth+1)
	}
	return append(st.newline(dst, depth), '}')
}

func (st *jsonStyle) between(dst []byte, i, depth int) []byte {
	if i > 0 {
		dst = append(dst, st.itemSep...)
	}
	return st.newline(dst, depth)
}

func (st *jsonStyle) newline(dst []byte, depth int) []byte {
	if !st.pretty {
		return dst
	}
	if st.charge != nil {
		st.charge(len(st.indent) * depth)
	}
	dst = append(dst, '\n')
	for range depth {
		dst = append(dst, st.indent...)
	}
	return dst
}

func jsonFloat(f float64) string {
	switch s := formatFloat(f); s {
	case "inf":
		return "Infinity"
	case "-inf":
		return "-Infinity"
	case "nan":
		return "NaN"
	default:
		return s
	}
}

// appendJSONString quotes as json.dumps: only what must be escaped is, and with ascii everything
// from U+007F on as \uXXXX pairs.
func appendJSONString(dst []byte, s string, ascii bool) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' && (c < 0x7f || !ascii) {
			i++
			continue
		}
		dst = append(dst, s[start:i]...)
		n := 1
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, `\n`...)
		case '\r':
			dst = append(dst, `\r`...)
		case '\t':
			dst = append(dst, `\t`...)
		case '\b':
			dst = append(dst, `\b`...)
		case '\f':
			dst = append(dst, `\f`...)
		default:
			var r rune
			r, n = utf8.DecodeRuneInString(s[i:])
			if r >= 0x10000 {
				hi := 0xd800 + (r-0x10000)>>10
				dst = append(dst, '\\', 'u', hex[hi>>12], hex[hi>>8&15], hex[hi>>4&15], hex[hi&15])
				r = 0xdc00 + (r-0x10000)&0x3ff
			}
			dst = append(dst, '\\', 'u', hex[r>>12], hex[r>>8&15], hex[r>>4&15], hex[r&15])
		}
		i += n
		start = i
	}
	return append(append(dst, s[start:]...), '"')
}
