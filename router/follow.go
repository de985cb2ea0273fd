package router

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"kvasir/config"
	"kvasir/engine"
	"kvasir/fleet"
	"kvasir/index"
	"kvasir/kv"
	"kvasir/proxy"
	"kvasir/token/library"
)

// A follower ties one configured engine to its row in the fleet's table.
type follower struct {
	r       *Router
	id      int // in the table
	name    string
	replica *engine.Replica
	index   index.TargetConfig // how to read its events
	life    context.Context    // of the router; set before replica runs

	// avoided is why its targets get no requests, nil or "" if they do.
	avoided atomic.Pointer[string]

	// blockSize is what the engine's events say, once they do: stronger than
	// its configuration, and that than what is assumed where it says nothing.
	blockSize  atomic.Int32
	configured atomic.Int32
	assumed    int
	blocks     fullBlocks
	otherSize  atomic.Bool // it was said that events and configuration differ
}

// addEngines puts the configured engines into the table.
func (r *Router) addEngines() error {
	for i, e := range r.cfg.Engines {
		row, err := r.table.Add(e.URL, time.Now())
		if err != nil {
			return fmt.Errorf("engines[%d]: %w", i, err)
		}
		f := &follower{r: r, id: row.ID, name: row.Name, assumed: e.BlockSize}
		if f.index, err = e.Index(); err != nil {
			return fmt.Errorf("engines[%d]: %w", i, err)
		}
		f.replica, err = engine.New(r.engineConfig(e, row), engine.Hooks{Target: f.target, Apply: f.apply, Trust: f.trust, Info: f.info, Up: f.up, Missed: f.missed})
		if err != nil {
			return fmt.Errorf("engines[%d]: %w", i, err)
		}
		r.followers = append(r.followers, f)
	}
	return nil
}

func (r *Router) engineConfig(e config.Engine, row *fleet.Replica) engine.Config {
	return engine.Config{
		Name: row.Name, URL: row.URL, Events: e.Events, Replay: e.Replay, Ranks: e.Ranks,
		Poll: r.cfg.Poll, MetricsPoll: r.cfg.MetricsEvery(), Seed: r.seed, Log: slog.New(warnings{r.log.Handler()}),
	}
}

func (r *Router) follower(id int) *follower {
	for _, f := range r.followers {
		if f.id == id {
			return f
		}
	}
	return nil
}

func (f *follower) row() *fleet.Replica {
	for _, x := range f.r.table.Snapshot().Replicas {
		if x.ID == f.id {
			return x
		}
	}
	return nil
}

func (f *follower) target(rank int) kv.Target {
	row := f.row()
	if row == nil || rank < 0 || rank >= len(row.Targets) {
		return kv.NoTarget
	}
	return row.Targets[rank]
}

// apply takes one event of the engine. The size of its full blocks is the truth.
func (f *follower) apply(ev *kv.Event) {
	size, main, rest := f.blocks.take(ev)
	switch {
	case rest:
		return
	case main && size != f.blockSize.Load():
		f.setBlockSize(int(size))
	case !main && size > 0 && size != f.blockSize.Load():
		f.addBlockSize(int(size))
	}
	f.r.sched.Apply(ev)
}

func (f *follower) setBlockSize(n int) {
	f.blockSize.Store(int32(n))
	f.r.table.Update(f.id, func(x *fleet.Replica) { x.BlockSize = n })
	if was := int(f.configured.Load()); was != 0 && was != n && !f.otherSize.Swap(true) {
		f.r.log.Warn("the engine's events have another block size than its configuration", "replica", f.name, "configured", was, "events", n)
	}
}

// addBlockSize notes the size of a further dense group: prompts are looked for in its
// blocks too.
func (f *follower) addBlockSize(n int) {
	if row := f.row(); row == nil || slices.Contains(row.MoreSizes, n) || len(row.MoreSizes) >= maxSizes {
		return
	}
	f.r.table.Update(f.id, func(x *fleet.Replica) { x.MoreSizes = append(slices.Clone(x.MoreSizes), n) })
}

// maxSizes bounds the block sizes of one engine beside its main one: each costs a hash of
// every prompt.
const maxSizes = 4

func (f *follower) trust(t kv.Target, s kv.Trust, why string) {
	was := f.r.sched.State(t)
	f.r.sched.SetTrust(t, s, why, time.Now())
	if was.Trust != s {
		f.r.log.Info("trust", "replica", f.name, "target", int(t), "is", s.String(), "was", was.Trust.String(), "why", why)
	}
}

// info takes what the engine says of itself. An engine that answers is up.
func (f *follower) info(i engine.Info) {
	now := time.Now()
	if n := max(len(i.Ranks), 1); n != len(f.row().Targets) {
		f.setRanks(n, now)
	}
	f.configured.Store(int32(i.BlockSize))
	f.r.table.Update(f.id, func(x *fleet.Replica) {
		x.Version, x.Blocks, x.MaxBatch, x.FirstRank = i.Version, i.Blocks, i.MaxBatch, i.FirstRank
		x.BlockSize = cmp.Or(int(f.blockSize.Load()), i.BlockSize, f.assumed)
		x.Priorities = priorities(&i)
		x.Models = slices.Clone(i.Models)
	})
	for rank, g := range i.Ranks {
		if t := f.target(rank); g.Known() && t != kv.NoTarget {
			f.r.sched.SetGauge(t, g.Gauge)
		}
	}
	if f.r.library != nil {
		f.r.library.Learn(f.life, library.Engine{Kind: i.Kind, Version: i.Version}, i.Models)
	}
	f.up()
}

// priorities returns how an engine takes the "priority" of requests. What is not
// known to be either is not guessed: the router would refuse the wrong ones.
func priorities(i *engine.Info) fleet.Order {
	switch {
	case i.Kind == "vllm", i.Kind == "sglang" && i.LowFirst:
		return fleet.LowFirst
	case i.Kind == "sglang":
		return fleet.HighFirst
	}
	return fleet.NoOrder
}

func (f *follower) setRanks(n int, at time.Time) {
	f.r.layout.Lock()
	defer f.r.layout.Unlock()
	now, lost, err := f.r.table.SetRanks(f.id, n)
	if err != nil {
		f.r.log.Error("ranks", "replica", f.name, "err", err)
		return
	}
	for _, t := range now {
		f.r.index.SetTarget(t, f.index)
		if f.r.sched.State(t).Since.IsZero() {
			f.r.sched.SetTrust(t, kv.Unknown, "no events yet", at)
		}
	}
	for _, t := range lost {
		f.r.sched.Forget(t, at)
		f.r.table.Release(t)
	}
}

func (f *follower) up() {
	why := ""
	if p := f.avoided.Load(); p != nil {
		why = *p
	}
	f.set(fleet.Up, why)
}

// avoid is told by the front door when a target gets no requests for a while because they
// fail, and, with an empty why, when it gets them again.
func (r *Router) avoid(x *fleet.Replica, t kv.Target, why string) {
	f := r.follower(x.ID)
	if f == nil {
		return
	}
	f.avoided.Store(&why)
	if f.row() != nil && f.row().State == fleet.Up {
		f.set(fleet.Up, why)
	}
	if why == "" {
		r.log.Info("requests go there again", "replica", x.Name, "rank", x.Rank(t))
		return
	}
	r.log.Warn("requests go elsewhere", "replica", x.Name, "rank", x.Rank(t), "why", why)
}

// missed is told each look at the engine that failed, the n-th in a row. One whose port
// refuses connections is down. One that is late gets no new work; when it is late again,
// it has stopped, and what waits there for a first byte goes elsewhere: now, not when its
// time is over. But one that sends answers meanwhile is well, whatever its health says.
func (f *follower) missed(err error, n int, began time.Time) {
	row := f.row()
	refused, late := errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, context.DeadlineExceeded)
	switch {
	case row == nil || n == 1 && !refused && !late: // once is chance
		return
	case !refused && f.r.proxy.Heard(row, began):
		f.set(fleet.Up, "it fails its health checks, but serves requests: "+err.Error())
		return
	}
	f.set(fleet.Down, err.Error())
	switch {
	case refused:
		f.r.proxy.Gone(f.id)
	case late && n > 1 && f.r.another(row):
		f.r.proxy.Frozen(f.id)
	}
}

// set changes the replica's state and says so once.
func (f *follower) set(s fleet.State, reason string) {
	row := f.row()
	if row == nil || row.State == s && row.Reason == reason || row.State == fleet.Draining {
		return
	}
	was := row.State
	f.r.table.Update(f.id, func(x *fleet.Replica) {
		if x.State != s {
			x.Since = time.Now()
		}
		x.State, x.Reason = s, reason
	})
	if was != s && s == fleet.Up { // of what is down the follower's warning tells, or the failed request
		row = f.row()
		f.r.log.Info("requests go there", "replica", f.name, "models", modelIDs(row), "version", row.Version, "block_size", row.BlockSize, "blocks", row.Blocks, "ranks", len(row.Targets))
	}
}

func modelIDs(row *fleet.Replica) []string {
	var out []string
	for _, m := range row.Models {
		out = append(out, m.ID)
	}
	return out
}

// another reports whether another replica that is up serves a model of x: the last
// one is asked all the same, so that its own answer is what the client gets.
func (r *Router) another(x *fleet.Replica) bool {
	for _, y := range r.table.Snapshot().Replicas {
		if y.ID == x.ID || y.State != fleet.Up {
			continue
		}
		for _, m := range x.Models {
			if _, ok := y.Serves(m.ID); ok {
				return true
			}
		}
	}
	return false
}

// failed is told by the front door about an engine that did not answer: nobody
// else is sent to an engine that refuses connections, until it answers again.
func (r *Router) failed(x *fleet.Replica, why proxy.Reason, err error) {
	f := r.follower(x.ID)
	if f == nil {
		return
	}
	r.complaints.warn(x.Name, why.String(), err, time.Now())
	switch why {
	case proxy.Unreachable:
		f.set(fleet.Down, "a request could not reach it")
	case proxy.Broken, proxy.ServerError, proxy.Stalled, proxy.Silent, proxy.Gateway, proxy.Aborting:
	default: // what an engine says to one client is no word about the engine
		return
	}
	f.replica.Poll()
}

// warnings lets an engine's warnings through, and its other lines only where
// debugging is on: the router itself says what has changed.
type warnings struct{ slog.Handler }

func (w warnings) Enabled(ctx context.Context, l slog.Level) bool {
	return w.Handler.Enabled(ctx, l) && (l >= slog.LevelWarn || w.Handler.Enabled(ctx, slog.LevelDebug))
}

func (w warnings) WithAttrs(a []slog.Attr) slog.Handler { return warnings{w.Handler.WithAttrs(a)} }
func (w warnings) WithGroup(n string) slog.Handler      { return warnings{w.Handler.WithGroup(n)} }
