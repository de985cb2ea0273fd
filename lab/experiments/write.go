package main

import (
	"cmp"
	_ "embed"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"kvasir/lab/sim"
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
	d.p("# Every policy on every workload\n\nWritten by `make experiments`; change nothing here by hand (the words are in lab/experiments/words.md).\n\n%s\n", strings.TrimSpace(words))
	d.rivals()
	d.goals()
	d.learning()
	d.controls()
	d.loads()
	d.crowds()
	d.rl()
	d.faults()
	d.steer()
	d.combinators()
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
	d.p("\n## Nothing to reuse\n\nGoal: at most 2 %% worse than the best of the policies that look at load only (random, round robin, P2C, least load by requests or by tokens).\n")
	d.head("cell", "policy", "TTFT mean", "best by load", "E2E mean", "best by load", "at most 2 % worse")
	for _, o := range d.group(noReuse) {
		bt, be := o.best(blind, ttft), o.best(blind, e2e)
		for _, p := range us {
			if m := o.of(p); m != nil && bt != nil {
				d.p("| %s | %s | %s | %s %.3f | %s | %s %.2f | %s |\n", o.cell.title, code(p), percent(m.ttft, bt.ttft), code(bt.policy), bt.ttft, percent(m.e2e, be.e2e), code(be.policy), be.e2e,
					verdict(change(m.ttft, bt.ttft) <= 2 && change(m.e2e, be.e2e) <= 2))
			}
		}
	}
	d.cells("Nothing to reuse: all policies", noReuse)
}

func (d *doc) rl() {
	d.p("\n## RL rollouts with stragglers\n\np99 of a rollout, from its first request to its last token. Goal: within 1.5 %% of the best policy.\n")
	d.head("cell", "policy", "p99 s", "best", "behind by %", "within 1.5 %", "its hit rate %", "ours")
	for _, o := range d.group(rollouts) {
		b := o.best(func(p string) bool { return p != pool }, session99)
		for _, p := range us {
			if m := o.of(p); m != nil {
				d.p("| %s | %s | %.1f | %s %.1f | %s | %s | %.1f | %.1f |\n", o.cell.title, code(p), m.session99, code(b.policy), b.session99, percent(m.session99, b.session99), verdict(change(m.session99, b.session99) <= 1.5), 100*b.hit, 100*m.hit)
			}
		}
	}
	for _, o := range d.group(rollouts) {
		d.p("\n### %s\n", o.cell.title)
		d.head("policy", "p99 s", "hit %", "load CV", "TTFT mean s", "E2E mean s", "sticky %", "all done after s", "seeds")
		lines := slices.Clone(o.lines)
		slices.SortStableFunc(lines, func(a, b line) int { return cmp.Compare(a.session99, b.session99) })
		for _, l := range lines {
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

// combinators shows what each costs, or brings, against the policy inside it.
func (d *doc) combinators() {
	if len(d.group(combined)) == 0 {
		return
	}
	d.p("\n## Combinators: what they cost where nothing is wrong\n\nEach is insurance against one failure (the tests of package policy show which); this is the premium. Change in %% against the policy inside. " +
		"`shed` (10 s to the first token) refuses requests, and what it refuses is in no figure.\n")
	d.head("cell", "policy", "TTFT mean", "TTFT p95", "E2E mean", "hit rate, points", "fullest %", "refused requests")
	for _, o := range d.group(combined) {
		for _, p := range o.cell.arms {
			inner, _, ok := strings.Cut(p, ":")
			l, b := o.of(p), o.of(inner)
			if !ok || l == nil || b == nil {
				continue
			}
			d.p("| %s | %s | %s | %s | %s | %+.1f | %.1f | %.0f |\n", o.cell.title, code(p), percent(l.ttft, b.ttft), percent(l.ttft95, b.ttft95), percent(l.e2e, b.e2e), 100*(l.hit-b.hit), 100*l.maxShare, l.shed)
		}
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

// code marks the default and the bound.
func code(p string) string {
	switch p {
	case "auto":
		return "**auto**"
	case pool:
		return "*pooled cache (bound)*"
	}
	return p
}

// agreement puts our figures beside the reference simulator's.
func (d *doc) agreement() {
	d.p("\n## Our simulator beside the reference's\n\n`ref:` are the reference's own policies on our engines, clock and metrics: they check the simulator. The others are the product's policies, fed by events and its own ledger.\n" +
		"Seed 1 of ties; differences in %% of the reference's figures. Policies without random ties must agree to every digit, others by the mean over seeds within 3 %% ([mock.md](mock.md#agreement)).\n")
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
