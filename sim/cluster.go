package sim

import (
	"fmt"

	"kvasir/kv"
	"kvasir/model"
	"kvasir/sched"
)

// A request is one prompt's life. Times in seconds of virtual time.
type request struct {
	model.Request
	arrival float64
	session uint64 // hash key of the session, as the trace gives it
	conv    int32  // running number of the session in this run
	turn    int32

	replica int
	match   int // leading blocks that the view had on the chosen replica
	est     int // prompt tokens that the ledger booked as uncached
	booked  float64
	hit     int // prompt tokens that the engine found
	first   float64
	done    float64

	decision *sched.Decision // of the production core
	believed int             // prompt tokens that the core thought were held there
	exclude  []kv.Target     // where it failed
}

// A source yields the requests of one run.
type source interface {
	// next returns the next open-loop arrival, in order of time.
	next() (q *request, ok bool)
	// begin schedules the first closed-loop arrivals.
	begin(at func(q *request))
	// ended is told each completion and may schedule further arrivals.
	ended(q *request, now float64, at func(q *request))
}

// A router places requests and is told what becomes of them.
type router interface {
	route(q *request, now float64) (replica int, err error)
	admitted(q *request)
	first(q *request, now float64)
	done(q *request, now float64)
	// events tells what an engine announced about its cache.
	events(replica int, now float64, ev []model.Event)
}

// A cluster is the virtual fleet: engines, one queue of events, one router. Its
// order of events is that of experiments.md, section 2.5: by time, then by when
// they were scheduled; open-loop arrivals come first.
type cluster struct {
	engines []*model.Engine
	source  source
	router  router
	metrics *metrics

	now     float64
	queue   eventQueue
	ends    []float64 // by replica: when the scheduled step ends
	version []int     // by replica: of the scheduled end
	live    map[uint64]*request
	routed  int
	out     model.Outcome
	pooled  bool
	check   func(c *cluster) // for tests: called after each event
}

func newCluster(engines []*model.Engine, src source, m *metrics) *cluster {
	return &cluster{
		engines: engines, source: src, metrics: m,
		ends: make([]float64, len(engines)), version: make([]int, len(engines)),
		live: map[uint64]*request{},
	}
}

// run plays the source to its end, or until stop says so.
func (c *cluster) run(stop func() bool) error {
	c.source.begin(c.schedule)
	q, open := c.source.next()
	for n := 0; ; n++ {
		if n&1023 == 0 && stop() {
			return errStopped
		}
		if open && (c.queue.len() == 0 || q.arrival <= c.queue.top().at) {
			c.now = q.arrival
			if err := c.arrive(q); err != nil {
				return err
			}
			q, open = c.source.next()
		} else if c.queue.len() > 0 {
			ev := c.queue.pop()
			if ev.q != nil {
				c.now = ev.at
				if err := c.arrive(ev.q); err != nil {
					return err
				}
			} else {
				if ev.version != c.version[ev.replica] {
					continue
				}
				c.now = ev.at
				c.step(ev.replica)
			}
		} else {
			break
		}
		if c.check != nil {
			c.check(c)
		}
	}
	for i, e := range c.engines {
		if s := e.Stats(); s.Waiting+s.Running > 0 {
			return fmt.Errorf("replica %d is stuck with %d waiting and %d running requests: a bug of the model", i, s.Waiting, s.Running)
		}
	}
	return nil
}

func (c *cluster) schedule(q *request) { c.queue.push(event{at: q.arrival, q: q}) }

func (c *cluster) arrive(q *request) error {
	c.routed++
	if c.routed%4 == 0 {
		c.metrics.sampleContext(c.engines)
	}
	r, err := c.router.route(q, c.now)
	if err != nil {
		return err
	}
	q.replica = r
	c.live[q.ID] = q
	e := c.engines[r]
	if err := e.SubmitAt(&q.Request, c.now); err != nil {
		return err
	}
	c.out.Events, c.out.Admitted = c.out.Events[:0], c.out.Admitted[:0]
	e.Drain(&c.out)
	c.told(r)
	c.reschedule(r)
	return nil
}

// told hands the engine's events and admissions to the router.
func (c *cluster) told(r int) {
	for _, id := range c.out.Admitted {
		c.router.admitted(c.live[id])
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
		if p.First {
			q := c.live[p.ID]
			q.first, q.hit = c.now, p.Cached
			c.router.first(q, c.now)
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
	if c.pooled {
		for i, e := range c.engines {
			e.Poke(c.now)
			c.reschedule(i)
		}
	}
}

// An event is a closed-loop arrival (q set) or the end of a step.
type event struct {
	at      float64
	seq     uint64
	q       *request
	replica int
	version int
}

// An eventQueue is a heap by time, then by order of insertion.
type eventQueue struct {
	h   []event
	seq uint64
}

func (q *eventQueue) len() int    { return len(q.h) }
func (q *eventQueue) top() *event { return &q.h[0] }

func (a *event) before(b *event) bool { return a.at < b.at || a.at == b.at && a.seq < b.seq }

func (q *eventQueue) push(e event) {
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
