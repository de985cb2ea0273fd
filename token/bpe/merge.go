package bpe

// A scratch is what one Encode needs to work with; it is reused.
type scratch struct {
	sym   []uint32 // symbols of the word
	val   []uint64 // val[i]: what symbols i and i+1 merge into, or none
	prev  []int32  // neighbours, for long words
	next  []int32
	heap  []uint64 // rank<<32 | position
	out   []uint32
	start []int32 // byte offset of each symbol, for windows

	valid       []byte // the text with its invalid bytes replaced
	text, text2 []byte // normalized text, and the one before the last step
	spare       []byte // what a pre-tokenizer made of a segment
	runes       []rune

	merged int // merges done, for tests of growth
}

func (s *scratch) reset() { s.sym, s.val = s.sym[:0], s.val[:0] }

// push appends a symbol and the value of the pair it makes with the last one.
func (m *model) push(s *scratch, id uint32) {
	if n := len(s.sym); n > 0 {
		s.val = append(s.val, m.pairs.find(s.sym[n-1], id))
	}
	s.sym = append(s.sym, id)
}

// smallWord is where a linear search for the lowest rank is cheaper than a heap.
const smallWord = 64

// merge applies the merges to the symbols of s, lowest rank first and leftmost
// among equals, and appends what is left to dst.
func (m *model) merge(dst []uint32, s *scratch) []uint32 {
	if len(s.sym) > smallWord {
		return m.mergeLong(dst, s)
	}
	sym, val := s.sym, s.val
	for len(val) > 0 {
		best, at := none, 0
		for i, v := range val {
			if v < best {
				best, at = v, i
			}
		}
		if best == none {
			break
		}
		s.merged++
		sym[at] = uint32(best)
		copy(sym[at+1:], sym[at+2:])
		sym = sym[:len(sym)-1]
		copy(val[at:], val[at+1:])
		val = val[:len(val)-1]
		if at > 0 {
			val[at-1] = m.pairs.find(sym[at-1], sym[at])
		}
		if at < len(val) {
			val[at] = m.pairs.find(sym[at], sym[at+1])
		}
	}
	return append(dst, sym...)
}

// mergeLong does the same in n log n with a heap and a linked list.
func (m *model) mergeLong(dst []uint32, s *scratch) []uint32 {
	n := len(s.sym)
	sym, val := s.sym, append(s.val, none)
	s.val = val
	s.prev, s.next = grow(s.prev, n), grow(s.next, n)
	prev, next := s.prev, s.next
	h := s.heap[:0]
	for i := range n {
		prev[i], next[i] = int32(i-1), int32(i+1)
		if val[i] != none {
			h = append(h, val[i]&^0xFFFFFFFF|uint64(i))
		}
	}
	for i := len(h)/2 - 1; i >= 0; i-- {
		down(h, i)
	}
	for len(h) > 0 {
		top := h[0]
		at := int32(uint32(top))
		v := val[at]
		if v == none || v>>32 != top>>32 { // merged away, or another pair by now
			h[0] = h[len(h)-1]
			h = h[:len(h)-1]
			down(h, 0)
			continue
		}
		s.merged++
		gone := next[at]
		sym[at] = uint32(v)
		val[gone] = none
		right := next[gone]
		next[at] = right
		val[at] = none
		replaced := false // the top's place is used for the next push
		if int(right) < n {
			prev[right] = at
			if v := m.pairs.find(sym[at], sym[right]); v != none {
				val[at] = v
				h[0] = v&^0xFFFFFFFF | uint64(at)
				replaced = true
			}
		}
		if replaced {
			down(h, 0)
		} else {
			h[0] = h[len(h)-1]
			h = h[:len(h)-1]
			down(h, 0)
		}
		if left := prev[at]; left >= 0 {
			v := m.pairs.find(sym[left], sym[at])
			val[left] = v
			if v != none {
				h = append(h, v&^0xFFFFFFFF|uint64(left))
				up(h)
			}
		}
	}
	s.heap = h
	for i := 0; i < n; i = int(next[i]) {
		dst = append(dst, sym[i])
	}
	return dst
}

func grow(a []int32, n int) []int32 {
	if cap(a) < n {
		return make([]int32, n, n+n/2)
	}
	return a[:n]
}

func down(h []uint64, i int) {
	if i >= len(h) {
		return
	}
	x := h[i]
	for {
		c := 2*i + 1
		if c >= len(h) {
			break
		}
		if c+1 < len(h) && h[c+1] < h[c] {
			c++
		}
		if h[c] >= x {
			break
		}
		h[i] = h[c]
		i = c
	}
	h[i] = x
}

func up(h []uint64) {
	i := len(h) - 1
	x := h[i]
	for i > 0 {
		p := (i - 1) / 2
		if h[p] <= x {
			break
		}
		h[i] = h[p]
		i = p
	}
	h[i] = x
}
