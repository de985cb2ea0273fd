// Command agree plays one trace in real time, with modelled engines on real sockets
// behind the real router, and through the simulator with the same profile and policy.
// It prints both and the difference, which should be within 10 % on mean TTFT and hit
// rate, or within what chance explains.
//
//	go run ./lab/experiments/agree -cell ../shared/cells/tool.jsonl.gz -speed 1.1 -n 450 -slow 4 -runs 3
//
// -slow stretches time: engines and arrivals take that many times longer, so that the
// processor time of client, router and engines is small beside what is modelled.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"kvasir/lab/mock"
	"kvasir/lab/replay"
	"kvasir/lab/sim"
)

type options struct {
	cell     string
	speed    float64 // of the cell, before it is stretched
	limit    int
	slow     float64
	replicas int
	profile  string
	kv       int
	policy   string
	runs     int           // in real time
	sims     int           // simulated, with late arrivals
	late     time.Duration // of arrivals and events in those, mean
	gauges   time.Duration // how old the engines' own figures get in those
	virtual  bool
}

func main() {
	var o options
	flag.StringVar(&o.cell, "cell", "../shared/cells/tool.jsonl.gz", "open-loop trace")
	flag.Float64Var(&o.speed, "speed", 1.1, "factor on the trace's rate")
	flag.IntVar(&o.limit, "n", 300, "requests")
	flag.Float64Var(&o.slow, "slow", 4, "stretches time")
	flag.IntVar(&o.replicas, "replicas", 4, "engines")
	flag.StringVar(&o.profile, "profile", "70b", "engine")
	flag.IntVar(&o.kv, "kv-tokens", 150_000, "cache of each engine")
	flag.StringVar(&o.policy, "policy", "marginal", "policy")
	flag.IntVar(&o.runs, "runs", 1, "runs in real time, side by side: an engine that waits costs nothing")
	flag.IntVar(&o.sims, "sims", 32, "simulated runs that differ in lateness and ties")
	flag.DurationVar(&o.late, "late", 3*time.Millisecond, "mean lateness of arrivals and events in those")
	flag.DurationVar(&o.gauges, "gauges", 5*time.Second, "age up to which the simulated router uses the engines' own figures, not stretched: as often as the real one reads them")
	flag.BoolVar(&o.virtual, "virtual", false, "the simulator only")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "agree:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	if o.runs < 1 || o.sims < 2 {
		return fmt.Errorf("-runs %d -sims %d: want at least 1 and 2", o.runs, o.sims)
	}
	p, err := mock.ProfileByName(o.profile)
	if err != nil {
		return err
	}
	p = p.Faster(1 / o.slow)
	p.KVTokens = o.kv
	list, err := load(o)
	if err != nil {
		return err
	}
	exact, err := simulate(ctx, o, p, list, 0)
	if err != nil {
		return err
	}
	spread := make([]sim.Result, o.sims)
	for i := range spread {
		if spread[i], err = simulate(ctx, o, p, list, uint64(i)+1); err != nil {
			return err
		}
	}
	real := make([]*replay.Report, 0, o.runs)
	if !o.virtual {
		if real, err = playAll(ctx, o, p, list); err != nil {
			return err
		}
	}

	fmt.Printf("%s, %d requests at %gx, N=%d, %s with %d tokens of cache, %s; time stretched %g times\n\n", filepath.Base(o.cell), len(list), o.speed, o.replicas, o.profile, o.kv, o.policy, o.slow)
	fmt.Printf("| | simulator, %d runs with arrivals and events about %v late: mean (range) | real time, runs: %d | difference | standard error | simulator, nothing late |\n|---|---|---|---|---|---|\n", o.sims, o.late, o.runs)
	for _, row := range []struct {
		name, unit string
		checked    bool
		sim        func(r *sim.Result) float64
		real       func(r *replay.Report) float64
	}{
		{"hit rate", "", true, func(r *sim.Result) float64 { return r.HitRate }, func(r *replay.Report) float64 { return r.HitRate }},
		{"TTFT mean", " s", true, func(r *sim.Result) float64 { return r.TTFT.Mean }, func(r *replay.Report) float64 { return r.TTFT.Mean }},
		{"TTFT p50", " s", false, func(r *sim.Result) float64 { return r.TTFT.P50 }, func(r *replay.Report) float64 { return r.TTFT.P50 }},
		{"TTFT p95", " s", false, func(r *sim.Result) float64 { return r.TTFT.P95 }, func(r *replay.Report) float64 { return r.TTFT.P95 }},
		{"E2E mean", " s", false, func(r *sim.Result) float64 { return r.E2E.Mean }, func(r *replay.Report) float64 { return r.E2E.Mean }},
	} {
		var c comparison
		for i := range spread {
			c.sims = append(c.sims, row.sim(&spread[i]))
		}
		for _, r := range real {
			c.real = append(c.real, row.real(r))
		}
		played := "- | - | -"
		if !o.virtual {
			played = fmt.Sprintf("%s%s | %+.1f %% | %.1f %%", over(c.real), row.unit, 100*c.diff(), 100*c.doubt())
		}
		fmt.Printf("| %s | %s%s | %s | %.3f%s |\n", row.name, over(c.sims), row.unit, played, row.sim(&exact), row.unit)
		if row.checked && !o.virtual {
			if e := c.judge(); e != nil {
				err = errors.Join(err, fmt.Errorf("%s: %w", row.name, e))
			}
		}
	}
	fmt.Println("\nsimulator, nothing late: requests by replica:", exact.Share)
	for _, r := range real {
		fmt.Printf("real: %d of %d requests failed; client late by %.1f ms (mean), %.0f (p99); decisions %.0f µs (p50); ", r.Failed, r.Requests, 1e3*r.Late.Mean, 1e3*r.Late.P99, 1e6*r.Decision.P50)
		if q := r.Predictions; q != nil {
			fmt.Printf("%d of %d predictions of cached tokens exact; ", q.Exact, q.Requests)
		}
		fmt.Println("requests by replica:", shares(r))
	}
	return err
}

func shares(r *replay.Report) (n []int) {
	for _, x := range r.Replicas {
		n = append(n, x.Requests)
	}
	return n
}

// playAll plays o.runs times side by side.
func playAll(ctx context.Context, o options, p mock.Profile, list requests) ([]*replay.Report, error) {
	out, errs := make([]*replay.Report, o.runs), make([]error, o.runs)
	var wg sync.WaitGroup
	for i := range out {
		wg.Go(func() { out[i], errs[i] = play(ctx, o, p, list, fmt.Sprintf("run %d: ", i+1)) })
	}
	wg.Wait()
	return out, errors.Join(errs...)
}
