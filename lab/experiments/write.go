package main

import (
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

// markdown writes what a person reads: what to take and why, and the tables that
// decide it. Everything else is on the page (page.go), which it links to.
func markdown(w io.Writer, done []*outcome, ref []refRow) error {
	d := &doc{w: w, done: done, ref: ref}
	d.p("# Which policy when\n\nWritten by `make experiments`; change nothing here by hand (the words are in lab/experiments/words.md).\n\n%s\n", strings.TrimSpace(words))
	d.rivals()
	d.goals()
	d.controls()
	d.rl()
	d.faults()
	d.hints()
	d.elsewhere()
	return d.err
}

// elsewhere says where the rest is, and what it comes to.
func (d *doc) elsewhere() {
	d.p("\n## On the page\n\n[experiments.html](experiments.html) has every figure of every policy on every cell; open it from a clone, it needs no network. Each line is a view of it.\n\n")
	d.view("What marginal loses by learning its constants", "marginal", "marginal:known", "", d.done)
	d.view("steer against marginal", "steer", "marginal", "", d.group(mainCells, moreCells, others, noReuse, rollouts, faulty))
	d.view("hot_prefix around marginal", "marginal:hot_prefix", "marginal", "", d.group(mainCells, moreCells, others))
	for _, v := range [][2]string{{combined, "Combinators: what each costs where nothing is wrong"}, {loads, "Load sweep"}, {crowds, "More agents on the same fleet"}, {others, "Other workloads, orders and loads"}} {
		if n := len(d.group(v[0])); n > 0 {
			d.p("- [%s](experiments.html#group=%s): %d cells.\n", v[1], v[0], n)
		}
	}
	rows, exact, all := d.agreement()
	if len(rows) == 0 {
		return
	}
	d.p("- [Our simulator beside the reference's](experiments.html#agreement): %d of %d twins equal its mean TTFT and mean E2E to its six digits.\n", exact, all)
}

// view writes one line about policy a against policy b in the same cells.
func (d *doc) view(title, a, b, group string, set []*outcome) {
	var lt, le float64
	n := 0
	for _, o := range set {
		if x, y := o.of(a), o.of(b); x != nil && y != nil {
			lt, le, n = lt+math.Log(x.ttft/y.ttft), le+math.Log(x.e2e/y.e2e), n+1
		}
	}
	if n > 0 {
		d.p("- [%s](experiments.html#policy=%s&base=%s): TTFT %+.1f %%, E2E %+.1f %% (geometric means of %d cells).\n", title, a, b,
			100*(math.Exp(lt/float64(n))-1), 100*(math.Exp(le/float64(n))-1), n)
	}
}

func verdict(ok bool) string {
	if ok {
		return "yes"
	}
	return "**no**"
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
}

// faults has a row for each fault, and what it costs each policy.
func (d *doc) faults() {
	if len(d.group(faulty)) == 0 {
		return
	}
	shown := []string{"auto", "steer", "dynamo", "dynamo:agentic", "llmd_precise", "lmetric", "session", "least_load"}
	d.p("\n## When things go wrong\n\nThe same workloads with late and lost events, with several routers, and with a fleet that changes. TTFT / E2E: change in %% against the same policy on the healthy cell. " +
		"[All figures](experiments.html#group=faults), lost requests among them.\n")
	d.head(append([]string{"cell"}, names(shown)...)...)
	healthy := map[string]*outcome{}
	for _, o := range d.group(mainCells) {
		name, _, _ := strings.Cut(o.cell.key, "-")
		healthy[name] = o
	}
	for _, o := range d.group(faulty) {
		_, name, _ := strings.Cut(o.cell.key, "-")
		name, _, _ = strings.Cut(name, "-")
		d.p("| %s |", strings.TrimSuffix(o.cell.title, ", N=8, 70b"))
		for _, p := range shown {
			if l, h := o.of(p), healthy[name]; l != nil && h != nil && h.of(p) != nil {
				d.p(" %s / %s |", percent(l.ttft, h.of(p).ttft), percent(l.e2e, h.of(p).e2e))
			} else {
				d.p(" |")
			}
		}
		d.p("\n")
	}
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

// An agreement is a row of the reference simulator's beside ours. Twins ("ref:") are
// the reference's own policies on our engines, clock and metrics: they check the
// simulator, and those without random ties must agree to every digit. The others are
// the product's policies, fed by events and the product's own ledger (docs/mock.md,
// "Agreement").
type agreement struct {
	Cell string `json:"cell"`
	Ref  string `json:"ref"`
	Ours string `json:"ours"`
	// The reference's figures, and ours less them in % of them.
	Hit    float64 `json:"hit"`
	HitBy  float64 `json:"hit_by"`
	TTFT   float64 `json:"ttft"`
	TTFTBy float64 `json:"ttft_by"`
	P95By  float64 `json:"p95_by"`
	E2E    float64 `json:"e2e"`
	E2EBy  float64 `json:"e2e_by"`
}

// agreement returns the rows, and how many twins are exact, of how many. Seed 1 of ties.
func (d *doc) agreement() (rows []agreement, exact, all int) {
	for _, o := range d.done {
		for _, r := range d.ref {
			if o.cell.ref == (refKey{}) || (refKey{r.Cell, r.Replicas}) != o.cell.ref {
				continue
			}
			for _, name := range twins[r.Name] {
				i := slices.IndexFunc(o.twins, func(x sim.Result) bool { return x.Policy == name })
				if i < 0 {
					continue
				}
				x := o.twins[i]
				rows = append(rows, agreement{
					Cell: o.cell.title, Ref: r.Name, Ours: name, Hit: digits(r.Hit), HitBy: by(x.HitRate, r.Hit), TTFT: digits(r.TTFT), TTFTBy: by(x.TTFT.Mean, r.TTFT),
					P95By: by(x.TTFT.P95, r.TTFT95), E2E: digits(r.E2E), E2EBy: by(x.E2E.Mean, r.E2E),
				})
				if strings.HasPrefix(name, "ref:") {
					all++
					if x := rows[len(rows)-1]; x.TTFTBy == 0 && x.E2EBy == 0 {
						exact++
					}
				}
			}
		}
	}
	return rows, exact, all
}

// by is how far ours is from theirs in %, 0 where six digits agree.
func by(ours, theirs float64) float64 {
	if math.Abs(ours-theirs) < 1e-6*(1+math.Abs(theirs)) {
		return 0
	}
	return math.Round(100*change(ours, theirs)) / 100
}
