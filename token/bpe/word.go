package bpe

import "unicode/utf8"

// word appends the ids of the pre-token b[i:j]. b is the text around it, so
// that the key can be read in whole machine words.
func (t *Tokenizer) word(dst []uint32, b []byte, i, j int, s *scratch) []uint32 {
	if j-i <= shortKey {
		if j-i == 1 {
			if id := t.model.single[b[i]]; id != noID {
				return append(dst, id)
			}
		}
		k0, k1 := shortWord(b, i, j)
		// getShort, spelled out for a word of one token in the first entry
		l := t.cache.lineOf(k0, k1)
		head, v := l[0].Load(), l[1].Load()
		if l[2].Load() == k0 && l[3].Load() == k1 && v|idMask == ^uint64(0) && head>>headBits&1 == 0 && l[0].Load() == head {
			return append(dst, uint32(v)&idMask)
		}
		if out, ok := t.cache.getShort(dst, k0, k1); ok {
			return out
		}
		return t.miss(dst, b, i, j, 0, k0, k1, s)
	}
	return t.longer(dst, b, i, j, 0, s)
}

// miss encodes a short word, or part of one, that the cache did not know.
func (t *Tokenizer) miss(dst []uint32, b []byte, i, j int, flag uint64, k0, k1 uint64, s *scratch) []uint32 {
	k := [4]uint64{k0, k1}
	if out, ok := t.cache.getLong(dst, &k); ok {
		return out
	}
	was := len(dst)
	dst = t.uncached(dst, b[i:j], flag, s)
	switch n := len(dst) - was; {
	case n == 0:
	case n <= shortIDs:
		t.cache.putShort(k0, k1, dst[was:])
	case n <= longIDs:
		t.cache.putLong(&k, dst[was:])
	}
	return dst
}

// longer is word for more than 15 bytes, and for parts of words. flag is
// partial or 0.
func (t *Tokenizer) longer(dst []uint32, b []byte, i, j int, flag uint64, s *scratch) []uint32 {
	// Long words beyond ASCII are clauses and rarely come again; their parts do.
	if j-i > longKey || flag == 0 && b[j-1] >= utf8.RuneSelf {
		return t.uncached(dst, b[i:j], flag, s)
	}
	k := longWord(b, i, j)
	k[3] |= flag << 56
	out, ok := t.cache.getLong(dst, &k)
	if ok {
		return out
	}
	was := len(dst)
	dst = t.uncached(dst, b[i:j], flag, s)
	if n := len(dst) - was; n > 0 && n <= longIDs {
		t.cache.putLong(&k, dst[was:])
	}
	return dst
}

func (t *Tokenizer) uncached(dst []uint32, b []byte, flag uint64, s *scratch) []uint32 {
	if flag != 0 {
		return t.model.encode(dst, b, s)
	}
	return t.fresh(dst, b, s)
}

// fresh is word without looking for the whole word in the cache.
func (t *Tokenizer) fresh(dst []uint32, b []byte, s *scratch) []uint32 {
	m := t.model
	if m.ignoreMerges && len(b) <= m.vocab.longest {
		if id := m.vocab.find(b); id != noID {
			return append(dst, id)
		}
	}
	for i := 0; i < len(b); {
		j := m.seams.end(b, i)
		if j-i == len(b) {
			return m.encode(dst, b, s)
		}
		dst = t.part(dst, b, i, j, s)
		i = j
	}
	return dst
}

// part appends the ids of b[i:j], a part of a word between two seams. Unlike a
// word it is not taken whole from the vocabulary when ignoreMerges is set.
func (t *Tokenizer) part(dst []uint32, b []byte, i, j int, s *scratch) []uint32 {
	m := t.model
	if c := b[i]; c < utf8.RuneSelf {
		if j == i+1 {
			if id := m.chars.get(rune(c)); id != noID {
				return append(dst, id)
			}
		}
	} else if r, n := decode(b, i); i+n == j {
		if id := m.chars.get(r); id != noID {
			return append(dst, id)
		}
	}
	flag := uint64(0)
	if m.ignoreMerges {
		flag = partial
	}
	if j-i > shortKey {
		return t.longer(dst, b, i, j, partial, s)
	}
	k0, k1 := shortWord(b, i, j)
	k1 |= flag << 56
	if out, ok := t.cache.getShort(dst, k0, k1); ok {
		return out
	}
	return t.miss(dst, b, i, j, partial, k0, k1, s)
}

// end returns the first seam of b behind i, or len(b).
func (z *seams) end(b []byte, i int) int {
	from, at := i, i+runeLen(b[i])
	for at < len(b) {
		if a, c := b[from], b[at]; a < utf8.RuneSelf && c < utf8.RuneSelf {
			if z.ascii[a][c>>6]>>(c&63)&1 == 0 {
				return at
			}
			from, at = at, at+1
			continue
		}
		to := at + runeLen(b[at])
		if z.between(b, from, at, to) == 0 {
			return at
		}
		from, at = at, to
	}
	return len(b)
}

// encode appends the ids of b without a look at the cache.
func (m *model) encode(dst []uint32, b []byte, s *scratch) []uint32 {
	if len(b) > windowBytes {
		return m.windows(dst, b, windowBytes, s)
	}
	m.symbols(b, 0, len(b), s)
	return m.merge(dst, s)
}

// symbols fills s with the symbols of b[i:end] before any merge, seen as a part
// of the word b, and s.start with the offset of each.
func (m *model) symbols(b []byte, i, end int, s *scratch) {
	s.reset()
	s.start = s.start[:0]
	prev := -1 // the ASCII character before, if it was one
	fused := false
	known, right := -1, uint8(0) // what may reach across at this offset
	for i < end {
		c := b[i]
		if c < utf8.RuneSelf {
			if id := m.chars.get(rune(c)); id != noID {
				if prev >= 0 {
					s.val = append(s.val, m.asciiVal[prev<<7|int(c)])
					s.sym = append(s.sym, id)
				} else {
					m.push(s, id)
				}
				s.start = append(s.start, int32(i))
				prev, fused = int(c), false
				i++
				continue
			}
		}
		prev = -1
		if !utf8.RuneStart(c) { // a window may begin inside a character that became bytes
			s.start = append(s.start, int32(i))
			m.push(s, m.byteID[c])
			i++
			continue
		}
		r, n := rune(c), 1
		if c >= utf8.RuneSelf {
			r, n = decode(b, i)
		}
		id := m.chars.get(r)
		if m.byteLevel && len(m.seams.kinds) > 0 {
			left := right
			if i != known {
				left = m.seams.before(b, i, i+n)
			}
			right, known = 0, i+n
			if known < len(b) {
				right = m.seams.between(b, i, known, min(known+runeLen(b[known]), len(b)))
			}
			if left&cutsRight != 0 || right&cutsLeft != 0 {
				id = noID // a token may hold a part of it with something outside
			}
		}
		switch {
		case id != noID:
			s.start = append(s.start, int32(i))
			m.push(s, id)
			fused = false
		case m.byteLevel || m.fallback && m.hasBytes(b[i:i+n]):
			for k := range n {
				s.start = append(s.start, int32(i+k))
				m.push(s, m.byteID[b[i+k]])
			}
			fused = false
		case m.unk != noID && !(m.fuseUnk && fused):
			s.start = append(s.start, int32(i))
			m.push(s, m.unk)
			fused = true
		}
		i += n
	}
}

func (m *model) hasBytes(b []byte) bool {
	for _, c := range b {
		if m.byteID[c] == noID {
			return false
		}
	}
	return true
}

// before is between for the character b[i:j] and the one in front of it.
func (z *seams) before(b []byte, i, j int) uint8 {
	if i == 0 {
		return 0
	}
	from := i - 1
	for from > 0 && !utf8.RuneStart(b[from]) {
		from--
	}
	return z.between(b, from, i, j)
}

const windowBytes = 8 << 10

// windows encodes a word of any length in memory for one window.
//
// Greedy merging has this property: t1 … tn is the encoding of its text if and
// only if every neighbouring pair is the encoding of its own text, because the
// first merge across a boundary would happen in the pair alone just as well.
// So two encodings of overlapping windows may be joined at a token that both
// contain, at the same place, and the result is the encoding of the whole. A
// window starts at a token of the one before; if it does not begin with that
// token, an earlier one is tried, and a larger window if there is none.
func (m *model) windows(dst []uint32, b []byte, size int, s *scratch) []uint32 {
	p := 0
	m.window(b, p, size, s)
	ids, at := append([]uint32(nil), s.out...), append([]int32(nil), s.start...)
	for p+size < len(b) {
		k := len(ids) - 2
		for k > 1 && int(at[k]) > p+size-size/8 {
			k--
		}
		joined := false
		for ; k > 0; k /= 2 {
			m.window(b, int(at[k]), size, s)
			if len(s.out) > 1 && s.out[0] == ids[k] && s.start[1] == at[k+1] {
				joined = true
				break
			}
		}
		if !joined {
			size *= 2
			m.window(b, p, size, s)
			ids, at = append(ids[:0], s.out...), append(at[:0], s.start...)
			continue
		}
		dst = append(dst, ids[:k]...)
		p = int(at[k])
		ids, at = append(ids[:0], s.out...), append(at[:0], s.start...)
	}
	return append(dst, ids...)
}

// window encodes up to size bytes of b from p on: ids to s.out, offsets of
// their first bytes to s.start.
func (m *model) window(b []byte, p, size int, s *scratch) {
	end := min(p+size, len(b))
	for end < len(b) && !utf8.RuneStart(b[end]) {
		end--
	}
	m.symbols(b, p, end, s)
	n := len(s.sym)
	s.out = m.mergeLong(s.out[:0], s) // keeps the links, whatever the length
	k := 0
	for i := 0; i < n; i = int(s.next[i]) {
		s.start[k] = s.start[i]
		k++
	}
	s.start = s.start[:k]
}
