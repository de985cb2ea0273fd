package bpe

import (
	"bytes"
	"slices"
	"unicode"
	"unicode/utf8"
)

// addedSet finds added tokens in a text: the leftmost, and of those that start
// there the longest.
type addedSet struct {
	tokens []AddedToken
	first  [256]bool // bytes that start a token
	only   int       // the one byte that does, or -1
	second [1 << 16 / 64]uint64
	nodes  []trieNode
	edges  []trieEdge
}

type trieNode struct {
	edges, n int32 // into addedSet.edges, in order of byte
	token    int32 // into tokens, -1 if none ends here
}

type trieEdge struct {
	c  byte
	to int32
}

func newAddedSet(ts []AddedToken, content func(string) string) *addedSet {
	if len(ts) == 0 {
		return nil
	}
	a := &addedSet{only: -1}
	type word struct {
		b []byte
		i int32
	}
	var words []word
	for _, t := range ts {
		if b := []byte(content(t.Content)); len(b) > 0 {
			words = append(words, word{b, int32(len(a.tokens))})
			a.tokens = append(a.tokens, t)
		}
	}
	if len(words) == 0 {
		return nil
	}
	slices.SortStableFunc(words, func(x, y word) int { return bytes.Compare(x.b, y.b) })
	count := 0
	for _, w := range words {
		if !a.first[w.b[0]] {
			a.first[w.b[0]] = true
			a.only = int(w.b[0])
			count++
		}
		if len(w.b) == 1 {
			for c := range 256 {
				a.setSecond(w.b[0], byte(c))
			}
		} else {
			a.setSecond(w.b[0], w.b[1])
		}
	}
	if count > 1 {
		a.only = -1
	}
	var build func(ws []word, depth int) int32
	build = func(ws []word, depth int) int32 {
		me := int32(len(a.nodes))
		a.nodes = append(a.nodes, trieNode{token: -1})
		for len(ws) > 0 && len(ws[0].b) == depth {
			a.nodes[me].token = ws[0].i // of equal contents the last counts
			ws = ws[1:]
		}
		var groups [][]word
		for len(ws) > 0 {
			k := 1
			for k < len(ws) && ws[k].b[depth] == ws[0].b[depth] {
				k++
			}
			groups = append(groups, ws[:k])
			ws = ws[k:]
		}
		at := int32(len(a.edges))
		a.nodes[me].edges, a.nodes[me].n = at, int32(len(groups))
		a.edges = append(a.edges, make([]trieEdge, len(groups))...)
		for i, g := range groups {
			to := build(g, depth+1)
			a.edges[at+int32(i)] = trieEdge{g[0].b[depth], to}
		}
		return me
	}
	build(words, 0)
	return a
}

func (a *addedSet) setSecond(c, d byte) {
	k := uint(c)<<8 | uint(d)
	a.second[k>>6] |= 1 << (k & 63)
}

// find returns the next match at or behind i: its ends and its token, or
// nil.
func (a *addedSet) find(b []byte, i int) (start, end int, t *AddedToken) {
	for i < len(b) {
		if a.only >= 0 {
			k := bytes.IndexByte(b[i:], byte(a.only))
			if k < 0 {
				break
			}
			i += k
		} else {
			for i < len(b) && !a.first[b[i]] {
				i++
			}
			if i == len(b) {
				break
			}
		}
		if i+1 < len(b) {
			if k := uint(b[i])<<8 | uint(b[i+1]); a.second[k>>6]>>(k&63)&1 == 0 {
				i++
				continue
			}
		}
		if e, k := a.match(b, i); k >= 0 {
			return i, e, &a.tokens[k]
		}
		i++
	}
	return len(b), len(b), nil
}

// match returns the longest token that starts at i, or -1.
func (a *addedSet) match(b []byte, i int) (end int, token int32) {
	node, token := &a.nodes[0], int32(-1)
walk:
	for j := i; j < len(b); j++ {
		es := a.edges[node.edges : node.edges+node.n]
		lo, hi := 0, len(es)
		for lo < hi {
			mid := (lo + hi) / 2
			if es[mid].c < b[j] {
				lo = mid + 1
			} else {
				hi = mid
			}
		}
		if lo == len(es) || es[lo].c != b[j] {
			break walk
		}
		node = &a.nodes[es[lo].to]
		if node.token >= 0 {
			token, end = node.token, j+1
		}
	}
	return end, token
}

// span applies single_word, lstrip and rstrip to a match in the text b of which
// everything before from is taken. ok is false if the match does not count.
func (t *AddedToken) span(b []byte, from, start, end int) (s, e int, ok bool) {
	if t.SingleWord && (wordBefore(b, start) || wordAt(b, end)) {
		return 0, 0, false
	}
	if t.LStrip {
		for start > from {
			c, n := before(b, start)
			if !in(c, setSpace) || start-n < from {
				break
			}
			start -= n
		}
	}
	if t.RStrip {
		for end < len(b) {
			c, n := at(b, end)
			if !in(c, setSpace) {
				break
			}
			end += n
		}
	}
	return start, end, true
}

func wordBefore(b []byte, i int) bool {
	if i == 0 {
		return false
	}
	r, _ := utf8.DecodeLastRune(b[:i])
	return wordRune(r)
}

func wordAt(b []byte, i int) bool {
	if i >= len(b) {
		return false
	}
	r, _ := utf8.DecodeRune(b[i:])
	return wordRune(r)
}

// wordRune is \w of UTS #18: letters, marks, decimal digits, connectors,
// joiners and what else is alphabetic.
func wordRune(r rune) bool {
	return in(runeClass(r), setL|setM|setNd) || r == 0x200C || r == 0x200D ||
		unicode.In(r, unicode.Pc, unicode.Nl, unicode.Other_Alphabetic)
}
