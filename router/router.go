// Package router assembles the parts into a running router: the fleet that is
// configured, one follower per engine, the scheduler, the front door and the
// admin listener. It owns every goroutine that no part owns by itself.
package router

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"kvasir/config"
	"kvasir/engine"
	"kvasir/fleet"
	"kvasir/index"
	"kvasir/kv"
	"kvasir/ledger"
	"kvasir/metrics"
	"kvasir/policy"
	"kvasir/proxy"
	"kvasir/receipt"
	"kvasir/sched"
	"kvasir/token"
	"kvasir/token/library"
	"kvasir/web"
)

// A Router is one running router.
type Router struct {
	cfg     config.Config
	log     *slog.Logger
	version string

	table      *fleet.Table
	index      *index.Index
	sched      *sched.Scheduler
	proxy      *proxy.Proxy
	remote     *token.Remote
	library    *library.Library // nil: no tokens are made here
	complaints complaints
	seed       kv.Seed

	layout   sync.Mutex   // over targets changing hands, and writing whose blocks are whose
	receipts *receipt.Log // nil: not kept in a file

	keptMu sync.Mutex
	kept   metrics.Kept // guarded by keptMu

	followers []*follower
	listener  *engine.Listener // nil: no engine dials us
	front     *http.Server
	admin     *http.Server
	frontLn   net.Listener
	adminLn   net.Listener
	running   sync.WaitGroup
}

// New builds a router; it binds nothing and dials nobody yet. Engines that are
// named twice are an error.
func New(cfg config.Config, log *slog.Logger, version string) (*Router, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	r := &Router{cfg: cfg, log: log, version: version, complaints: complaints{log: log}, table: new(fleet.Table), seed: kv.Seed(rand.Uint64())}
	pol, err := policy.New(cfg.Policy, rand.IntN)
	if err != nil {
		return nil, err
	}
	h, file, rest := r.openWarm()
	if h != nil {
		defer file.Close()
		r.seed = h.Seed
	}
	if err := r.addEngines(); err != nil {
		return nil, err
	}
	var warm []kv.Target
	if h != nil {
		r.index, warm = r.loadIndex(h, rest)
	}
	if r.index == nil {
		r.index = index.New(index.Config{Seed: r.seed, MaxBytes: cfg.IndexBytes})
	}
	for _, f := range r.followers {
		for _, t := range f.row().Targets {
			r.index.SetTarget(t, f.index)
		}
	}
	need := policy.Needs(cfg.Policy)
	r.sched = sched.New(sched.Config{Receipts: cmp.Or(cfg.Receipts, -1)}, sched.Parts{
		Fleet: r.table, Index: r.index, Seed: r.seed, Policy: pol, Name: cfg.Policy.Name,
		Ledger: ledger.New(ledger.Config{OutputBlocks: need.OutputBlocks, Private: need.Private}),
		Hooks:  sched.Hooks{Drifted: r.drifted, Short: r.short, Ended: r.ended},
	})
	for _, f := range r.followers {
		for _, t := range f.row().Targets {
			r.sched.SetTrust(t, kv.Unknown, "the engine has not answered yet", time.Now())
		}
	}
	for _, t := range warm {
		r.sched.SetTrust(t, kv.Filling, "loaded from a snapshot, not confirmed by the engine yet", time.Now())
	}
	transport := proxy.Transport(cfg.Proxy)
	r.remote = token.NewRemote(cfg.Tokens.Remote, &http.Client{Transport: transport}, r.seed, r.urls, time.Now)
	r.proxy, err = proxy.New(cfg.Proxy, proxy.Parts{
		Fleet: r.table, Sched: r.sched, Token: r.newSource(), Text: need.Text, Between: need.Between, Transport: transport,
		Hooks: proxy.Hooks{Failed: r.failed, Avoided: r.avoid},
	})
	return r, err
}

// drifted fills afresh what is known of a target that serves less than it promises.
func (r *Router) drifted(t kv.Target, why string) {
	row := r.table.Snapshot().Replica(t)
	if row == nil {
		return
	}
	if f := r.follower(row.ID); f != nil {
		r.log.Warn("drift: filling afresh", "replica", row.Name, "rank", row.Rank(t), "why", why)
		f.replica.Refill(row.Rank(t), "drift: "+why)
	}
}

// short says what was learned of a target that serves less than it promises even after
// what is known of it was filled afresh.
func (r *Router) short(t kv.Target, why string) {
	if row := r.table.Snapshot().Replica(t); row != nil {
		r.log.Warn("the engine serves less than its blocks say; it is priced with what it serves", "replica", row.Name, "rank", row.Rank(t), "why", why)
	}
}

// forget drops what is known of a replica's cache, because an operator says so.
func (r *Router) forget(name, adapter string) error {
	row := r.table.Snapshot().Named(name)
	if row == nil {
		return fmt.Errorf("replica %q: not in the fleet; want a name as in /v1/kvasir/fleet", name)
	}
	r.log.Warn("forgetting what the engine held, as asked", "replica", name, "adapter", adapter)
	r.follower(row.ID).replica.Forget(adapter, "an operator says that it isn't true any more")
	return nil
}

// urls returns the engines that can be asked about model.
func (r *Router) urls(model string) []string {
	var out []string
	for _, x := range r.table.Snapshot().Replicas {
		if _, ok := x.Serves(model); ok && x.State == fleet.Up {
			out = append(out, x.URL)
		}
	}
	return out
}

// Start binds the listeners and begins to follow the engines and to serve.
func (r *Router) Start(ctx context.Context) (err error) {
	if err = r.openReceipts(); err != nil {
		return err
	}
	if r.frontLn, err = listen(r.cfg.Listen); err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	if r.cfg.Admin != "off" {
		if r.adminLn, err = net.Listen("tcp", r.cfg.Admin); err != nil {
			r.frontLn.Close()
			return fmt.Errorf("admin: %w", err)
		}
	}
	if err = r.listen(); err != nil {
		return err
	}
	for _, f := range r.followers {
		f.life = ctx
		r.running.Go(func() { f.replica.Run(ctx) })
	}
	r.restore()
	r.running.Go(func() { r.tick(ctx) })
	if r.receipts != nil {
		r.running.Go(func() { r.receipts.Run(ctx) })
	}
	r.running.Go(func() { r.keepIndexEvery(ctx) })
	door := proxy.NewListener(r.frontLn, r.cfg.Proxy)
	r.front = door.Server(r.proxy, log.New(serverLog{r.log}, "", 0))
	r.running.Go(func() { r.serve("front door", r.front, door) })
	if r.adminLn != nil {
		r.admin = &http.Server{Handler: r.adminHandler(), ReadHeaderTimeout: 30 * time.Second}
		r.running.Go(func() { r.serve("admin", r.admin, r.adminLn) })
	}
	r.log.Info("serving", "listen", r.URL(), "admin", r.AdminURL(), "policy", r.cfg.Policy.Name, "engines", len(r.followers))
	return nil
}

// listen lets engines dial us with their events, where that is configured.
func (r *Router) listen() (err error) {
	if r.cfg.EventsListen == "" {
		return nil
	}
	replicas := make([]*engine.Replica, len(r.followers))
	for i, f := range r.followers {
		replicas[i] = f.replica
	}
	r.listener, err = engine.Listen(engine.ListenConfig{
		Bind: r.cfg.EventsListen, Identify: engine.Among(func() []*engine.Replica { return replicas }), Log: r.log,
	})
	if err != nil {
		return fmt.Errorf("events_listen: %w", err)
	}
	r.log.Info("engines may dial in with their events", "listen", r.listener.Addr)
	return nil
}

func (r *Router) serve(what string, s *http.Server, ln net.Listener) {
	if err := s.Serve(ln); err != nil && !errors.Is(err, http.ErrServerClosed) {
		r.log.Error("listener ended", "what", what, "err", err)
	}
}

func (r *Router) adminHandler() http.Handler {
	return web.Handler(web.Parts{
		Fleet: r.table, Sched: r.sched, Policy: r.cfg.Policy.Name, Version: r.version, Now: time.Now, Blocks: r.blocks, Events: r.streamOf, Forget: r.forget,
		Metrics: metrics.Handler(metrics.Parts{
			Fleet: r.table, Sched: r.sched, Proxy: r.proxy.Stats, Tokens: r.remote.Stats, Local: r.localStats, Index: r.index.Stats, Version: r.version, Now: time.Now,
			Blocks: r.blocks, Events: r.streamEvents, Kept: r.keptStats(), Receipts: r.receiptStats(),
		}),
	})
}

// URL returns the front door's base URL, once started.
func (r *Router) URL() string { return baseURL(r.frontLn) }

// AdminURL returns the admin listener's base URL, "" if it is off.
func (r *Router) AdminURL() string { return baseURL(r.adminLn) }

func baseURL(ln net.Listener) string {
	if ln == nil {
		return ""
	}
	addr := ln.Addr().(*net.TCPAddr)
	host := addr.IP.String()
	if addr.IP.IsUnspecified() {
		host = "localhost"
	}
	return "http://" + net.JoinHostPort(host, fmt.Sprint(addr.Port))
}

// Ready returns when n replicas are up, or with an error that says which are not.
func (r *Router) Ready(ctx context.Context, n int, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	t := time.NewTicker(20 * time.Millisecond)
	defer t.Stop()
	for {
		up, not := 0, ""
		for _, x := range r.table.Snapshot().Replicas {
			if x.State == fleet.Up {
				up++
			} else {
				not += fmt.Sprintf(" %s is %s (%s);", x.Name, x.State, x.Reason)
			}
		}
		if up >= n {
			return nil
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return fmt.Errorf("only %d of %d engines are up after %v:%s", up, n, limit, not)
		}
	}
}

// Leave says that the router isn't ready any more, and serves on for DrainGrace, so that
// load balancers find out. ctx ends the wait.
func (r *Router) Leave(ctx context.Context) {
	r.log.Info("leaving: not ready any more, still serving", "open", r.proxy.Stats().Open, "for", r.cfg.DrainGrace)
	r.proxy.Leave()
	select {
	case <-time.After(r.cfg.DrainGrace):
	case <-ctx.Done():
	}
}

// Drain takes no connections any more and waits, up to the configured limit, until the
// last answer has been sent. What is open then is told, and the error says so. ctx ends
// it at once.
func (r *Router) Drain(ctx context.Context) error {
	r.proxy.Leave()
	r.log.Info("draining: no new connections", "open", r.proxy.Stats().Open, "limit", r.cfg.Drain)
	if err := r.shutdown(ctx, r.cfg.Drain); err == nil || ctx.Err() != nil {
		return context.Cause(ctx)
	}
	open := r.proxy.Stats().Open
	r.log.Warn("draining: the limit is over, open requests are told", "open", open)
	r.proxy.Cut()
	r.shutdown(ctx, lastWords)
	return fmt.Errorf("drain: %d requests were still open after %v and were cut short (drain)", open, r.cfg.Drain)
}

// lastWords is how long clients have to take the error that ends their streams.
const lastWords = 5 * time.Second

// shutdown closes the front door's listener and its idle connections, and waits until
// those at work have sent their answers.
func (r *Router) shutdown(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return r.front.Shutdown(ctx)
}

// Close ends the listeners and waits until every goroutine has ended. The context
// given to Start must have ended, or Close waits for ever. At last it keeps what
// the index believes, if that is configured.
func (r *Router) Close() {
	if r.front != nil {
		r.front.Close()
	}
	if r.admin != nil {
		r.admin.Close()
	}
	if r.listener != nil {
		r.listener.Close()
	}
	r.running.Wait()
	if r.library != nil {
		r.library.Wait()
	}
	if r.receipts != nil {
		r.receipts.Close()
	}
	if r.frontLn != nil { // was started
		r.keepIndex()
	}
	r.log.Info("stopped")
}

// restore gives the policy back what the last run had learned. A file that can't
// be used costs that, and nothing else.
func (r *Router) restore() {
	if r.cfg.State == "" {
		return
	}
	b, err := os.ReadFile(r.cfg.State)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return
	case err == nil:
		err = r.sched.RestorePolicy(b)
	}
	if err != nil {
		r.log.Warn("the policy starts without what it had learned", "file", r.cfg.State, "err", err)
		return
	}
	r.log.Info("the policy goes on with what it had learned", "file", r.cfg.State)
}

// keep writes what the policy has learned, in one step.
func (r *Router) keep() {
	if r.cfg.State == "" {
		return
	}
	b := r.sched.PolicyState()
	if b == nil {
		return
	}
	tmp := r.cfg.State + ".tmp"
	err := os.WriteFile(tmp, b, 0o644)
	if err == nil {
		err = os.Rename(tmp, r.cfg.State)
	}
	if err != nil {
		r.log.Warn("what the policy has learned can't be kept", "file", r.cfg.State, "err", err)
	}
}

// keepEvery is how often what the policy has learned is written.
const keepEvery = 30 * time.Second

// tick does once a second what is due without a request.
func (r *Router) tick(ctx context.Context) {
	t := time.NewTicker(time.Second)
	defer t.Stop()
	defer r.keep()
	kept := time.Now()
	for {
		select {
		case now := <-t.C:
			if n := r.sched.Tick(now); n > 0 {
				r.log.Warn("bookings given up: their owners are lost", "n", n)
			}
			if now.Sub(kept) >= keepEvery {
				kept = now
				r.keep()
			}
		case <-ctx.Done():
			return
		}
	}
}

// blocks returns what the index has of t, by tier.
func (r *Router) blocks(t kv.Target) [kv.NumTiers]int64 { return r.index.TargetStats(t).Blocks }

func (r *Router) localStats() token.LocalStats {
	if r.library == nil {
		return token.LocalStats{}
	}
	return r.library.Local.Stats()
}

// streamEvents sums up what the engines' streams brought.
func (r *Router) streamEvents() (e metrics.Events) {
	for _, f := range r.followers {
		for _, s := range f.replica.Stats() {
			e.Batches += s.Seq.Applied
			e.Events += s.Wire.Events
			e.Gaps += s.Seq.Gaps
			e.Duplicates += s.Seq.Duplicates
			e.Restarts += s.Seq.Restarts
			e.Replays += s.Seq.Replays
			e.ReplaysFailed += s.Seq.Failed
			e.Dropped += s.Seq.Dropped + s.Dropped
			e.Forgets += s.Seq.Forgets
			e.Malformed += s.Wire.Malformed + s.Wire.Bad
			e.Unknown += s.Wire.Unknown
		}
	}
	return e
}

// streamOf returns the figures of the event stream that feeds t, nil if none does.
func (r *Router) streamOf(t kv.Target) any {
	row := r.table.Snapshot().Replica(t)
	if row == nil {
		return nil
	}
	f := r.follower(row.ID)
	if f == nil {
		return nil
	}
	rank := row.Rank(t)
	for _, s := range f.replica.Stats() {
		if s.Rank == row.FirstRank+rank || len(row.Targets) == 1 {
			return map[string]uint64{
				"batches": s.Seq.Applied, "events": s.Wire.Events, "gaps": s.Seq.Gaps, "duplicates": s.Seq.Duplicates,
				"restarts": s.Seq.Restarts, "replays": s.Seq.Replays, "replays_failed": s.Seq.Failed,
				"dropped": s.Seq.Dropped + s.Dropped, "malformed": s.Wire.Malformed + s.Wire.Bad, "unknown": s.Wire.Unknown,
			}
		}
	}
	return nil
}
