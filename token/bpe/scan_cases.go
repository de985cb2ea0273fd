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

// hanKanaLen is the length of a character of [一-龥぀-ゟ゠-ヿ] at i, or 0.
func hanKanaLen(b []byte, i int) int {
	if b[i] < 0xE3 || b[i] > 0xE9 {
		return 0
	}
	r, n := decode(b, i)
	if r >= 0x4E00 && r <= 0x9FA5 || r >= 0x3040 && r <= 0x30FF {
		return n
	}
	return 0
}

func hanKana(b []byte, i int) int {
	for i < len(b) {
		n := hanKanaLen(b, i)
		if n == 0 {
			break
		}
		i += n
	}
	return i
}

// deepSeek does the three splits of DeepSeek V3 at once: a number of up to
// three digits, a run of han and kana, or what the third expression makes of
// the text up to the next of those. That text ends there for its lookahead.
func deepSeek(b []byte, i int) int {
	c, n := at(b, i)
	switch {
	case in(c, setN):
		for k := 1; k < 3 && i+n < len(b); k++ {
			d, dn := at(b, i+n)
			if !in(d, setN) {
				break
			}
			n += dn
		}
		return i + n
	case hanKanaLen(b, i) > 0:
		return hanKana(b, i)
	}
	for j := i; ; {
		c, n := inside(b, j)
		if n == 0 {
			return j
		}
		if e := deepSeekAt(b, j, c, n); e > j {
			if j > i {
				return j
			}
			return e
		}
		j += n
	}
}

// other says that the text of the third expression ends at i: at the end, a
// number, han or kana.
func other(b []byte, i int) bool {
	if i >= len(b) {
		return true
	}
	if b[i] < utf8.RuneSelf {
		return asciiSet[b[i]]&setN != 0
	}
	c, _ := at(b, i)
	return in(c, setN) || hanKanaLen(b, i) > 0
}

// inside returns the class at i, or classN where the text ends.
func inside(b []byte, i int) (class, int) {
	if other(b, i) {
		return classN, 0
	}
	return at(b, i)
}

func letterMarks(b []byte, i int) int {
	for i < len(b) {
		if asciiSet[b[i]]&setL != 0 {
			i++
			continue
		}
		if b[i] < utf8.RuneSelf {
			break
		}
		c, n := at(b, i)
		if !in(c, setL|setM) || hanKanaLen(b, i) > 0 {
			break
		}
		i += n
	}
	return i
}

func isAlpha(c byte) bool { c |= 0x20; return c >= 'a' && c <= 'z' }

// deepSeekAt is the third expression, matched at i:
// [ASCII punctuation][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|
// ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
// Some characters, such as control characters, match nothing, and i comes
// back; they make a piece up to the next match.
func deepSeekAt(b []byte, i int, c class, n int) int {
	next := i + n
	if in(c, setL|setM) {
		return letterMarks(b, next)
	}
	if in(c, setP|setS) {
		if n == 1 && next < len(b) && isAlpha(b[next]) {
			for next++; next < len(b) && isAlpha(b[next]); next++ {
			}
			return next
		}
		return lineEnds(b, punctuation(b, next), false)
	}
	if b[i] != '\r' && b[i] != '\n' {
		if d, dn := inside(b, next); dn > 0 && in(d, setL|setM) {
			return letterMarks(b, next+dn)
		} else if dn > 0 && b[i] == ' ' && in(d, setP|setS) {
			return lineEnds(b, punctuation(b, next+dn), false)
		}
	}
	if !in(c, setSpace) {
		return i
	}
	last, prev, line := i, i, -1
	for {
		d, dn := inside(b, last)
		if dn == 0 || !in(d, setSpace) {
			switch {
			case line >= 0:
				return line
			case dn == 0 || prev == i:
				return last
			}
			return prev
		}
		prev = last
		last += dn
		if b[prev] == '\n' || b[prev] == '\r' {
			line = last
		}
	}
}

func punctuation(b []byte, i int) int {
	for i < len(b) {
		c, n := at(b, i)
		if !in(c, setP|setS) || n > 1 && hanKanaLen(b, i) > 0 {
			break
		}
		i += n
	}
	return i
}
