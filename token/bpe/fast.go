package bpe

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf8"
)

// This file holds the short cuts that most of most texts take: words of ASCII
// letters, with or without a space in front, and ASCII punctuation. What they
// are not sure of is left to the scanner of the expression.

const (
	ones = 0x0101010101010101
	high = 0x8080808080808080
)

// notAlpha sets the high bit of each byte of x that is not an ASCII letter;
// only the lowest such bit is to be relied on by nobody but TrailingZeros.
func notAlpha(x uint64) uint64 {
	y := x | 0x20*ones
	t := y &^ high
	return ^((t+(0x80-'a')*ones)&^(t+(0x7F-'z')*ones))&high | y&high
}

// notLower is the same for a to z.
func notLower(x uint64) uint64 {
	t := x &^ high
	return ^((t+(0x80-'a')*ones)&^(t+(0x7F-'z')*ones))&high | x&high
}

// alphaRun returns the end of the run of ASCII letters at i.
func alphaRun(b []byte, i int) int {
	for i+8 <= len(b) {
		if m := notAlpha(binary.LittleEndian.Uint64(b[i:])); m != 0 {
			return i + bits.TrailingZeros64(m)>>3
		}
		i += 8
	}
	for i < len(b) && isAlpha(b[i]) {
		i++
	}
	return i
}

// lowerRun returns the end of the run of a to z at i.
func lowerRun(b []byte, i int) int {
	for i+8 <= len(b) {
		if m := notLower(binary.LittleEndian.Uint64(b[i:])); m != 0 {
			return i + bits.TrailingZeros64(m)>>3
		}
		i += 8
	}
	for i < len(b) && b[i] >= 'a' && b[i] <= 'z' {
		i++
	}
	return i
}

// isPlain says that the byte at i, or the end of the text, is surely no part of a
// character beyond ASCII.
func isPlain(b []byte, i int) bool { return i == len(b) || b[i] < utf8.RuneSelf }

// letterWord returns the end of ` ?[A-Za-z]+` at i if that is a whole match of
// an expression that takes letters as they come, else i.
func letterWord(b []byte, i int) int {
	j := i
	if b[i] == ' ' {
		j++
	}
	if e := alphaRun(b, j); e > j && isPlain(b, e) {
		return e
	}
	return i
}

// caseWord is letterWord for the expressions that keep upper and lower case
// apart.
func caseWord(b []byte, i int) int {
	j := i
	if b[i] == ' ' {
		j++
	}
	if j == len(b) || !isAlpha(b[j]) {
		return i
	}
	e := lowerRun(b, j+1)
	if e == len(b) {
		return e
	}
	if c := b[e]; c >= utf8.RuneSelf || c == '\'' || e == j+1 && c >= 'A' && c <= 'Z' {
		return i
	}
	return e
}

// asciiWord is the part of words and cases for text that starts with ASCII
// punctuation or a digit, or a space and punctuation; i if it cannot tell. It
// serves both, since neither has letters here but those behind one character
// of punctuation, for which word is asked.
func (p *scanner) asciiWord(b []byte, i int) int {
	const punct = setP | setS
	c := b[i]
	set := asciiSet[c]
	if set&setN != 0 {
		e := i + 1
		for e < len(b) && e < i+p.digits && asciiSet[b[e]]&setN != 0 {
			e++
		}
		if e < i+p.digits && !isPlain(b, e) {
			return i
		}
		return e
	}
	j := i + 1
	if c == ' ' {
		if j == len(b) || asciiSet[b[j]]&punct == 0 {
			return i
		}
		j++
	} else if set&punct == 0 || c == '\'' || j < len(b) && asciiSet[b[j]]&setL != 0 {
		return i
	}
	for j < len(b) && asciiSet[b[j]]&punct != 0 {
		j++
	}
	if j == len(b) {
		return j
	}
	if d := b[j]; d >= utf8.RuneSelf || asciiSet[d] == 1<<classOther {
		return i
	}
	return lineEnds(b, j, p.slash)
}
