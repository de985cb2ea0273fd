package mock

// A state says where a sequence is.
type state uint8

const (
	waiting    state = iota // in the queue
	prefilling              // in pref or fin
	decoding
	loading // from the host tier
	finished
)

// A seq is a request inside the engine.
type seq struct {
	r       *Request
	state   state
	aborted bool
	hit     int     // prompt tokens found in the cache at the last admission
	pos     int     // next token to compute
	left    int     // tokens left to compute before the next output token
	got     int     // output tokens at the last admission or start of decoding
	told    int     // output tokens reported so far
	base    int64   // decode steps of the engine minus output tokens, while decoding
	slots   []int32 // physical blocks, in order of the tokens
	named   int     // of those, leading ones with findable content (Paged)
	host    int     // of hit, tokens that came from the host tier
	ready   float64 // when its blocks have come from there
	pinned  []int32 // blocks of the host tier that are being read
}

func (e *Engine) newSeq(r *Request) *seq {
	var s *seq
	if n := len(e.spare); n > 0 {
		s, e.spare = e.spare[n-1], e.spare[:n-1]
		*s = seq{slots: s.slots[:0], pinned: s.pinned[:0]}
	} else {
		s = &seq{}
	}
	s.r = r
	return s
}

// forget ends the life of s, which is in no list any more.
func (e *Engine) forget(s *seq) {
	delete(e.seqs, s.r.ID)
	s.r = nil
	e.spare = append(e.spare, s)
}

// A queue is the list of waiting sequences.
type queue struct {
	items []*seq
	head  int
}

func (q *queue) len() int    { return len(q.items) - q.head }
func (q *queue) front() *seq { return q.items[q.head] }
func (q *queue) all() []*seq { return q.items[q.head:] }
func (q *queue) pushBack(s *seq) {
	if q.head > 32 && q.head > len(q.items)/2 {
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
	q.items = append(q.items, s)
}

func (q *queue) popFront() {
	q.items[q.head] = nil
	q.head++
}

func (q *queue) pushFront(s *seq) {
	if q.head == 0 {
		q.items = append(q.items, nil)
		copy(q.items[1:], q.items)
		q.items[0] = s
		return
	}
	q.head--
	q.items[q.head] = s
}

func (q *queue) remove(s *seq) {
	for k, x := range q.all() {
		if x == s {
			at := q.head + k
			q.items = append(q.items[:at], q.items[at+1:]...)
			return
		}
	}
}

// An ending says at which decode step a sequence finishes. Endings form a heap,
// earliest first, then lowest request ID.
type ending struct {
	at int64
	id uint64
	s  *seq
}

func (x ending) before(y ending) bool { return x.at < y.at || x.at == y.at && x.id < y.id }

func (e *Engine) nextEnding() int64 { return e.ends[0].at }

func (e *Engine) pushEnding(s *seq, at int64) {
	e.ends = append(e.ends, ending{at, s.r.ID, s})
	e.up(len(e.ends) - 1)
}

func (e *Engine) popEnding() *seq {
	s := e.ends[0].s
	e.removeEndingAt(0)
	return s
}

func (e *Engine) removeEnding(s *seq) {
	for i, x := range e.ends {
		if x.s == s {
			e.removeEndingAt(i)
			return
		}
	}
}

func (e *Engine) removeEndingAt(i int) {
	n := len(e.ends) - 1
	e.ends[i] = e.ends[n]
	e.ends[n] = ending{}
	e.ends = e.ends[:n]
	if i < n {
		e.down(i)
		e.up(i)
	}
}

func (e *Engine) up(i int) {
	h := e.ends
	for i > 0 {
		p := (i - 1) / 2
		if !h[i].before(h[p]) {
			return
		}
		h[i], h[p] = h[p], h[i]
		i = p
	}
}

func (e *Engine) down(i int) {
	h := e.ends
	for {
		c := 2*i + 1
		if c >= len(h) {
			return
		}
		if c+1 < len(h) && h[c+1].before(h[c]) {
			c++
		}
		if !h[c].before(h[i]) {
			return
		}
		h[i], h[c] = h[c], h[i]
		i = c
	}
}
