package proxy

import (
	"net/http"
	"sync"
	"time"

	"kvasir/fleet"
	"kvasir/sched"
)

// A stage says how much of an answer the client has.
type stage uint8

const (
	nothing  stage = iota
	preamble       // status and headers, and comments: another engine may still go on from there
	started        // anything that an engine said
)

// A call is one request of a client on its way. Calls are pooled: nothing of one may
// be used after end.
type call struct {
	p       *Proxy
	w       http.ResponseWriter
	out     *http.ResponseController
	r       *http.Request
	rt      route
	dialect dialect
	body    *body
	f       fields
	route   sched.Request // its Prompt keeps its memory from call to call
	arrived time.Time     // the body was complete
	refused bool          // its tokens weren't made because the engine will refuse it, so we think
	asked   bool          // for usage, on our own account: see usage.go
	id      string        // X-Request-Id of ours, if it needs one

	header   http.Header // for the first engine
	tried    int         // engines
	fatal    int         // of those, how many failed fatally that had been well before
	why      Reason      // the last failure
	failures []failure   // of engines, not yet told to the breakers
	served   bool        // an engine has answered it
	seeking  string      // the stored answer that the request is about, if nobody knows who has it
	without  int         // engines that don't have it
	last     answer      // what the last engine said, if it said anything

	deadline time.Duration // from arrival to the first token, 0 if the client names none

	stage stage  // guarded by attempt.mu until the first content
	held  []byte // guarded by attempt.mu: of the answer, not yet sent

	code    int           // status that the client got, 0 if none
	outcome sched.Outcome // of the last attempt
	abort   bool          // cut the client's connection
}

// An answer is an engine's answer that was kept back.
type answer struct {
	status int
	header http.Header
	body   []byte
	by     string // name of the replica
}

var calls = sync.Pool{New: func() any { return new(call) }}

// keepHeld bounds the buffer that an idle call keeps, in bytes.
const keepHeld = 64 << 10

func (c *call) begin(p *Proxy, w http.ResponseWriter, r *http.Request, rt route, b *body) {
	c.p, c.w, c.out, c.r, c.rt, c.dialect, c.body = p, w, http.NewResponseController(w), r, rt, dialectOf(rt.endpoint), b
	c.arrived = time.Now()
}

// end gives the call back, and counts it.
func (c *call) end() {
	code := c.code
	if code == 0 && c.outcome == sched.Cancelled {
		code = StatusClientGone
	}
	c.p.stats.done(c.rt.endpoint, code, c.outcome)
	if c.refused && code == http.StatusOK {
		c.p.stats.contradicted.Add(1)
	}
	c.freeBody()
	prompt, exclude, held, failures := c.route.Prompt, c.route.Exclude[:0], c.held[:0], c.failures[:0]
	if cap(held) > keepHeld {
		held = nil
	}
	*c = call{}
	prompt.Tokens = 0
	c.route.Prompt, c.route.Exclude, c.held, c.failures = prompt, exclude, held, failures
	calls.Put(c)
}

// freeBody gives the request's body up: from here on no other engine will get it.
func (c *call) freeBody() {
	if c.body != nil {
		c.body.release()
		c.body, c.route.Text = nil, nil
	}
}

// start says that the client has something that an engine said: there is no way
// back, and streams may go on for long.
func (c *call) start() {
	c.stage = started
	c.freeBody()
}

// refuse answers with a problem, unless the client has something already: then it
// ends the stream with it.
func (c *call) refuse(e problem) {
	if c.stage != nothing {
		c.endStream(e, 0)
		return
	}
	c.code = e.status
	c.p.refuse(c.w, c.dialect, e)
}

// serve routes the request, and again as long as engines fail it and the client has
// nothing that would have to be taken back.
func (c *call) serve() {
	defer c.settle()
	for {
		began := time.Now()
		c.route.Deadline = c.left(began)
		d, err := c.routed(began)
		if err != nil {
			c.giveUp(err)
			return
		}
		if c.tried++; c.tried == 1 {
			c.p.stats.overhead.observe(time.Since(c.arrived))
			c.header = c.upstreamHeader()
		}
		took := time.Since(began)
		c.p.stats.decision.observe(took)
		proven := c.p.breakers.isProven(d)
		c.why = c.try(d, took)
		if c.why == None {
			return
		}
		c.exclude(d)
		if c.why.fatal() && proven {
			c.fatal++
		}
		if c.why == Elsewhere {
			c.without++
		}
		if c.why == Leaving || c.why == Local || !c.repeatable() || c.tried-c.without >= c.p.cfg.Attempts || c.without >= maxSeek || c.fatal >= maxFatal || time.Since(c.arrived) > c.p.cfg.RetryFor {
			c.giveUp(nil)
			return
		}
		c.p.stats.retried(c.why)
	}
}

// repeatable reports whether another engine may get the request. What an engine may have
// begun is repeated only on paths that leave nothing behind, or by methods that don't.
func (c *call) repeatable() bool {
	return c.harmless() || c.why == Unreachable || c.why == Elsewhere
}

// harmless reports whether serving the request leaves nothing behind.
func (c *call) harmless() bool {
	switch c.r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return true
	}
	return c.rt.post
}

// exclude rules out what has failed: the whole engine, if it can't be reached, else
// the rank that had the request.
func (c *call) exclude(d *sched.Decision) {
	if c.why == Overloaded || c.why == ServerError {
		c.route.Exclude = append(c.route.Exclude, d.Target)
		return
	}
	c.route.Exclude = append(c.route.Exclude, d.Replica.Targets...)
}

// giveUp answers a request that no engine serves: with what the last one said, if
// it said anything, else with a problem. err is why there is no other engine.
func (c *call) giveUp(err error) {
	switch {
	case c.tried == 0:
		c.refuse(routeProblem(err))
	case c.stage == nothing && c.last.status != 0:
		c.replay()
	default:
		c.refuse(engineProblem(c.why))
	}
}

// replay passes on the answer that was kept back.
func (c *call) replay() {
	h := c.w.Header()
	clientHeader(h, c.last.header)
	if _, ok := h["Content-Type"]; !ok {
		h["Content-Type"] = nil // none of ours
	}
	if c.p.cfg.Explain {
		h["X-Kvasir-Replica"] = []string{c.last.by}
	}
	c.code = c.last.status
	c.w.WriteHeader(c.last.status)
	c.out.SetWriteDeadline(time.Now().Add(c.p.cfg.Idle)) // no attempt's clock runs any more
	c.w.Write(c.last.body)
	c.out.SetWriteDeadline(time.Time{})
}

// note passes the state of an engine on to whoever keeps its health.
func (p *Proxy) note(r *fleet.Replica, why Reason, err error) {
	switch why {
	case Leaving, None:
		return
	}
	p.stats.failed(why)
	if p.hooks.Failed != nil {
		p.hooks.Failed(r, why, err)
	}
}
