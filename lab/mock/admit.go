package mock

// admit moves the head of the queue to the batch, if there is a place and room
// in the pool for it. The head blocks everyone behind it.
func (e *Engine) admit() bool {
	loads := 0
	if e.host != nil {
		loads = len(e.host.loads)
	}
	if e.waiting.len() == 0 || e.nd+len(e.fin)+loads >= e.cfg.Profile.MaxSeqs {
		return false
	}
	s := e.waiting.front()
	if e.cfg.Admission == Reserved {
		if !e.reserve(s) {
			return false
		}
	} else if !e.open(s) {
		return false
	}
	e.waiting.popFront()
	e.admitted = append(e.admitted, s.r.ID)
	e.stats.Queries += s.r.Prompt + s.got
	e.stats.Hits += s.hit
	if s.state != loading {
		e.prefill(s)
	}
	return true
}

// prefill lets s, whose cached part is known, compute the rest.
func (e *Engine) prefill(s *seq) {
	s.pos, s.left = s.hit, s.r.Prompt+s.got-s.hit
	s.state = prefilling
	e.pref = append(e.pref, s)
}

// reserve takes room for the whole of s (docs/mock.md, "Reserved admission").
func (e *Engine) reserve(s *seq) bool {
	p := e.pool
	size := e.cfg.BlockSize
	blocks := s.r.Blocks[:min(len(s.r.Blocks), s.r.Prompt/size)]
	s.slots = s.slots[:0]
	idle, absent, lead := 0, 0, -1
	for k, h := range blocks {
		i, ok := p.find(h)
		if !ok {
			if lead < 0 {
				lead = k
			}
			absent++
			s.slots = append(s.slots, none)
			continue
		}
		if p.blocks[i].refs == 0 {
			idle++
		}
		s.slots = append(s.slots, i)
	}
	if lead < 0 {
		lead = len(blocks)
	}
	private := ceilDiv(s.r.Prompt+s.r.Output, size) - len(blocks)
	if idle+absent+private > p.free {
		s.slots = s.slots[:0]
		return false
	}
	for _, i := range s.slots {
		if i != none {
			p.touch(i)
		}
	}
	for k := 0; k < len(blocks); {
		if s.slots[k] != none {
			k++
			continue
		}
		first := k
		for ; k < len(blocks) && s.slots[k] == none; k++ {
			s.slots[k] = e.take()
			p.name(s.slots[k], blocks[k])
		}
		e.emitStored(s, first, k-first)
	}
	for range private {
		s.slots = append(s.slots, e.take())
	}
	if lead*size >= s.r.Prompt {
		lead--
	}
	s.hit = lead * size
	return true
}

// open finds the cached part of s and refers to it, if the rest of the prompt
// (after a preemption: and of what was generated) has room, too (Paged). The
// last token is always computed, so at most (n-1)/B blocks are used.
func (e *Engine) open(s *seq) bool {
	p := e.pool
	size := e.cfg.BlockSize
	tokens := s.r.Prompt + s.got
	blocks := s.r.Blocks[:min(len(s.r.Blocks), (tokens-1)/size)]
	s.slots = s.slots[:0]
	idle := 0
	for _, h := range blocks {
		i, ok := p.find(h)
		if !ok {
			break
		}
		if p.blocks[i].refs == 0 {
			idle++
		}
		s.slots = append(s.slots, i)
	}
	if ceilDiv(tokens, size)-len(s.slots)+idle > p.free {
		s.slots = s.slots[:0]
		return false
	}
	for _, i := range s.slots {
		p.touch(i)
	}
	s.named = len(s.slots)
	s.hit, s.host = s.named*size, 0
	if e.host != nil {
		if n := e.host.find(blocks[s.named:]); n > 0 {
			e.load(s, n)
		}
	}
	return true
}

// fill gives s the blocks for its first tokens tokens and names those that
// become full. It changes nothing and returns false if the pool has too few.
func (e *Engine) fill(s *seq, tokens int) bool {
	p := e.pool
	size := e.cfg.BlockSize
	more := ceilDiv(tokens, size) - len(s.slots)
	if more > p.free {
		return false
	}
	for range more {
		s.slots = append(s.slots, e.take())
	}
	full := min(tokens/size, len(s.r.Blocks))
	if full > s.named {
		for k := s.named; k < full; k++ {
			p.name(s.slots[k], s.r.Blocks[k])
		}
		e.emitStored(s, s.named, full-s.named)
		if e.host != nil {
			for k := s.named; k < full; k++ {
				e.keep(s, k)
			}
		}
		s.named = full
	}
	return true
}

// growDecodes gives every decoding sequence room for the token that this step
// computes, oldest first. Without room the youngest running request is
// preempted: it loses its blocks and returns to the front of the queue.
func (e *Engine) growDecodes() {
	for k := 0; k < len(e.dec); k++ {
		s := e.dec[k]
		for !e.fill(s, s.r.Prompt+int(e.ds-s.base)) {
			if e.preempt() == s {
				break
			}
		}
	}
}

// preempt puts the youngest running request back into the queue.
func (e *Engine) preempt() *seq {
	var s *seq
	if n := len(e.pref); n > 0 {
		s = e.pref[n-1]
		e.pref = e.pref[:n-1]
	} else {
		n := len(e.dec)
		s = e.dec[n-1]
		e.dec = e.dec[:n-1]
		e.undecode(s)
	}
	e.release(s)
	s.state = waiting
	s.named, s.pos, s.left = 0, 0, 0
	e.waiting.pushFront(s)
	e.stats.Preemptions++
	return s
}

// take takes a block out of the pool, which must have one, and announces what
// is evicted with it.
func (e *Engine) take() int32 {
	i, hash, evicted := e.pool.take()
	if evicted {
		e.emitRemoved(hash)
	}
	return i
}

// release gives the blocks of s back, the tail of the chain first.
func (e *Engine) release(s *seq) {
	for k := len(s.slots) - 1; k >= 0; k-- {
		e.pool.release(s.slots[k], e.cfg.Admission == Reserved)
	}
	s.slots = s.slots[:0]
}
