package proxy

import (
	"io"
	"time"

	"kvasir/sched"
)

// relayStream passes on a stream of events. It holds the answer back until the first
// content, see release; from there on, every read is one flushed write.
func (a *attempt) relayStream(buf []byte) (Reason, sched.Outcome) {
	c := a.c
	a.watch = newWatcher()
	a.watch.anything = !c.rt.generate
	a.watch.ask = c.stores()
	if c.asked {
		a.strip = new(stripper)
	}
	a.mu.Lock()
	a.stream = true
	a.mu.Unlock()
	a.clock.Reset(min(c.p.cfg.HoldFor, time.Until(a.limit)))
	for {
		n, err := a.resp.Body.Read(buf)
		now := time.Now()
		a.moved.Store(int64(now.Sub(a.began)))
		if n > 0 {
			whole := a.watch.done
			sick, werr := a.pass(buf[:n], now)
			if werr != nil && whole {
				return a.endOfStream(io.EOF, now)
			}
			if werr != nil {
				return None, sched.Cancelled
			}
			if sick && err == nil {
				return a.endOfStream(nil, now)
			}
		}
		if err != nil {
			return a.endOfStream(err, now)
		}
	}
}

// pass sends p, or holds it back until there is content. It reports whether the
// engine has given up while another one may still take the request.
func (a *attempt) pass(p []byte, now time.Time) (sick bool, err error) {
	if a.phase != waiting {
		a.watch.events.feed(p)
		a.progress(now, false)
		if p = a.stripped(p); len(p) == 0 {
			return false, nil
		}
		return false, a.write(p)
	}
	switch sick = a.hold(p); {
	case a.phase == flowing:
		a.firstContent(now)
		a.progress(now, false)
		a.clock.Reset(a.c.p.cfg.Idle)
		a.head()
		a.c.start()
	case sick || !a.writing.Load():
		return sick, nil
	}
	err = a.write(a.c.held)
	a.c.held = a.c.held[:0]
	return false, err
}

// hold takes p to what is held back. Afterwards the attempt flows if there is content,
// or writing is set if what is held must go out all the same; then held is the handler's.
func (a *attempt) hold(p []byte) (sick bool) {
	c := a.c
	a.mu.Lock()
	defer a.mu.Unlock()
	a.await()
	a.watch.events.feed(p)
	if a.watch.id != "" {
		a.keeps(a.watch.id)
		a.watch.id = ""
	}
	p = a.stripped(p)
	c.held = append(c.held, p...)
	if len(c.held) > c.p.cfg.HoldBytes {
		a.released = true
	}
	switch {
	case a.watch.content:
		a.phase, a.released = flowing, true
	case c.stage != started && a.watch.trouble() != None:
		return true
	case a.released:
		a.writing.Store(a.commit())
	}
	return false
}

// stripped returns what the client gets of p.
func (a *attempt) stripped(p []byte) []byte {
	if a.strip == nil {
		return p
	}
	return a.strip.filter(p)
}

// release sends what was held back long enough; the caller, the clock, holds mu, which is
// free during the write. Comments (keep alives) commit to no engine: after them another
// one may still take the request.
func (a *attempt) release() {
	c := a.c
	a.released = true
	whole := a.commit()
	held := []byte(nil)
	if whole {
		held, c.held = c.held, nil
	}
	a.moved.Store(int64(time.Since(a.began)))
	a.writing.Store(true)
	a.sent = make(chan struct{})
	a.clock.Reset(c.p.cfg.Idle)
	a.mu.Unlock()
	err := a.write(held)
	a.mu.Lock()
	close(a.sent)
	a.sent = nil
	switch {
	case err != nil:
		a.cancel(errSlow) // or it has gone
	case a.phase == waiting:
		a.clock.Reset(time.Until(a.limit))
	}
}

// commit readies the head, and says by the call's stage what the client will have with
// what is held. It reports whether that can be sent: of the start of an event the rest
// must come first. The caller holds mu.
func (a *attempt) commit() bool {
	c := a.c
	a.head()
	switch {
	case c.stage == started:
	case a.watch.seen > 0 || len(c.held) > c.p.cfg.HoldBytes:
		c.start()
	case !a.watch.events.between():
		c.stage = preamble
		return false
	default:
		c.stage = preamble
	}
	return true
}

// endOfStream ends a stream, whole or not. err is io.EOF, or what broke it, or nil if
// the engine itself gave up before any content.
func (a *attempt) endOfStream(err error, now time.Time) (Reason, sched.Outcome) {
	c := a.c
	a.enter(ending)
	w := a.watch
	w.settle()
	a.progress(now, true)
	a.served()
	why := w.trouble()
	if a.clientGone() {
		if w.done && why == None { // it has all, and many clients leave as soon as they see the end mark
			a.note(None, nil)
			return None, sched.Completed
		}
		return None, sched.Cancelled
	}
	switch {
	case why != None:
	case err != io.EOF && err != nil:
		why = reasonOf(a.ctx, err)
	case w.seen == 0 && !w.done:
		why = Broken // 200, and then nothing at all
	}
	if why != None {
		a.note(why, err)
	}
	switch {
	case c.stage != started && why != None: // another engine may
		if (why == ServerError || why == Aborting) && c.stage == nothing && len(c.held) <= 2*maxKept {
			if !w.done && c.dialect == openAI && err == nil {
				c.held = append(c.held, "data: [DONE]\n\n"...) // not waited for
			}
			a.remember()
		}
		return why, sched.Failed
	case err != io.EOF && err != nil:
		if a.strip != nil || w.events.between() {
			c.endStream(engineProblem(why), w.seen)
		} else {
			c.abort = true // in the middle of an event nothing can be added
		}
		return None, sched.Failed
	}
	if c.stage != started { // complete, with nothing to say
		a.d.FirstToken(now)
		a.head()
		c.start()
	}
	if a.strip != nil {
		c.held = append(c.held, a.strip.open...)
	}
	if len(c.held) > 0 && a.write(c.held) != nil {
		return None, sched.Cancelled
	}
	c.held = c.held[:0]
	a.trailer()
	if why != None { // the engine's own error event, in its own words
		return None, sched.Failed
	}
	a.note(None, nil)
	return None, sched.Completed
}

// endStream ends a stream that the client has the start of with an error. seq is the
// number of events before it.
func (c *call) endStream(e problem, seq int) {
	c.w.Write(e.event(c.dialect, seq)) // an error here means that the client has gone
	c.flush()
}
