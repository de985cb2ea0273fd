package proxy

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"kvasir/sched"
)

// chunks are the buffers that answers pass through.
var chunks = sync.Pool{New: func() any { return new([16 << 10]byte) }}

// maxKept bounds an answer that is kept back because another engine may do better,
// in bytes.
const maxKept = 64 << 10

// relay passes an engine's answer on to the client.
func (a *attempt) relay() (Reason, sched.Outcome) {
	resp, c := a.resp, a.c
	buf := chunks.Get().(*[16 << 10]byte)
	defer chunks.Put(buf)

	why := c.p.reasonOfStatus(resp.StatusCode, c.rt)
	if c.seeking != "" {
		why = a.sought(why)
	}
	events, document := a.kind()
	switch {
	case c.stage != nothing && !events:
		return a.refused(buf[:], why)
	case why != None:
		return a.keep(buf[:], why)
	case events:
		return a.relayStream(buf[:])
	case c.rt.generate && (document || a.short()):
		return a.relayWhole(buf[:])
	}
	return a.relayRaw(buf[:])
}

// kind reports whether the answer is a stream of events, or one JSON document.
func (a *attempt) kind() (events, document bool) {
	if a.resp.StatusCode != http.StatusOK {
		return false, false
	}
	typ, _, _ := strings.Cut(a.resp.Header.Get("Content-Type"), ";")
	typ = strings.TrimSpace(typ)
	if a.resp.Header.Get("Content-Encoding") != "" {
		return false, false // not to be read, only to be passed on
	}
	if typ == "" {
		return a.c.f.stream && a.c.rt.generate, false
	}
	return strings.EqualFold(typ, "text/event-stream"), strings.EqualFold(typ, "application/json")
}

// short reports whether an answer of some other kind is short enough to be held back to its
// end, so that another engine may do better if it breaks off.
func (a *attempt) short() bool {
	n := a.resp.ContentLength
	return a.resp.StatusCode == http.StatusOK && n >= 0 && n <= int64(a.c.p.cfg.HoldBytes)
}

// refused tells the client, who has the head of a stream that died before its first
// content, that this engine won't go on with it.
func (a *attempt) refused(buf []byte, why Reason) (Reason, sched.Outcome) {
	status := a.resp.StatusCode
	if why == None && status < 400 {
		why = ServerError // an answer, but of another kind
	}
	if why != None {
		a.note(why, nil)
		return why, sched.Failed
	}
	n, _ := io.ReadFull(a.resp.Body, buf[:min(len(buf), 1<<10)]) // as much as there is
	a.c.endStream(problem{
		status: status, typ: "invalid_request_error", code: "engine_refused",
		message: "the engine that took the request over answered " + strconv.Itoa(status) + ": " + string(buf[:n]),
	}, 0)
	return None, sched.Completed
}

// keepTime bounds the wait for the body of an answer that only matters if no engine does
// better.
const keepTime = time.Second

// keep keeps an answer that asks for another engine: the client gets it only if
// there is none.
func (a *attempt) keep(buf []byte, why Reason) (Reason, sched.Outcome) {
	c := a.c
	a.clock.Reset(min(keepTime, c.p.cfg.Idle))
	for {
		n, err := a.resp.Body.Read(buf)
		c.held = append(c.held, buf[:n]...)
		switch {
		case err == io.EOF:
			a.remember()
			if why == Elsewhere {
				a.note(None, nil)
				return why, sched.Completed
			}
			a.note(why, nil)
			return why, sched.Failed
		case context.Cause(a.ctx) == errSilent: // its head has said enough, and the rest doesn't come
			a.note(why, nil)
			return why, sched.Failed
		case err != nil:
			return a.broke(err)
		case len(c.held) > maxKept: // too much to keep: then this is the answer
			if why != Elsewhere {
				a.note(why, nil)
			}
			return a.relayRaw(buf)
		}
	}
}

// remember keeps what is held as the answer to give if no engine does better.
func (a *attempt) remember() {
	c := a.c
	c.last = answer{a.resp.StatusCode, a.resp.Header, append([]byte(nil), c.held...), a.d.Replica.Name}
}

// relayWhole passes on an answer that is one JSON document. It is held back until
// its end, within bounds, for it may be an error, or an abort, that another engine
// does better.
func (a *attempt) relayWhole(buf []byte) (Reason, sched.Outcome) {
	c := a.c
	a.watch = newWatcher()
	for {
		n, err := a.resp.Body.Read(buf)
		now := time.Now()
		if n > 0 {
			a.flow(now)
			c.held = append(c.held, buf[:n]...)
		}
		if err == io.EOF {
			a.watch.whole(c.held)
			break
		}
		if err != nil {
			return a.broke(err)
		}
		if len(c.held) > c.p.cfg.HoldBytes {
			return a.relayRaw(buf)
		}
	}
	if why := a.watch.trouble(); why != None {
		a.remember()
		a.note(why, nil)
		return why, sched.Failed
	}
	a.watch.settle()
	a.progress(time.Now(), true)
	a.served()
	if c.stores() {
		a.keeps(storedID(c.held))
	}
	a.start()
	if a.writeRaw(c.held) != nil {
		return None, sched.Cancelled
	}
	a.trailer()
	return None, sched.Completed
}

// flow turns the clock from the wait for the first byte to the wait for the next.
func (a *attempt) flow(now time.Time) {
	a.moved.Store(int64(now.Sub(a.began)))
	if a.phase != waiting {
		return
	}
	a.enter(flowing)
	a.clock.Reset(a.c.p.cfg.Idle)
	if a.resp.StatusCode < 300 {
		a.firstContent(now)
	}
}

// relayRaw passes on what is neither a stream of events nor an answer to wait for:
// errors of the client's, lists, audio, and answers that are long. What is held
// already goes first.
func (a *attempt) relayRaw(buf []byte) (Reason, sched.Outcome) {
	c := a.c
	good := a.resp.StatusCode < 300
	var tail []byte // of an answer that was too long to be read whole
	if a.watch != nil {
		tail = append(tail, c.held[max(0, len(c.held)-maxTail):]...)
		if c.stores() {
			a.keeps(storedID(c.held))
		}
	}
	a.start()
	err := a.writeRaw(c.held)
	if a.resp.ContentLength < 0 && len(c.held) == 0 {
		err = a.write(nil) // the headers, for there may be nothing for long
	}
	c.held = c.held[:0]
	for err == nil {
		var n int
		n, err = a.resp.Body.Read(buf)
		if n > 0 {
			a.flow(time.Now())
			if a.watch != nil {
				tail = keepTail(tail, buf[:n])
			}
			if werr := a.writeRaw(buf[:n]); werr != nil {
				return None, sched.Cancelled
			}
		}
	}
	switch {
	case a.clientGone():
		return None, sched.Cancelled
	case err != io.EOF:
		a.note(reasonOf(a.ctx, err), err)
		c.abort = true
		return None, sched.Failed
	}
	if a.watch != nil {
		a.watch.usage = tailUsage(tail)
		a.watch.settle()
		a.progress(time.Now(), true)
		a.served()
	}
	a.trailer()
	if good {
		a.note(None, nil)
	}
	return None, sched.Completed
}

// maxTail is how much of the end of a long answer is searched for its usage.
const maxTail = 4 << 10

func keepTail(tail, p []byte) []byte {
	if len(p) >= maxTail {
		return append(tail[:0], p[len(p)-maxTail:]...)
	}
	if drop := len(tail) + len(p) - maxTail; drop > 0 {
		tail = append(tail[:0], tail[drop:]...)
	}
	return append(tail, p...)
}

// write sends p at once.
func (a *attempt) write(p []byte) error {
	err := a.put(p, true)
	a.writing.Store(false)
	return err
}

// piece is how much the client must take within Idle, in bytes.
const piece = 64 << 10

// put sends p in pieces, and leaves writing set.
func (a *attempt) put(p []byte, flush bool) error {
	a.writing.Store(true)
	for len(p) > piece {
		if _, err := a.c.w.Write(p[:piece]); err != nil {
			return err
		}
		p = p[piece:]
		a.moved.Store(int64(time.Since(a.began)))
	}
	if _, err := a.c.w.Write(p); err != nil || !flush {
		return err
	}
	return a.c.flush()
}

// writeRaw sends p, at once if the answer's length is unknown.
func (a *attempt) writeRaw(p []byte) error {
	if len(p) == 0 {
		return nil
	}
	err := a.put(p, a.resp.ContentLength < 0)
	a.writing.Store(false)
	return err
}

// flush sends what net/http has in its buffers.
func (c *call) flush() error {
	if err := c.out.Flush(); !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil // some wrapper around w can't: that's not the client's fault
}

// start sends status and headers, to be followed by the body.
func (a *attempt) start() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.head()
	a.c.start()
}

// head sends status and headers, unless an earlier engine's have been sent.
func (a *attempt) head() {
	c := a.c
	if c.stage != nothing || c.code != 0 {
		return
	}
	h := c.w.Header()
	clientHeader(h, a.resp.Header)
	if _, ok := h["Content-Type"]; !ok {
		h["Content-Type"] = nil // or net/http would guess one
	}
	for name := range a.resp.Trailer {
		h.Add("Trailer", name)
		a.trailers++
	}
	a.explain(h)
	c.code = a.resp.StatusCode
	c.w.WriteHeader(a.resp.StatusCode)
}

// explain adds what was decided.
func (a *attempt) explain(h http.Header) {
	if !a.c.p.cfg.Explain {
		return
	}
	h["X-Kvasir-Replica"] = []string{a.d.Replica.Name}
	if a.d.Tokens > 0 {
		b := make([]byte, 0, 24)
		b = strconv.AppendInt(b, int64(a.d.Cached()), 10)
		b = append(b, '/')
		b = strconv.AppendInt(b, int64(a.d.Tokens), 10)
		h["X-Kvasir-Cached-Tokens"] = []string{string(b)}
	}
	h["X-Kvasir-Decision-Us"] = []string{strconv.FormatInt(a.took.Microseconds(), 10)}
}

// trailer sends the engine's trailers, after the body.
func (a *attempt) trailer() {
	h := a.c.w.Header()
	announced := a.trailers == len(a.resp.Trailer)
	for name, values := range a.resp.Trailer {
		if !announced {
			name = http.TrailerPrefix + name
		}
		h[name] = values
	}
}

// served tells what the engine says that it had cached, if it says so.
func (a *attempt) served() {
	if u := &a.watch.usage; u.hasPrompt && u.hasCached {
		a.d.Served(u.prompt, u.cached)
	}
}
