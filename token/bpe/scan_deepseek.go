package bpe

import "unicode/utf8"

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

// A region is what DeepSeek's first two expressions leave to the third: a run
// of han and kana, or a stretch without those and without numbers. For the
// third expression the text ends where the region does.
type region bool

const (
	han   region = true
	other region = false
)

// at returns class and length of the character at i, length 0 where the region
// ends.
func (g region) at(b []byte, i int) (class, int) {
	if i >= len(b) {
		return 0, 0
	}
	if c := b[i]; c < utf8.RuneSelf {
		if g == han || asciiSet[c]&setN != 0 {
			return 0, 0
		}
		return ascii[c], 1
	}
	c, n := at(b, i)
	if (hanKanaLen(b, i) > 0) != bool(g) || in(c, setN) {
		return 0, 0
	}
	return c, n
}

// run returns the end of the run of characters of s at i.
func (g region) run(b []byte, i int, s set) int {
	for i < len(b) {
		if g == other && asciiSet[b[i]]&s&^setN != 0 {
			i++
			continue
		}
		if g == han && isHanLead(b[i]) && s&setLo != 0 {
			i += 3
			continue
		}
		c, n := g.at(b, i)
		if n == 0 || !in(c, s) {
			break
		}
		i += n
	}
	return i
}

// deepSeek does the three splits of DeepSeek V3 at once: a number of up to
// three digits, or what the third expression makes of the region at i. Some
// characters, such as control characters, match nothing there; they make a
// piece up to the next match.
func deepSeek(b []byte, i int) int {
	c, n := at(b, i)
	if in(c, setN) {
		for k := 1; k < 3 && i+n < len(b); k++ {
			d, dn := at(b, i+n)
			if !in(d, setN) {
				break
			}
			n += dn
		}
		return i + n
	}
	g := region(hanKanaLen(b, i) > 0)
	for j := i; ; {
		c, n := g.at(b, j)
		if n == 0 {
			return j
		}
		if e := g.match(b, j, c, n); e > j {
			if j > i {
				return j
			}
			return e
		}
		j += n
	}
}

func isAlpha(c byte) bool { c |= 0x20; return c >= 'a' && c <= 'z' }

// match is the third expression at i, where a character of class c and n bytes
// stands; i if it does not match:
//
//	[ASCII punctuation][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|
//	 ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
func (g region) match(b []byte, i int, c class, n int) int {
	next := i + n
	if in(c, setL|setM) {
		return g.run(b, next, setL|setM)
	}
	if in(c, setP|setS) {
		if n == 1 && next < len(b) && isAlpha(b[next]) {
			return alphaRun(b, next)
		}
		return g.lineEnds(b, g.run(b, next, setP|setS))
	}
	if b[i] != '\r' && b[i] != '\n' {
		if d, dn := g.at(b, next); dn > 0 && in(d, setL|setM) {
			return g.run(b, next+dn, setL|setM)
		} else if dn > 0 && b[i] == ' ' && in(d, setP|setS) {
			return g.lineEnds(b, g.run(b, next+dn, setP|setS))
		}
	}
	if !in(c, setSpace) {
		return i
	}
	last, prev, line := i, i, -1
	for {
		d, dn := g.at(b, last)
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

func (g region) lineEnds(b []byte, i int) int {
	if g == han {
		return i
	}
	return lineEnds(b, i, false)
}
