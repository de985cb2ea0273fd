package jinja

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

type tokenKind uint8

const (
	tokEOF tokenKind = iota
	tokData
	tokVarBegin
	tokVarEnd
	tokBlockBegin
	tokBlockEnd
	tokName
	tokString
	tokInt
	tokFloat
	tokOp
)

type token struct {
	kind tokenKind
	val  string
	line int
}

// maxSource bounds a template; the largest known one has 20 KB.
const maxSource = 1 << 20

type lexer struct {
	src    string
	pos    int
	line   int
	tokens []token
}

// lex splits a template into tokens with the settings of transformers: trim_blocks, lstrip_blocks,
// no line statements, one trailing newline dropped.
func lex(src string) []token {
	if len(src) > maxSource {
		failLimit("a template of %d bytes; at most %d are accepted", len(src), maxSource)
	}
	if !utf8.ValidString(src) {
		fail("TemplateSyntaxError", "the template is not valid UTF-8")
	}
	src = strings.ReplaceAll(src, "\r\n", "\n")
	src = strings.ReplaceAll(src, "\r", "\n")
	src = strings.TrimSuffix(src, "\n")
	lx := &lexer{src: src, line: 1}
	lineStart := true // whether what was last consumed ended with a newline
	for lx.pos < len(src) {
		i := nextTag(src, lx.pos)
		if i < 0 {
			lx.data(src[lx.pos:])
			lx.pos = len(src)
			break
		}
		text, kind := src[lx.pos:i], src[i+1]
		open := i + 2
		sign := byte(0)
		if open < len(src) && (src[open] == '-' || src[open] == '+') {
			// {{+1}} is a sign for the block and comment forms only
			if kind != '{' || src[open] == '-' {
				sign = src[open]
			}
		}
		kept := text
		switch {
		case sign == '-':
			kept = strings.TrimRightFunc(text, IsSpace)
		case sign != '+' && kind != '{':
			at := strings.LastIndexByte(text, '\n') + 1
			if (at > 0 || lineStart) && strings.TrimFunc(text[at:], IsSpace) == "" {
				kept = text[:at]
			}
		}
		lx.data(kept)
		lx.line += strings.Count(text[len(kept):], "\n")
		if sign != 0 {
			open++
		}
		lx.pos = open
		from := i
		switch kind {
		case '#':
			lx.comment()
		case '{':
			lx.emit(tokVarBegin, "{{")
			lx.inside(tokVarEnd)
		default:
			if !lx.raw() {
				lx.emit(tokBlockBegin, "{%")
				lx.inside(tokBlockEnd)
			}
		}
		lineStart = lx.pos > from && src[lx.pos-1] == '\n'
	}
	lx.emit(tokEOF, "")
	return lx.tokens
}

// nextTag finds the next {{, {% or {#.
func nextTag(src string, from int) int {
	for i := from; i+1 < len(src); i++ {
		j := strings.IndexByte(src[i:], '{')
		if j < 0 || i+j+1 >= len(src) {
			return -1
		}
		i += j
		if c := src[i+1]; c == '{' || c == '%' || c == '#' {
			return i
		}
	}
	return -1
}

func (lx *lexer) emit(k tokenKind, val string) {
	lx.tokens = append(lx.tokens, token{k, val, lx.line})
}

func (lx *lexer) data(s string) {
	if s != "" {
		lx.emit(tokData, s)
		lx.line += strings.Count(s, "\n")
	}
}

// skip moves to a position and counts the lines on the way.
func (lx *lexer) skip(to int) {
	lx.line += strings.Count(lx.src[lx.pos:to], "\n")
	lx.pos = to
}

func (lx *lexer) spaces() {
	i := lx.pos
	for i < len(lx.src) {
		r, n := utf8.DecodeRuneInString(lx.src[i:])
		if !IsSpace(r) {
			break
		}
		i += n
	}
	lx.skip(i)
}

// closing consumes the end of a tag: "-X}" with the white space after it, "+X}", or "X}" with one
// newline after it when trim says so. X is % or # or }.
func (lx *lexer) closing(x byte, trim bool) bool {
	s := lx.src[lx.pos:]
	end := string(x) + "}"
	switch {
	case strings.HasPrefix(s, "-"+end):
		lx.pos += 3
		lx.spaces()
	case trim && strings.HasPrefix(s, "+"+end):
		lx.pos += 3
	case strings.HasPrefix(s, end):
		lx.pos += 2
		if trim && strings.HasPrefix(lx.src[lx.pos:], "\n") {
			lx.skip(lx.pos + 1)
		}
	default:
		return false
	}
	return true
}

func (lx *lexer) comment() {
	for i := lx.pos; i < len(lx.src); i++ {
		c := lx.src[i]
		if c != '#' && c != '-' && c != '+' {
			continue
		}
		old := lx.pos
		lx.skip(i)
		if lx.closing('#', true) {
			return
		}
		lx.line -= strings.Count(lx.src[old:i], "\n")
		lx.pos = old
	}
	fail("TemplateSyntaxError", "Missing end of comment tag")
}

// raw handles {% raw %} ... {% endraw %}; it reports false when the tag is another one.
func (lx *lexer) raw() bool {
	save, line := *lx, lx.line
	lx.spaces()
	if !strings.HasPrefix(lx.src[lx.pos:], "raw") {
		*lx = save
		return false
	}
	lx.pos += 3
	lx.spaces()
	switch s := lx.src[lx.pos:]; {
	case strings.HasPrefix(s, "-%}"):
		lx.pos += 3
		lx.spaces()
	case strings.HasPrefix(s, "%}"):
		lx.pos += 2
	default:
		*lx = save
		lx.line = line
		return false
	}
	start := lx.pos
	for i := start; ; i++ {
		j := strings.Index(lx.src[i:], "{%")
		if j < 0 {
			fail("TemplateSyntaxError", "Missing end of raw directive")
		}
		i += j
		rest := i + 2
		sign := byte(0)
		if rest < len(lx.src) && (lx.src[rest] == '-' || lx.src[rest] == '+') {
			sign = lx.src[rest]
			rest++
		}
		probe := *lx
		probe.skip(rest)
		probe.spaces()
		if !strings.HasPrefix(probe.src[probe.pos:], "endraw") {
			continue
		}
		probe.pos += len("endraw")
		probe.spaces()
		if !probe.closing('%', true) {
			continue
		}
		text := lx.src[start:i]
		if sign == '-' {
			text = strings.TrimRightFunc(text, IsSpace)
		} else if at := strings.LastIndexByte(text, '\n') + 1; sign != '+' && at > 0 && strings.TrimFunc(text[at:], IsSpace) == "" {
			text = text[:at]
		}
		if text != "" {
			lx.emit(tokData, text)
		}
		lx.pos, lx.line = probe.pos, probe.line
		return true
	}
}

// operators, the longer first.
var operators = []string{"//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[", "]", "(", ")", "{", "}", ">", "<", "=", ".", ":", "|", ",", ";"}

// inside reads the tokens of a tag up to its end.
func (lx *lexer) inside(end tokenKind) {
	x := byte('%')
	if end == tokVarEnd {
		x = '}'
	}
	var open []byte // brackets that wait for their partner: a tag does not end inside them
	for {
		lx.spaces()
		if lx.pos >= len(lx.src) {
			lx.emit(tokEOF, "")
			return
		}
		if len(open) == 0 {
			at, line := len(lx.tokens), lx.line
			if lx.closing(x, end == tokBlockEnd) {
				lx.tokens = append(lx.tokens[:at], token{end, "", line})
				return
			}
		}
		s := lx.src[lx.pos:]
		r, _ := utf8.DecodeRuneInString(s)
		switch {
		case s[0] == '"' || s[0] == '\'':
			lx.str(s[0])
		case s[0] >= '0' && s[0] <= '9':
			lx.number()
		case r == '_' || unicode.IsLetter(r) || unicode.Is(unicode.Nl, r):
			n := 0
			for _, r := range s {
				if r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.In(r, unicode.Nl, unicode.Mn, unicode.Mc, unicode.Pc) {
					break
				}
				n += utf8.RuneLen(r)
			}
			lx.emit(tokName, s[:n])
			lx.pos += n
		default:
			open = lx.operator(s, open)
		}
	}
}

func (lx *lexer) operator(s string, open []byte) []byte {
	for _, op := range operators {
		if !strings.HasPrefix(s, op) {
			continue
		}
		switch op {
		case "(", "[", "{":
			open = append(open, map[string]byte{"(": ')', "[": ']', "{": '}'}[op])
		case ")", "]", "}":
			if len(open) == 0 {
				lx.syntax("unexpected '%s'", op)
			}
			if want := open[len(open)-1]; want != op[0] {
				lx.syntax("unexpected '%s', expected '%c'", op, want)
			}
			open = open[:len(open)-1]
		}
		lx.emit(tokOp, op)
		lx.pos += len(op)
		return open
	}
	r, _ := utf8.DecodeRuneInString(s)
	lx.syntax("unexpected char %s at %d", appendQuoted(nil, string(r)), lx.pos)
	return nil
}

func (lx *lexer) syntax(format string, args ...any) {
	failAt(lx.line, "TemplateSyntaxError", format, args...)
}

// number reads an int or a float; the text keeps its underscores and prefix.
func (lx *lexer) number() {
	s := lx.src[lx.pos:]
	digits := func(i int, ok func(c byte) bool) int {
		for i < len(s) && (ok(s[i]) || s[i] == '_' && i+1 < len(s) && ok(s[i+1])) {
			i++
		}
		return i
	}
	dec := func(c byte) bool { return c >= '0' && c <= '9' }
	n := digits(0, dec)
	kind := tokInt
	afterDot := lx.pos > 0 && lx.src[lx.pos-1] == '.' // "a.0.1" has no float in it
	if s[0] == '0' && len(s) > 2 && strings.IndexByte("xXoObB", s[1]) >= 0 {
		n = digits(2, func(c byte) bool { return dec(c) || c|0x20 >= 'a' && c|0x20 <= 'f' })
	} else if !afterDot {
		if n+1 < len(s) && s[n] == '.' && dec(s[n+1]) {
			n = digits(n+1, dec)
			kind = tokFloat
		}
		if n+1 < len(s) && s[n]|0x20 == 'e' {
			m := n + 1
			if s[m] == '+' || s[m] == '-' {
				m++
			}
			if m < len(s) && dec(s[m]) {
				n = digits(m, dec)
				kind = tokFloat
			}
		}
	}
	lx.emit(kind, s[:n])
	lx.pos += n
}

// str reads a string literal with Python's escapes.
func (lx *lexer) str(quote byte) {
	start := lx.pos + 1
	i := start
	for i < len(lx.src) && lx.src[i] != quote {
		if lx.src[i] == '\\' {
			i++
		}
		i++
	}
	if i >= len(lx.src) {
		lx.syntax("unexpected char '%c' at %d", quote, lx.pos)
	}
	lx.emit(tokString, lx.unescape(lx.src[start:i]))
	lx.skip(i + 1)
}

func (lx *lexer) unescape(s string) string {
	if strings.IndexByte(s, '\\') < 0 {
		return s
	}
	b := make([]byte, 0, len(s))
	simple := map[byte]byte{'n': '\n', 't': '\t', 'r': '\r', 'a': 7, 'b': 8, 'f': 12, 'v': 11, '\\': '\\', '\'': '\'', '"': '"'}
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			b = append(b, s[i])
			continue
		}
		i++
		c := s[i]
		if r, ok := simple[c]; ok {
			b = append(b, r)
			continue
		}
		width := map[byte]int{'x': 2, 'u': 4, 'U': 8}[c]
		switch {
		case c == '\n':
		case width > 0:
			if i+width >= len(s) {
				lx.syntax("truncated \\%c escape", c)
			}
			v, ok := parseInt("0x"+s[i+1:i+1+width], 16)
			if !ok || v.int() > unicode.MaxRune || v.int() >= 0xd800 && v.int() < 0xe000 {
				lx.syntax("bad \\%c escape", c)
			}
			b = utf8.AppendRune(b, rune(v.int()))
			i += width
		case c >= '0' && c <= '7':
			var r rune
			n := 0
			for ; n < 3 && i+n < len(s) && s[i+n] >= '0' && s[i+n] <= '7'; n++ {
				r = r<<3 | rune(s[i+n]-'0')
			}
			b = utf8.AppendRune(b, r)
			i += n - 1
		case c == 'N':
			failUnsupported("\\N{...} in a string of the template")
		default:
			b = append(b, '\\', c)
		}
	}
	return string(b)
}

// IsSpace is str.isspace of one code point, which is what strip() removes.
func IsSpace(r rune) bool {
	switch {
	case r >= '\t' && r <= '\r', r >= 0x1c && r <= 0x20, r == 0x85, r == 0xa0:
		return true
	case r < 0x1680:
		return false
	}
	return r == 0x1680 || r >= 0x2000 && r <= 0x200a || r == 0x2028 || r == 0x2029 || r == 0x202f || r == 0x205f || r == 0x3000
}
