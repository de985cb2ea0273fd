package mock

import (
	"fmt"
	"math"

	"kvasir/kv"
)

// SubmitAt is Submit with a time in seconds. The simulator uses the methods in
// seconds: rounding to nanoseconds would leave the reference's trajectory.
func (e *Engine) SubmitAt(r *Request, now float64) error {
	if err := r.validate(&e.cfg); err != nil {
		return err
	}
	if _, dup := e.seqs[r.ID]; dup {
		return fmt.Errorf("request %d is in the engine already: IDs must be unique until Done or Abort", r.ID)
	}
	s := e.newSeq(r)
	e.seqs[r.ID] = s
	e.waiting.pushBack(s)
	if !e.busy || e.idle {
		e.start(math.Max(now, e.now))
		return nil
	}
	if e.stride > 1 {
		e.cut(now)
	}
	return nil
}

// NextAt is Next in seconds.
func (e *Engine) NextAt() (at float64, busy bool) { return e.end, e.busy }

// AdvanceAt is Advance in seconds: now is the time that NextAt returned, or later.
func (e *Engine) AdvanceAt(now float64, out *Outcome) {
	out.clear()
	if !e.busy || now < e.end {
		return
	}
	e.complete(now, out)
	if !e.cfg.Instant {
		e.Drain(out)
	}
	e.start(now)
	if e.cfg.Instant {
		e.Drain(out)
	}
}

// Drain appends the events and admissions that are not handed out yet to out.
// With Config.Instant the caller drains after Submit, too.
func (e *Engine) Drain(out *Outcome) {
	out.Events = append(out.Events, e.events...)
	out.Admitted = append(out.Admitted, e.admitted...)
	e.events, e.admitted = e.events[:0], e.admitted[:0]
}

// Poke starts an idle engine that has requests in its queue: the head may have
// waited for another engine on the same Pool.
func (e *Engine) Poke(now float64) {
	if !e.busy && e.waiting.len() > 0 {
		e.start(now)
	}
}

// AbortAt is Abort with a time in seconds.
func (e *Engine) AbortAt(id uint64, now float64) {
	s, ok := e.seqs[id]
	if !ok {
		return
	}
	if s.state == waiting {
		e.waiting.remove(s)
		e.forget(s)
		return
	}
	if !s.aborted {
		s.aborted = true
		if s.state != loading { // dropped when its blocks have come
			e.aborts++
		}
	}
	if e.stride > 1 {
		e.cut(now)
	}
}

// start begins the next step at time t, if there is work (docs/mock.md, "Steps").
func (e *Engine) start(t float64) {
	e.now = t
	e.busy, e.mixed, e.idle, e.stride = false, false, false, 0
	if e.cfg.Admission == Paged {
		e.growDecodes()
	}
	if e.host != nil {
		e.loaded(t)
	}
	tokens, attention := 0, 0.0
	for budget := e.cfg.Profile.Budget - e.nd; budget > 0; {
		if len(e.pref) == 0 {
			if !e.admit() {
				break
			}
			continue // it may have to load first
		}
		s := e.pref[0]
		c := min(budget, s.left)
		if e.cfg.Admission == Paged {
			if !e.fill(s, s.pos+c) {
				if len(e.pref) > 1 { // those loaded from the host hold the rest
					e.preempt()
					continue
				}
				break
			}
		}
		tokens += c
		attention += float64(float64(c) * (float64(s.pos) + float64(c)/2))
		s.pos += c
		s.left -= c
		budget -= c
		if s.left == 0 {
			e.pref = e.pref[:copy(e.pref, e.pref[1:])]
			e.fin = append(e.fin, s)
		}
	}
	p := &e.cfg.Profile
	switch {
	case tokens > 0:
		d := float64(p.C0 + float64(p.CP*float64(tokens)))
		d = float64(d + float64(p.CA*attention))
		d = float64(d + float64(p.CKV*float64(e.kv)))
		d = float64(d + float64(p.CD*float64(e.nd)))
		e.busyFor += d
		e.end = t + d
		e.busy, e.mixed, e.stride = true, true, 1
	case e.nd > 0:
		e.a = float64(float64(p.C0+float64(p.CD*float64(e.nd))) + float64(p.CKV*float64(e.kv)))
		e.b = float64(p.CKV * float64(e.nd))
		e.stride = 1
		if e.cfg.Admission == Reserved && !e.cfg.Stream {
			e.stride = int(e.nextEnding() - e.ds)
		}
		e.end = t + e.strideSeconds(e.stride)
		e.busy = true
	case e.host != nil && len(e.host.loads) > 0:
		e.end = e.host.loads[0].ready
		e.busy, e.idle = true, true
	}
}

// strideSeconds returns how long the first m steps of the decode stride last.
func (e *Engine) strideSeconds(m int) float64 {
	f := float64(m)
	return float64(f*e.a) + float64(float64(float64(e.b*f)*(f-1))/2)
}

// cut ends the decode stride in progress at the first step boundary that is not
// before now. A step with prompt tokens is never cut.
func (e *Engine) cut(now float64) {
	if e.mixed {
		return
	}
	x := now - e.now
	h := e.a - e.b/2
	j := 1
	if e.b > 0 {
		j = max(1, int(math.Ceil((-h+math.Sqrt(float64(h*h)+float64(float64(2*e.b)*x)))/e.b-1e-9)))
	} else if e.a > 0 {
		j = max(1, int(math.Ceil(x/e.a-1e-9)))
	}
	if j < e.stride {
		e.stride = j
		f := float64(j)
		e.end = e.now + float64(f*e.a) + float64(float64(float64(e.b*f)*(f-1))/2)
	}
}

// complete ends the step in progress at time t and reports to out.
func (e *Engine) complete(t float64, out *Outcome) {
	if !e.mixed && !e.idle {
		e.busyFor += t - e.now
	}
	e.now = t
	e.busy, e.idle = false, false
	if e.aborts > 0 {
		e.dropAborted()
	}
	e.ds += int64(e.stride)
	e.kv += e.stride * e.nd
	e.stats.Generated += e.stride * e.nd
	done := e.done[:0]
	for len(e.ends) > 0 && e.nextEnding() <= e.ds {
		s := e.popEnding()
		s.state = finished
		e.nd--
		e.kv -= s.r.Prompt + s.r.Output
		done = append(done, s)
	}
	older := len(e.dec)
	for _, s := range e.fin {
		s.got++
		e.stats.Generated++
		if s.got == 1 {
			s.told = 1
			e.stats.Prompt += s.r.Prompt
			out.Progress = append(out.Progress, Progress{ID: s.r.ID, Tokens: 1, First: true, Cached: s.hit, Host: s.host})
		}
		if s.got >= s.r.Output {
			s.state = finished
			done = append(done, s)
			continue
		}
		e.decode(s)
	}
	e.fin = e.fin[:0]
	if e.cfg.Stream {
		for _, s := range e.dec {
			if n := int(e.ds-s.base) - s.told; n > 0 && s.state == decoding {
				s.told += n
				out.Progress = append(out.Progress, Progress{ID: s.r.ID, Tokens: n})
			}
		}
	}
	if older > 0 && len(done) > 0 {
		e.sweep()
	}
	for _, s := range done {
		out.Progress = append(out.Progress, Progress{ID: s.r.ID, Tokens: s.r.Output - s.told, Done: true})
		e.release(s)
		e.forget(s)
	}
	clear(done)
	e.done = done[:0]
}

// decode moves s, whose prompt is computed and whose got tokens are known, to
// the decoding sequences.
func (e *Engine) decode(s *seq) {
	s.state = decoding
	s.base = e.ds - int64(s.got)
	e.pushEnding(s, e.ds+int64(s.r.Output-s.got))
	e.nd++
	e.kv += s.r.Prompt + s.got
	if e.cfg.Admission == Paged || e.cfg.Stream {
		e.dec = append(e.dec, s)
	}
}

// undecode takes s out of the decoding sequences, but for e.dec.
func (e *Engine) undecode(s *seq) {
	s.got = int(e.ds - s.base)
	e.removeEnding(s)
	e.nd--
	e.kv -= s.r.Prompt + s.got
}

// sweep removes the sequences that no longer decode from e.dec.
func (e *Engine) sweep() {
	keep := e.dec[:0]
	for _, s := range e.dec {
		if s.state == decoding {
			keep = append(keep, s)
		}
	}
	clear(e.dec[len(keep):])
	e.dec = keep
}

// dropAborted removes running requests that were aborted during the step.
func (e *Engine) dropAborted() {
	var gone []*seq
	for _, list := range []*[]*seq{&e.pref, &e.fin} {
		keep := (*list)[:0]
		for _, s := range *list {
			if s.aborted {
				gone = append(gone, s)
			} else {
				keep = append(keep, s)
			}
		}
		*list = keep
	}
	for _, x := range e.ends {
		if x.s.aborted {
			gone = append(gone, x.s)
		}
	}
	for _, s := range gone {
		if s.state == decoding {
			e.undecode(s)
		}
		s.state = finished
	}
	e.sweep()
	for _, s := range gone {
		e.release(s)
		e.forget(s)
	}
	e.aborts = 0
}

func (e *Engine) emitStored(s *seq, first, n int) {
	ev := Event{Kind: kv.Stored, ID: s.r.ID, First: first, N: n, Hashes: s.r.Blocks[first : first+n]}
	if first > 0 {
		ev.Parent = s.r.Blocks[first-1]
	}
	e.events = append(e.events, ev)
}

func (e *Engine) emitRemoved(h kv.Hash) {
	e.events = append(e.events, Event{Kind: kv.Removed, N: 1, Hash: h})
}
