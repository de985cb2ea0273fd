package main

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"kvasir/lab/sim"
	"kvasir/lab/trace"
)

// gather finds the files of patterns, and puts receipt logs together: they are one
// input. Every other file, and a generator, is one of its own.
func gather(given []string) (inputs [][]string, err error) {
	var logs []string
	for _, in := range given {
		if strings.HasPrefix(in, "gen:") {
			inputs = append(inputs, []string{in})
			continue
		}
		files := []string{in}
		if strings.ContainsAny(in, "*?[") {
			if files, err = filepath.Glob(in); err != nil || len(files) == 0 {
				return nil, fmt.Errorf("--input %q: no such file", in)
			}
		}
		for _, f := range files {
			if isLog(f) {
				logs = append(logs, f)
			} else {
				inputs = append(inputs, []string{f})
			}
		}
	}
	if len(logs) > 0 {
		inputs = append(inputs, logs)
	}
	return inputs, nil
}

// isLog reports whether a file looks like a receipt log. What can't be read is told
// where it is played.
func isLog(file string) bool {
	r, err := trace.Open(file, trace.Options{})
	if err != nil {
		return false
	}
	defer r.Close()
	return r.Format() == trace.Receipts
}

// sizes returns the fleets to simulate: as given, else as recorded, else 8 replicas.
func (c simCmd) sizes(input []string) ([]int, error) {
	if len(c.Replicas) > 0 {
		return c.Replicas, nil
	}
	if !strings.HasPrefix(input[0], "gen:") && isLog(input[0]) {
		w, err := c.workload(input, 1)
		if err != nil {
			return nil, err
		}
		if r := w.Recorded(); r != nil {
			return []int{r.Replicas}, nil
		}
	}
	return []int{8}, nil
}

// printRecorded says how far policies choose as recorded, and what a log can't tell.
func printRecorded(w io.Writer, rep sim.Report) {
	r := rep.Recorded
	if r == nil {
		return
	}
	fmt.Fprintf(w, "\nrecorded: %d requests under %s on %d replicas; first token after %.3f s on average, the end after %.3f s\n",
		r.Requests, strings.Join(r.Policies, ", "), r.Replicas, r.TTFT, r.E2E)
	compared := false
	for _, x := range rep.Runs {
		if x.Policy == sim.RecordedPolicy && !compared {
			fmt.Fprintf(w, "the same placements here: %.3f s, %.3f s; where that differs much, choices may differ too (--profile, or kvasir replay --fit-profile)\n", x.TTFT.Mean, x.E2E.Mean)
		}
		if c := x.Choices; c != nil && c.Requests > 0 {
			compared = true
			fmt.Fprintf(w, "%s: %d of %d requests to the recorded replica (%.1f %%)", x.Policy, c.Same, c.Requests, 100*float64(c.Same)/float64(c.Requests))
			if c.Equal > 0 {
				fmt.Fprintf(w, ", %d more by chance to another of equal cost", c.Equal)
			}
			fmt.Fprintln(w)
		}
	}
	if compared {
		fmt.Fprintln(w, "(each request compared with all before it placed as recorded)")
	} else {
		fmt.Fprintf(w, "choices are not compared: that needs --replicas %d, --speed 1 and no faults\n", r.Replicas)
	}
	fmt.Fprintln(w, "can't know:", strings.Join(unknowns(r), "; "))
}

// unknowns lists what a log can't tell.
func unknowns(r *sim.Recorded) (list []string) {
	add := func(n uint64, format string) {
		if n > 0 {
			list = append(list, fmt.Sprintf(format, n))
		}
	}
	add(r.Missing, "%d decisions that the log lacks (dropped, open at its end, before its first file)")
	add(uint64(r.Failed), "%d attempts that engines failed (not played; a retry has a receipt of its own)")
	add(uint64(r.Unknown), "%d requests of unknown length (not played)")
	add(uint64(r.NoBlocks), "%d requests whose tokens were not known (played as if nobody shared them)")
	add(uint64(r.Cancelled), "%d answers beyond where their clients left")
	if r.Runs > 1 {
		list = append(list, fmt.Sprintf("what %d runs of the router have in common", r.Runs))
	}
	if r.Early > 0 {
		list = append(list, fmt.Sprintf("where %.1f %% of the cached tokens came from (before the log, by other routers, or from answers)", 100*r.Early))
	}
	return append(list, "refused requests", "other routers' traffic", "the policy's settings and what it had learned", "the engines' true times and evictions")
}
