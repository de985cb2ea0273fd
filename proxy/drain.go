package proxy

import (
	"net/http"
	"sync"
	"time"

	"kvasir/fleet"
	"kvasir/sched"
)

// A door counts who is inside, and can be shut.
type door struct {
	mu     sync.Mutex
	inside int  // guarded by mu
	shut   bool // guarded by mu
}

// enter reports whether the door is open; then leave must follow.
func (d *door) enter() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.shut {
		return false
	}
	d.inside++
	return true
}

func (d *door) leave() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.inside--
}

func (d *door) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.shut = true
}

func (d *door) isShut() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.shut
}

func (d *door) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.inside
}

// Leave makes /ready say 503 and every answer close its connection, and serves on: the
// grace in which load balancers find out. It can't be undone.
func (p *Proxy) Leave() { p.leaving.Store(true) }

// Cut refuses new requests, and ends the open ones: those that wait for an answer get
// 503, streams that flow an error event.
func (p *Proxy) Cut() {
	p.leaving.Store(true)
	p.door.close()
	for _, a := range p.open.end() {
		a.cancel(errLeaving)
	}
}

// attempts are those on their way, so that a replica that is taken out of the fleet
// lets go of those that wait for it.
type attempts struct {
	mu    sync.Mutex
	head  *attempt // guarded by mu, as are prev and next of every attempt in the list
	ended bool     // guarded by mu: no attempt has a future
}

func (l *attempts) add(a *attempt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a.next = l.head; a.next != nil {
		a.next.prev = a
	}
	l.head = a
	if l.ended {
		a.cancel(errLeaving)
	}
}

// end returns all attempts; those that come later are ended at once.
func (l *attempts) end() (out []*attempt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	for a := l.head; a != nil; a = a.next {
		out = append(out, a)
	}
	return out
}

func (l *attempts) remove(a *attempt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a.next != nil {
		a.next.prev = a.prev
	}
	if a.prev != nil {
		a.prev.next = a.next
	} else {
		l.head = a.next
	}
}

// on returns the attempts on a replica.
func (l *attempts) on(replica int) (out []*attempt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for a := l.head; a != nil; a = a.next {
		if a.d.Replica.ID == replica {
			out = append(out, a)
		}
	}
	return out
}

// Gone ends every attempt on the replica that has no content yet, so that other
// engines get the requests; streams that flow go on. Call it when nobody is there any
// more: the replica was taken out of the fleet, or its port refuses connections.
func (p *Proxy) Gone(replica int) { p.gone(replica, false) }

// Frozen does so, except for requests that must not be repeated: the replica looks as if
// it had stopped, and may go on.
func (p *Proxy) Frozen(replica int) { p.gone(replica, true) }

func (p *Proxy) gone(replica int, perhaps bool) {
	for _, a := range p.open.on(replica) {
		a.gone(errGone, perhaps)
	}
}

// Heard reports whether the replica has sent anything of an answer since then.
func (p *Proxy) Heard(r *fleet.Replica, since time.Time) bool {
	for _, t := range r.Targets {
		if p.heard[t].Load() >= since.UnixNano() {
			return true
		}
	}
	for _, a := range p.open.on(r.ID) {
		if at := a.moved.Load(); at > 0 && !a.began.Add(time.Duration(at)).Before(since) {
			return true
		}
	}
	return false
}

// serveHealth answers /health and /ping, which say that this process is alive, and /ready,
// which says that it takes requests and has an engine for them.
func (p *Proxy) serveHealth(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/ready" {
		p.stats.done(Health, http.StatusOK, sched.Open)
		w.WriteHeader(http.StatusOK)
		return
	}
	e := errBusy
	switch {
	case p.leaving.Load() || p.door.isShut():
		e.code, e.message = "draining", "this router is shutting down"
	case !p.anyUp():
		e.message = "no engine is up"
	default:
		p.stats.done(Health, http.StatusOK, sched.Open)
		w.WriteHeader(http.StatusOK)
		return
	}
	p.stats.done(Health, e.status, sched.Open)
	p.refuse(w, openAI, e)
}

func (p *Proxy) anyUp() bool {
	for _, r := range p.fleet.Snapshot().Replicas {
		if r.State == fleet.Up {
			return true
		}
	}
	return false
}
