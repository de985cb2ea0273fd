// Package sim plays workloads against modelled engines in virtual time, with the
// production core deciding: sched, index, load and policy are the code that
// `kvasir serve` runs, fed with a virtual clock's now and with the events of
// engines of package mock.
//
// Beside the product's policies it has the reference simulator's own ones
// ("ref:…", see twin.go), by which the engines, the order of events and the
// metrics were checked: equal to every printed digit (docs/mock.md, "Agreement").
//
// The same Config gives the same Report, byte for byte, whatever GOMAXPROCS.
package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"

	"kvasir/lab/mock"
	"kvasir/policy"
	"kvasir/sched"
)

// Config says what to simulate. See Validate for the ranges.
type Config struct {
	Workload *Workload
	Policies []string // names; see Arms. "all" stands for every product policy
	Replicas int
	Profile  mock.Profile
	KVTokens int      // per replica; 0: the profile's
	Seeds    []uint64 // of ties and faults; each makes a run. nil: 1
	Dice     string   // "python" (ties as in the reference, the default) or "pcg"

	// Engine is "reserved" (the reference's engine, the default) or "paged"
	// (vLLM's: blocks by the chunk, preemption, events at the end of a step).
	Engine string

	// HostTokens is the size of a second cache in the memory of each replica's
	// machine, in tokens; 0: none. Paged engines only.
	HostTokens int

	Faults Faults
	Hints  Hints

	Parallel int // runs at a time; 0: GOMAXPROCS

	// Clock, if set, tells the wall time for Result.Wall. It is the only thing of a
	// Report that isn't determined by the Config.
	Clock func() time.Time
	// Progress, if set, is told now and then how far the runs are; calls don't
	// overlap.
	Progress func(Progress)
	ended    func(*sched.Receipt) // for tests: hears each decision's receipt
	// Curves keeps what the report's plots need.
	Curves bool
}

// A Progress says how far a simulation is.
type Progress struct {
	Runs, RunsDone         int
	Requests, RequestsDone int // over all runs; Requests is an estimate for closed loops without a limit
}

// A Report is the result of all runs: those of the first policy first, by seed.
type Report struct {
	Version int      `json:"version"`
	Runs    []Result `json:"runs"`
	// Recorded is what the workload says of itself, if it is a receipt log.
	Recorded *Recorded `json:"recorded,omitempty"`
	// Stopped says that the context ended before the runs did: Runs has what was
	// known by then, and Result.Partial marks the unfinished ones.
	Stopped bool `json:"stopped,omitempty"`
}

// errStopped ends a run whose context is done.
var errStopped = errors.New("stopped before the end")

// Validate returns an error that names the field, its value and what is accepted.
func (c *Config) Validate() error {
	switch {
	case c.Workload == nil:
		return errors.New("sim: no workload: give an input file or a generator")
	case c.Replicas < 1 || c.Replicas > maxReplicas:
		return fmt.Errorf("sim: replicas is %d, must be between 1 and %d", c.Replicas, maxReplicas)
	case len(c.Policies) == 0:
		return errors.New(`sim: no policy: name one or more, or "all"`)
	case c.KVTokens < 0:
		return fmt.Errorf("sim: kv_tokens is %d, must be positive, or 0 for the profile's %d", c.KVTokens, c.Profile.KVTokens)
	case c.Dice != "" && c.Dice != "python" && c.Dice != "pcg":
		return fmt.Errorf("sim: dice is %q, must be python or pcg", c.Dice)
	case c.Engine != "" && c.Engine != "reserved" && c.Engine != "paged":
		return fmt.Errorf("sim: engine is %q, must be reserved or paged", c.Engine)
	}
	if c.HostTokens < 0 || c.HostTokens > 0 && c.Engine != "paged" {
		return fmt.Errorf("sim: host_tokens is %d, must not be negative, and needs engine paged", c.HostTokens)
	}
	if crowd := c.Workload.crowdReplicas; crowd != 0 && crowd != c.Replicas {
		return fmt.Errorf("sim: the start times are for %d replicas, not %d", crowd, c.Replicas)
	}
	if err := c.Hints.validate(); err != nil {
		return err
	}
	return c.Faults.validate(c.Replicas)
}

// maxReplicas bounds the simulated fleet: the core's limit on targets.
const maxReplicas = 1024

// Run plays the workload once for each policy and seed. If ctx ends first, it
// returns what is known by then, with Report.Stopped set and no error.
func Run(ctx context.Context, c Config) (Report, error) {
	if err := c.Validate(); err != nil {
		return Report{}, err
	}
	arms, err := resolve(c.Policies, c.Profile)
	if err != nil {
		return Report{}, err
	}
	seeds := c.Seeds
	if len(seeds) == 0 {
		seeds = []uint64{1}
	}
	type job struct {
		arm    arm
		seed   uint64
		follow bool
	}
	var jobs []job
	for _, a := range arms {
		for _, s := range seeds {
			jobs = append(jobs, job{a, s, false})
		}
	}
	if c.compares() {
		for _, j := range jobs {
			if j.arm.twin == nil {
				jobs = append(jobs, job{j.arm, j.seed, true})
			}
		}
	}
	c.Workload.prepare()
	meter := newMeter(len(jobs), c.Workload.requests(), c.Progress)
	runs := make([]Result, len(jobs))
	errs := make([]error, len(jobs))
	next := make(chan int)
	var wg sync.WaitGroup
	workers := c.Parallel
	if workers <= 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	for range min(workers, len(jobs)) {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := range next {
				runs[i], errs[i] = c.one(ctx, jobs[i].arm, jobs[i].seed, jobs[i].follow, meter)
			}
		}()
	}
	started := 0
feed:
	for i := range jobs {
		if ctx.Err() != nil { // select would choose at random
			break
		}
		select {
		case next <- i:
			started = i + 1
		case <-ctx.Done():
			break feed
		}
	}
	close(next)
	wg.Wait()
	r := Report{Version: 1, Recorded: c.Workload.recorded}
	var followed []Result
	for i := range started {
		switch {
		case errs[i] == nil && jobs[i].follow:
			followed = append(followed, runs[i])
		case errs[i] == nil:
			r.Runs = append(r.Runs, runs[i])
		case errors.Is(errs[i], errStopped):
			r.Stopped = true
			if runs[i].Requests > 0 && !jobs[i].follow {
				runs[i].Partial = true
				r.Runs = append(r.Runs, runs[i])
			}
		default:
			return r, fmt.Errorf("policy %s, seed %d: %w", jobs[i].arm.name, jobs[i].seed, errs[i])
		}
	}
	r.Runs = compared(r.Runs, followed)
	r.Stopped = r.Stopped || started < len(jobs)
	return r, nil
}

// one makes one run.
func (c *Config) one(ctx context.Context, a arm, seed uint64, follow bool, meter *meter) (Result, error) {
	var begin time.Time
	if c.Clock != nil {
		begin = c.Clock()
	}
	cl, err := c.build(a, seed, follow)
	if err != nil {
		return Result{}, err
	}
	cl.tick = func(done int) bool {
		meter.add(done)
		return ctx.Err() != nil
	}
	err = cl.run()
	run := cl.result()
	if g, ok := cl.router.(*gateways); ok && g.follow != nil {
		run.Choices = &g.follow.Choices
	}
	run.Input, run.Policy, run.Replicas, run.Seed = c.Workload.name, a.name, c.Replicas, seed
	run.Profile, run.KVTokens = c.Profile.Name, cl.profile.KVTokens
	if c.Clock != nil {
		run.Wall = c.Clock().Sub(begin).Seconds()
	}
	if err == nil {
		meter.finished()
	}
	return run, err
}

// build makes the fleet and the router of one run.
func (c *Config) build(a arm, seed uint64, follow bool) (*cluster, error) {
	w := c.Workload
	profile := c.Profile
	if c.KVTokens > 0 {
		profile.KVTokens = c.KVTokens
	}
	var intn func(int) int
	var unit func() float64
	if c.Dice == "pcg" {
		r := rand.New(rand.NewPCG(seed, 0))
		intn, unit = r.IntN, r.Float64
	} else {
		p := NewPython(seed)
		intn, unit = p.Intn, p.Float64
	}
	config := mock.Config{Profile: profile, BlockSize: w.size, Admission: mock.Reserved, Instant: true}
	if c.Engine == "paged" {
		config.Admission, config.Instant, config.HostBlocks = mock.Paged, false, c.HostTokens/w.size
	}
	// A policy that counts output blocks must hear of tokens as they come.
	config.Stream = a.twin == nil && policy.Needs(a.config).OutputBlocks
	if a.twin != nil && a.twin.pool {
		config.Pool = mock.NewPool(c.Replicas * (profile.KVTokens / w.size))
	}
	cl := newCluster(w, config, c.Replicas)
	cl.metrics.curves = c.Curves
	if err := cl.launch(c.Replicas); err != nil {
		return nil, err
	}
	if a.twin != nil {
		if !c.Faults.none() {
			return nil, fmt.Errorf("policy %s sees engines directly: faults don't reach it; use a product policy", a.name)
		}
		x := newExact(cl.engines, w.size, *a.twin)
		x.live, x.intn, x.unit = cl.live, intn, unit
		cl.router = x
		return cl, nil
	}
	g, err := newGateways(cl, a.config, c.Faults, c.Hints, follow, c.ended, seed, intn)
	if err != nil {
		return nil, err
	}
	cl.router = g
	for i := range cl.engines {
		cl.warmed(i)
	}
	return cl, g.schedule(c.Faults)
}

// A meter adds up the progress of parallel runs.
type meter struct {
	mu   sync.Mutex
	tell func(Progress)
	p    Progress
}

func newMeter(runs, requests int, tell func(Progress)) *meter {
	return &meter{tell: tell, p: Progress{Runs: runs, Requests: runs * requests}}
}

func (m *meter) add(requests int) {
	if m.tell == nil || requests == 0 {
		return
	}
	m.mu.Lock()
	m.p.RequestsDone += requests
	m.tell(m.p)
	m.mu.Unlock()
}

func (m *meter) finished() {
	if m.tell == nil {
		return
	}
	m.mu.Lock()
	m.p.RunsDone++
	m.tell(m.p)
	m.mu.Unlock()
}
