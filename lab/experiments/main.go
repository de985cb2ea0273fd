// Command experiments plays every policy on every cell, in virtual time and by the
// production core, and writes what came of it: docs/experiments.md, which a person
// reads, and experiments.html, which draws every figure.
//
//	go run ./lab/experiments -cells ../shared/cells -traces ../shared/traces -out docs
//
// A whole series takes some 20 minutes of processor time, and says how far it is. With -keep DIR it goes on
// where it was interrupted. Equal code gives equal files: no wall time is in them.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"syscall"

	"kvasir/lab/report"
	"kvasir/lab/sim"
)

func main() {
	cells := flag.String("cells", "../shared/cells", "folder with the cells and reference.json")
	traces := flag.String("traces", "../shared/traces", "folder with the traces")
	out := flag.String("out", "docs", "folder to write experiments.md and experiments.html to; \"\": play only")
	plots := flag.String("plots", "", "file for a page of plots of the four main cells; \"\": none")
	keep := flag.String("keep", "", "folder that keeps runs, so that a series can be interrupted; empty it when the code has changed")
	only := flag.String("only", "", "play only cells whose key matches this regular expression")
	seeds := flag.Int("seeds", 3, "seeds of ties, at most, for policies that draw them")
	kept := flag.Bool("kept", false, "play nothing: write from what is kept")
	list := flag.Bool("list", false, "list the cells")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, plan(*cells, *traces), *cells, *out, *plots, *keep, *only, *seeds, *kept, *list); err != nil {
		fmt.Fprintln(os.Stderr, "experiments:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, all []cell, cells, out, plots, keep, only string, seeds int, kept, list bool) error {
	match, err := regexp.Compile(only)
	if err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	if keep != "" {
		if err := os.MkdirAll(keep, 0o755); err != nil {
			return err
		}
	}
	k := &keeper{dir: keep}
	var done []*outcome
	p := newProgress(all, seeds, func(c *cell) bool { return !kept && match.MatchString(c.key) })
	for i := range all {
		c := &all[i]
		if list {
			fmt.Printf("%-28s %-8s %2d policies  %s\n", c.key, c.group, len(c.policies()), c.title)
			continue
		}
		runs, err := c.play(ctx, k, seeds, !kept && match.MatchString(c.key), func(part float64, next string) { fmt.Fprintln(os.Stderr, p.line(c, part, next)) })
		if err != nil {
			return err
		}
		p.over(c)
		if len(runs) > 0 {
			done = append(done, newOutcome(c, runs))
		}
	}
	if list || out == "" {
		return nil
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	ref, err := readReference(filepath.Join(cells, "reference.json"))
	if err != nil {
		return err
	}
	if err := write(filepath.Join(out, "experiments.md"), func(f *os.File) error { return markdown(f, done, ref) }); err != nil {
		return err
	}
	if err := write(filepath.Join(out, "experiments.html"), func(f *os.File) error { return page(f, done, ref) }); err != nil {
		return err
	}
	if plots == "" {
		return nil
	}
	rep := sim.Report{Version: 1}
	for _, o := range done {
		if o.cell.group == mainCells {
			for _, r := range o.runs {
				if plotted(r.Policy) {
					r.Wall = 0
					rep.Runs = append(rep.Runs, r)
				}
			}
		}
	}
	return write(plots, func(f *os.File) error {
		return report.Write(f, "Kvasir: every policy on four workloads, 8 replicas", rep)
	})
}

func write(name string, fill func(f *os.File) error) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(fill(f), f.Close())
}
