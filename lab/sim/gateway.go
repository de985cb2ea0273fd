package sim

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"kvasir/fleet"
	"kvasir/index"
	"kvasir/kv"
	"kvasir/lab/mock"
	"kvasir/ledger"
	"kvasir/policy"
	"kvasir/sched"
)

// gateways are the routers of a run, in most runs one. Each is the production
// core with its own fleet table, index, ledger and policy; requests come to them
// in turn. What they don't share they don't know: with Faults.Share, what one has
// placed reaches the others some time later, as bookings there.
type gateways struct {
	cluster *cluster
	all     []*core
	faults  Faults
	hints   Hints
	dice    *rand.Rand // of faults, so that ties are the same with and without them
	doubt   *rand.Rand // of hints, likewise
	follow  *follower  // nil: requests go where the policy says
	next    int
	engine  bool // the policy reads the engines' own figures
	lastGauge,
	lastTick float64
	sent [][]float64 // by gateway and replica: when its last batch of events arrives
	news [][]news    // by gateway: what it hasn't told the others yet
}

// news is a placement or an end that other gateways will hear of.
type news struct {
	q    *request
	what byte // 'r'outed, 'f'irst token, 'd'one
	at   float64
}

func newGateways(c *cluster, p policy.Config, f Faults, h Hints, follow bool, ended func(*sched.Receipt), seed uint64, intn func(int) int) (*gateways, error) {
	g := &gateways{cluster: c, faults: f, hints: h, dice: rand.New(rand.NewPCG(seed, 1)), doubt: rand.New(rand.NewPCG(seed, 3)), engine: policy.Needs(p).Engine}
	n := max(1, f.Routers)
	g.sent = make([][]float64, n)
	g.news = make([][]news, n)
	for range n {
		hooks := sched.Hooks{Ended: ended}
		if follow {
			g.follow = &follower{cost: map[kv.Target]float64{}}
			hooks.Decided = g.follow.decided
		}
		k, err := newCore(p, c.engines, c.source, c.config.BlockSize, intn, hooks)
		if err != nil {
			return nil, err
		}
		if follow {
			terms, _ := k.sched.Costs()
			g.follow.priced = len(terms) > 0
		}
		k.told = h.MaxOutput
		g.all = append(g.all, k)
	}
	return g, nil
}

func (g *gateways) route(q *request, now float64) (int, error) {
	q.gateway = g.next
	g.next = (g.next + 1) % len(g.all)
	g.gauges(now)
	if now-g.lastTick >= 1 {
		g.lastTick = now
		for _, k := range g.all {
			k.sched.Tick(at(now))
		}
	}
	k := g.all[q.gateway]
	if g.hints.NextTurn != "" && q.think > 0 && q.nextTurn == 0 {
		q.nextTurn = g.hints.say(q.think, g.doubt)
	}
	d, err := k.decide(q, now, nil)
	if err == nil && g.follow != nil {
		d, err = g.follow.place(k, q, d, now)
	}
	if err != nil {
		var none *sched.UnavailableError
		if errors.As(err, &none) {
			q.exclude = q.exclude[:0] // the client's next try is a new request
			return 0, errNowhere
		}
		var shed *sched.ShedError
		if errors.As(err, &shed) {
			return 0, errShed
		}
		return 0, err
	}
	q.decision, q.believed = d, d.Overlap.Held()
	q.replica = k.replica[d.Target]
	g.share(q, 'r', now)
	return q.replica, nil
}

// gauges gives the cores what the engines say of themselves, as often as they
// are asked.
func (g *gateways) gauges(now float64) {
	if !g.engine || now < g.lastGauge+g.faults.Gauges {
		return
	}
	g.lastGauge = now
	for r, e := range g.cluster.engines {
		if e == nil {
			continue
		}
		s := kv.Gauge{Waiting: e.Waiting(), Running: e.Running(), KVUsage: e.Usage(), At: at(now)}
		for _, k := range g.all {
			if k.targets[r] != kv.NoTarget {
				k.sched.SetGauge(k.targets[r], s)
			}
		}
	}
}

func (g *gateways) admitted(*request) {}

func (g *gateways) first(q *request, now float64) {
	q.decision.FirstToken(at(now))
	q.decision.Progress(1, at(now))
	g.share(q, 'f', now)
}

func (g *gateways) progress(q *request, n int, now float64) { q.decision.Progress(n, at(now)) }

func (g *gateways) done(q *request, now float64) {
	t := at(now)
	q.decision.Progress(q.Output-q.told, t)
	q.decision.Served(q.Prompt, q.hit)
	q.decision.Done(t, sched.Completed)
	q.decision = nil
	g.share(q, 'd', now)
}

func (g *gateways) failed(q *request, now float64) {
	q.exclude = append(q.exclude, q.decision.Target)
	q.decision.Done(at(now), sched.Failed)
	q.decision = nil
	g.share(q, 'd', now)
}

// share notes what other gateways should hear, or tells them at once.
func (g *gateways) share(q *request, what byte, now float64) {
	if len(g.all) == 1 || math.IsInf(g.faults.Share, 1) {
		return
	}
	g.news[q.gateway] = append(g.news[q.gateway], news{q, what, now})
	if g.faults.Share == 0 {
		g.spread(now)
	}
}

// spread tells all gateways each other's news. A request that began and ended
// since the last time is no news.
func (g *gateways) spread(now float64) {
	t := at(now)
	for from := range g.news {
		for _, n := range g.news[from] {
			q := n.q
			switch n.what {
			case 'r':
				if q.decision == nil {
					continue
				}
				q.mirrors = make([]*sched.Decision, len(g.all))
				for i, k := range g.all {
					if i == from {
						continue
					}
					to := k.targets[q.replica]
					if d, err := k.decide(q, now, &to); err == nil {
						q.mirrors[i] = d
					}
				}
			case 'f':
				for _, d := range q.mirrors {
					if d != nil {
						d.FirstToken(t)
					}
				}
			case 'd':
				for _, d := range q.mirrors {
					if d != nil {
						d.Done(t, sched.Cancelled) // its length is for its own gateway to learn from
					}
				}
				q.mirrors = nil
			}
		}
		clear(g.news[from])
		g.news[from] = g.news[from][:0]
	}
}

// events delivers an engine's batch to every gateway: at once, later, or never.
func (g *gateways) events(r int, now float64, events []mock.Event) {
	f := &g.faults
	if f.EventDelay == 0 && f.EventJitter == 0 && f.EventLoss == 0 {
		for _, k := range g.all {
			k.apply(r, events)
		}
		return
	}
	var kept []mock.Event
	for i, k := range g.all {
		if f.EventLoss > 0 && g.dice.Float64() < f.EventLoss {
			g.cluster.metrics.lost++
			continue
		}
		if kept == nil {
			kept = slices.Clone(events)
		}
		t := now + f.EventDelay
		if f.EventJitter > 0 {
			t += f.EventJitter * g.dice.ExpFloat64()
		}
		for len(g.sent[i]) <= r {
			g.sent[i] = append(g.sent[i], 0)
		}
		t = max(t, g.sent[i][r]) // one connection: batches don't overtake each other
		g.sent[i][r] = t
		e := g.cluster.engines[r]
		g.cluster.at(t, func() {
			if g.cluster.engines[r] == e { // else it died meanwhile
				k.apply(r, kept)
			}
		})
	}
}

// A core is one production router in virtual time. The engines' events are its
// only knowledge of their caches.
type core struct {
	sched   *sched.Scheduler
	table   *fleet.Table
	index   *index.Index
	targets []kv.Target // by replica; NoTarget: not in the fleet
	replica []int       // by target
	ids     []int       // by replica: its ID in the table
	names   *names
	size    int
	told    bool // clients say how long their answers will be
	reads   bool // the policy reads the prompts' text

	chain  [1]kv.Chain
	tokens []uint32
	text   []byte
	ev     kv.Event
	hidden []kv.Handle
}

// modelName is what all simulated replicas serve.
const modelName = "sim"

// seed starts the chains of all simulations: fixed, so that runs repeat.
const seed = kv.Seed(1)

// at turns virtual seconds into the time that the core is given.
func at(now float64) time.Time { return time.Unix(0, int64(now*1e9+.5)) }

func newCore(p policy.Config, engines []*mock.Engine, src source, size int, intn func(int) int, hooks sched.Hooks) (*core, error) {
	pol, err := policy.New(p, intn)
	if err != nil {
		return nil, err
	}
	keep := -1
	if hooks.Ended != nil {
		keep = 1 << 12 // they wait there for their requests' ends
	}
	need := policy.Needs(p)
	var shared *names
	if s, ok := src.(interface{ names() *names }); ok {
		shared = s.names()
	}
	c := &core{table: new(fleet.Table), index: index.New(index.Config{Seed: seed}), names: newNames(size, shared), size: size, reads: need.Text}
	c.sched = sched.New(sched.Config{Receipts: keep}, sched.Parts{
		Fleet: c.table, Index: c.index, Seed: seed, Policy: pol, Name: p.Name,
		Ledger: ledger.New(ledger.Config{OutputBlocks: need.OutputBlocks, Private: need.Private}), Hooks: hooks,
	})
	for i, e := range engines {
		if err := c.join(i, e, 0); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// join adds replica i to the fleet, with an empty cache that is known to be empty.
func (c *core) join(i int, e *mock.Engine, now float64) error {
	rep, err := c.table.Add("http://replica-"+strconv.Itoa(i)+":8000", at(now))
	if err != nil {
		return err
	}
	cfg := e.Config()
	err = c.table.Update(rep.ID, func(r *fleet.Replica) {
		r.State = fleet.Up
		r.Models = []kv.Model{{ID: modelName}}
		r.BlockSize, r.Blocks, r.MaxBatch = cfg.BlockSize, cfg.Blocks, cfg.Profile.Budget
	})
	if err != nil {
		return err
	}
	t := rep.Targets[0]
	for len(c.targets) <= i {
		c.targets, c.ids = append(c.targets, kv.NoTarget), append(c.ids, -1)
	}
	c.targets[i], c.ids[i] = t, rep.ID
	for len(c.replica) <= int(t) {
		c.replica = append(c.replica, -1)
	}
	c.replica[t] = i
	c.sched.SetTrust(t, kv.Exact, "simulated from its start", at(now))
	return nil
}

// state sets what the fleet table says of replica i.
func (c *core) state(i int, s fleet.State) error {
	return c.table.Update(c.ids[i], func(r *fleet.Replica) { r.State = s })
}

// forget drops what is known of replica i, whose engine has lost its cache.
func (c *core) forget(i int, now float64) {
	c.sched.Forget(c.targets[i], at(now))
	c.sched.SetTrust(c.targets[i], kv.Exact, "simulated from its start", at(now))
}

// decide routes q; with only, it books it there and nowhere else.
func (c *core) decide(q *request, now float64, only *kv.Target) (*sched.Decision, error) {
	c.chain[0].BlockSize = c.size
	c.chain[0].Hashes = c.names.chain(c.chain[0].Hashes[:0], q.blocks())
	r := sched.Request{
		Model: modelName, Prompt: kv.Prompt{Tokens: q.Prompt, Chains: c.chain[:]},
		Source: "trace", Session: strconv.FormatUint(q.session, 10), Only: only, NextTurn: q.nextTurn,
		MaxOutput: q.said.maxOutput, Output: q.said.expected, Priority: q.said.priority,
	}
	if c.told {
		r.MaxOutput = q.Output
	}
	if c.reads {
		c.text = appendPrompt(c.text[:0], q, c.size)
		r.Text = c.text // a policy keeps a copy
	}
	if only == nil {
		r.Exclude = q.exclude
	}
	return c.sched.Route(&r, at(now))
}

// apply hands the engine's events to the core as package engine would: content
// as tokens, blocks by the engine's own names.
func (c *core) apply(r int, events []mock.Event) {
	t := c.targets[r]
	if t == kv.NoTarget {
		return
	}
	for i := range events {
		e := &events[i]
		c.ev = kv.Event{Kind: e.Kind, Source: kv.Engine, Target: t, Tier: e.Tier, BlockSize: int32(c.size)}
		switch e.Kind {
		case kv.Stored:
			c.hidden, c.tokens = c.hidden[:0], c.tokens[:0]
			for _, h := range e.Hashes {
				c.hidden = append(c.hidden, kv.Handle(h))
				c.tokens = appendContent(c.tokens, h, c.size)
			}
			c.ev.Handles, c.ev.Tokens = c.hidden, c.tokens
			c.ev.Root, c.ev.Parent = e.First == 0, kv.Handle(e.Parent)
		case kv.Removed:
			c.hidden = append(c.hidden[:0], kv.Handle(e.Hash))
			c.ev.Handles = c.hidden
		case kv.Cleared:
			c.ev.AllTiers = true
		}
		c.sched.Apply(&c.ev)
	}
}
