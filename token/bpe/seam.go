package bpe

import "unicode/utf8"

// seams knows between which neighbouring characters no token of the
// vocabulary reaches across. There every merge stays on its own side, so a
// word may be cut there before merging: the cut is exact, not a guess, because
// a merge across the seam would have to make a token that spans it. Pairs are
// kept in a hashed bitmap; a collision only costs a cut.
//
// At byte level a token may hold a part of a character. Real vocabularies have
// a few hundred such seams, so they have filters of their own that fit into the
// first-level cache and mostly say no.
type seams struct {
	ascii [128][2]uint64 // bit b of row a: a token spans a|b
	whole []uint64       // hashed pairs of whole characters
	shift uint

	kinds []kind
	parts [1 << partBits / 64]uint64 // hashed pairs with a part on at least one side
	lefts [1 << leftBits / 64]uint64 // hashed whole characters and the first byte of a part on their right
	tails [256][4]uint64             // last byte left, first byte right, of a part on the left

	// Characters without a token matter where a run of them becomes one unk
	// (fuse), or where they vanish and their neighbours meet (drop).
	chars      *charTable
	fuse, drop bool
}

const (
	partBits = 14
	leftBits = 12
)

// A kind of seam: the last left bytes of the character on the left and the
// first right bytes of that on the right are in the token; 0 means all.
type kind struct{ left, right int }

const (
	spanned   = 1 << iota // a token reaches across
	cutsLeft              // one that holds a part of the left character
	cutsRight             // one that holds a part of the right character
)

func newSeams(m *model, ms []merge) *seams {
	z := &seams{}
	words := 10
	for 1<<words < len(ms)/8 { // 8 bits or more for each merge
		words++
	}
	words = min(words, 14)
	z.whole, z.shift = make([]uint64, 1<<words), uint(64-words)
	seen := map[kind]bool{}
	done := make([]bool, len(m.vocab.spans))
	for _, x := range ms {
		if !done[x.joined] {
			done[x.joined] = true
			z.enter(m.vocab.bytes(x.joined), m.spaceAs, seen)
		}
	}
	for k := range seen {
		z.kinds = append(z.kinds, k)
	}
	return z
}

// enter adds all seams inside one token.
func (z *seams) enter(t []byte, spaceAs rune, seen map[kind]bool) {
	for i := 1; i < len(t); i++ {
		if !utf8.RuneStart(t[i]) {
			continue
		}
		from := i - 1
		for from > 0 && !utf8.RuneStart(t[from]) {
			from--
		}
		var k kind
		if !utf8.RuneStart(t[from]) {
			k.left = i - from
		}
		to := i + runeLen(t[i])
		if to > len(t) {
			to = len(t)
			k.right = to - i
		}
		l, r := pack(t[from:i]), pack(t[i:to])
		if k != (kind{}) {
			seen[k] = true
			h := pairHash(l, r)
			z.parts[h>>(64-partBits+6)] |= 1 << (h & 63)
			if k.left == 0 {
				h = pairHash(l, uint32(t[i]))
				z.lefts[h>>(64-leftBits+6)] |= 1 << (h & 63)
			} else {
				z.tails[t[i-1]][t[i]>>6] |= 1 << (t[i] & 63)
			}
			continue
		}
		z.set(l, r)
		if spaceAs != 0 { // the raw text has a space where the token has its substitute
			s := pack(utf8.AppendRune(nil, spaceAs))
			if l == s {
				z.set(' ', r)
			}
			if r == s {
				z.set(l, ' ')
			}
			if l == s && r == s {
				z.set(' ', ' ')
			}
		}
	}
}

// runeLen is the length that the first byte of a character announces.
func runeLen(c byte) int {
	switch {
	case c < 0xC0:
		return 1
	case c < 0xE0:
		return 2
	case c < 0xF0:
		return 3
	}
	return 4
}

// pack spells up to four bytes as a number. Whole characters, their heads and
// their tails never give the same one.
func pack(b []byte) uint32 {
	var x uint32
	for _, c := range b {
		x = x<<8 | uint32(c)
	}
	return x
}

func (z *seams) set(l, r uint32) {
	if l < utf8.RuneSelf && r < utf8.RuneSelf {
		z.ascii[l][r>>6] |= 1 << (r & 63)
		return
	}
	h := pairHash(l, r)
	z.whole[h>>z.shift] |= 1 << (h & 63)
}

func pairHash(l, r uint32) uint64 {
	h := (uint64(l)<<32 | uint64(r)) * mix1
	h ^= h >> 29
	return h * mix2
}

// between tells what may reach across from the character b[from:at] to
// b[at:to].
func (z *seams) between(b []byte, from, at, to int) (flags uint8) {
	if a, c := b[from], b[at]; a < utf8.RuneSelf && c < utf8.RuneSelf {
		return uint8(z.ascii[a][c>>6] >> (c & 63) & 1)
	}
	l, r := pack(b[from:at]), pack(b[at:to])
	h := pairHash(l, r)
	flags = uint8(z.whole[h>>(z.shift&63)] >> (h & 63) & 1) // spanned
	if len(z.kinds) > 0 {
		h = pairHash(l, uint32(b[at]))
		if z.lefts[h>>(64-leftBits+6)]>>(h&63)&1 != 0 || z.tails[b[at-1]][b[at]>>6]>>(b[at]&63)&1 != 0 {
			flags |= z.partsBetween(l, r, at-from, to-at)
		}
	}
	if flags == 0 && z.unknown(b[from:at], b[at:to]) {
		flags = spanned
	}
	return flags
}

// partsBetween is the rare part of between: l and r have wl and wr bytes.
func (z *seams) partsBetween(l, r uint32, wl, wr int) (flags uint8) {
	for _, k := range z.kinds {
		if k.left >= wl || k.right >= wr {
			continue
		}
		x, y := l, r
		if k.left > 0 {
			x &= 1<<(8*k.left) - 1
		}
		if k.right > 0 {
			y >>= 8 * (wr - k.right)
		}
		h := pairHash(x, y)
		if z.parts[h>>(64-partBits+6)]>>(h&63)&1 == 0 {
			continue
		}
		flags |= spanned
		if k.left > 0 {
			flags |= cutsLeft
		}
		if k.right > 0 {
			flags |= cutsRight
		}
	}
	return flags
}

// unknown says whether there is no seam between two characters because of what
// becomes of those that have no token.
func (z *seams) unknown(left, right []byte) bool {
	if !z.fuse && !z.drop {
		return false
	}
	l, _ := utf8.DecodeRune(left)
	r, _ := utf8.DecodeRune(right)
	a, c := z.chars.get(l) == noID, z.chars.get(r) == noID
	return z.fuse && a && c || z.drop && (a || c)
}

// mindUnknown makes seams heed the characters that m has no token for.
func (z *seams) mindUnknown(m *model) {
	if m.byteLevel {
		return
	}
	if m.fallback {
		all := make([]byte, 256)
		for i := range all {
			all[i] = byte(i)
		}
		if m.hasBytes(all) {
			return
		}
	}
	z.chars, z.fuse, z.drop = &m.chars, m.unk != noID && m.fuseUnk, m.unk == noID
	for a := range 128 {
		for c := range 128 {
			if z.unknown([]byte{byte(a)}, []byte{byte(c)}) {
				z.set(uint32(a), uint32(c))
			}
		}
	}
}
