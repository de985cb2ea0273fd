package bpe

import "unicode/utf8"

// A scanner finds the matches of one of the regular expressions in use. next
// returns the end of the piece that starts at i, and whether it is a match or
// a stretch between matches. Each is written out by hand; scan_test.go holds
// them against a backtracking interpreter of the expression itself.
type scanner struct {
	kind         scanKind
	digits       int  // \p{N}{1,digits}
	letters      set  // what makes a word: \p{L}, or \p{L} and \p{M}
	contractions bool // 's 't 're 've 'm 'll 'd
	slash        bool // punctuation takes slashes behind it along with line ends
}

type scanKind uint8

const (
	scanWords       scanKind = iota // cl100k and its descendants (Llama 3, Qwen)
	scanCases                       // o200k and its descendants (gpt-oss, Tekken): upper and lower case apart
	scanGPT2                        // GPT-2 and ByteLevel's own
	scanDigits                      // \p{N}{1,digits}
	scanHanKana                     // [一-龥぀-ゟ゠-ヿ]+
	scanDeepSeek                    // DeepSeek V3's third expression
	scanDeepSeekAll                 // its three in one, in the order they are applied
)

// The expressions are put together from the parts they share.
const (
	reTail  = `\s*[\r\n]+|\s+(?!\S)|\s+`
	reShort = `(?i:'s|'t|'re|'ve|'m|'ll|'d)`
	reU     = `[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]`
	reW     = `[\p{Ll}\p{Lm}\p{Lo}\p{M}]`
	reLlama = reShort + `|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|` + reTail
	reQwen  = reShort + `|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|` + reTail
	// Qwen 3.5: marks belong to words
	reQwen35 = reShort + `|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|` + reTail
	reO200k  = `[^\r\n\p{L}\p{N}]?` + reU + `*` + reW + `+` + reShort + `?|[^\r\n\p{L}\p{N}]?` + reU + `+` + reW + `*` + reShort +
		`?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|` + reTail
	reTekken = `[^\r\n\p{L}\p{N}]?` + reU + `*` + reW + `+|[^\r\n\p{L}\p{N}]?` + reU + `+` + reW +
		`*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|` + reTail
	reGPT2      = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
	reGPT2short = `'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
	reDeepSeek1 = `\p{N}{1,3}`
	reDeepSeek2 = `[一-龥぀-ゟ゠-ヿ]+`
	reDeepSeek3 = "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"
)

// patterns maps the expressions, as files spell them, to their scanners.
var patterns = map[string]scanner{
	reLlama:     {kind: scanWords, digits: 3, letters: setL, contractions: true},
	reQwen:      {kind: scanWords, digits: 1, letters: setL, contractions: true},
	reQwen35:    {kind: scanWords, digits: 1, letters: setL | setM, contractions: true},
	reO200k:     {kind: scanCases, digits: 3, contractions: true, slash: true},
	reTekken:    {kind: scanCases, digits: 1, slash: true},
	reGPT2:      {kind: scanGPT2},
	reGPT2short: {kind: scanGPT2},
	reDeepSeek1: {kind: scanDigits, digits: 3},
	`\p{N}`:     {kind: scanDigits, digits: 1},
	reDeepSeek2: {kind: scanHanKana},
}

func (p *scanner) next(b []byte, i int) (end int, match bool) {
	switch p.kind {
	case scanWords:
		return p.words(b, i), true
	case scanCases:
		return p.cases(b, i), true
	case scanGPT2:
		return p.gpt2(b, i), true
	case scanDigits:
		if e := p.number(b, i); e > i {
			return e, true
		}
		for i < len(b) {
			c, n := at(b, i)
			if in(c, setN) {
				break
			}
			i += n
		}
		return i, false
	case scanHanKana:
		if e := hanKana(b, i); e > i {
			return e, true
		}
		for i < len(b) && hanKanaLen(b, i) == 0 {
			i += runeLen(b[i])
		}
		return i, false
	}
	return deepSeek(b, i), true
}

// run returns the end of the run of characters of s that starts at i, which
// may be empty.
func run(b []byte, i int, s set) int {
	for i < len(b) {
		c := b[i]
		if asciiSet[c]&s != 0 {
			i++
			continue
		}
		if c < utf8.RuneSelf {
			break
		}
		if isHanLead(c) && s&setLo != 0 {
			i += 3
			continue
		}
		r, n := decode(b, i)
		if !in(runeClass(r), s) {
			break
		}
		i += n
	}
	return i
}

// isHanLead says that a character with this first byte is one of U+5000 to
// U+8FFF: three bytes, a letter (Lo), and a starter that NFC leaves alone.
func isHanLead(c byte) bool { return c >= 0xE5 && c <= 0xE8 }

// number returns the end of up to digits characters of \p{N}.
func (p *scanner) number(b []byte, i int) int {
	for k := 0; k < p.digits && i < len(b); k++ {
		c, n := at(b, i)
		if !in(c, setN) {
			break
		}
		i += n
	}
	return i
}

// contraction returns the end of (?i:'s|'t|'re|'ve|'m|'ll|'d) at i, or i. The
// one letter beyond ASCII that folds into these is U+017F, the long s.
func contraction(b []byte, i int) int {
	if i+1 >= len(b) || b[i] != '\'' {
		return i
	}
	c := b[i+1] | 0x20
	switch c {
	case 's', 't', 'm', 'd':
		if b[i+1] >= 'A' {
			return i + 2
		}
	case 'r', 'v', 'l':
		if i+2 < len(b) && b[i+1] >= 'A' && b[i+2] >= 'A' {
			if d := b[i+2] | 0x20; d == 'e' && c != 'l' || d == 'l' && c == 'l' {
				return i + 3
			}
		}
	}
	if b[i+1] == 0xC5 && i+2 < len(b) && b[i+2] == 0xBF {
		return i + 3
	}
	return i
}

// lineEnds skips [\r\n]*, or [\r\n/]*.
func lineEnds(b []byte, i int, slash bool) int {
	for i < len(b) && (b[i] == '\n' || b[i] == '\r' || slash && b[i] == '/') {
		i++
	}
	return i
}

// blank is \s*[\r\n]+|\s+(?!\S)|\s+ where white space starts at i: up to the
// last line end of the run, else all of it at the end of the text, else all
// but its last character if that leaves something.
func blank(b []byte, i int) int {
	last, prev, line := i, i, -1
	for last < len(b) {
		c, n := at(b, last)
		if !in(c, setSpace) {
			break
		}
		prev = last
		last += n
		if b[prev] == '\n' || b[prev] == '\r' {
			line = last
		}
	}
	switch {
	case line >= 0:
		return line
	case last == len(b) || prev == i:
		return last
	}
	return prev
}

// words: (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|
// ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+ and its variants.
func (p *scanner) words(b []byte, i int) int {
	c, n := at(b, i)
	if in(c, p.letters) {
		return run(b, i+n, p.letters)
	}
	if p.contractions && b[i] == '\'' {
		if e := contraction(b, i); e > i {
			return e
		}
	}
	if in(c, setN) {
		return p.number(b, i)
	}
	next := i + n
	var d class
	var dn int
	if next < len(b) {
		d, dn = at(b, next)
		if in(d, p.letters) && b[i] != '\r' && b[i] != '\n' {
			return run(b, next+dn, p.letters)
		}
	}
	if !in(c, setSpace) {
		return lineEnds(b, run(b, next, ^(p.letters|setN|setSpace)), false)
	}
	if b[i] == ' ' && next < len(b) && !in(d, p.letters|setN|setSpace) {
		return lineEnds(b, run(b, next+dn, ^(p.letters|setN|setSpace)), false)
	}
	return blank(b, i)
}

// gpt2: 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
func (p *scanner) gpt2(b []byte, i int) int {
	if b[i] == '\'' && i+1 < len(b) && b[i+1] >= 'a' && b[i+1] <= 'z' {
		if e := contraction(b, i); e == i+2 || e == i+3 && b[i+2] >= 'a' {
			return e
		}
	}
	c, n := at(b, i)
	j := i + n
	if b[i] == ' ' && j < len(b) {
		d, dn := at(b, j)
		if !in(d, setSpace) {
			c, j = d, j+dn
		}
	}
	switch {
	case in(c, setL):
		return run(b, j, setL)
	case in(c, setN):
		return run(b, j, setN)
	case !in(c, setSpace):
		return run(b, j, ^set(setL|setN|setSpace))
	}
	last, prev := i, i
	for last < len(b) {
		c, n := at(b, last)
		if !in(c, setSpace) {
			break
		}
		prev, last = last, last+n
	}
	if last == len(b) || prev == i {
		return last
	}
	return prev
}
