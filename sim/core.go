package sim

import (
	"fmt"
	"strconv"
	"time"

	"kvasir/fleet"
	"kvasir/index"
	"kvasir/kv"
	"kvasir/load"
	"kvasir/model"
	"kvasir/policy"
	"kvasir/sched"
)

// core drives the production code: one Scheduler with its own fleet table, index,
// ledger and policy, in virtual time. The engines' events are its only knowledge
// of their caches.
type core struct {
	sched   *sched.Scheduler
	table   *fleet.Table
	index   *index.Index
	targets []kv.Target // by replica
	replica []int       // by target
	names   *names
	size    int
	metrics *metrics

	prompt kv.Prompt
	chain  [1]kv.Chain
	tokens []uint32
	ev     kv.Event
	hidden []kv.Handle
}

// modelName is what all simulated replicas serve.
const modelName = "sim"

// seed starts the chains of all simulations: fixed, so that runs repeat.
const seed = kv.Seed(1)

// at turns virtual seconds into the time that the core is given.
func at(now float64) time.Time { return time.Unix(0, int64(now*1e9+.5)) }

func newCore(p policy.Config, engines []*model.Engine, n *names, size int, intn func(int) int, m *metrics) (*core, error) {
	pol, err := policy.New(p, intn)
	if err != nil {
		return nil, err
	}
	need := policy.Needs(p)
	c := &core{table: new(fleet.Table), index: index.New(index.Config{Seed: seed}), names: n, size: size, metrics: m}
	c.sched = sched.New(sched.Config{Receipts: -1}, sched.Parts{
		Fleet: c.table, Index: c.index, Seed: seed, Policy: pol, Name: p.Name,
		Ledger: load.New(load.Config{OutputBlocks: need.OutputBlocks, Private: need.Private}),
	})
	for i, e := range engines {
		if err := c.join(i, e, 0); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// join adds replica i to the fleet, with an empty cache that is known to be empty.
func (c *core) join(i int, e *model.Engine, now float64) error {
	rep, err := c.table.Add("http://replica-"+strconv.Itoa(i)+":8000", at(now))
	if err != nil {
		return err
	}
	cfg := e.Config()
	err = c.table.Update(rep.ID, func(r *fleet.Replica) {
		r.State = fleet.Up
		r.Models = []fleet.Model{{ID: modelName}}
		r.BlockSize, r.Blocks, r.MaxBatch = cfg.BlockSize, cfg.Blocks, cfg.Profile.Budget
	})
	if err != nil {
		return err
	}
	t := rep.Targets[0]
	for len(c.targets) <= i {
		c.targets = append(c.targets, kv.NoTarget)
	}
	c.targets[i] = t
	for len(c.replica) <= int(t) {
		c.replica = append(c.replica, -1)
	}
	c.replica[t] = i
	c.sched.SetTrust(t, kv.Exact, "simulated from its start", at(now))
	return nil
}

func (c *core) route(q *request, now float64) (int, error) {
	c.chain[0].BlockSize = c.size
	c.chain[0].Hashes = c.names.chain(c.chain[0].Hashes[:0], q.Blocks)
	d, err := c.sched.Route(&sched.Request{
		Model: modelName, Prompt: kv.Prompt{Tokens: q.Prompt, Chains: c.chain[:]},
		Source: "trace", Session: strconv.FormatUint(q.session, 10), Exclude: q.exclude,
	}, at(now))
	if err != nil {
		return 0, err
	}
	q.decision = d
	q.believed = d.Overlap.Held()
	r := c.replica[d.Target]
	c.metrics.placed(q, r, now)
	return r, nil
}

func (c *core) admitted(*request) {}

func (c *core) first(q *request, now float64) {
	q.decision.FirstToken(at(now))
	q.decision.Progress(1, at(now))
}

func (c *core) done(q *request, now float64) {
	t := at(now)
	q.decision.Progress(q.Output-1, t)
	q.decision.Served(q.Prompt, q.hit)
	q.decision.Done(t, sched.Completed)
	q.decision = nil
}

// events hands the engine's events to the core as package engine would: content
// as tokens, blocks by the engine's own names.
func (c *core) events(r int, _ float64, events []model.Event) {
	for i := range events {
		e := &events[i]
		c.ev = kv.Event{Kind: e.Kind, Source: kv.Engine, Target: c.targets[r], Tier: e.Tier, BlockSize: int32(c.size)}
		switch e.Kind {
		case kv.Stored:
			c.hidden = c.hidden[:0]
			c.tokens = c.tokens[:0]
			for _, h := range e.Hashes {
				c.hidden = append(c.hidden, kv.Handle(h))
				c.tokens = appendContent(c.tokens, h, c.size)
			}
			c.ev.Handles, c.ev.Tokens = c.hidden, c.tokens
			if e.First == 0 {
				c.ev.Root = true
			} else {
				c.ev.Parent = kv.Handle(e.Parent)
			}
		case kv.Removed:
			c.hidden = append(c.hidden[:0], kv.Handle(e.Hash))
			c.ev.Handles = c.hidden
		case kv.Cleared:
			c.ev.AllTiers = true
		}
		c.sched.Apply(&c.ev)
	}
}

// appendContent appends the tokens of the block that the trace calls id.
func appendContent(dst []uint32, id kv.Hash, size int) []uint32 {
	base := uint32(h64(uint64(id)))
	for i := range size {
		dst = append(dst, base+uint32(i))
	}
	return dst
}

// names remembers the chained hash of each of the trace's block ids. Ids are
// chained already, so each has one hash. The zero names is not ready.
type names struct {
	size   int
	known  map[kv.Hash]kv.Hash
	tokens []uint32
	root   kv.Hash
	parent *names // read-only, shared by runs
}

func newNames(size int, parent *names) *names {
	return &names{size: size, known: map[kv.Hash]kv.Hash{}, root: seed.Root(kv.Key{}, size), parent: parent}
}

// chain appends the hashes of a prompt's blocks.
func (n *names) chain(dst []kv.Hash, blocks []kv.Hash) []kv.Hash {
	prev := n.root
	for _, id := range blocks {
		h, ok := kv.Hash(0), false
		if n.parent != nil {
			h, ok = n.parent.known[id]
		}
		if !ok {
			h, ok = n.known[id]
		}
		if !ok {
			n.tokens = appendContent(n.tokens[:0], id, n.size)
			at := len(dst)
			dst = seed.Extend(dst, prev, n.tokens, n.size, nil)
			h = dst[at]
			n.known[id] = h
			prev = h
			continue
		}
		dst = append(dst, h)
		prev = h
	}
	return dst
}

var _ = fmt.Sprint
