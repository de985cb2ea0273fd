package main

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"kvasir/model"
	"kvasir/policy"
	"kvasir/sim"
)

// The plan has every product policy in every cell that isn't about faults, and a key
// for each cell.
func TestPlan(t *testing.T) {
	keys := map[string]bool{}
	fleets := map[string]int{}
	for _, c := range plan("cells", "traces") {
		if keys[c.key] {
			t.Errorf("two cells are called %s", c.key)
		}
		keys[c.key] = true
		if c.group == faulty {
			if c.faults.EventDelay == 0 {
				t.Errorf("%s is healthy", c.key)
			}
			continue
		}
		for _, p := range policy.Names() {
			if !slices.Contains(c.policies(), p) {
				t.Errorf("%s lacks %s", c.key, p)
			}
		}
		if c.group == mainCells || c.group == moreCells {
			fleets[fmt.Sprint(c.replicas, c.profile.Name)]++
		}
		if c.ref != (refKey{}) && !slices.Contains(c.policies(), "ref:time W+p") {
			t.Errorf("%s lacks a twin of the reference", c.key)
		}
	}
	for _, f := range []string{"470b", "870b", "1670b", "48b", "88b", "168b"} {
		if fleets[f] != 4 {
			t.Errorf("fleet %s has %d workloads, want 4", f, fleets[f])
		}
	}
}

func small(t *testing.T) *cell {
	t.Helper()
	c := &cell{key: "small", group: mainCells, title: "small", gen: "shared_prefix:requests=80,rate=3,prefixes=6", replicas: 3, profile: model.Profile8B, seeds: 3,
		arms: []string{"marginal", "dynamo", "dynamo:agentic", "round_robin", "random", "steer", pool}}
	return c
}

// What is kept isn't played again; policies without ties have one seed, others three.
func TestKeptRunsArePlayedOnce(t *testing.T) {
	c := small(t)
	k := &keeper{dir: t.TempDir()}
	var said []string
	say := func(s string) { said = append(said, s) }
	first, err := c.play(t.Context(), k, 1, true, say)
	if err != nil || len(first) != 7 || len(said) != 1 {
		t.Fatalf("%d runs in %q, %v", len(first), said, err)
	}
	all, err := c.play(t.Context(), k, 3, true, say)
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for _, r := range all {
		count[r.Policy]++
	}
	if count["random"] != 3 || count["round_robin"] != 2 {
		t.Errorf("runs by policy %v: want 3 of random; 2 of round_robin, the second to see that seeds change nothing", count)
	}
	said = nil
	again, err := c.play(t.Context(), k, 3, true, say)
	if err != nil || len(again) != len(all) || len(said) != 0 {
		t.Errorf("%d runs of %d, played %q, %v", len(again), len(all), said, err)
	}
	kept, err := c.play(t.Context(), k, 3, false, say)
	if err != nil || len(kept) != len(all) {
		t.Errorf("%d kept, %v", len(kept), err)
	}
	// In one go it is the same.
	once, err := c.play(t.Context(), &keeper{}, 3, true, func(string) {})
	if err != nil || len(once) != len(all) {
		t.Fatalf("%d runs, %v", len(once), err)
	}
	o, p := newOutcome(c, once), newOutcome(c, kept)
	for i := range o.lines {
		if o.lines[i] != p.lines[i] {
			t.Errorf("in one go %+v, in pieces %+v", o.lines[i], p.lines[i])
		}
	}
	if l := o.of("round_robin"); l.seeds != 1 || l.ttftSD != 0 {
		t.Errorf("round robin counts as %d seeds ± %v, want 1", l.seeds, l.ttftSD)
	}
	if l := o.of("random"); l.seeds != 3 || l.ttftSD == 0 {
		t.Errorf("random counts as %d seeds ± %v, want 3", l.seeds, l.ttftSD)
	}
}

func TestInterruptedSeriesKeepsWhatIsDone(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if _, err := small(t).play(ctx, &keeper{dir: t.TempDir()}, 1, true, func(string) {}); err != context.Canceled {
		t.Errorf("error %v, want canceled", err)
	}
}

// The document is a function of the runs, and its verdicts follow the figures.
func TestMarkdown(t *testing.T) {
	run := func(p string, ttft, e2e float64) sim.Result {
		return sim.Result{Policy: p, Seed: 1, Replicas: 8, HitRate: .5, TTFT: sim.Spread{Mean: ttft, P95: 2 * ttft}, E2E: sim.Spread{Mean: e2e, P99: 3 * e2e}, Session: sim.Spread{P99: 9 * e2e}}
	}
	build := func(marginal float64) string {
		c := &cell{key: "conv-n8-70b", group: mainCells, title: "conv 1.8x, N=8, 70b", arms: arms(), ref: refKey{"conv", 8}}
		o := newOutcome(c, []sim.Result{run("marginal", marginal, 10), run("dynamo", 1, 14), run("dynamo:agentic", .99, 13), run("lmetric", .98, 12), run(pool, .8, 9), run("ref:dynamo", 1, 14)})
		var b bytes.Buffer
		if err := markdown(&b, []*outcome{o}, []refRow{{Cell: "conv", Replicas: 8, Name: "dynamo", Hit: .5, TTFT: 1, TTFT95: 2, E2E: 14}, {Cell: "conv", Replicas: 4, Name: "dynamo"}}); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	for _, want := range []string{
		"| conv 1.8x, N=8, 70b | -20.0 | -17 | yes | -28.6 | -20 | yes |",
		"| conv 1.8x, N=8, 70b | -16.7 ± 0.0 | lmetric 12.00 | -18.4 ± 0.0 | lmetric 0.980 |", // the pooled bound is no rival
		"Ahead on mean E2E in 1 of 1 cells. More than 5 % behind on mean TTFT in 0.",
		"1 of 1 twins equal the reference's",
	} {
		if s := build(.8); !strings.Contains(s, want) {
			t.Errorf("lacks %q:\n%s", want, s)
		}
	}
	for _, want := range []string{"| +10.0 | -17 | **no** |", "behind on mean TTFT in 1: conv 1.8x"} {
		if s := build(1.1); !strings.Contains(s, want) {
			t.Errorf("lacks %q", want)
		}
	}
	if a, b := build(.8), build(.8); a != b {
		t.Error("equal runs, different documents")
	}
}
