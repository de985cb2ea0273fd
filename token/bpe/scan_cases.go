package bpe

import "unicode/utf8"

// cases is the expression of o200k and Tekken. With U = Lu Lt Lm Lo M and
// W = Ll Lm Lo M:
//
//	[^\r\n\p{L}\p{N}]?U*W+(contraction)?|[^\r\n\p{L}\p{N}]?U+W*(contraction)?|
//	\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+
func (p *scanner) cases(b []byte, i int) int {
	c, n := at(b, i)
	next := i + n
	if in(c, setL) {
		return p.suffix(b, upperLower(b, i))
	}
	if in(c, setN) {
		return p.number(b, i)
	}
	var d class
	var dn int
	if next < len(b) {
		d, dn = at(b, next)
	}
	if b[i] != '\r' && b[i] != '\n' && in(d, setUpper|setLower) {
		// c in front of a word. A mark may be the word's own first character
		// instead, but only if U*W+ does not match behind it.
		if !in(c, setM) || hasLower(b, next) {
			return p.suffix(b, upperLower(b, next))
		}
	}
	if in(c, setM) {
		return p.suffix(b, upperLower(b, i))
	}
	if !in(c, setSpace) {
		return lineEnds(b, run(b, next, ^set(setL|setN|setSpace)), p.slash)
	}
	if b[i] == ' ' && next < len(b) && !in(d, setL|setN|setSpace) {
		return lineEnds(b, run(b, next+dn, ^set(setL|setN|setSpace)), p.slash)
	}
	return blank(b, i)
}

func (p *scanner) suffix(b []byte, i int) int {
	if p.contractions && i < len(b) && b[i] == '\'' {
		return contraction(b, i)
	}
	return i
}

// upperLower returns the end of U*W+|U+W* at i, where a character of U or W
// starts: the longest U*, then W+; if no W follows, U* gives back characters
// until the last one of it that is in W too; if there is none, all of it.
func upperLower(b []byte, i int) int {
	both := -1 // end of the last character in U and W
	for i < len(b) {
		c := b[i]
		if c < utf8.RuneSelf {
			if asciiSet[c]&setLu == 0 {
				break
			}
			i++
			continue
		}
		if isHanLead(c) {
			i += 3
			both = i
			continue
		}
		r, n := decode(b, i)
		k := runeClass(r)
		if !in(k, setUpper) {
			break
		}
		i += n
		if in(k, setLower) {
			both = i
		}
	}
	if e := run(b, i, setLower); e > i {
		return e
	}
	if both >= 0 {
		return both
	}
	return i
}

// hasLower says whether U*W+ matches at i.
func hasLower(b []byte, i int) bool {
	for i < len(b) {
		c, n := at(b, i)
		if in(c, setLower) {
			return true
		}
		if !in(c, setUpper) {
			return false
		}
		i += n
	}
	return false
}
