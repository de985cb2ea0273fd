package engine

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A Replica follows one engine process. Make it with New, run it with Run.
type Replica struct {
	cfg    Config
	url    *url.URL
	hooks  Hooks
	client client

	poke       chan struct{} // look now; has room for one
	all        atomic.Bool   // look at everything, not only at what is due
	upNow      atomic.Bool
	inRounds   bool // Run's goroutine: a look has succeeded since the last Down
	downTold   bool
	failures   int
	due        struct{ version, sources time.Time }
	owner      string // owned_by of the models, by which an engine is recognised
	noSource   error  // why we don't know where the events are, as of the last time that we asked
	blind      string // why there are no streams, as told
	streamless []bool // the ranks that it was told for

	ranks rankRange

	mu      sync.Mutex
	info    Info
	streams map[int]*following // by the engine's rank
	run     context.Context    // Run's; nil while not running
	marks   map[int]StreamMark // to go on from, by the engine's rank; nobody has yet
	tombs   tombs
	waiting time.Time    // since when marks wait for their streams
	ended   []StreamMark // where the streams stood when Run ended

	claims sync.Mutex // over moving a mark to a stream; taken before mu
}

// New returns a Replica, or an error that names the field of cfg.
func New(cfg Config, hooks Hooks) (*Replica, error) {
	if hooks.Target == nil || hooks.Apply == nil {
		return nil, errors.New("engine: Hooks.Target and Hooks.Apply are required")
	}
	cfg, u, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	r := &Replica{cfg: cfg, url: u, hooks: hooks, poke: make(chan struct{}, 1), streams: map[int]*following{}, marks: map[int]StreamMark{}}
	r.client = client{base: u.String(), key: cfg.APIKey, http: cfg.HTTP, timeout: cfg.Timeout}
	return r, nil
}

// Name returns Config.Name or its default.
func (r *Replica) Name() string { return r.cfg.Name }

// Info returns what is known; its slices must not be changed.
func (r *Replica) Info() Info {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.info
}

// Stats returns what happened on the stream of each rank, by rank.
func (r *Replica) Stats() []StreamStats {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []StreamStats
	for _, f := range r.streams {
		out = append(out, f.snapshot())
	}
	slices.SortFunc(out, func(a, b StreamStats) int { return a.Rank - b.Rank })
	return out
}

// Poll looks at models, metrics and sources soon, not when they are due.
func (r *Replica) Poll() {
	r.all.Store(true)
	select {
	case r.poke <- struct{}{}:
	default:
	}
}

// Refill forgets what is known of a rank's cache and fills it again, by replay
// where the engine has one. It does not wait.
func (r *Replica) Refill(rank int, why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range r.streams {
		if r.ranks.index(f.rank) == rank {
			f.refill(why)
		}
	}
}

// Run follows the engine until ctx ends, whatever happens. Afterwards no hook is
// called any more.
func (r *Replica) Run(ctx context.Context) {
	r.mu.Lock()
	r.run = ctx
	r.mu.Unlock()
	defer r.stopAll()
	timer, gauges := time.NewTimer(0), time.NewTimer(r.cfg.MetricsPoll)
	defer timer.Stop()
	defer gauges.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-r.poke:
		case <-gauges.C:
			if !r.lookAtGauges(ctx) {
				r.Poll() // it may have stopped
			}
			gauges.Reset(r.cfg.MetricsPoll)
			continue
		}
		wait := r.cfg.Poll
		began := time.Now()
		if err := r.look(ctx); err != nil && ctx.Err() == nil {
			if r.failed(err, began) {
				wait /= 4 // once is chance: ask again soon
			}
		}
		timer.Reset(time.Duration(float64(wait) * (0.75 + r.cfg.Jitter()/2)))
	}
}

// failed counts a failed look and tells Down after the second one in a row. It
// returns whether this was the first.
func (r *Replica) failed(err error, began time.Time) (first bool) {
	r.failures++
	if r.hooks.Missed != nil {
		r.hooks.Missed(err, r.failures, began)
	}
	r.inRounds = false
	r.disownRest(time.Now(), false)
	if r.failures == 1 {
		return true
	}
	if r.upNow.Swap(false) || !r.downTold {
		r.downTold = true
		r.cfg.Log.Warn("engine is down", "error", err)
		if r.hooks.Down != nil {
			r.hooks.Down(err)
		}
	}
	return false
}

// look asks what is due. An error means that the replica can't serve; what is
// only nice to know is logged.
func (r *Replica) look(ctx context.Context) error {
	now := time.Now()
	all := r.all.Swap(false) || !r.inRounds
	probe, cancel := context.WithTimeout(ctx, r.cfg.Probe)
	err := r.client.health(probe)
	cancel()
	if err != nil {
		return err
	}
	models, owner, err := r.client.models(ctx)
	if err != nil {
		return err
	}
	i := r.Info()
	if names := gone(i.Models, models); len(names) > 0 {
		r.adaptersGone(names, now)
	}
	i.Models = models
	if i.Kind == "" {
		i.Kind = kindOf(owner, nil)
	}
	if all || now.After(r.due.version) {
		r.due.version = now.Add(10 * r.cfg.SourcesPoll)
		if v, err := r.client.version(ctx); err == nil {
			i.Version = v
		}
	}
	r.owner = owner
	if all {
		r.lookAtMetrics(ctx, &i)
	}
	if all || !now.Before(r.due.sources) || r.anyDown() && r.cfg.Events == EventsAsk {
		r.due.sources = now.Add(r.cfg.SourcesPoll)
		r.noSource = r.lookForSources(ctx, &i)
		if r.noSource != nil && len(i.Sources) > 0 { // those that we know may be right
			r.cfg.Log.Warn("can't find out where the events are", "error", r.noSource)
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	for n := max(1, r.cfg.Ranks, len(i.Sources)); len(i.Ranks) < n; {
		i.Ranks = append(slices.Clip(i.Ranks), Rank{})
	}
	r.tell(i)
	r.failures, r.inRounds = 0, true
	if !r.upNow.Swap(true) {
		r.downTold = false
		r.cfg.Log.Info("engine is up", "kind", i.Kind, "version", i.Version, "models", len(i.Models), "ranks", len(i.Ranks))
		if r.hooks.Up != nil {
			r.hooks.Up()
		}
	}
	r.follow(i)
	return nil
}

// tell makes i what is known.
func (r *Replica) tell(i Info) {
	r.ranks.set(i.FirstRank, len(i.Ranks))
	r.mu.Lock()
	r.info = i
	r.mu.Unlock()
	if r.hooks.Info != nil {
		r.hooks.Info(i)
	}
}

// lookAtGauges reads the metrics of an engine that is up, between two looks at
// everything else: load figures age much faster than models. It returns false if the
// engine doesn't answer in time.
func (r *Replica) lookAtGauges(ctx context.Context) bool {
	if !r.inRounds {
		return true
	}
	i := r.Info()
	ranks := len(i.Ranks)
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Probe)
	defer cancel()
	if r.lookAtMetrics(ctx, &i); ctx.Err() != nil {
		return !errors.Is(ctx.Err(), context.DeadlineExceeded)
	}
	for len(i.Ranks) < ranks { // it says less than before; look decides how many there are
		i.Ranks = append(slices.Clip(i.Ranks), Rank{})
	}
	r.tell(i)
	return true
}

// lookAtMetrics reads the metrics, and tells the streams when the process began.
func (r *Replica) lookAtMetrics(ctx context.Context, i *Info) {
	connects := map[*stream]uint64{}
	r.mu.Lock()
	for _, f := range r.streams {
		connects[f.stream] = f.connects.Load()
	}
	r.mu.Unlock()
	m, err := r.client.metrics(ctx)
	if err != nil {
		r.cfg.Log.Debug("no metrics", "error", err)
		i.Ranks = make([]Rank, len(i.Ranks)) // as many as there were
		return
	}
	i.Kind = kindOf(r.owner, m)
	if m.blockSize > 0 {
		i.BlockSize, i.Blocks = m.blockSize, m.blocks
	}
	i.FirstRank = 0
	for i.FirstRank < len(m.ranks)-1 && m.ranks[i.FirstRank] == (Rank{}) {
		i.FirstRank++
	}
	was := i.Ranks
	i.Ranks = m.ranks[min(i.FirstRank, len(m.ranks)):]
	for n, rank := range i.Ranks {
		if rank.Asleep && n < len(was) && !was[n].Asleep {
			for s := range connects {
				if r.ranks.index(s.rank) == n {
					s.emptied("the engine has gone to sleep")
				}
			}
		}
	}
	i.Started = m.started
	if m.started > 0 {
		for s, n := range connects {
			s.process(m.started, n)
		}
	}
}

// lookForSources sets i.Sources by configuration or by asking.
func (r *Replica) lookForSources(ctx context.Context, i *Info) (err error) {
	switch r.cfg.Events {
	case EventsAsk, EventsListen: // from one that dials us we want to know its replay service
		sources, err := r.client.sources(ctx, r.url.Hostname(), i)
		if err == nil || errors.Is(err, errNoEvents) {
			i.Sources = sources
		}
		return err
	case EventsOff:
		return nil
	}
	i.Sources, err = ranks(r.cfg.Events, r.cfg.Replay, max(1, r.cfg.Ranks, len(i.Ranks)), "")
	for n := range i.Sources {
		i.Sources[n].Rank += i.FirstRank
	}
	return err
}
