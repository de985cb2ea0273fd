package mock

import "kvasir/kv"

// A hostTier is a second, larger cache in the machine's memory (vLLM's CPU
// offloading): every block that fills on the GPU is written through to it, the
// oldest block leaves when it is full, and a prompt whose blocks have left the
// GPU loads them back over one serial channel, during which its request waits
// and others run. Writing costs the engine no time; loading costs CH per token.
type hostTier struct {
	pool    *Pool
	loads   []*seq  // waiting for their blocks, in order of readiness
	channel float64 // when the channel is free
}

// find counts the leading blocks that the tier holds.
func (h *hostTier) find(blocks []kv.Hash) int { return h.pool.match(blocks) }

// keep writes block k of s through to the tier and announces it; a block that is
// held already becomes the youngest.
func (e *Engine) keep(s *seq, k int) {
	p, hash := e.host.pool, s.r.Blocks[k]
	if i, ok := p.find(hash); ok {
		if p.blocks[i].refs == 0 {
			p.touch(i)
			p.release(i, false)
		}
		return
	}
	if p.free == 0 {
		return // everything is being read
	}
	i, old, evicted := p.take()
	if evicted {
		e.events = append(e.events, Event{Kind: kv.Removed, Tier: kv.Host, N: 1, Hash: old})
	}
	p.name(i, hash)
	p.release(i, false)
	e.emitStored(s, k, 1)
	e.events[len(e.events)-1].Tier = kv.Host
}

// load starts the transfer of the n blocks of s behind those that it refers to.
// The pool has room for them.
func (e *Engine) load(s *seq, n int) {
	h := e.host
	for k := range n {
		i, _ := h.pool.find(s.r.Blocks[s.named+k])
		h.pool.touch(i) // must stay until it is read
		s.pinned = append(s.pinned, i)
		s.slots = append(s.slots, e.take())
	}
	s.ready = max(e.now, h.channel) + float64(float64(n*e.cfg.BlockSize)*e.cfg.Profile.CH)
	h.channel = s.ready
	s.state = loading
	h.loads = append(h.loads, s)
}

// loaded moves the requests whose blocks have come by t to those that prefill.
func (e *Engine) loaded(t float64) {
	h := e.host
	for len(h.loads) > 0 && h.loads[0].ready <= t {
		s := h.loads[0]
		h.loads = h.loads[:copy(h.loads, h.loads[1:])]
		n := len(s.pinned)
		for k := n - 1; k >= 0; k-- {
			h.pool.release(s.pinned[k], false)
		}
		s.pinned = s.pinned[:0]
		if s.aborted {
			s.state = finished
			e.release(s)
			e.forget(s)
			continue
		}
		for k := range n {
			e.pool.name(s.slots[s.named+k], s.r.Blocks[s.named+k])
		}
		e.emitStored(s, s.named, n)
		s.named += n
		s.host = n * e.cfg.BlockSize
		s.hit = s.named * e.cfg.BlockSize
		e.stats.HostHits += s.host
		e.prefill(s)
	}
}
