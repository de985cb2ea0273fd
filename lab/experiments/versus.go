package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// us are the policies that the tables put beside the others: the default first.
var us = []string{"auto", "marginal"}

// rivals compares the default with the best of all others, by cell and figure, in
// hindsight, and marginal beside it.
func (d *doc) rivals() {
	d.p("\n## auto against the best of all others, picked per cell in hindsight\n\n`auto` is the default: what `kvasir serve` does when nobody says otherwise. The others are all policies that aren't ours\n" +
		"(ours: `auto`, `marginal`, `steer`). No one could run \"the best other\": it is another policy in each row. W+p (`marginal:wp`: engine\nconstants known, no prices) counts as another, for it is in the field's list.\n")
	d.p("Change in %%, negative is better; ± is the standard deviation over seeds of auto's own mean, in %%.\n")
	d.head("cell", "E2E mean: auto", "marginal", "best other s", "TTFT mean: auto", "marginal", "best other s", "auto's TTFT s", "E2E s")
	tallies := make([]tally, len(us))
	for _, o := range d.group(mainCells, moreCells, others) {
		a, m, be, bt := o.of("auto"), o.of("marginal"), o.best(rival, e2e), o.best(rival, ttft)
		if a == nil || be == nil {
			continue
		}
		me, mt := "", ""
		if m != nil {
			me, mt = percent(m.e2e, be.e2e), percent(m.ttft, bt.ttft)
		}
		d.p("| %s | %s ± %.1f | %s | %s %.2f | %s ± %.1f | %s | %s %.3f | %.3f | %.2f |\n", o.cell.title, percent(a.e2e, be.e2e), 100*a.e2eSD/a.e2e, me, code(be.policy), be.e2e,
			percent(a.ttft, bt.ttft), 100*a.ttftSD/a.ttft, mt, code(bt.policy), bt.ttft, a.ttft, a.e2e)
		for i, p := range us {
			if l := o.of(p); l != nil {
				tallies[i].add(o, l, be, bt)
			}
		}
	}
	for i, p := range us {
		if t := &tallies[i]; t.cells > 0 {
			d.p("\n%s: %s\n", code(p), t)
		}
	}
	d.ranking()
}

// A tally counts how a policy fares against the best of all others.
type tally struct {
	cells, ahead, close int
	e2e, ttft           float64 // sums of logarithms of the ratios
	behind, known       []string
}

func (t *tally) add(o *outcome, l, be, bt *line) {
	t.cells++
	t.e2e += math.Log(l.e2e / be.e2e)
	t.ttft += math.Log(l.ttft / bt.ttft)
	switch c := change(l.e2e, be.e2e); {
	case c <= 0:
		t.ahead++
	case c <= 1:
		t.close++
	}
	if change(l.ttft, bt.ttft) > 5 {
		if t.behind = append(t.behind, o.cell.title); strings.HasPrefix(o.cell.key, "tool-") || strings.HasPrefix(o.cell.key, "claude_code-n4-") {
			t.known = append(t.known, o.cell.title)
		}
	}
}

func (t *tally) String() string {
	s := fmt.Sprintf("ahead on mean E2E in %d of %d cells, within 1 %% in %d more; geometric mean %+.1f %% E2E, %+.1f %% TTFT. More than 5 %% behind on mean TTFT in %d",
		t.ahead, t.cells, t.close, 100*(math.Exp(t.e2e/float64(t.cells))-1), 100*(math.Exp(t.ttft/float64(t.cells))-1), len(t.behind))
	if len(t.behind) > 0 {
		s += ": " + strings.Join(t.behind, "; ")
	}
	s += "."
	if len(t.known) > 0 {
		s += fmt.Sprintf(" Of these the reference shows the same for tool and Claude Code at N=4: %d.", len(t.known))
	}
	return s
}

// goals compares the default, and marginal, with Dynamo's defaults.
func (d *doc) goals() {
	d.p("\n## Against Dynamo's defaults, 8 replicas, 70b\n\nChange in %%, negative is better; the goals are those of the issue. `dynamo:agentic` is Dynamo's other preset.\n")
	d.head("workload", "policy", "TTFT mean", "goal", "met", "E2E mean", "goal", "met", "TTFT p95", "E2E p99", "TTFT against agentic", "E2E against agentic")
	for _, g := range []struct {
		name      string
		ttft, e2e float64
	}{{"conv", -17, -20}, {"tool", -33, -28}, {"claude_code", -70, -38}, {"synth", -17, -22}} {
		for _, o := range d.group(mainCells) {
			y, a := o.of("dynamo"), o.of("dynamo:agentic")
			if !strings.HasPrefix(o.cell.key, g.name+"-n8") || y == nil || a == nil {
				continue
			}
			for _, p := range us {
				m := o.of(p)
				if m == nil {
					continue
				}
				d.p("| %s | %s | %s | %.0f | %s | %s | %.0f | %s | %s | %s | %s | %s |\n", o.cell.title, code(p), percent(m.ttft, y.ttft), g.ttft, verdict(change(m.ttft, y.ttft) <= g.ttft),
					percent(m.e2e, y.e2e), g.e2e, verdict(change(m.e2e, y.e2e) <= g.e2e), percent(m.ttft95, y.ttft95), percent(m.e2e99, y.e2e99), percent(m.ttft, a.ttft), percent(m.e2e, a.e2e))
			}
		}
	}
}

// ranking says how far each policy is from the best one, over all cells.
func (d *doc) ranking() {
	d.p("\n### If one policy had to serve all of these cells\n\nGeometric mean over the same cells of (policy / best policy of the cell), and its worst cell. 1.00 would be best everywhere.\nBounds, and policies that miss a cell, are left out.\n")
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
	slices.SortStableFunc(list, func(a, b score) int { return cmp.Compare(a.e2e*a.ttft, b.e2e*b.ttft) })
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
