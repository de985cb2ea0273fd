package sim

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"kvasir/fleet"
	"kvasir/lab/mock"
)

// Faults is what goes wrong, or changes, during a run. The zero Faults is one
// router with instant events and figures, and a fleet that stays as it is.
type Faults struct {
	// EventDelay is how long after a step its cache events reach the routers, in
	// seconds; EventJitter the mean of an exponential part on top. One engine's
	// batches keep their order.
	EventDelay, EventJitter float64
	// EventLoss is the probability that a batch of events is lost for good,
	// unnoticed, for each router by itself.
	EventLoss float64
	// Gauges is how old the engines' own figures get before they are read again,
	// in seconds. 0: they are always current.
	Gauges float64
	// Routers is the number of routers, to which requests come in turn; 0 means 1.
	Routers int
	// Share is how often routers tell each other what they have placed, in
	// seconds. 0: at once. +Inf: never.
	Share float64
	// Changes of the fleet, in any order.
	Changes []Change
}

// A Change is one event in the life of the fleet.
type Change struct {
	Kind    string  // "slow", "dead", "add", "remove"
	Replica int     // from 0; "add": how many to add
	From    float64 // s
	To      float64 // s: when it ends ("slow", "dead"); 0: never
	Factor  float64 // "slow": how many times slower
}

func (f *Faults) none() bool {
	return f.EventDelay == 0 && f.EventJitter == 0 && f.EventLoss == 0 && f.Gauges == 0 && f.Routers <= 1 && len(f.Changes) == 0
}

func (f *Faults) validate(replicas int) error {
	for _, x := range []struct {
		name string
		v    float64
	}{{"event delay", f.EventDelay}, {"event jitter", f.EventJitter}, {"gauge age", f.Gauges}} {
		if !(x.v >= 0 && x.v <= 3600) {
			return fmt.Errorf("sim: %s is %v, must be between 0 and 3600 seconds", x.name, x.v)
		}
	}
	if !(f.EventLoss >= 0 && f.EventLoss <= 1) {
		return fmt.Errorf("sim: event loss is %v, must be a probability between 0 and 1", f.EventLoss)
	}
	if !(f.Share >= 0) {
		return fmt.Errorf("sim: share interval is %v, must be seconds >= 0, or +Inf for never", f.Share)
	}
	if f.Routers < 0 || f.Routers > 64 {
		return fmt.Errorf("sim: routers is %d, must be between 1 and 64", f.Routers)
	}
	for _, c := range f.Changes {
		if !(c.From >= 0 && c.From < 1e9) || c.To != 0 && !(c.To > c.From && c.To < 1e9) {
			return fmt.Errorf("sim: fault %s: from %v to %v, want seconds, the end after the start", c, c.From, c.To)
		}
		switch c.Kind {
		case "slow":
			if !(c.Factor > 0 && c.Factor <= 1e6) {
				return fmt.Errorf("sim: fault %s: factor %v, must be positive and at most 1e6", c, c.Factor)
			}
		case "dead", "remove":
		case "add":
			if c.Replica < 1 || c.Replica > maxReplicas {
				return fmt.Errorf("sim: fault %s: adds %d replicas, must be 1 to %d", c, c.Replica, maxReplicas)
			}
			replicas += c.Replica
			continue
		default:
			return fmt.Errorf("sim: fault %q is unknown: use slow, dead, add or remove", c.Kind)
		}
		if c.Replica < 0 || c.Replica >= replicas {
			return fmt.Errorf("sim: fault %s: there is no replica %d, they count from 0 to %d", c, c.Replica, replicas-1)
		}
	}
	return nil
}

// String writes c as ParseChange reads it.
func (c Change) String() string {
	s := fmt.Sprintf("%s:%d@%v", c.Kind, c.Replica, c.From)
	if c.To != 0 {
		s += fmt.Sprintf("-%v", c.To)
	}
	if c.Kind == "slow" {
		s += fmt.Sprintf("x%v", c.Factor)
	}
	return s
}

var changeForm = regexp.MustCompile(`^(slow|dead|add|remove):(\d{1,6})@([0-9.]+)(?:-([0-9.]+))?(?:x([0-9.]+))?$`)

// ParseChange reads a change of the fleet: "slow:2@100-200x4" (replica 2 takes 4
// times as long from second 100 to 200), "dead:2@100-160" (comes back with an
// empty cache), "add:4@300" (4 more replicas), "remove:3@500" (drains).
func ParseChange(s string) (Change, error) {
	m := changeForm.FindStringSubmatch(strings.TrimSpace(s))
	if m == nil {
		return Change{}, fmt.Errorf(`fault %q: want KIND:REPLICA@FROM[-TO][xFACTOR] with KIND slow, dead, add or remove, such as "slow:2@100-200x4"`, s)
	}
	c := Change{Kind: m[1]}
	c.Replica, _ = strconv.Atoi(m[2])
	for _, f := range []struct {
		text string
		to   *float64
	}{{m[3], &c.From}, {m[4], &c.To}, {m[5], &c.Factor}} {
		if f.text == "" {
			continue
		}
		v, err := strconv.ParseFloat(f.text, 64)
		if err != nil {
			return c, fmt.Errorf("fault %q: %q is no number", s, f.text)
		}
		*f.to = v
	}
	return c, nil
}

// schedule puts the changes into the cluster's queue.
func (g *gateways) schedule(f Faults) error {
	c := g.cluster
	if len(g.all) > 1 && f.Share > 0 && !math.IsInf(f.Share, 1) {
		var tick func()
		tick = func() {
			g.spread(c.now)
			c.at(c.now+f.Share, tick)
		}
		c.at(f.Share, tick)
	}
	for _, ch := range f.Changes {
		switch ch.Kind {
		case "slow":
			c.at(ch.From, func() { c.pace(ch.Replica, ch.Factor) })
			if ch.To > 0 {
				c.at(ch.To, func() { c.pace(ch.Replica, 1) })
			}
		case "dead":
			c.at(ch.From, func() { g.kill(ch.Replica) })
			if ch.To > 0 {
				c.at(ch.To, func() { g.revive(ch.Replica) })
			}
		case "add":
			c.at(ch.From, func() { g.add(ch.Replica) })
		case "remove":
			c.at(ch.From, func() { g.each(func(k *core) error { return k.state(ch.Replica, fleet.Draining) }) })
		}
	}
	return nil
}

// pace makes replica r take factor times its profile's time from its next step on.
func (c *cluster) pace(r int, factor float64) {
	if r < len(c.engines) && c.engines[r] != nil {
		c.engines[r].SetProfile(c.profile.Faster(1 / factor))
	}
}

func (g *gateways) each(f func(k *core) error) {
	for _, k := range g.all {
		if err := f(k); err != nil {
			panic(err) // the table is ours: an error is a bug of the simulator
		}
	}
}

// kill ends replica r in mid-flight. Requests without a first token go elsewhere,
// as the proxy's retry does; the others are lost to their clients.
func (g *gateways) kill(r int) {
	c := g.cluster
	if r >= len(c.engines) || c.engines[r] == nil {
		return
	}
	c.busyFor[r] += c.engines[r].Busy()
	c.engines[r] = nil
	c.ends[r] = -1
	c.version[r]++
	g.each(func(k *core) error { return k.state(r, fleet.Down) })
	var hit []*request
	for _, q := range c.live {
		if q.replica == r {
			hit = append(hit, q)
		}
	}
	slices.SortFunc(hit, func(a, b *request) int { return int(int64(a.ID) - int64(b.ID)) })
	for _, q := range hit {
		g.failed(q, c.now)
		delete(c.live, q.ID)
		if q.started {
			c.metrics.failed++
			c.source.ended(q, c.now, c.schedule)
			continue
		}
		c.metrics.rerouted++
		c.queue.push(event{at: c.now, q: q})
	}
	for _, k := range g.all {
		k.forget(r, c.now)
	}
}

// revive starts replica r again, with an empty cache.
func (g *gateways) revive(r int) {
	c := g.cluster
	if r >= len(c.engines) || c.engines[r] != nil {
		return
	}
	e, err := mock.New(c.config)
	if err != nil {
		panic(err) // the same configuration has made an engine before
	}
	c.engines[r] = e // with an empty cache, whatever the workload warmed
	g.each(func(k *core) error { return k.state(r, fleet.Up) })
}

// add starts n more replicas.
func (g *gateways) add(n int) {
	c := g.cluster
	from := len(c.engines)
	if err := c.launch(n); err != nil {
		panic(err)
	}
	for i := from; i < len(c.engines); i++ {
		g.each(func(k *core) error { return k.join(i, c.engines[i], c.now) })
		c.warmed(i)
	}
}
