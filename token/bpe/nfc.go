package bpe

import (
	"encoding/binary"
	"slices"
	"sync"
	"unicode/utf8"
)

// NFC of Unicode 9.0 (UAX #15), the version behind the reference's normalizer:
// later combining marks stay where they are and later composites stay apart.

type nfcTables struct {
	ccc    map[rune]uint8
	decomp map[rune]string
	comp   map[[2]rune]rune
}

var nfcData = sync.OnceValue(func() *nfcTables {
	t := &nfcTables{ccc: map[rune]uint8{}, decomp: map[rune]string{}, comp: map[[2]rune]rune{}}
	for _, r := range nfcClass {
		for c := r[0]; c <= r[1]; c++ {
			t.ccc[c] = uint8(r[2])
		}
	}
	for _, s := range nfcDecomp {
		r, n := utf8.DecodeRuneInString(s)
		t.decomp[r] = s[n:]
	}
	for _, s := range nfcComp {
		rs := []rune(s)
		t.comp[[2]rune{rs[1], rs[2]}] = rs[0]
	}
	return t
})

// nfcChange returns the offset of the first code point of b before which
// normalization may change something, or len(b). The text is valid UTF-8.
func nfcChange(b []byte) int {
	for i := 0; i < len(b); {
		if b[i] < utf8.RuneSelf {
			for i++; i+8 <= len(b) && binary.LittleEndian.Uint64(b[i:])&0x8080808080808080 == 0; i += 8 {
			}
			continue
		}
		if isHanLead(b[i]) {
			i += 3
			continue
		}
		r, n := decode(b, i)
		if runeClass(r)&checkNFC != 0 {
			return i
		}
		i += n
	}
	return len(b)
}

// appendNFC appends the normalized form of b to dst. runes is scratch space;
// its grown form is returned. Time is n log n in the longest run of marks.
func appendNFC(dst, b []byte, runes []rune) ([]byte, []rune) {
	for len(b) > 0 {
		i := nfcChange(b)
		if i == len(b) {
			return append(dst, b...), runes
		}
		// The code point before it is a starter that text before cannot
		// change: the segment to work on begins there.
		start := i
		if start > 0 {
			_, n := utf8.DecodeLastRune(b[:start])
			start -= n
		}
		end := i
		for end < len(b) {
			c, n := at(b, end)
			if c&checkNFC == 0 {
				break
			}
			end += n
		}
		dst = append(dst, b[:start]...)
		runes = nfcSegment(runes[:0], b[start:end])
		for _, r := range runes {
			dst = utf8.AppendRune(dst, r)
		}
		b = b[end:]
	}
	return dst, runes
}

const (
	hangulL, hangulV, hangulT, hangulS = 0x1100, 0x1161, 0x11A7, 0xAC00
	numL, numV, numT, numS             = 19, 21, 28, 11172
)

// nfcSegment appends the composed form of one segment to an empty slice.
func nfcSegment(rs []rune, b []byte) []rune {
	t := nfcData()
	for i := 0; i < len(b); {
		r, n := utf8.DecodeRune(b[i:])
		i += n
		switch d, ok := t.decomp[r]; {
		case ok:
			for _, x := range d {
				rs = append(rs, x)
			}
		case r >= hangulS && r < hangulS+numS:
			s := r - hangulS
			rs = append(rs, hangulL+s/(numV*numT), hangulV+s%(numV*numT)/numT)
			if s%numT != 0 {
				rs = append(rs, hangulT+s%numT)
			}
		default:
			rs = append(rs, r)
		}
	}
	// canonical order: a stable sort of every run of marks by class
	for i := 0; i < len(rs); {
		if t.ccc[rs[i]] == 0 {
			i++
			continue
		}
		j := i
		for j < len(rs) && t.ccc[rs[j]] != 0 {
			j++
		}
		slices.SortStableFunc(rs[i:j], func(x, y rune) int { return int(t.ccc[x]) - int(t.ccc[y]) })
		i = j
	}
	out, starter, last := 0, -1, uint8(0) // last: class of the code point before, 0 after a starter
	for _, r := range rs {
		c := t.ccc[r]
		if starter >= 0 && (out == starter+1 || last != 0 && last < c) {
			if x, ok := t.compose(rs[starter], r); ok {
				rs[starter] = x
				continue
			}
		}
		if c == 0 {
			starter = out
		}
		last = c
		rs[out] = r
		out++
	}
	return rs[:out]
}

func (t *nfcTables) compose(a, b rune) (rune, bool) {
	switch {
	case a >= hangulL && a < hangulL+numL && b >= hangulV && b < hangulV+numV:
		return hangulS + ((a-hangulL)*numV+b-hangulV)*numT, true
	case a >= hangulS && a < hangulS+numS && (a-hangulS)%numT == 0 && b > hangulT && b < hangulT+numT:
		return a + b - hangulT, true
	}
	x, ok := t.comp[[2]rune{a, b}]
	return x, ok
}
