package main

import (
	_ "embed"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"kvasir/sim"
)

// words is the part that a person wrote, from the tables: which policy when.
//
//go:embed words.md
var words string

// A doc writes Markdown.
type doc struct {
	w    io.Writer
	done []*outcome
	ref  []refRow
	err  error
}

func (d *doc) p(format string, args ...any) {
	if d.err == nil {
		_, d.err = fmt.Fprintf(d.w, format, args...)
	}
}

func (d *doc) head(cols ...string) {
	d.p("\n| %s |\n|%s\n", strings.Join(cols, " | "), strings.Repeat("---|", len(cols)))
}

// group lists the outcomes of the named sections.
func (d *doc) group(names ...string) (out []*outcome) {
	for _, o := range d.done {
		if slices.Contains(names, o.cell.group) {
			out = append(out, o)
		}
	}
	return out
}

func markdown(w io.Writer, done []*outcome, ref []refRow) error {
	d := &doc{w: w, done: done, ref: ref}
	d.p("# Every policy on every workload\n\nWritten by `make experiments`; change nothing here by hand (the words are in experiments/words.md).\n\n%s\n", strings.TrimSpace(words))
	d.goals()
	d.rivals()
	d.learning()
	d.controls()
	d.rl()
	d.faults()
	d.steer()
	d.cells("Other workloads, orders and loads", others)
	d.cells("The four workloads, 8 replicas, profile 70b", mainCells)
	d.cells("Other fleets, and the small model", moreCells)
	d.agreement()
	return d.err
}

func verdict(ok bool) string {
	if ok {
		return "yes"
	}
	return "**no**"
}

// goals compares marginal with Dynamo's defaults.
func (d *doc) goals() {
	d.p("\n## marginal against Dynamo's defaults, 8 replicas, 70b\n\nChange in %%, negative is better; the goals are those of the issue. `dynamo:agentic` is Dynamo's other preset.\n")
	d.head("workload", "TTFT mean", "goal", "met", "E2E mean", "goal", "met", "TTFT p95", "E2E p99", "TTFT against agentic", "E2E against agentic")
	for _, g := range []struct {
		name      string
		ttft, e2e float64
	}{{"conv", -17, -20}, {"tool", -33, -28}, {"claude_code", -70, -38}, {"synth", -17, -22}} {
		for _, o := range d.group(mainCells) {
			m, y, a := o.of("marginal"), o.of("dynamo"), o.of("dynamo:agentic")
			if !strings.HasPrefix(o.cell.key, g.name+"-n8") || m == nil || y == nil || a == nil {
				continue
			}
			d.p("| %s | %s | %.0f | %s | %s | %.0f | %s | %s | %s | %s | %s |\n", o.cell.title, percent(m.ttft, y.ttft), g.ttft, verdict(change(m.ttft, y.ttft) <= g.ttft),
				percent(m.e2e, y.e2e), g.e2e, verdict(change(m.e2e, y.e2e) <= g.e2e), percent(m.ttft95, y.ttft95), percent(m.e2e99, y.e2e99), percent(m.ttft, a.ttft), percent(m.e2e, a.e2e))
		}
	}
}

// rivals compares marginal with the best of all others, by cell and figure, in hindsight.
func (d *doc) rivals() {
	d.p("\n## marginal against the best of all others, picked per cell in hindsight\n\nNo one could run \"the best other\": it is another policy in each row. W+p (`marginal:wp`: engine constants known, no prices) counts as another.\n")
	d.p("Change in %%; ± is the standard deviation over seeds of marginal's own mean, in %%.\n")
	d.head("cell", "E2E mean", "best other", "TTFT mean", "best other", "TTFT of marginal s", "E2E s")
	ahead, cells, behind, known := 0, 0, []string{}, []string{}
	for _, o := range d.group(mainCells, moreCells, others) {
		m, be, bt := o.of("marginal"), o.best(rival, e2e), o.best(rival, ttft)
		if m == nil || be == nil {
			continue
		}
		d.p("| %s | %s ± %.1f | %s %.2f | %s ± %.1f | %s %.3f | %.3f | %.2f |\n", o.cell.title, percent(m.e2e, be.e2e), 100*m.e2eSD/m.e2e, code(be.policy), be.e2e,
			percent(m.ttft, bt.ttft), 100*m.ttftSD/m.ttft, code(bt.policy), bt.ttft, m.ttft, m.e2e)
		cells++
		if m.e2e <= be.e2e {
			ahead++
		}
		if change(m.ttft, bt.ttft) > 5 {
			if behind = append(behind, o.cell.title); strings.HasPrefix(o.cell.key, "tool-") || strings.HasPrefix(o.cell.key, "claude_code-n4-") {
				known = append(known, o.cell.title)
			}
		}
	}
	d.p("\nAhead on mean E2E in %d of %d cells. More than 5 %% behind on mean TTFT in %d", ahead, cells, len(behind))
	if len(behind) > 0 {
		d.p(": %s", strings.Join(behind, "; "))
	}
	d.p(".")
	if len(known) > 0 {
		d.p(" Of these the reference shows the same for tool and Claude Code at N=4: %d.", len(known))
	}
	d.p("\n")
	d.ranking()
}

// ranking says how far each policy is from the best one, over all cells.
func (d *doc) ranking() {
	d.p("\n### If one policy had to serve all of these cells\n\nGeometric mean over the same cells of (policy / best policy of the cell), and its worst cell. 1.00 would be best everywhere. Bounds, and policies that miss a cell, are left out.\n")
	type score struct {
		name             string
		ttft, e2e        float64
		worstT, worstE   float64
		worstTin, inE2E  string
		cells, firstCell int
	}
	var list []score
	set := d.group(mainCells, moreCells, others)
	all := func(p string) bool { return p != pool }
	for _, p := range arms() {
		if p == pool || p == "marginal:known" {
			continue
		}
		s := score{name: p}
		lt, le := 0.0, 0.0
		for _, o := range set {
			l := o.of(p)
			if l == nil {
				continue
			}
			s.cells++
			t, e := l.ttft/o.best(all, ttft).ttft, l.e2e/o.best(all, e2e).e2e
			lt, le = lt+math.Log(t), le+math.Log(e)
			if t > s.worstT {
				s.worstT, s.worstTin = t, o.cell.title
			}
			if e > s.worstE {
				s.worstE, s.inE2E = e, o.cell.title
			}
			if e == 1 {
				s.firstCell++
			}
		}
		if s.cells == len(set) && s.cells > 0 {
			s.ttft, s.e2e = math.Exp(lt/float64(s.cells)), math.Exp(le/float64(s.cells))
			list = append(list, s)
		}
	}
	slices.SortFunc(list, func(a, b score) int { return int(math.Copysign(1, a.e2e*a.ttft-b.e2e*b.ttft)) })
	d.head("policy", "E2E", "TTFT", "worst E2E", "in", "worst TTFT", "in", "cells with the lowest E2E")
	for _, s := range list {
		d.p("| %s | %s | %s | %s | %s | %s | %s | %d of %d |\n", code(s.name), times(s.e2e), times(s.ttft), times(s.worstE), s.inE2E, times(s.worstT), s.worstTin, s.firstCell, s.cells)
	}
}

func times(f float64) string {
	if f >= 10 {
		return fmt.Sprintf("%.0f", f)
	}
	return fmt.Sprintf("%.2f", f)
}

// learning compares constants that marginal learns with the engine's true ones.
func (d *doc) learning() {
	d.p("\n## What marginal loses by learning\n\nmarginal learns the engine's constants from its own requests, beginning with a guess; `marginal:known` is given them. Change in %% by learning, means over the seeds that both were played with.\n")
	d.head("cell", "TTFT mean", "TTFT p95", "E2E mean", "hit rate, points", "fullest % learned", "known")
	var lt, le float64
	n := 0
	for _, o := range d.done {
		m, k := o.of("marginal"), o.of("marginal:known")
		if m == nil || k == nil {
			continue
		}
		d.p("| %s | %s | %s | %s | %+.1f | %.1f | %.1f |\n", o.cell.title, percent(m.ttft, k.ttft), percent(m.ttft95, k.ttft95), percent(m.e2e, k.e2e), 100*(m.hit-k.hit), 100*m.maxShare, 100*k.maxShare)
		lt, le, n = lt+math.Log(m.ttft/k.ttft), le+math.Log(m.e2e/k.e2e), n+1
	}
	if n > 0 {
		d.p("| geometric mean of %d | %+.1f | | %+.1f | | | |\n", n, 100*(math.Exp(lt/float64(n))-1), 100*(math.Exp(le/float64(n))-1))
	}
}

// controls has the cells without anything to reuse.
func (d *doc) controls() {
	d.p("\n## Nothing to reuse\n\nGoal: marginal at most 2 %% worse than the best of the policies that look at load only (random, round robin, P2C, least load by requests or by tokens).\n")
	d.head("cell", "TTFT mean", "best by load", "E2E mean", "best by load", "at most 2 % worse")
	for _, o := range d.group(noReuse) {
		m, bt, be := o.of("marginal"), o.best(blind, ttft), o.best(blind, e2e)
		if m == nil || bt == nil {
			continue
		}
		d.p("| %s | %s | %s %.3f | %s | %s %.2f | %s |\n", o.cell.title, percent(m.ttft, bt.ttft), code(bt.policy), bt.ttft, percent(m.e2e, be.e2e), code(be.policy), be.e2e,
			verdict(change(m.ttft, bt.ttft) <= 2 && change(m.e2e, be.e2e) <= 2))
	}
	d.cells("Nothing to reuse: all policies", noReuse)
}

func (d *doc) rl() {
	d.p("\n## RL rollouts with stragglers\n\np99 of a rollout, from its first request to its last token. Goal: marginal within 1.5 %% of the best policy.\n")
	d.head("cell", "marginal p99 s", "best", "behind by %", "within 1.5 %", "its hit rate %", "marginal's hit rate %")
	for _, o := range d.group(rollouts) {
		m, b := o.of("marginal"), o.best(func(p string) bool { return p != pool }, session99)
		if m == nil {
			continue
		}
		d.p("| %s | %.1f | %s %.1f | %s | %s | %.1f | %.1f |\n", o.cell.title, m.session99, code(b.policy), b.session99, percent(m.session99, b.session99), verdict(change(m.session99, b.session99) <= 1.5), 100*b.hit, 100*m.hit)
	}
	for _, o := range d.group(rollouts) {
		d.p("\n### %s\n", o.cell.title)
		d.head("policy", "p99 s", "hit %", "load CV", "TTFT mean s", "E2E mean s", "sticky %", "all done after s", "seeds")
		slices.SortStableFunc(o.lines, func(a, b line) int { return int(math.Copysign(1, a.session99-b.session99)) })
		for _, l := range o.lines {
			d.p("| %s | %.1f | %.1f | %.2f | %.3f | %.2f | %.0f | %.0f | %d |\n", code(l.policy), l.session99, 100*l.hit, l.cv, l.ttft, l.e2e, 100*l.sticky, l.makespan, l.seeds)
		}
	}
}

func (d *doc) faults() {
	if len(d.group(faulty)) == 0 {
		return
	}
	d.p("\n## When things go wrong\n\nThe same workloads with late and lost events, with several routers, and with a fleet that changes. %% is the change against the same policy on the healthy cell.\n")
	healthy := map[string]*outcome{}
	for _, o := range d.group(mainCells) {
		name, _, _ := strings.Cut(o.cell.key, "-")
		healthy[name] = o
	}
	for _, o := range d.group(faulty) {
		_, name, _ := strings.Cut(o.cell.key, "-")
		name, _, _ = strings.Cut(name, "-")
		d.p("\n### %s\n", o.cell.title)
		d.head("policy", "TTFT mean s", "%", "TTFT p99 s", "E2E mean s", "%", "hit %", "phantom %", "lost requests")
		for _, l := range o.lines {
			dt, de := "", ""
			if h := healthy[name]; h != nil && h.of(l.policy) != nil {
				dt, de = percent(l.ttft, h.of(l.policy).ttft), percent(l.e2e, h.of(l.policy).e2e)
			}
			d.p("| %s | %.3f | %s | %.2f | %.2f | %s | %.1f | %.1f | %d |\n", code(l.policy), l.ttft, dt, l.ttft99, l.e2e, de, 100*l.hit, 100*l.phantom, l.lost)
		}
	}
}

func (d *doc) steer() {
	d.p("\n## steer against marginal\n\nsteer adds a price for those who will come back (without late binding). Change against marginal in %%.\n")
	d.head("cell", "TTFT mean", "TTFT p95", "E2E mean", "E2E p99")
	var lt, le float64
	n := 0
	for _, o := range d.done {
		m, s := o.of("marginal"), o.of("steer")
		if m == nil || s == nil {
			continue
		}
		d.p("| %s | %s | %s | %s | %s |\n", o.cell.title, percent(s.ttft, m.ttft), percent(s.ttft95, m.ttft95), percent(s.e2e, m.e2e), percent(s.e2e99, m.e2e99))
		lt, le, n = lt+math.Log(s.ttft/m.ttft), le+math.Log(s.e2e/m.e2e), n+1
	}
	if n > 0 {
		d.p("| geometric mean of %d | %+.1f | | %+.1f | |\n", n, 100*(math.Exp(lt/float64(n))-1), 100*(math.Exp(le/float64(n))-1))
	}
}

// cells prints whole tables.
func (d *doc) cells(title, group string) {
	if len(d.group(group)) == 0 {
		return
	}
	d.p("\n## %s\n", title)
	for _, o := range d.group(group) {
		d.p("\n### %s\n", o.cell.title)
		d.head("policy", "hit %", "TTFT mean s", "p95", "p99", "E2E mean s", "p99", "TPOT ms", "load CV", "sticky %", "fullest %", "seeds")
		for _, l := range o.lines {
			d.p("| %s | %.1f | %s | %s | %s | %s | %s | %.1f | %.2f | %.0f | %.1f | %d |\n", code(l.policy), 100*l.hit, spreadOf(l.ttft, l.ttftSD, 3), seconds(l.ttft95), seconds(l.ttft99),
				spreadOf(l.e2e, l.e2eSD, 2), seconds(l.e2e99), 1e3*l.tpot, l.cv, 100*l.sticky, 100*l.maxShare, l.seeds)
		}
	}
}

func seconds(s float64) string {
	if s >= 100 {
		return fmt.Sprintf("%.0f", s)
	}
	return fmt.Sprintf("%.2f", s)
}

func spreadOf(m, sd float64, digits int) string {
	if m >= 100 {
		digits = 0
	}
	if sd == 0 {
		return fmt.Sprintf("%.*f", digits, m)
	}
	return fmt.Sprintf("%.*f ± %.*f", digits, m, digits, sd)
}

// code marks marginal and the bound.
func code(p string) string {
	switch p {
	case "marginal":
		return "**marginal**"
	case pool:
		return "*pooled cache (bound)*"
	}
	return p
}

// agreement puts our figures beside the reference simulator's.
func (d *doc) agreement() {
	d.p("\n## Our simulator beside the reference's\n\n`ref:` are the reference's own policies on our engines, clock and metrics: they check the simulator. The others are the product's policies, fed by events and its own ledger.\n" +
		"Seed 1 of ties; differences in %% of the reference's figures. Policies without random ties must agree to every digit, others by the mean over seeds within 3 %% (experiments.md, section 1).\n")
	d.head("cell", "reference", "ours", "hit rate ref.", "diff", "TTFT mean ref.", "diff", "p95 diff", "E2E mean ref.", "diff")
	var exact, rows int
	for _, o := range d.done {
		if o.cell.ref == (refKey{}) {
			continue
		}
		for _, r := range d.ref {
			if (refKey{r.Cell, r.Replicas}) != o.cell.ref {
				continue
			}
			for _, name := range twins[r.Name] {
				i := slices.IndexFunc(o.twins, func(x sim.Result) bool { return x.Policy == name })
				if i < 0 {
					continue
				}
				x := o.twins[i]
				if strings.HasPrefix(name, "ref:") {
					rows++
					if math.Abs(x.TTFT.Mean-r.TTFT) < 1e-6*(1+r.TTFT) && math.Abs(x.E2E.Mean-r.E2E) < 1e-6*(1+r.E2E) {
						exact++
					}
				}
				d.p("| %s | %s | %s | %.1f | %s | %.3f | %s | %s | %.2f | %s |\n", o.cell.title, r.Name, code(name), 100*r.Hit, diff(x.HitRate, r.Hit), r.TTFT, diff(x.TTFT.Mean, r.TTFT),
					diff(x.TTFT.P95, r.TTFT95), r.E2E, diff(x.E2E.Mean, r.E2E))
			}
		}
	}
	d.p("\n%d of %d twins equal the reference's mean TTFT and mean E2E to its six digits.\n", exact, rows)
}

func diff(ours, theirs float64) string {
	if math.Abs(ours-theirs) < 1e-6*(1+math.Abs(theirs)) {
		return "0"
	}
	return fmt.Sprintf("%+.2f", change(ours, theirs))
}
