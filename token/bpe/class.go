package bpe

import (
	"sync"
	"unicode/utf8"
)

// A class is the part of a code point's Unicode 16 general category that the
// pre-tokenizers look at, plus \s. The numbers are those of the generator.
type class = uint8

const (
	classOther class = iota
	classLu
	classLl
	classLt
	classLm
	classLo
	classM
	classN // numbers that are not decimal digits
	classNd
	classP
	classS
	classSpace

	// checkNFC is set beside the class where NFC may change text: see nfcCheck.
	checkNFC class = 0x80
	classOf  class = 0x0f
)

// A set holds classes, one bit each.
type set uint16

func in(c class, s set) bool { return s>>(c&classOf)&1 != 0 }

const (
	setLu    = 1 << classLu
	setLl    = 1 << classLl
	setLt    = 1 << classLt
	setLm    = 1 << classLm
	setLo    = 1 << classLo
	setL     = setLu | setLl | setLt | setLm | setLo
	setM     = 1 << classM
	setNd    = 1 << classNd
	setN     = 1<<classN | setNd
	setP     = 1 << classP
	setS     = 1 << classS
	setSpace = 1 << classSpace
	// the two halves of the case-aware patterns (o200k, Tekken)
	setUpper = setLu | setLt | setLm | setLo | setM
	setLower = setLl | setLm | setLo | setM
)

const pageBits = 8

// classPages is a two-stage table: page number by code point, then class.
var (
	classIndex [0x110000 >> pageBits]uint16
	classPages [][1 << pageBits]class
	ascii      [256]class // classes of U+0000 to U+007F; 0 from 0x80 on
	asciiSet   [256]set   // the same as sets; empty from 0x80 on
)

// initClasses unpacks the generated ranges; Load calls it.
var initClasses = sync.OnceFunc(func() {
	flat := make([]class, 0x110000)
	for _, r := range classRanges {
		for c := r[0]; c <= r[1]; c++ {
			flat[c] = class(r[2])
		}
	}
	for _, r := range nfcCheck {
		for c := r[0]; c <= r[1]; c++ {
			flat[c] |= checkNFC
		}
	}
	seen := map[[1 << pageBits]class]uint16{}
	for p := range classIndex {
		page := [1 << pageBits]class(flat[p<<pageBits:])
		n, ok := seen[page]
		if !ok {
			n = uint16(len(classPages))
			seen[page] = n
			classPages = append(classPages, page)
		}
		classIndex[p] = n
	}
	copy(ascii[:utf8.RuneSelf], flat)
	for c := range utf8.RuneSelf {
		asciiSet[c] = 1 << ascii[c]
	}
})

// runeClass gives the class of a valid code point.
func runeClass(r rune) class {
	return classPages[classIndex[uint32(r)>>pageBits]][uint32(r)&(1<<pageBits-1)]
}

// at returns the class and length of the code point that starts at b[i]. The
// text is valid UTF-8 and i < len(b).
func at(b []byte, i int) (class, int) {
	if c := b[i]; c < utf8.RuneSelf {
		return ascii[c], 1
	}
	r, n := decode(b, i)
	return runeClass(r), n
}

// decode reads one code point of more than one byte from valid UTF-8.
func decode(b []byte, i int) (rune, int) {
	c := rune(b[i])
	switch {
	case c < 0xE0 && i+1 < len(b):
		return (c&0x1f)<<6 | rune(b[i+1]&0x3f), 2
	case c < 0xF0 && i+2 < len(b):
		return (c&0x0f)<<12 | rune(b[i+1]&0x3f)<<6 | rune(b[i+2]&0x3f), 3
	}
	return utf8.DecodeRune(b[i:])
}

// before returns the class and length of the code point that ends at b[i].
func before(b []byte, i int) (class, int) {
	if c := b[i-1]; c < utf8.RuneSelf {
		return ascii[c], 1
	}
	r, n := utf8.DecodeLastRune(b[:i])
	return runeClass(r), n
}
