package main

import (
	"fmt"
	"path/filepath"
	"strings"

	"kvasir/lab/sim"
)

// swept are the policies of the sweeps.
var swept = []string{"round_robin", "least_load", "session", "sglang_cache_aware:library", "llmd_precise", "dynamo", "dynamo:prefill8", "lmetric", "marginal", "auto", pool}

// sweepCells are docs/mock.md, "Sweeps": load on 8 replicas, and concurrency of agents
// on 4 in three orders of sessions. Full load is in the
// main cells already.
func sweepCells(open func(file string, speed float64) sim.Input, cells string) (list []cell) {
	for _, x := range []struct {
		name string
		full float64
	}{{"conv", 1.8}, {"tool", 2.2}, {"synth", 1.2}} {
		for _, part := range []float64{.25, .5, .75} {
			list = append(list, cell{key: fmt.Sprintf("load-%s-%g", x.name, 100*part), group: loads, title: fmt.Sprintf("%s %.3gx (%g %%)", x.name, x.full*part, 100*part),
				input: open(x.name, x.full*part), replicas: 8, arms: swept, seeds: 1})
		}
	}
	for _, users := range []int{8, 16, 24, 32, 40} {
		for _, order := range []uint64{3, 4, 5} {
			list = append(list, cell{key: fmt.Sprintf("users-%d-order%d", users, order), group: crowds, title: fmt.Sprintf("%d users, order %d", users, order),
				input:    sim.Input{File: filepath.Join(cells, fmt.Sprintf("claude_code_seed%d.jsonl.gz", order)), Replicas: 4, Users: users, Limit: 1200, Seed: order},
				replicas: 4, arms: swept, seeds: 1})
		}
	}
	return list
}

// loads shows how policies part as load grows.
func (d *doc) loads() {
	if len(d.group(loads)) == 0 {
		return
	}
	d.p("\n## Load sweep\n\n8 replicas, 70b. TTFT mean s / E2E mean s / hit rate %%; full load is that of the main cells.\n")
	d.head(append([]string{"load"}, names(swept)...)...)
	row := func(o *outcome, title string) {
		d.p("| %s |", title)
		for _, p := range swept {
			if l := o.of(p); l != nil {
				d.p(" %s / %s / %.0f |", threeDigits(l.ttft), threeDigits(l.e2e), 100*l.hit)
			} else {
				d.p(" |")
			}
		}
		d.p("\n")
	}
	last := ""
	full := func() {
		for _, o := range d.group(mainCells) {
			if last != "" && strings.HasPrefix(o.cell.key, last+"-n8") {
				row(o, strings.TrimSuffix(o.cell.title, ", N=8, 70b")+" (100 %)")
			}
		}
	}
	for _, o := range d.group(loads) {
		name := strings.Split(o.cell.key, "-")[1]
		if name != last {
			full()
			last = name
		}
		row(o, strings.TrimSuffix(o.cell.title, ", N=8, 70b"))
	}
	full()
}

// crowds shows the same for agents, by how many there are.
func (d *doc) crowds() {
	if len(d.group(crowds)) == 0 {
		return
	}
	d.p("\n## More agents on the same fleet\n\nClaude Code, 4 replicas, 70b, 1,200 requests, means over three orders of sessions. TTFT p95 s / TPOT mean ms / output tokens per second / hit rate %%.\n")
	d.head(append([]string{"users"}, names(swept)...)...)
	var users []int
	by := map[int][]*outcome{}
	for _, o := range d.group(crowds) {
		u := o.cell.input.Users
		if by[u] == nil {
			users = append(users, u)
		}
		by[u] = append(by[u], o)
	}
	for _, u := range users {
		d.p("| %d |", u)
		for _, p := range swept {
			var p95, tpot, rate, hit, n float64
			for _, o := range by[u] {
				if l := o.of(p); l != nil {
					p95, tpot, rate, hit, n = p95+l.ttft95, tpot+l.tpot, rate+l.rate, hit+l.hit, n+1
				}
			}
			if n == 0 {
				d.p(" |")
				continue
			}
			d.p(" %s / %.0f / %.0f / %.1f |", threeDigits(p95/n), 1e3*tpot/n, rate/n, 100*hit/n)
		}
		d.p("\n")
	}
}

// names are policies as tables show them.
func names(policies []string) (list []string) {
	for _, p := range policies {
		list = append(list, code(p))
	}
	return list
}

// threeDigits writes seconds so that three digits count.
func threeDigits(s float64) string {
	switch {
	case s < 1:
		return fmt.Sprintf("%.3f", s)
	case s < 100:
		return fmt.Sprintf("%.2f", s)
	}
	return fmt.Sprintf("%.0f", s)
}
