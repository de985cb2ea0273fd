package sim

import "kvasir/kv"

// Sums are what a workload asks for, whatever serves it.
type Sums struct {
	Requests int
	Sessions int
	Prompt   int // tokens
	Output   int // tokens
	// Reused is how many prompt tokens one endless cache would find, of whole blocks
	// and never all of a prompt.
	Reused int
	Closed bool    // a closed loop: its rate is the fleet's doing
	Users  int     // closed loop: sessions at a time
	Span   float64 // open loop: from the first arrival to the last, s
}

// Sums plays the workload on a fleet that takes no time.
func (w *Workload) Sums() Sums {
	s := Sums{Closed: w.closed != nil}
	seen := map[kv.Hash]bool{}
	convs := map[int32]bool{}
	first := 0.0
	count := func(q *request) {
		if s.Requests == 0 {
			first = q.arrival
		}
		hit := 0
		for hit < q.prompt && seen[q.Blocks[hit]] {
			hit++
		}
		for _, b := range q.blocks()[hit:] {
			seen[b] = true
		}
		convs[q.conv] = true
		s.Requests++
		s.Prompt += q.Prompt
		s.Output += q.Output
		s.Reused += max(0, min(hit*w.size, q.Prompt-1))
		s.Span = q.arrival - first
	}
	src := w.start(false)
	var queue eventQueue
	at := func(q *request) { queue.push(event{at: q.arrival, q: q}) }
	src.begin(at)
	s.Users = queue.len()
	for q, ok := src.next(); ok; q, ok = src.next() {
		count(q)
	}
	for queue.len() > 0 {
		ev := queue.pop()
		count(ev.q)
		src.ended(ev.q, ev.at, at)
	}
	s.Sessions = len(convs)
	if s.Closed {
		s.Span = 0
	}
	return s
}
