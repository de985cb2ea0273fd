package proxy

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"kvasir/sched"
)

// rankHeader tells an engine with data parallelism which of its ranks to use.
const rankHeader = "X-Data-Parallel-Rank"

// An attempt is one engine's try at a call.
type attempt struct {
	c      *call
	d      *sched.Decision
	took   time.Duration // of the decision
	began  time.Time
	ctx    context.Context
	cancel context.CancelCauseFunc
	clock  *time.Timer
	resp   *http.Response
	watch  *watcher
	strip  *stripper // nil: the client gets every byte

	// Handler and clock share the attempt by mu, which also guards the call's stage and
	// held as long as the attempt waits; afterwards those are the handler's. Nobody holds
	// mu over a write to the client or a read from the engine: those may take for ever.
	mu       sync.Mutex
	phase    phase         // guarded by mu; the handler, who alone changes it, may read it without
	stream   bool          // guarded by mu: the answer is a stream of events, held back
	released bool          // guarded by mu: nothing is held back any more
	sent     chan struct{} // guarded by mu: closed when the clock has sent what was held back; nil if it sends nothing
	limit    time.Time     // of the first content

	moved   atomic.Int64 // when the last read or write got on, since began
	writing atomic.Bool  // somebody is in a write to the client

	tokens   int           // of the answer, told to the decision
	told     time.Duration // when, since began
	noted    bool          // the engine's health was told
	trailers int           // announced

	prev, next *attempt // guarded by attempts.mu
}

// A phase says whom an attempt waits for, and so which limit holds.
type phase uint8

const (
	waiting phase = iota // for the first content: FirstToken or Answer
	flowing              // for the engine's next bytes, or the client to take the last ones: Idle
	ending               // for the client to take the rest: Idle. The engine has ended
	over                 // the clock must not touch anything
)

// try lets d's engine serve the call. None means that the client has its answer, or
// has gone; else nothing that the client has stands against another try.
func (c *call) try(d *sched.Decision, took time.Duration) (why Reason) {
	a := attempt{c: c, d: d, took: took, began: time.Now()}
	outcome := sched.Cancelled // says nothing against the engine, should this panic
	defer func() {
		a.close()
		if !a.noted {
			c.p.breakers.neutral(d.Target)
		}
		d.Done(time.Now(), outcome)
		c.outcome = outcome
	}()
	why, outcome = a.run()
	return why
}

// run sends the request and passes the answer on.
func (a *attempt) run() (Reason, sched.Outcome) {
	c := a.c
	c.held = c.held[:0] // of the engine before
	a.ctx, a.cancel = context.WithCancelCause(c.r.Context())
	c.p.open.add(a)
	defer c.p.open.remove(a)

	wait := c.p.cfg.Answer
	if c.f.stream {
		wait = c.p.cfg.FirstToken
	}
	a.limit = a.began.Add(wait)
	a.clock = time.AfterFunc(wait, a.tick)

	resp, err := a.send()
	if err != nil {
		return a.broke(err)
	}
	a.resp = resp
	return a.relay()
}

// maxStale bounds how many kept connections may turn out closed for one attempt.
const maxStale = 64

// send sends the request, again if the engine had closed the connection while it was
// idle: then it has seen nothing of it. If it may have, net/http must not repeat it, and
// doesn't unless the client allows that with an Idempotency-Key.
func (a *attempt) send() (resp *http.Response, err error) {
	for range maxStale {
		if resp, err = a.c.p.transport.RoundTrip(a.request()); err == nil || err.Error() != closedIdle {
			break
		}
	}
	return resp, err
}

// closedIdle is net/http's errServerClosedIdle, which it doesn't export.
const closedIdle = "http: server closed idle connection"

// broke says what a failed round trip means, before anything was passed on.
func (a *attempt) broke(err error) (Reason, sched.Outcome) {
	if a.clientGone() {
		return None, sched.Cancelled
	}
	why := reasonOf(a.ctx, err)
	a.note(why, err)
	return why, sched.Failed
}

// clientGone reports whether the client has left, or takes nothing any more.
func (a *attempt) clientGone() bool {
	return a.c.r.Context().Err() != nil || context.Cause(a.ctx) == errSlow
}

// request is what the engine gets: the client's method, path, query, headers and body.
func (a *attempt) request() *http.Request {
	c := a.c
	h := c.header
	if c.tried > 1 { // net/http may still be reading the first one
		h = c.upstreamHeader()
	}
	if len(a.d.Replica.Targets) > 1 {
		if _, err := strconv.Atoi(h.Get(rankHeader)); err != nil {
			h[rankHeader] = []string{strconv.Itoa(a.d.Replica.FirstRank + a.d.Rank)}
		}
	}
	base := c.p.base(a.d.Replica.URL)
	u := *c.r.URL
	u.Scheme, u.Host = base.Scheme, base.Host
	if base.Path != "" {
		u.Path, u.RawPath = base.Path+u.Path, base.EscapedPath()+c.r.URL.EscapedPath()
	}
	req := &http.Request{
		Method: c.r.Method, URL: &u, Host: base.Host, Header: h,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		ContentLength: int64(len(c.body.b)),
	}
	switch {
	case len(c.body.b) > 0:
		body := c.body
		req.Body = body.upload()
		req.GetBody = func() (io.ReadCloser, error) { return body.upload(), nil }
	default:
		req.Body = http.NoBody
	}
	return req.WithContext(a.ctx)
}

// base returns a replica's URL in parts.
func (p *Proxy) base(raw string) *url.URL {
	if u, ok := p.bases.Load(raw); ok {
		return u.(*url.URL)
	}
	u, err := url.Parse(raw)
	if err != nil {
		u = &url.URL{Scheme: "http", Host: "invalid"} // package fleet has parsed it before
	}
	if p.numBases.Add(1) > 4096 { // replicas come and go
		p.bases.Clear()
		p.numBases.Store(1)
	}
	p.bases.Store(raw, u)
	return u
}

// tick is the clock's: what was held back long enough is sent, and what takes too
// long is ended.
func (a *attempt) tick() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.phase == over { // and the call another one's by now
		return
	}
	c, idle := a.c, a.c.p.cfg.Idle
	writes := a.writing.Load()
	quiet := time.Since(a.began) - time.Duration(a.moved.Load())
	switch {
	case writes && quiet >= idle:
		a.cancel(errSlow)
		c.out.SetWriteDeadline(time.Now()) // ends the write that hangs; an error leaves it to the client
	case writes || a.phase == ending:
		a.clock.Reset(max(idle-quiet, idle/8))
	case a.phase == flowing || c.stage == started: // or what we don't take for content flows
		if quiet < idle {
			a.clock.Reset(idle - quiet)
			return
		}
		a.cancel(errStalled)
	case a.stream && time.Now().Before(a.limit):
		if a.released {
			a.clock.Reset(time.Until(a.limit))
			return
		}
		a.release()
	default:
		a.cancel(errSilent)
	}
}

// enter goes on to the next phase, once the clock is in no write any more.
func (a *attempt) enter(next phase) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.await()
	if a.phase = next; next == ending {
		a.moved.Store(int64(time.Since(a.began)))
		a.clock.Reset(a.c.p.cfg.Idle)
	}
}

// await waits until the clock has sent what it took from held. The caller holds mu, which
// is free meanwhile: another tick may end a write that hangs.
func (a *attempt) await() {
	for a.sent != nil {
		sent := a.sent
		a.mu.Unlock()
		<-sent
		a.mu.Lock()
	}
}

// close ends everything of the attempt.
func (a *attempt) close() {
	a.enter(over)
	if a.clock != nil {
		a.clock.Stop()
	}
	if a.cancel != nil {
		a.cancel(errOver)
	}
	if a.resp != nil {
		a.resp.Body.Close()
	}
	if a.watch != nil {
		a.watch.put()
		a.watch = nil
	}
}

// gone ends an attempt that still waits; where the engine may have the request all the
// same, only one that may be repeated.
func (a *attempt) gone(why error, perhaps bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.phase == waiting && (!perhaps || a.c.harmless()) {
		a.cancel(why)
	}
}

// note tells the engine's state, once.
func (a *attempt) note(why Reason, err error) {
	if a.noted && why == None {
		return
	}
	a.noted = true
	a.c.noted(a.d, why)
	a.c.p.note(a.d.Replica, why, err)
}

// firstContent tells the scheduler that the engine has begun to answer.
func (a *attempt) firstContent(now time.Time) {
	a.d.FirstToken(now)
	a.c.p.heard[a.d.Target].Store(now.UnixNano())
	a.c.p.stats.first.observe(now.Sub(a.c.arrived))
	a.note(None, nil)
}

// progress tells how far the answer is, now and then.
func (a *attempt) progress(now time.Time, all bool) {
	since := now.Sub(a.began)
	n := a.watch.tokens - a.tokens
	if n <= 0 || !all && n < 32 && since-a.told < 250*time.Millisecond {
		return
	}
	a.tokens, a.told = a.watch.tokens, since
	a.d.Progress(n, now)
}
