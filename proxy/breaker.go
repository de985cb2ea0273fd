package proxy

import (
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"kvasir/fleet"
	"kvasir/kv"
	"kvasir/sched"
)

// When a target is avoided, and for how long: after ejectRow failures in a row, or ejectOf
// of the last 16 requests. Once the time is over one request probes it; if that fails, too,
// the time doubles.
const (
	ejectRow, ejectOf     = 3, 8
	ejectFirst, ejectMost = 5 * time.Second, time.Minute
	probeFor              = 30 * time.Second // how long others wait for the outcome of a probe
)

// breakers keep what requests tell of targets, and avoid those that fail. Only targets with
// a failure among their latest requests have a record: where all is well this costs a
// request two loads.
type breakers struct {
	share  float64 // of the targets of a model that may be avoided at a time
	out    atomic.Int32
	bad    atomic.Int32 // records
	proven [kv.MaxTargets]atomic.Int64

	mu sync.Mutex
	by map[kv.Target]*record // guarded by mu
}

// A record is a target that fails now and then.
type record struct {
	replica int    // whose target it was
	history uint32 // the latest outcomes, bit 0 the last: 1 is a failure
	times   int    // that it was avoided, since its last success
	out     bool   // it is avoided
	until   time.Time
	probe   time.Time // when the request began that probes it; zero: none does
}

// A failure is an attempt that an engine failed.
type failure struct {
	target  kv.Target
	replica *fleet.Replica
	why     Reason
}

// isProven reports whether the last request to d's target succeeded, as far as known.
func (b *breakers) isProven(d *sched.Decision) bool {
	return b.proven[d.Target].Load() == int64(d.Replica.ID)+1
}

// succeeded notes that the target answers. It returns whether it had been avoided.
func (b *breakers) succeeded(t kv.Target, replica int) (back bool) {
	if id := int64(replica) + 1; b.proven[t].Load() != id {
		b.proven[t].Store(id)
	}
	if b.bad.Load() == 0 {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	rec := b.by[t]
	if rec == nil {
		return false
	}
	back = rec.out
	if rec.history = rec.history << 1 & 0xffff; rec.out || rec.history == 0 || rec.replica != replica {
		b.drop(t, rec)
	}
	return back
}

// failed notes a failure of a target that has others beside it; sure is one that needs no
// second. It returns for how long the target is avoided from now on, 0 if it isn't.
func (b *breakers) failed(f failure, beside []kv.Target, sure bool, now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	rec := b.by[f.target]
	if rec == nil || rec.replica != f.replica.ID {
		if rec != nil {
			b.drop(f.target, rec)
		}
		rec = &record{replica: f.replica.ID}
		if b.by == nil {
			b.by = map[kv.Target]*record{}
		}
		b.by[f.target] = rec
		b.bad.Add(1)
	}
	rec.history = rec.history<<1 | 1
	rec.probe = time.Time{}
	if rec.out && now.Before(rec.until) { // of a request that was under way
		return 0
	}
	row := bits.TrailingZeros32(^rec.history)
	if !rec.out {
		if !sure && row < ejectRow && bits.OnesCount32(rec.history&0xffff) < ejectOf {
			return 0
		}
		n := len(beside)
		if b.share == 0 || b.among(beside) >= min(max(1, int(b.share*float64(n))), n-1) {
			return 0
		}
		rec.out = true
		b.out.Add(1)
	}
	wait := min(ejectFirst<<min(rec.times, 8), ejectMost)
	rec.times++
	rec.until = now.Add(wait)
	return wait
}

// among returns how many of ts are avoided; the caller holds mu.
func (b *breakers) among(ts []kv.Target) (n int) {
	for _, t := range ts {
		if rec := b.by[t]; rec != nil && rec.out {
			n++
		}
	}
	return n
}

// drop ends a record; the caller holds mu.
func (b *breakers) drop(t kv.Target, rec *record) {
	if rec.out {
		b.out.Add(-1)
	}
	b.bad.Add(-1)
	delete(b.by, t)
}

// avoid appends the targets that get no request at present.
func (b *breakers) avoid(dst []kv.Target, now time.Time) []kv.Target {
	if b.out.Load() == 0 {
		return dst
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for t, rec := range b.by {
		if rec.out && (now.Before(rec.until) || now.Sub(rec.probe) < probeFor) {
			dst = append(dst, t)
		}
	}
	return dst
}

// picked notes that a request goes to t: if it is avoided, as its probe.
func (b *breakers) picked(t kv.Target, now time.Time) {
	if b.out.Load() == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if rec := b.by[t]; rec != nil && rec.out && !now.Before(rec.until) {
		rec.probe = now
	}
}

// neutral notes that a request to t has ended without a word for or against it: the next
// one may be the probe.
func (b *breakers) neutral(t kv.Target) {
	if b.out.Load() == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if rec := b.by[t]; rec != nil {
		rec.probe = time.Time{}
	}
}

// counts reports whether a failure speaks against the engine. An error that it gives in
// good order may be the request's fault: that speaks against it only if another engine has
// served the same request.
func (r Reason) counts(served bool) bool {
	switch r {
	case Unreachable, Broken, Silent, Stalled, Gateway:
		return true
	case ServerError, Aborting:
		return served
	}
	return false
}

// noted remembers what an attempt has shown of its engine.
func (c *call) noted(d *sched.Decision, why Reason) {
	b := &c.p.breakers
	if why == None {
		c.served = true
		if b.succeeded(d.Target, d.Replica.ID) && c.p.hooks.Avoided != nil {
			c.p.hooks.Avoided(d.Replica, d.Target, "")
		}
		return
	}
	if !why.counts(true) { // neither for nor against it
		b.neutral(d.Target)
		return
	}
	b.proven[d.Target].Store(0)
	c.failures = append(c.failures, failure{d.Target, d.Replica, why})
}

// settle tells the breakers what has become of the call's attempts.
func (c *call) settle() {
	if len(c.failures) == 0 {
		return
	}
	g := c.p.fleet.Snapshot().Group(c.route.Model)
	for _, f := range c.failures {
		if !f.why.counts(c.served) || g == nil {
			continue
		}
		wait := c.p.breakers.failed(f, g.Targets, f.why == Aborting, time.Now())
		if wait > 0 && c.p.hooks.Avoided != nil {
			c.p.hooks.Avoided(f.replica, f.target, fmt.Sprintf("avoided for %v: its requests fail (%v)", wait, f.why))
		}
	}
	clear(c.failures)
	c.failures = c.failures[:0]
}

// routed is a decision about the call, without the targets that are avoided if there are
// others; else the least bad have to do: first those that are avoided, then those whose
// health checks fail.
func (c *call) routed(now time.Time) (*sched.Decision, error) {
	n := len(c.route.Exclude)
	c.route.Exclude = c.p.breakers.avoid(c.route.Exclude, now)
	avoided := len(c.route.Exclude) > n
	d, err := c.p.sched.Route(&c.route, now)
	c.route.Exclude = c.route.Exclude[:n]
	if none, ok := err.(*sched.UnavailableError); ok && avoided {
		if d, err = c.p.sched.Route(&c.route, now); err == nil {
			c.p.stats.panics.Add(1)
		}
	} else if ok && none.Down > 0 && c.why != Elsewhere {
		c.route.Desperate = true
		if d, err = c.p.sched.Route(&c.route, now); err == nil {
			c.p.stats.panics.Add(1)
		}
		c.route.Desperate = false
	}
	if err == nil {
		c.p.breakers.picked(d.Target, now)
	}
	return d, err
}
