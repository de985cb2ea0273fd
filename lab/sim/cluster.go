package sim

import (
	"fmt"

	"kvasir/kv"
	"kvasir/lab/mock"
)

// A router places requests and is told what becomes of them.
type router interface {
	// route returns the replica for q, errNowhere if none can take it now, or
	// errShed if it is refused.
	route(q *request, now float64) (replica int, err error)
	// admitted tells that q's engine has moved it from its queue to its batch.
	admitted(q *request)
	first(q *request, now float64)
	// progress tells that q got n more tokens (with model.Config.Stream only).
	progress(q *request, n int, now float64)
	// done tells that q is complete, failed that its engine died under it.
	done(q *request, now float64)
	failed(q *request, now float64)
	// events tells what an engine announced about its cache; the slice is reused.
	events(replica int, now float64, ev []mock.Event)
}

// A cluster is the virtual fleet: engines, one queue of events, one router. Its
// order of events is that of docs/mock.md, "Order of events": by time, then by when
// they were scheduled; open-loop arrivals come first.
type cluster struct {
	config  mock.Config
	profile mock.Profile
	engines []*mock.Engine // nil: dead or not there yet
	source  source
	router  router
	metrics *metrics
	warm    []kv.Hash

	now     float64
	queue   eventQueue
	ends    []float64 // by replica: when the scheduled step ends
	version []int     // by replica: of the scheduled end
	live    map[uint64]*request
	busyFor []float64 // by replica: seconds of work of engines that have died
	routed  int
	out     mock.Outcome

	tick  func(done int) bool // called now and then; true stops the run
	check func(c *cluster)    // for tests: called after each event
}

func newCluster(w *Workload, config mock.Config, replicas int) *cluster {
	return &cluster{config: config, profile: config.Profile, source: w.start(config.Admission == mock.Paged), metrics: newMetrics(replicas),
		warm: w.warm, live: map[uint64]*request{}, tick: func(int) bool { return false }}
}

// launch adds n engines with empty caches.
func (c *cluster) launch(n int) error {
	for range n {
		e, err := mock.New(c.config)
		if err != nil {
			return err
		}
		e.Warm(c.warm)
		c.engines = append(c.engines, e)
		c.ends = append(c.ends, -1)
		c.version = append(c.version, 0)
		c.busyFor = append(c.busyFor, 0)
	}
	c.metrics.grow(len(c.engines))
	return nil
}

// warmed tells the router what an engine held before its first request.
func (c *cluster) warmed(r int) {
	c.out.Events, c.out.Admitted = c.out.Events[:0], c.out.Admitted[:0]
	c.engines[r].Drain(&c.out)
	if len(c.out.Events) > 0 {
		c.router.events(r, c.now, c.out.Events)
	}
}

// at schedules do.
func (c *cluster) at(t float64, do func()) { c.queue.push(event{at: t, do: do}) }

// run plays the source to its end, or until tick says so.
func (c *cluster) run() error {
	c.source.begin(c.schedule)
	q, open := c.source.next()
	told := 0
	for n := 1; ; n++ {
		if n&4095 == 0 {
			done := c.metrics.requests()
			if c.tick(done - told) {
				return errStopped
			}
			told = done
		}
		switch {
		case open && (c.queue.len() == 0 || q.arrival <= c.queue.top().at):
			c.now = q.arrival
			if err := c.arrive(q); err != nil {
				return err
			}
			q, open = c.source.next()
		case c.queue.len() > 0:
			if !open && c.queue.work == 0 && len(c.live) == 0 {
				// Only control events are left: nothing can come of them.
				c.tick(c.metrics.requests() - told)
				return nil
			}
			ev := c.queue.pop()
			if ev.do == nil && ev.q == nil && ev.version != c.version[ev.replica] {
				continue
			}
			c.now = ev.at
			switch {
			case ev.do != nil:
				ev.do()
			case ev.q != nil:
				if err := c.arrive(ev.q); err != nil {
					return err
				}
			default:
				c.step(ev.replica)
			}
		default:
			if len(c.live) > 0 {
				return fmt.Errorf("%d requests never ended: a bug of the model", len(c.live))
			}
			c.tick(c.metrics.requests() - told)
			return nil
		}
		if c.check != nil {
			c.check(c)
		}
	}
}

func (c *cluster) schedule(q *request) { c.queue.push(event{at: q.arrival, q: q}) }

// retryAfter is how long a client waits when no replica can take its request.
const retryAfter = 1.0

func (c *cluster) arrive(q *request) error {
	c.routed++
	if c.routed%4 == 0 {
		c.metrics.sampleContext(c.engines)
	}
	r, err := c.router.route(q, c.now)
	if err == errNowhere {
		c.metrics.refused++
		c.queue.push(event{at: c.now + retryAfter, q: q})
		return nil
	}
	if err == errShed { // the client goes on without the answer
		c.metrics.shed++
		c.source.ended(q, c.now, c.schedule)
		return nil
	}
	if err != nil {
		return err
	}
	q.replica = r
	c.metrics.placed(q, r)
	c.live[q.ID] = q
	e := c.engines[r]
	if err := e.SubmitAt(&q.Request, c.now); err != nil {
		return err
	}
	if c.config.Instant {
		c.out.Events, c.out.Admitted = c.out.Events[:0], c.out.Admitted[:0]
		e.Drain(&c.out)
		c.told(r)
	}
	c.reschedule(r)
	return nil
}

// told hands the engine's events and admissions to the router.
func (c *cluster) told(r int) {
	for _, id := range c.out.Admitted {
		if q := c.live[id]; q != nil {
			c.router.admitted(q)
		}
	}
	if len(c.out.Events) > 0 {
		c.router.events(r, c.now, c.out.Events)
	}
}

// reschedule notes when the step in progress on r ends, if that has changed.
func (c *cluster) reschedule(r int) {
	at, busy := c.engines[r].NextAt()
	if !busy {
		c.ends[r] = -1
		return
	}
	if at == c.ends[r] {
		return
	}
	c.ends[r] = at
	c.version[r]++
	c.queue.push(event{at: at, replica: r, version: c.version[r]})
}

func (c *cluster) step(r int) {
	c.ends[r] = -1
	c.engines[r].AdvanceAt(c.now, &c.out)
	for _, p := range c.out.Progress {
		switch {
		case p.First:
			q := c.live[p.ID]
			q.first, q.hit, q.started, q.told = c.now, p.Cached, true, 1
			c.router.first(q, c.now)
		case !p.Done:
			q := c.live[p.ID]
			q.told += p.Tokens
			c.router.progress(q, p.Tokens, c.now)
		}
	}
	for _, p := range c.out.Progress {
		if p.Done {
			q := c.live[p.ID]
			q.done = c.now
			c.router.done(q, c.now)
			c.metrics.add(q)
			delete(c.live, p.ID)
			c.source.ended(q, c.now, c.schedule)
		}
	}
	c.told(r)
	c.reschedule(r)
	if c.config.Pool != nil {
		for i, e := range c.engines {
			e.Poke(c.now)
			c.reschedule(i)
		}
	}
}

// An event is a control (do set), a closed-loop arrival (q set) or the end of a
// step.
type event struct {
	at      float64
	seq     uint64
	do      func()
	q       *request
	replica int
	version int
}

// An eventQueue is a heap by time, then by order of insertion.
type eventQueue struct {
	h    []event
	seq  uint64
	work int // events that aren't controls
}

func (q *eventQueue) len() int    { return len(q.h) }
func (q *eventQueue) top() *event { return &q.h[0] }

func (a *event) before(b *event) bool { return a.at < b.at || a.at == b.at && a.seq < b.seq }

func (q *eventQueue) push(e event) {
	if e.do == nil {
		q.work++
	}
	e.seq = q.seq
	q.seq++
	q.h = append(q.h, e)
	h := q.h
	for i := len(h) - 1; i > 0; {
		p := (i - 1) / 2
		if !h[i].before(&h[p]) {
			return
		}
		h[i], h[p] = h[p], h[i]
		i = p
	}
}

func (q *eventQueue) pop() event {
	h := q.h
	top := h[0]
	if top.do == nil {
		q.work--
	}
	n := len(h) - 1
	h[0] = h[n]
	h[n] = event{}
	h = h[:n]
	q.h = h
	for i := 0; ; {
		c := 2*i + 1
		if c >= n {
			return top
		}
		if c+1 < n && h[c+1].before(&h[c]) {
			c++
		}
		if !h[c].before(&h[i]) {
			return top
		}
		h[i], h[c] = h[c], h[i]
		i = c
	}
}
