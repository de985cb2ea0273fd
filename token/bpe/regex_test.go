package bpe

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A backtracking interpreter of the regular expressions that tokenizers use,
// as simple as can be: the scanners are held against it. A node matches at i
// and calls next with where it ended; the first next that says true wins.
type node func(b []byte, i int, next func(i int) bool) bool

type reParser struct {
	s    string
	i    int
	fold bool
}

func compile(re string) (n node, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%v at %d of %q", p, 0, re)
		}
	}()
	p := &reParser{s: re}
	n = p.alternation()
	if p.i != len(re) {
		return nil, fmt.Errorf("text left at %d of %q", p.i, re)
	}
	return n, nil
}

func (p *reParser) more(s string) bool { return strings.HasPrefix(p.s[p.i:], s) }

func (p *reParser) take(s string) bool {
	if p.more(s) {
		p.i += len(s)
		return true
	}
	return false
}

func (p *reParser) alternation() node {
	alts := []node{p.sequence()}
	for p.take("|") {
		alts = append(alts, p.sequence())
	}
	return func(b []byte, i int, next func(int) bool) bool {
		for _, a := range alts {
			if a(b, i, next) {
				return true
			}
		}
		return false
	}
}

func (p *reParser) sequence() node {
	n := func(_ []byte, i int, next func(int) bool) bool { return next(i) }
	var parts []node
	for p.i < len(p.s) && !p.more("|") && !p.more(")") {
		parts = append(parts, p.repeat(p.atom()))
	}
	for k := len(parts) - 1; k >= 0; k-- {
		first, rest := parts[k], n
		n = func(b []byte, i int, next func(int) bool) bool {
			return first(b, i, func(j int) bool { return rest(b, j, next) })
		}
	}
	return n
}

func (p *reParser) repeat(n node) node {
	lo, hi := 1, 1
	switch {
	case p.take("?"):
		lo = 0
	case p.take("*"):
		lo, hi = 0, 1<<30
	case p.take("+"):
		hi = 1 << 30
	case p.take("{"):
		end := strings.IndexByte(p.s[p.i:], '}')
		a, b, two := strings.Cut(p.s[p.i:p.i+end], ",")
		lo, _ = strconv.Atoi(a)
		if hi = lo; two {
			hi, _ = strconv.Atoi(b)
		}
		p.i += end + 1
	default:
		return n
	}
	var from func(k int, b []byte, i int, next func(int) bool) bool
	from = func(k int, b []byte, i int, next func(int) bool) bool {
		if k < hi && n(b, i, func(j int) bool { return j > i && from(k+1, b, j, next) }) {
			return true
		}
		return k >= lo && next(i)
	}
	return func(b []byte, i int, next func(int) bool) bool { return from(0, b, i, next) }
}

type test func(r rune) bool

func one(t test) node {
	return func(b []byte, i int, next func(int) bool) bool {
		if i >= len(b) {
			return false
		}
		r, n := utf8.DecodeRune(b[i:])
		return t(r) && next(i+n)
	}
}

func (p *reParser) atom() node {
	switch {
	case p.take("(?i:"):
		was := p.fold
		p.fold = true
		n := p.group()
		p.fold = was
		return n
	case p.take("(?:"):
		return p.group()
	case p.take("(?!"):
		n := p.group()
		return func(b []byte, i int, next func(int) bool) bool {
			return !n(b, i, func(int) bool { return true }) && next(i)
		}
	case p.take("["):
		return one(p.class())
	case p.more("("):
		panic("group")
	}
	return one(p.char())
}

func (p *reParser) group() node {
	n := p.alternation()
	if !p.take(")") {
		panic("no )")
	}
	return n
}

var classNames = map[string]set{
	"L": setL, "N": setN, "M": setM, "P": setP, "S": setS, "Lu": setLu, "Ll": setLl, "Lt": setLt, "Lm": setLm, "Lo": setLo,
}

// char parses one character or escape outside or inside of brackets.
func (p *reParser) char() test {
	if p.take(`\p{`) {
		end := strings.IndexByte(p.s[p.i:], '}')
		s, ok := classNames[p.s[p.i:p.i+end]]
		if !ok {
			panic("class")
		}
		p.i += end + 1
		return func(r rune) bool { return in(runeClass(r), s) }
	}
	if p.take(`\s`) {
		return func(r rune) bool { return in(runeClass(r), setSpace) }
	}
	if p.take(`\S`) {
		return func(r rune) bool { return !in(runeClass(r), setSpace) }
	}
	want := p.literal()
	if p.fold {
		return func(r rune) bool {
			return r == want || r|0x20 == want|0x20 && r < 0x80 && isAlpha(byte(r)) || want == 's' && r == 0x17F
		}
	}
	return func(r rune) bool { return r == want }
}

func (p *reParser) literal() rune {
	if p.take(`\`) {
		c := p.s[p.i]
		p.i++
		switch c {
		case 'r':
			return '\r'
		case 'n':
			return '\n'
		}
		if isAlpha(c) {
			panic("escape")
		}
		return rune(c)
	}
	r, n := utf8.DecodeRuneInString(p.s[p.i:])
	p.i += n
	return r
}

func (p *reParser) class() test {
	not := p.take("^")
	var tests []test
	for !p.take("]") {
		if p.more(`\p`) || p.more(`\s`) || p.more(`\S`) {
			tests = append(tests, p.char())
			continue
		}
		lo := p.literal()
		hi := lo
		if p.more("-") && !p.more("-]") {
			p.i++
			hi = p.literal()
		}
		tests = append(tests, func(r rune) bool { return r >= lo && r <= hi })
	}
	return func(r rune) bool {
		for _, t := range tests {
			if t(r) {
				return !not
			}
		}
		return not
	}
}

// pieces splits b as Split with behavior Isolated does.
func (n node) pieces(b []byte) (ends []int) {
	done := 0
	for i := 0; i < len(b); {
		end := -1
		n(b, i, func(j int) bool { end = j; return true })
		if end <= i {
			i += runeLen(b[i])
			continue
		}
		if done < i {
			ends = append(ends, i)
		}
		ends = append(ends, end)
		i, done = end, end
	}
	if done < len(b) {
		ends = append(ends, len(b))
	}
	return ends
}
