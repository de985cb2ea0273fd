// Package proxy is the front door: it takes OpenAI's (and Anthropic's) HTTP
// requests, has sched decide which engine serves each, and passes bytes, the same
// bytes, in both directions.
//
// One request, top to bottom:
//
//	ServeHTTP   path and method (paths.go), drain (drain.go)
//	readBody    once, bounded (body.go)
//	readFields  model, stream, session: in place, without decoding (request.go, scan.go)
//	hints       what headers and body say beside the prompt (hints.go)
//	prepare     text (text.go), token ids, if they can be had in time (prepare.go); askUsage (usage.go)
//	serve       Route, try, and again elsewhere as long as the client has nothing (call.go)
//	attempt     one engine: send, hold back, forward, watch (attempt.go, relay.go, stream.go)
//	watcher     what the answer says, read on the side (watch.go, sse.go, answer.go)
package proxy

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"kvasir/fleet"
	"kvasir/kv"
	"kvasir/sched"
	"kvasir/token"
)

// Parts are what New joins. Fleet and Sched are needed.
type Parts struct {
	Fleet *fleet.Table
	Sched *sched.Scheduler
	Token token.Source // nil: every request is routed by load

	// Text says that the policy reads the prompt's text, and Between what it wants
	// between messages.
	Text    bool
	Between string

	// Transport carries requests to engines. nil: one of the proxy's own. A
	// round trip must close the request's body, also when it fails.
	Transport http.RoundTripper

	Hooks Hooks
}

// Hooks are told what has happened, by the goroutine of the request. A nil func is
// off.
type Hooks struct {
	// Failed: an engine doesn't answer. err is nil where its answer says it all.
	Failed func(r *fleet.Replica, why Reason, err error)
	// Avoided: a target gets no requests for a while, or, with an empty why, gets them
	// again.
	Avoided func(r *fleet.Replica, t kv.Target, why string)
}

// A Proxy is the http.Handler of the front door.
type Proxy struct {
	cfg       Config
	fleet     *fleet.Table
	sched     *sched.Scheduler
	source    token.Source
	text      bool
	between   string
	transport http.RoundTripper
	hooks     Hooks
	started   time.Time

	bodies   budget // of memory for requests' bodies
	breakers breakers
	heard    [kv.MaxTargets]atomic.Int64 // Unix nanoseconds of the last first content, by target

	leaving atomic.Bool // not ready any more

	door  door
	stats counters
	open  attempts

	stored stored   // answers that engines keep
	secret [32]byte // of this process: see keyTenant

	bases    sync.Map // of *url.URL, by fleet.Replica.URL
	numBases atomic.Int64
}

// New returns a Proxy. cfg must be valid.
func New(cfg Config, parts Parts) (*Proxy, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if parts.Fleet == nil || parts.Sched == nil {
		return nil, errors.New("proxy: Parts.Fleet and Parts.Sched are needed")
	}
	p := &Proxy{
		bodies: budget{max: cfg.MaxBodies}, breakers: breakers{share: cfg.EjectShare}, cfg: cfg, fleet: parts.Fleet, sched: parts.Sched, source: parts.Token, text: parts.Text, between: parts.Between,
		transport: parts.Transport, hooks: parts.Hooks, started: time.Now(),
	}
	rand.Read(p.secret[:]) // never fails
	if p.transport == nil {
		p.transport = Transport(cfg)
	}
	return p, nil
}

// Transport returns what a Proxy of this configuration uses to reach engines:
// HTTP/1.1 with connections kept for all engines, no compression, no proxies.
func Transport(cfg Config) *http.Transport {
	dialer := net.Dialer{KeepAlive: 15 * time.Second}
	return transport(cfg, dialer.DialContext)
}

func transport(cfg Config, dial dialFunc) *http.Transport {
	return &http.Transport{
		DialContext:         within(cfg.Dial, dial),
		TLSHandshakeTimeout: max(2*cfg.Dial, 5*time.Second),
		DisableCompression:  true,
		MaxIdleConnsPerHost: 4096,
		IdleConnTimeout:     cfg.IdleConn,
		WriteBufferSize:     8 << 10, // head and body of most requests in one write
		ReadBufferSize:      8 << 10,
		Protocols:           http1(),
	}
}

type dialFunc = func(ctx context.Context, network, addr string) (net.Conn, error)

// within bounds the time of a dial.
func within(limit time.Duration, dial dialFunc) dialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		return dial(ctx, network, addr)
	}
}

func http1() *http.Protocols {
	var p http.Protocols
	p.SetHTTP1(true)
	return &p
}

// ServeHTTP serves one request of a client.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	rt, ok := p.lookup(r.URL.Path)
	d := dialectOf(rt.endpoint)
	allow, methodOK := rt.allowed(r.Method)
	if p.leaving.Load() {
		w.Header().Set("Connection", "close")
	}
	if r.ContentLength != 0 && (!ok || !methodOK || rt.endpoint == Health || rt.endpoint == Models) {
		w.Header().Set("Connection", "close") // or net/http would read the body before it answers
	}
	switch {
	case !ok:
		p.stats.done(rt.endpoint, http.StatusNotFound, sched.Open)
		p.refuse(w, d, problem{status: http.StatusNotFound, typ: "invalid_request_error", code: "unknown_url", message: fmt.Sprintf("no such path: %s %s", r.Method, clip(r.URL.Path, 200))})
	case !methodOK:
		w.Header().Set("Allow", allow)
		p.stats.done(rt.endpoint, http.StatusMethodNotAllowed, sched.Open)
		p.refuse(w, d, problem{status: http.StatusMethodNotAllowed, typ: "invalid_request_error", code: "method_not_allowed", message: fmt.Sprintf("%s %s: want %s", clip(r.Method, 20), clip(r.URL.Path, 200), allow)})
	case rt.endpoint == Health:
		p.serveHealth(w, r)
	case rt.endpoint == Models:
		p.serveModels(w, r)
	default:
		p.pass(w, r, rt)
	}
}

// pass takes a request to an engine.
func (p *Proxy) pass(w http.ResponseWriter, r *http.Request, rt route) {
	d := dialectOf(rt.endpoint)
	var b *body
	if !p.door.isShut() { // else don't read what nobody will get
		var err error
		if b, err = p.readBody(w, r); err != nil {
			p.badBody(w, r, rt, err)
			return
		}
	}
	if !p.door.enter() {
		if b != nil {
			b.release()
		}
		w.Header().Set("Connection", "close")
		p.stats.done(rt.endpoint, http.StatusServiceUnavailable, sched.Open)
		e := errBusy
		e.code, e.message = "draining", "this router is shutting down: try again, on another connection"
		p.refuse(w, d, e)
		return
	}
	defer p.door.leave()
	c := calls.Get().(*call)
	c.begin(p, w, r, rt, b)
	defer c.end()
	if e := c.read(); e != nil {
		c.refuse(*e)
		return
	}
	c.prepare()
	c.askUsage()
	c.serve()
	if c.abort || c.outcome == sched.Cancelled { // a client that merely sends no more must not take what it has for all
		panic(http.ErrAbortHandler) // net/http cuts the connection, and logs nothing
	}
}

// badBody answers a request whose body can't be read.
func (p *Proxy) badBody(w http.ResponseWriter, r *http.Request, rt route, err error) {
	e := problem{status: http.StatusBadRequest, typ: "invalid_request_error", code: "bad_body", message: "the request's body can't be read: " + err.Error()}
	outcome := sched.Open
	switch {
	case errors.Is(err, errTooLarge):
		e.status, e.code = http.StatusRequestEntityTooLarge, "request_too_large"
		e.message = fmt.Sprintf("the request's body is larger than %d bytes, the limit here", p.cfg.MaxBody)
		w.Header().Set("Connection", "close") // the rest of it is not read
	case errors.Is(err, os.ErrDeadlineExceeded):
		e.status, e.code = http.StatusRequestTimeout, "request_timeout"
		e.message = fmt.Sprintf("the request's body came too slowly: want all of it within %v, and %d bytes every %v", p.cfg.Body, bodyPace, bodyWindow)
		w.Header().Set("Connection", "close")
	case errors.Is(err, errNoRoom):
		e = errBusy
		e.code, e.message = "bodies", fmt.Sprintf("the bodies of other requests take all of the %d bytes that there are for them: try again", p.cfg.MaxBodies)
		w.Header().Set("Connection", "close")
	case r.Context().Err() != nil:
		outcome = sched.Cancelled
	}
	p.stats.done(rt.endpoint, e.status, outcome)
	p.refuse(w, dialectOf(rt.endpoint), e)
}

func clip(s string, n int) string {
	if len(s) > n {
		return s[:n] + "…"
	}
	return s
}
