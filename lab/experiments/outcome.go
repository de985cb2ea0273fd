package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"

	"kvasir/lab/sim"
)

// A line is one policy on one cell: means over its seeds.
type line struct {
	policy                       string
	seeds                        int
	hit                          float64
	ttft, ttft95, ttft99         float64
	e2e, e2e99, tpot             float64
	session99                    float64
	cv, sticky, maxShare, workCV float64
	phantom, makespan            float64
	lost                         int     // requests that failed
	shed                         float64 // requests that were refused
	rate                         float64 // output tokens per second
	ttftSD, e2eSD                float64 // over seeds
}

// An outcome is a cell with what came of it, by mean E2E.
type outcome struct {
	cell  *cell
	runs  []sim.Result // of the cell's arms, not of the twins
	twins []sim.Result // seed 1
	lines []line
}

func newOutcome(c *cell, runs []sim.Result) *outcome {
	o := &outcome{cell: c}
	by := map[string][]sim.Result{}
	for _, r := range runs {
		if r.Seed == 1 {
			o.twins = append(o.twins, r)
		}
		if slices.Contains(c.arms, r.Policy) {
			o.runs = append(o.runs, r)
			by[r.Policy] = append(by[r.Policy], r)
		}
	}
	for _, p := range c.arms {
		if len(by[p]) > 0 {
			o.lines = append(o.lines, average(p, by[p]))
		}
	}
	slices.SortStableFunc(o.lines, func(a, b line) int { return cmp.Compare(a.e2e, b.e2e) })
	return o
}

func average(policy string, runs []sim.Result) line {
	// Equal runs draw no ties: one is as good as three.
	if len(runs) > 1 && runs[0].TTFT == runs[1].TTFT && runs[0].E2E == runs[1].E2E {
		runs = runs[:1]
	}
	l := line{policy: policy, seeds: len(runs)}
	n := float64(len(runs))
	mean := func(get func(r *sim.Result) float64) float64 {
		s := 0.0
		for i := range runs {
			s += get(&runs[i])
		}
		return s / n
	}
	sd := func(m float64, get func(r *sim.Result) float64) float64 {
		if n < 2 {
			return 0
		}
		return math.Sqrt(mean(func(r *sim.Result) float64 { d := get(r) - m; return d * d }) * n / (n - 1))
	}
	ttft := func(r *sim.Result) float64 { return r.TTFT.Mean }
	e2e := func(r *sim.Result) float64 { return r.E2E.Mean }
	l.hit = mean(func(r *sim.Result) float64 { return r.HitRate })
	l.ttft, l.e2e = mean(ttft), mean(e2e)
	l.ttftSD, l.e2eSD = sd(l.ttft, ttft), sd(l.e2e, e2e)
	l.ttft95 = mean(func(r *sim.Result) float64 { return r.TTFT.P95 })
	l.ttft99 = mean(func(r *sim.Result) float64 { return r.TTFT.P99 })
	l.e2e99 = mean(func(r *sim.Result) float64 { return r.E2E.P99 })
	l.tpot = mean(func(r *sim.Result) float64 { return r.TPOT.Mean })
	l.session99 = mean(func(r *sim.Result) float64 { return r.Session.P99 })
	l.cv = mean(func(r *sim.Result) float64 { return r.DecodeCV })
	l.workCV = mean(func(r *sim.Result) float64 { return r.WorkCV })
	l.sticky = mean(func(r *sim.Result) float64 { return r.Stickiness })
	l.maxShare = mean(func(r *sim.Result) float64 { return r.MaxShare })
	l.phantom = mean(func(r *sim.Result) float64 { return r.Phantom })
	l.makespan = mean(func(r *sim.Result) float64 { return r.Makespan })
	l.rate = mean(func(r *sim.Result) float64 { return r.OutputRate })
	l.shed = mean(func(r *sim.Result) float64 { return float64(r.Shed) })
	for i := range runs {
		l.lost += runs[i].Failed
	}
	return l
}

// of returns the line of a policy, nil if it wasn't played.
func (o *outcome) of(policy string) *line {
	for i := range o.lines {
		if o.lines[i].policy == policy {
			return &o.lines[i]
		}
	}
	return nil
}

// best returns the line with the lowest figure among those that ok accepts.
func (o *outcome) best(ok func(policy string) bool, figure func(l *line) float64) *line {
	var b *line
	for i := range o.lines {
		if l := &o.lines[i]; ok(l.policy) && (b == nil || figure(l) < figure(b)) {
			b = l
		}
	}
	return b
}

func ttft(l *line) float64      { return l.ttft }
func e2e(l *line) float64       { return l.e2e }
func session99(l *line) float64 { return l.session99 }

// ours says whether a policy is of our making: the default, and the families that it
// was chosen from. W+p isn't: it is in the field's list, though it is marginal with
// all its prices at 0.
func ours(p string) bool {
	return p != "marginal:wp" && (p == "auto" || strings.HasPrefix(p, "marginal") || strings.HasPrefix(p, "steer"))
}

// rival says whether a policy counts among "all others": whatever isn't ours, and no
// bound.
func rival(p string) bool { return p != pool && !ours(p) }

// blind says whether a policy looks at load only, if at that.
func blind(p string) bool {
	return slices.Contains([]string{"random", "round_robin", "p2c", "least_load", "least_load:tokens"}, p)
}

// plotted leaves hopeless policies and near doubles out of the page's plots.
func plotted(p string) bool {
	return !strings.HasPrefix(p, "ref:lmetric") && !slices.Contains([]string{"pure_affinity", "marginal", "marginal:hot_prefix", "steer:hot_prefix", "marginal:known", "marginal:wp", "lmetric:predicted", "dynamo:prefill8",
		"sglang_cache_aware:library", "ray_prefix:threshold10", "least_load:tokens", "hrw"}, p)
}

func change(ours, theirs float64) float64 { return 100 * (ours/theirs - 1) }

func percent(ours, theirs float64) string {
	if theirs == 0 {
		return ""
	}
	return fmt.Sprintf("%+.1f", change(ours, theirs))
}

// A refRow is a row of reference.json.
type refRow struct {
	Cell     string  `json:"cell"`
	Replicas int     `json:"replicas"`
	Name     string  `json:"name"`
	Hit      float64 `json:"hit"`
	TTFT     float64 `json:"ttft_mean"`
	TTFT95   float64 `json:"ttft_p95"`
	E2E      float64 `json:"e2e_mean"`
}

func readReference(name string) ([]refRow, error) {
	raw, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var ref struct {
		Rows []refRow `json:"rows"`
	}
	if err := json.Unmarshal(raw, &ref); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return ref.Rows, nil
}
