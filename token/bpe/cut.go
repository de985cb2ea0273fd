package bpe

import "unicode/utf8"

// cuts says which kinds of places are safe to cut for one tokenizer.
type cuts struct {
	words bool                  // between a letter and white space, punctuation or a symbol
	lines bool                  // between a line end and what is not white space
	blank bool                  // in words, only in front of white space
	seams bool                  // wherever no token of the vocabulary reaches across
	inner *[1 << 16 / 64]uint64 // neighbouring bytes inside of added tokens
	slash bool                  // a slash belongs to the line ends before it
}

// newCuts reasons once about what CutBefore may do.
func newCuts(t *Tokenizer) cuts {
	c := cuts{inner: new([1 << 16 / 64]uint64)}
	for _, a := range t.added {
		for _, s := range []string{a.Content, t.norm.string(a.Content)} {
			for i := 1; i < len(s); i++ {
				k := uint(s[i-1])<<8 | uint(s[i])
				c.inner[k>>6] |= 1 << (k & 63)
			}
		}
	}
	for _, p := range t.norm.steps {
		if !p.nfc {
			return cuts{} // a change of text at the start of a segment, or anywhere
		}
	}
	switch {
	case t.pre.meta != nil:
		return cuts{}
	case len(t.pre.stages) == 0:
		c.seams = !t.model.ignoreMerges && len(t.norm.steps) == 0 && !t.pre.space
	case len(t.pre.stages) == 1 && t.pre.stages[0].kind == splitScan && t.pre.stages[0].join == isolated:
		switch p := &t.pre.stages[0].scan; p.kind {
		case scanWords, scanCases, scanDeepSeek:
			c.words, c.lines, c.slash = true, true, p.slash
		case scanGPT2: // \s+(?!\S) sees whether something follows the line end
			c.words = true
		}
	}
	if t.pre.space { // a space would be put in front of the second part
		c.lines, c.blank = false, true
	}
	for _, set := range []*addedSet{t.raw, t.normalized} {
		if set == nil {
			continue
		}
		for _, a := range set.tokens {
			if a.SingleWord {
				return cuts{} // depends on what stands beside it
			}
			if a.LStrip { // takes line ends before it along
				c.lines, c.seams = false, false
			}
			if a.RStrip { // takes white space behind it along
				c.words, c.seams = false, false
			}
		}
	}
	return c
}

// CutBefore returns the last offset c <= at where it is certain that a text may
// be cut: for every text x that begins with text[:at], Encode(x) is Encode(x[:c])
// followed by Encode(x[c:]), both without special tokens. 0 is always such a
// place, and the answer for a tokenizer of which nothing better is known.
//
// It looks back from at until it finds one, which is mostly a few bytes. The
// reasons, by kind of place: no expression in use lets a match go on from a
// letter to white space or punctuation, or from a line end to anything but
// white space; neither looks ahead over such a place; no merge, no added token
// and no composition of NFC reaches across.
func (t *Tokenizer) CutBefore(text []byte, at int) int {
	z := &t.cuts
	b := text[:min(max(at, 0), len(text))]
	if !z.words && !z.lines && !z.seams {
		return 0
	}
	// The last character may be cut off itself: nothing is said about it.
	end := len(b)
	for k := 0; end > 0 && k < utf8.UTFMax && b[end-1] >= utf8.RuneSelf; k++ {
		end--
	}
	for i := end - 1; i > 0; i-- {
		if utf8.RuneStart(b[i]) && z.safe(t, b, i) {
			return i
		}
	}
	return 0
}

// safe says whether b may be cut at i, in front of a whole character.
func (z *cuts) safe(t *Tokenizer, b []byte, i int) bool {
	pair := uint(b[i-1])<<8 | uint(b[i])
	if z.inner[pair>>6]>>(pair&63)&1 != 0 {
		return false
	}
	r, n := utf8.DecodeRune(b[i:])
	if r == utf8.RuneError || runeClass(r)&checkNFC != 0 {
		return false
	}
	p, w := utf8.DecodeLastRune(b[:i])
	if p == utf8.RuneError {
		return false
	}
	if z.seams {
		return t.model.chars.get(p) != noID && t.model.chars.get(r) != noID && t.model.seams.between(b, i-w, i, i+n) == 0
	}
	c := runeClass(r)
	switch {
	case z.words && in(runeClass(p), setL):
		return r == ' ' || !z.blank && (in(c, setSpace) || in(c, setP|setS) && r != '\'' && hanKanaLen(b, i) == 0)
	case z.lines && (p == '\n' || p == '\r'):
		return !in(c, setSpace) && !(z.slash && r == '/')
	}
	return false
}
