package main

import "math"

// hints shows what steer makes of clients that say when they go on.
func (d *doc) hints() {
	by := map[string]map[string]*outcome{} // title, what clients say
	var titles []string
	for _, o := range d.group(hinted) {
		t := o.cell.title
		if by[t] == nil {
			by[t] = map[string]*outcome{}
			titles = append(titles, t)
		}
		by[t][o.cell.hints.NextTurn] = o
	}
	if len(titles) == 0 {
		return
	}
	d.p("\n## What x-kvasir-next-turn brings\n\nThe same sessions, whose clients say nothing, when they will go on (exact), or that times a log-normal factor with sigma 0.5 (noisy). TTFT mean: change against marginal in %%; " +
		"in brackets how much of the gap between marginal and one pooled cache is closed. Only steer looks at the hint.\n")
	d.head("cell", "marginal TTFT s", "pooled s", "steer, no hint", "exact", "noisy", "E2E mean: no hint", "exact", "noisy")
	says := []string{"", "exact", "noisy"}
	var lt, le, gap [3]float64
	n := 0
	for _, t := range titles {
		base := by[t][""]
		if base == nil || base.of("marginal") == nil || base.of(pool) == nil || !played(by[t], says, "steer") {
			continue
		}
		m, b := base.of("marginal"), base.of(pool)
		d.p("| %s | %.3f | %.3f |", t, m.ttft, b.ttft)
		for i, h := range says {
			s := by[t][h].of("steer")
			closed := 100 * (m.ttft - s.ttft) / (m.ttft - b.ttft)
			d.p(" %s (%.0f) |", percent(s.ttft, m.ttft), closed)
			lt[i] += math.Log(s.ttft / m.ttft)
			gap[i] += closed
		}
		for i, h := range says {
			s := by[t][h].of("steer")
			d.p(" %s |", percent(s.e2e, m.e2e))
			le[i] += math.Log(s.e2e / m.e2e)
		}
		d.p("\n")
		n++
	}
	if n == 0 {
		return
	}
	d.p("| mean of %d | | |", n)
	for i := range says {
		d.p(" %+.1f (%.0f) |", 100*(math.Exp(lt[i]/float64(n))-1), gap[i]/float64(n))
	}
	for i := range says {
		d.p(" %+.1f |", 100*(math.Exp(le[i]/float64(n))-1))
	}
	d.p("\n")
}

// played says whether the policy was played in all of the cells.
func played(by map[string]*outcome, cells []string, policy string) bool {
	for _, c := range cells {
		if by[c] == nil || by[c].of(policy) == nil {
			return false
		}
	}
	return true
}
