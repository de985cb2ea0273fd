// Command agree plays one trace twice: in real time, with modelled engines on real
// sockets behind the real router, and through the simulator with the same profile and
// policy. It prints both and the difference, which should be within 10 % on mean TTFT
// and hit rate.
//
//	go run ./experiments/agree -cell ../shared/cells/tool.jsonl.gz -speed 1.1 -n 300 -slow 4
//
// -slow stretches time: engines and arrivals take that many times longer, so that the
// processor time of client, router and engines is small beside what is modelled.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"kvasir/config"
	"kvasir/model"
	"kvasir/modelserver"
	"kvasir/replay"
	"kvasir/router"
	"kvasir/sim"
	"kvasir/trace"
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
	p, err := model.ProfileByName(o.profile)
	if err != nil {
		return err
	}
	p = p.Faster(1 / o.slow)
	p.KVTokens = o.kv
	virtual, err := simulate(ctx, o, p, 1, sim.Faults{})
	if err != nil {
		return err
	}
	// How far apart are runs that differ only in when events arrive? Trajectories
	// part at the first decision that a millisecond changes.
	var spread []sim.Result
	for seed := range uint64(8) {
		r, err := simulate(ctx, o, p, seed+1, sim.Faults{EventDelay: .005, EventJitter: .02})
		if err != nil {
			return err
		}
		spread = append(spread, r)
	}
	real := &replay.Report{}
	if !o.virtual {
		if real, err = play(ctx, o, p); err != nil {
			return err
		}
	}
	fmt.Printf("%s, %d requests at %gx, N=%d, %s with %d tokens of cache, %s; time stretched %g times\n\n", filepath.Base(o.cell), o.limit, o.speed, o.replicas, o.profile, o.kv, o.policy, o.slow)
	fmt.Println("| | simulator, 8 runs with events 5 ms and more late: mean (range) | real time | difference | simulator, nothing late |\n|---|---|---|---|---|")
	off := map[string]float64{}
	row := func(name, unit string, get func(r *sim.Result) float64, b float64) {
		mean, lo, hi := 0.0, math.Inf(1), 0.0
		for i := range spread {
			x := get(&spread[i])
			mean, lo, hi = mean+x/float64(len(spread)), min(lo, x), max(hi, x)
		}
		off[name] = b/mean - 1
		fmt.Printf("| %s | %.3f (%.3f to %.3f)%s | %.3f%s | %+.1f %% | %.3f%s |\n", name, mean, lo, hi, unit, b, unit, 100*off[name], get(&virtual), unit)
	}
	row("hit rate", "", func(r *sim.Result) float64 { return r.HitRate }, real.HitRate)
	row("TTFT mean", " s", func(r *sim.Result) float64 { return r.TTFT.Mean }, real.TTFT.Mean)
	row("TTFT p50", " s", func(r *sim.Result) float64 { return r.TTFT.P50 }, real.TTFT.P50)
	row("TTFT p95", " s", func(r *sim.Result) float64 { return r.TTFT.P95 }, real.TTFT.P95)
	row("E2E mean", " s", func(r *sim.Result) float64 { return r.E2E.Mean }, real.E2E.Mean)
	fmt.Printf("\nreal: %d of %d requests failed; client late by %.0f ms (p99); decisions %.0f µs (p50); ", real.Failed, real.Requests, 1e3*real.Late.P99, 1e6*real.Decision.P50)
	if q := real.Predictions; q != nil {
		fmt.Printf("%d of %d predictions of cached tokens exact; ", q.Exact, q.Requests)
	}
	fmt.Println("requests by replica:", virtual.Share, "and", shares(real))
	if o.virtual {
		return nil
	}
	for _, name := range []string{"hit rate", "TTFT mean"} {
		if d := off[name]; !(math.Abs(d) <= .1) {
			err = errors.Join(err, fmt.Errorf("%s differs by %+.1f %%: more than 10", name, 100*d))
		}
	}
	return err
}

func shares(r *replay.Report) (n []int) {
	for _, x := range r.Replicas {
		n = append(n, x.Requests)
	}
	return n
}

// simulate uses vLLM's paging, as the engines on sockets do.
func simulate(ctx context.Context, o options, p model.Profile, seed uint64, f sim.Faults) (sim.Result, error) {
	w, _, err := sim.Load(sim.Input{File: o.cell, Speed: o.speed / o.slow, Limit: o.limit})
	if err != nil {
		return sim.Result{}, err
	}
	rep, err := sim.Run(ctx, sim.Config{Workload: w, Policies: []string{o.policy}, Replicas: o.replicas, Profile: p, Engine: "paged", Seeds: []uint64{seed}, Faults: f,
		Hints: sim.Hints{MaxOutput: true}}) // the client sends max_tokens
	if err != nil || rep.Stopped {
		return sim.Result{}, errors.Join(err, ctx.Err())
	}
	return rep.Runs[0], nil
}

// play does the same in real time, with engines whose blocks are the trace's.
func play(ctx context.Context, o options, p model.Profile) (rep *replay.Report, err error) {
	cfg := config.Defaults()
	cfg.Listen, cfg.Admin, cfg.Policy.Name = "127.0.0.1:0", "off", o.policy
	for range o.replicas {
		ec := modelserver.Defaults()
		ec.Profile, ec.BlockSize = p, trace.BlockSize
		e, err := modelserver.New(ec)
		if err != nil {
			return nil, err
		}
		if err := e.Start(); err != nil {
			return nil, err
		}
		defer e.Close()
		cfg.Engines = append(cfg.Engines, config.Engine{URL: e.URL()})
	}
	life, end := context.WithCancel(ctx)
	r, err := router.New(cfg, slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})), "agree")
	if err != nil {
		end()
		return nil, err
	}
	defer func() { end(); r.Close() }()
	if err := r.Start(life); err != nil {
		return nil, err
	}
	if err := r.Ready(ctx, o.replicas, 30*time.Second); err != nil {
		return nil, err
	}
	w, err := load(o)
	if err != nil {
		return nil, err
	}
	rc := replay.Defaults()
	rc.URL, rc.Shape, rc.Speed, rc.Timeout = r.URL(), replay.IDs, o.speed/o.slow, time.Hour
	rc.IDRange = [2]uint32{0, 4000}
	return replay.Run(ctx, rc, w, func(done, total int, s *replay.Sample) {
		if done%25 == 0 || s.Err != "" {
			fmt.Fprintf(os.Stderr, "%d of %d %s\n", done, total, s.Err)
		}
	})
}

func load(o options) (w replay.Workload, err error) {
	r, err := trace.Open(o.cell, trace.Options{})
	if err != nil {
		return w, err
	}
	defer r.Close()
	for len(w.Requests) < o.limit {
		q, err := r.NextRequest()
		if err == io.EOF {
			break
		}
		if err != nil {
			return w, err
		}
		w.Requests = append(w.Requests, q)
	}
	return w, nil
}
