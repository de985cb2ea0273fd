package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"kvasir/lab/mock"
	"kvasir/lab/sim"
	"kvasir/policy"
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
		if slices.Contains([]string{hinted, combined, loads, crowds}, c.group) {
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
	c := &cell{key: "small", group: mainCells, title: "small", gen: "shared_prefix:requests=80,rate=3,prefixes=6", replicas: 3, profile: mock.Profile8B, seeds: 3,
		arms: []string{"marginal", "dynamo", "dynamo:agentic", "round_robin", "random", "steer", pool}}
	return c
}

// What is kept isn't played again; policies without ties have one seed, others three.
func TestKeptRunsArePlayedOnce(t *testing.T) {
	c := small(t)
	k := &keeper{dir: t.TempDir()}
	var said []string
	say := func(_ float64, s string) { said = append(said, s) }
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
	once, err := c.play(t.Context(), &keeper{}, 3, true, func(float64, string) {})
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
	if _, err := small(t).play(ctx, &keeper{dir: t.TempDir()}, 1, true, func(float64, string) {}); err != context.Canceled {
		t.Errorf("error %v, want canceled", err)
	}
}

// The time left is guessed by the weights of the cells that are played.
func TestProgress(t *testing.T) {
	list := []cell{{key: "a", arms: []string{"x"}, seeds: 1, replicas: 8}, {key: "b", arms: []string{"x", "y", "z"}, seeds: 1, replicas: 8}, {key: "kept", arms: []string{"x"}, seeds: 1, replicas: 8}}
	p := newProgress(list, 3, func(c *cell) bool { return c.key != "kept" })
	now := p.began
	p.now = func() time.Time { return now }
	if got, want := p.line(&list[0], 0, "a"), "[0 of 2 cells, 0s] a"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	now = now.Add(10 * time.Second)
	p.over(&list[2])
	p.over(&list[0])
	if got, want := p.line(&list[1], 0, "b"), "[1 of 2 cells, 10s, about 30s left] b"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestProgressInACell(t *testing.T) {
	list := []cell{{key: "a", arms: []string{"x"}, seeds: 1, replicas: 8}}
	p := newProgress(list, 3, func(*cell) bool { return true })
	p.now = func() time.Time { return p.began.Add(10 * time.Second) }
	if got, want := p.line(&list[0], .25, "a"), "[0 of 1 cells, 10s, about 30s left] a"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestOurs(t *testing.T) {
	for p, want := range map[string]bool{"auto": false, "marginal": false, "marginal:known": false, "marginal:hot_prefix": false, "steer": false, "steer:hot_prefix": false, pool: false,
		"marginal:wp": true, "dynamo": true, "dynamo:hot_prefix": true, "ref:lmetric_u": true} {
		if rival(p) != want {
			t.Errorf("%s is a rival: %v", p, !want)
		}
	}
	if !slices.Contains(arms(), "auto") || !slices.Contains(serious, "auto") {
		t.Error("the default isn't in the tables")
	}
}

// The document is a function of the runs, and its verdicts follow the figures.
func TestMarkdown(t *testing.T) {
	run := func(p string, ttft, e2e float64) sim.Result {
		return sim.Result{Policy: p, Seed: 1, Replicas: 8, HitRate: .5, TTFT: sim.Spread{Mean: ttft, P95: 2 * ttft}, E2E: sim.Spread{Mean: e2e, P99: 3 * e2e}, Session: sim.Spread{P99: 9 * e2e}}
	}
	build := func(auto float64) string {
		c := &cell{key: "conv-n8-70b", group: mainCells, title: "conv 1.8x, N=8, 70b", arms: arms(), ref: refKey{"conv", 8}}
		o := newOutcome(c, []sim.Result{run("auto", auto, 10), run("marginal", .9, 12.06), run("dynamo", 1, 14), run("dynamo:agentic", .99, 13), run("lmetric", .98, 12), run("steer", .1, 1), run("marginal:hot_prefix", .99, 11.5), run(pool, .8, 9), run("ref:dynamo", 1, 14)})
		hint := func(says string, runs ...sim.Result) *outcome {
			return newOutcome(&cell{group: hinted, title: "claude_code, order 3", arms: []string{"steer", "marginal", pool}, hints: sim.Hints{NextTurn: says}}, runs)
		}
		shed := run("marginal:shed", .5, 5)
		shed.Shed = 7
		combo := newOutcome(&cell{group: combined, title: "agent_serial", arms: []string{"marginal", "marginal:shed", "dynamo", "dynamo:dwell"}}, []sim.Result{run("marginal", 1, 10), shed, run("dynamo", 2, 10), run("dynamo:dwell", 3, 11)})
		sweep := newOutcome(&cell{key: "load-conv-50", group: loads, title: "conv 0.9x (50 %), N=8, 70b", arms: swept}, []sim.Result{run("round_robin", 5, 6)})
		late := newOutcome(&cell{key: "lag-conv-n8-70b", group: faulty, title: "conv: late, N=8, 70b", arms: serious}, []sim.Result{run("auto", 2*auto, 11), run("dynamo", 1.5, 14)})
		list := []*outcome{o, sweep, late, hint("", run("steer", .9, 9), run("marginal", 1, 10), run(pool, .6, 6)), combo, hint("exact", run("steer", .8, 8)), hint("noisy", run("steer", .85, 10))}
		var b bytes.Buffer
		if err := markdown(&b, list, []refRow{{Cell: "conv", Replicas: 8, Name: "dynamo", Hit: .5, TTFT: 1, TTFT95: 2, E2E: 14}, {Cell: "conv", Replicas: 4, Name: "dynamo"}}); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	for _, want := range []string{
		"| conv 1.8x, N=8, 70b | **auto** | -20.0 | -17 | yes | -28.6 | -20 | yes |",
		"| conv 1.8x, N=8, 70b | -16.7 ± 0.0 | +0.5 | lmetric 12.00 | -18.4 ± 0.0 | -8.2 | lmetric 0.980 |", // neither the pooled bound nor steer is a rival
		"**auto**: ahead on mean E2E in 1 of 1 cells, within 1 % in 0 more; geometric mean -16.7 % E2E, -18.4 % TTFT. More than 5 % behind on mean TTFT in 0.",
		"marginal: ahead on mean E2E in 0 of 1 cells, within 1 % in 1 more;",
		"| claude_code, order 3 | 1.000 | 0.600 | -10.0 (25) | -20.0 (50) | -15.0 (38) | -10.0 | -20.0 | +0.0 |",
		"| conv: late | +100.0 / +10.0 | | +50.0 / +0.0 | |",
		"- [hot_prefix around marginal](experiments.html#policy=marginal:hot_prefix&base=marginal): TTFT +10.0 %, E2E -4.6 % (geometric means of 1 cells).",
		"- [Load sweep](experiments.html#group=loads): 1 cells.",
		"1 of 1 twins equal its mean TTFT",
	} {
		if s := build(.8); !strings.Contains(s, want) {
			t.Errorf("lacks %q:\n%s", want, s)
		}
	}
	for _, want := range []string{"| **auto** | +10.0 | -17 | **no** |", "behind on mean TTFT in 1: conv 1.8x"} {
		if s := build(1.1); !strings.Contains(s, want) {
			t.Errorf("lacks %q", want)
		}
	}
	if a, b := build(.8), build(.8); a != b {
		t.Error("equal runs, different documents")
	}
}

// What a person reads stays readable, and is what the program writes.
func TestDocumentIsShort(t *testing.T) {
	raw, err := os.ReadFile("../../docs/experiments.md")
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(raw), "\n"); n > 250 {
		t.Errorf("docs/experiments.md has %d lines, want at most 250: move tables to the page", n)
	}
	if !strings.Contains(string(raw), strings.TrimSpace(words)) {
		t.Error("docs/experiments.md doesn't have the words of words.md: run make experiments, or with -keep and -kept")
	}
}

// The page's data are the figures of the lines: each row has a cell, a policy and one
// number per column, and the text can't end the script that it stands in.
func TestPage(t *testing.T) {
	c := &cell{key: "conv-n8-70b", group: mainCells, title: "conv </script>", arms: []string{"auto", "dynamo"}}
	late := &cell{key: "lag-conv-n8-70b", group: faulty, title: "late", arms: []string{"auto"}}
	run := sim.Result{Policy: "auto", Seed: 1, HitRate: .12345, TTFT: sim.Spread{Mean: 1.23456, P95: 2}, E2E: sim.Spread{Mean: 123456}, TPOT: sim.Spread{Mean: .02}}
	other := run
	other.Policy, other.Failed = "dynamo", 3
	list := []*outcome{newOutcome(c, []sim.Result{run, other}), newOutcome(late, []sim.Result{run})}
	var b bytes.Buffer
	if err := page(&b, list, nil); err != nil {
		t.Fatal(err)
	}
	html := b.String()
	if n := strings.Count(html, "</script>"); n != 2 {
		t.Errorf("%d ends of scripts, want the page's own 2", n)
	}
	_, rest, _ := strings.Cut(html, `<script type="application/json" id="data">`)
	raw, _, _ := strings.Cut(rest, "</script>")
	var got table
	if err := json.Unmarshal([]byte(raw), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Rows) != 3 || len(got.Rows[0]) != len(columns)+2 || got.Cells[1].Healthy != c.key {
		t.Fatalf("%+v", got)
	}
	for i, want := range map[string]float64{"hit": 12.35, "ttft": 1.235, "ttft95": 2, "e2e": 123500, "tpot": 20, "lost": 0, "seeds": 1} {
		at := slices.IndexFunc(columns, func(c column) bool { return c.Key == i })
		if v := got.Rows[0][at+2]; v != want {
			t.Errorf("%s is %v, want %v", i, v, want)
		}
	}
	if at := slices.IndexFunc(columns, func(c column) bool { return c.Key == "lost" }); got.Rows[1][at+2] != 3 {
		t.Errorf("row of dynamo: %v, want 3 lost requests", got.Rows[1])
	}
	for _, x := range list {
		if !slices.ContainsFunc(groups, func(g group) bool { return g.Key == x.cell.group }) {
			t.Errorf("section %s has no title", x.cell.group)
		}
	}
	for _, x := range plan("cells", "traces") {
		if !slices.ContainsFunc(groups, func(g group) bool { return g.Key == x.group }) {
			t.Errorf("section %s has no title", x.group)
		}
	}
}
