package bpe

import (
	"fmt"
	"unicode/utf8"
)

// A model is the vocabulary with its merges: words in, ids out. It is
// immutable after newModel and shared by all goroutines.
type model struct {
	vocab tokens
	pairs *pairs
	seams *seams

	byteLevel    bool
	ignoreMerges bool        // a whole word that is in the vocabulary is taken as it is
	byteID       [256]uint32 // byte level: the token of one byte; byte fallback: <0xNN>; or noID
	fallback     bool        // characters without a token become their <0xNN>
	unk          uint32      // or noID
	fuseUnk      bool

	// spaceAs stands for U+0020 in the vocabulary where the normalizer does
	// nothing but replace spaces (0x2581 for Gemma); else 0.
	spaceAs rune

	single   [256]uint32 // the token of one ASCII character, or noID
	chars    charTable
	asciiVal []uint64 // pair value of two ASCII characters, by first<<7 | second
}

// charTable maps a code point to the token of exactly that character, or noID.
// At byte level it holds a character only if its bytes always end up in that
// token when nothing around them interferes.
type charTable struct {
	index [0x110000 >> pageBits]uint16 // 0: nothing on this page
	pages [][1 << pageBits]uint32
}

func (t *charTable) set(r rune, id uint32) {
	p := &t.index[r>>pageBits]
	if *p == 0 {
		if len(t.pages) == 0 {
			t.pages = append(t.pages, emptyPage) // page 0 is never written
		}
		*p = uint16(len(t.pages))
		t.pages = append(t.pages, emptyPage)
	}
	t.pages[*p][r&(1<<pageBits-1)] = id
}

var emptyPage = func() (p [1 << pageBits]uint32) {
	for i := range p {
		p[i] = noID
	}
	return p
}()

func (t *charTable) get(r rune) uint32 {
	if p := t.index[uint32(r)>>pageBits]; p != 0 {
		return t.pages[p][uint32(r)&(1<<pageBits-1)]
	}
	return noID
}

func newModel(s *spec, rank func(i int) uint32, spaceAs rune) (*model, error) {
	m := &model{vocab: s.vocab, byteLevel: s.byteLevel, ignoreMerges: s.ignoreMerges, unk: noID, fuseUnk: s.fuseUnk, spaceAs: spaceAs}
	m.pairs = newPairs(s.merges, rank)
	for b := range m.byteID {
		m.byteID[b] = noID
	}
	if s.hasUnk {
		if m.unk = m.vocab.find([]byte(s.unk)); m.unk == noID {
			return nil, &BadFile{s.file, "model.unk_token", fmt.Errorf("%q is not in the vocabulary", s.unk)}
		}
	}
	if s.byteLevel {
		for b := range m.byteID {
			if m.byteID[b] = m.vocab.find([]byte{byte(b)}); m.byteID[b] == noID {
				return nil, &Unsupported{s.file, "model.vocab", fmt.Sprintf("a byte-level vocabulary without byte 0x%02X", b)}
			}
		}
	} else if s.byteFallback {
		m.fallback = true
		for b := range m.byteID {
			m.byteID[b] = m.vocab.find(fmt.Appendf(nil, "<0x%02X>", b))
		}
	}
	m.seams = newSeams(m, s.merges)
	m.fillChars(s.merges, rank)
	m.seams.mindUnknown(m)
	for c := range m.single {
		m.single[c] = noID
		if c < utf8.RuneSelf {
			m.single[c] = m.chars.get(rune(c))
		}
	}
	m.asciiVal = make([]uint64, 1<<14)
	for a := range 128 {
		for b := range 128 {
			m.asciiVal[a<<7|b] = none
			l, r := m.chars.get(rune(a)), m.chars.get(rune(b))
			if l != noID && r != noID {
				m.asciiVal[a<<7|b] = m.pairs.find(l, r)
			}
		}
	}
	return m, nil
}

// fillChars finds the token of every character that has one.
//
// At byte level a character may start as its token instead of its bytes if
// the ranks are proper, that is, if every merge ranks after all merges that
// make its parts. Then merges are applied in order of rank, and the merges
// inside a character, with which nothing outside interferes (symbols checks
// that), are over before the first one that uses the character.
func (m *model) fillChars(ms []merge, rank func(int) uint32) {
	proper := true
	if m.byteLevel {
		last := make([]int64, len(m.vocab.spans)) // highest rank that makes the token
		for i := range last {
			last[i] = -1
		}
		for i, x := range ms {
			last[x.joined] = max(last[x.joined], int64(rank(i)))
		}
		for i, x := range ms {
			if int64(rank(i)) <= last[x.left] || int64(rank(i)) <= last[x.right] {
				proper = false
			}
		}
	}
	var s scratch
	for id := range m.vocab.spans {
		b := m.vocab.bytes(uint32(id))
		if len(b) == 0 || len(b) > utf8.UTFMax {
			continue
		}
		r, n := utf8.DecodeRune(b)
		if n != len(b) || r == utf8.RuneError && n == 1 || m.vocab.find(b) != uint32(id) {
			continue
		}
		if m.byteLevel && n > 1 {
			if !proper {
				continue
			}
			s.reset()
			for _, c := range b {
				m.push(&s, m.byteID[c])
			}
			if out := m.merge(nil, &s); len(out) != 1 || out[0] != uint32(id) {
				continue
			}
		}
		m.chars.set(r, uint32(id))
	}
	if m.spaceAs != 0 {
		m.chars.set(' ', m.chars.get(m.spaceAs))
	}
}
