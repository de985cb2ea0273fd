// Command mutants asks of a package's tests what coverage can't say: would they
// notice? It changes the shipped code in one small place (a mutant), runs the
// package's own tests, and lists the changes that no test has noticed.
//
//	go run ./lab/mutants -n 60 ./sched ./ledger
//
// Nothing in the tree is touched: the changed file goes to the compiler as an
// overlay. The sample depends on -seed and on the text of the code only, so the
// same code gives the same mutants. Survivors that are equal to the original, or
// not worth a test, stand with their reason in testdata/mutants.txt of their
// package: see kept.go.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"
)

type options struct {
	n       int     // mutants a package, 0: all
	seed    uint64  // of the sample
	jobs    int     // at once
	min     float64 // per cent that must be killed
	json    bool    // instead of the list
	list    bool    // only show the mutants, run nothing
	verbose bool    // also those that were killed
	only    string  // a piece of the mutant's name, "" for all
}

func main() {
	var o options
	flag.IntVar(&o.n, "n", 60, "mutants per package; 0 for all")
	flag.Uint64Var(&o.seed, "seed", 1, "which sample")
	flag.IntVar(&o.jobs, "j", runtime.NumCPU(), "mutants at once")
	flag.Float64Var(&o.min, "min", 0, "fail if less than this per cent are killed")
	flag.BoolVar(&o.json, "json", false, "print JSON instead of a list")
	flag.BoolVar(&o.list, "list", false, "list the sample and run nothing")
	flag.BoolVar(&o.verbose, "v", false, "name each mutant as it ends")
	flag.StringVar(&o.only, "only", "", "only mutants whose name contains this (sched.go Route, say)")
	flag.Usage = func() {
		fmt.Fprintln(os.Stderr, "usage: mutants [flags] package...   (./sched ./engine/seq)")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ok, err := run(ctx, &o, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

// run plays every package and reports whether each reached o.min.
func run(ctx context.Context, o *options, pkgs []string) (bool, error) {
	work, err := os.MkdirTemp("", "kvasir-mutants-")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(work)
	ok := true
	var all []*score
	for _, name := range pkgs {
		start := time.Now()
		s, err := play(ctx, o, name, work)
		if err != nil {
			return false, fmt.Errorf("%s: %w", name, err)
		}
		s.Seconds = time.Since(start).Seconds()
		all = append(all, s)
		ok = ok && (o.list || s.Percent >= o.min)
		if !o.json {
			s.print(os.Stdout, o)
		}
	}
	if o.json {
		e := json.NewEncoder(os.Stdout)
		e.SetIndent("", "  ")
		return ok, e.Encode(all)
	}
	return ok, nil
}

// play makes the sample of one package and runs it.
func play(ctx context.Context, o *options, name, work string) (*score, error) {
	p, err := load(ctx, name)
	if err != nil {
		return nil, err
	}
	kept, err := readKept(p.dir)
	if err != nil {
		return nil, err
	}
	all := p.mutants()
	if stale := kept.stale(all); len(stale) > 0 {
		return nil, fmt.Errorf("%s/%s excuses mutants that no longer exist; delete or mend these rows: %q", p.dir, keptFile, stale)
	}
	sample := p.sample(all, o, kept)
	s := &score{Package: p.path, Possible: len(all), Seed: o.seed, Mutants: sample}
	if !o.list {
		r, err := newRunner(ctx, p, work, o)
		if err != nil {
			return nil, err
		}
		if err := r.all(ctx, sample); err != nil {
			return nil, err
		}
	}
	s.sum()
	return s, nil
}
