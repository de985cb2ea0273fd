package sim

import (
	"fmt"
	"html/template"
	"io"
	"slices"
	"sort"
	"strings"
)

// palette tells up to six policies apart, also for the colour-blind (Okabe and
// Ito 2008); the others are grey.
var palette = []string{"#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"}

const grey = "#9aa3ad"

// WriteHTML writes r as one self-contained page: tables and plots, no script, no
// reference to anything outside. Runs with Curves get all plots.
func WriteHTML(w io.Writer, r Report) error {
	type group struct {
		Input, Fleet string
		Runs         []Result
		Best         map[string]float64
		Plots        []template.HTML
	}
	var groups []*group
	by := map[string]*group{}
	for _, run := range r.Runs {
		fleet := fmt.Sprintf("%d × %s, %s KV tokens each", run.Replicas, run.Profile, thousands(run.KVTokens))
		g := by[run.Input+"\x00"+fleet]
		if g == nil {
			g = &group{Input: run.Input, Fleet: fleet}
			by[run.Input+"\x00"+fleet] = g
			groups = append(groups, g)
		}
		g.Runs = append(g.Runs, run)
	}
	for _, g := range groups {
		slices.SortStableFunc(g.Runs, func(a, b Result) int {
			switch {
			case a.TTFT.Mean < b.TTFT.Mean:
				return -1
			case a.TTFT.Mean > b.TTFT.Mean:
				return 1
			}
			return strings.Compare(a.Policy, b.Policy)
		})
		g.Best = map[string]float64{"hit": 0, "ttft": g.Runs[0].TTFT.Mean, "p95": g.Runs[0].TTFT.P95, "e2e": g.Runs[0].E2E.Mean}
		for i := range g.Runs {
			g.Best["hit"] = max(g.Best["hit"], g.Runs[i].HitRate)
			g.Best["p95"] = min(g.Best["p95"], g.Runs[i].TTFT.P95)
			g.Best["e2e"] = min(g.Best["e2e"], g.Runs[i].E2E.Mean)
		}
		colour := colours(g.Runs)
		g.Plots = append(g.Plots, balancePlot(g.Runs, colour))
		if p := cdfPlot(g.Runs, colour); p != "" {
			g.Plots = append(g.Plots, p)
		}
		g.Plots = append(g.Plots, loadPlots(g.Runs)...)
	}
	return page.Execute(w, map[string]any{"Groups": groups, "Scale": scalePlot(r.Runs), "Stopped": r.Stopped})
}

// colours gives the best runs a colour each; runs are in order of mean TTFT.
func colours(runs []Result) map[string]string {
	c := map[string]string{}
	for _, r := range runs {
		if _, ok := c[r.Policy]; ok {
			continue
		}
		c[r.Policy] = grey
		if len(c) <= len(palette) {
			c[r.Policy] = palette[len(c)-1]
		}
	}
	return c
}

// balancePlot shows hit rate against load balance, the two that a policy trades.
func balancePlot(runs []Result, colour map[string]string) template.HTML {
	p := newPlot("Hit rate against load balance", "decode-block CV (0 is even load)", "prompt tokens from cache, %")
	for _, r := range runs {
		p.see(r.DecodeCV, 100*r.HitRate)
	}
	p.fit(false)
	for i := len(runs) - 1; i >= 0; i-- { // the best on top
		r := &runs[i]
		p.dot(r.DecodeCV, 100*r.HitRate, colour[r.Policy], r.Policy, fmt.Sprintf("%s: hit %.1f %%, CV %.2f, mean TTFT %.3f s", r.Policy, 100*r.HitRate, r.DecodeCV, r.TTFT.Mean))
	}
	return p.svg()
}

// cdfPlot shows the share of requests that have their first token by a time.
func cdfPlot(runs []Result, colour map[string]string) template.HTML {
	p := newPlot("Time to first token", "seconds, logarithmic", "requests with their first token, %")
	for _, r := range runs {
		if r.Curves != nil {
			for i, v := range r.Curves.TTFT {
				p.see(max(v, 1e-3), float64(i))
			}
		}
	}
	if p.empty() {
		return ""
	}
	p.fit(true)
	drawn := map[string]bool{}
	for i := len(runs) - 1; i >= 0; i-- {
		r := &runs[i]
		if r.Curves == nil || drawn[r.Policy] {
			continue
		}
		drawn[r.Policy] = true
		var pts [][2]float64
		for k, v := range r.Curves.TTFT {
			pts = append(pts, [2]float64{max(v, 1e-3), float64(k)})
		}
		name := r.Policy
		if colour[name] == grey {
			name = ""
		}
		p.line(pts, colour[r.Policy], name, r.Policy)
	}
	return p.svg()
}

// loadPlots shows the load of each replica over time, for the best policy and
// the worst with curves.
func loadPlots(runs []Result) []template.HTML {
	var pick []*Result
	for i := range runs {
		if runs[i].Curves != nil {
			pick = append(pick, &runs[i])
		}
	}
	if len(pick) > 2 {
		pick = []*Result{pick[0], pick[len(pick)-1]}
	}
	top := 0.0
	for _, r := range pick {
		for _, l := range r.Curves.Load {
			top = max(top, slices.Max(append([]float64{0}, l...)))
		}
	}
	var out []template.HTML
	for _, r := range pick {
		p := newPlot("Load per replica: "+r.Policy, "seconds", "blocks of decoding requests")
		p.see(0, 0)
		p.see(r.Curves.Step*float64(pieces), top)
		p.fit(false)
		for i, l := range r.Curves.Load {
			var pts [][2]float64
			for k, v := range l {
				pts = append(pts, [2]float64{float64(k) * r.Curves.Step, v})
			}
			c := grey
			if len(r.Curves.Load) <= len(palette) {
				c = palette[i]
			}
			p.line(pts, c, "", fmt.Sprintf("replica %d", i))
		}
		out = append(out, p.svg())
	}
	return out
}

// scalePlot shows what a bigger fleet brings, if runs of several sizes are there.
func scalePlot(runs []Result) template.HTML {
	at := map[string]map[int]float64{}
	sizes := map[int]bool{}
	var order []string
	for _, r := range runs {
		if at[r.Policy] == nil {
			at[r.Policy] = map[int]float64{}
			order = append(order, r.Policy)
		}
		at[r.Policy][r.Replicas] = r.TTFT.Mean
		sizes[r.Replicas] = true
	}
	if len(sizes) < 2 {
		return ""
	}
	p := newPlot("Cost of scale", "replicas", "mean time to first token, s")
	for _, name := range order {
		for n, v := range at[name] {
			p.see(float64(n), v)
		}
	}
	p.see(0, 0)
	p.fit(false)
	for i, name := range order {
		var ns []int
		for n := range at[name] {
			ns = append(ns, n)
		}
		sort.Ints(ns)
		var pts [][2]float64
		for _, n := range ns {
			pts = append(pts, [2]float64{float64(n), at[name][n]})
		}
		c := grey
		if i < len(palette) {
			c = palette[i]
		}
		p.line(pts, c, name, name)
	}
	return p.svg()
}

func thousands(n int) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

var page = template.Must(template.New("report").Funcs(template.FuncMap{
	"pct": func(v float64) string { return fmt.Sprintf("%.1f", 100*v) },
	"s":   func(v float64) string { return fmt.Sprintf("%.3f", v) },
	"ms":  func(v float64) string { return fmt.Sprintf("%.1f", 1000*v) },
	"n":   thousands,
}).Parse(`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1"><title>Kvasir simulation</title>
<style>
:root{--ink:#1b2430;--soft:#5b6673;--line:#dde2e8;--paper:#fff;--mark:#eef4fb}
@media (prefers-color-scheme:dark){:root{--ink:#e6eaef;--soft:#9aa6b2;--line:#333c46;--paper:#14181d;--mark:#1d2a38}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:1180px;margin:2rem auto;padding:0 1rem}
h1{font-size:1.5rem}h2{font-size:1.15rem;margin:2.2rem 0 .2rem}p{color:var(--soft);margin:.2rem 0 1rem}
.wide{overflow-x:auto}table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{padding:.3rem .6rem;text-align:right;border-bottom:1px solid var(--line);white-space:nowrap}
th{color:var(--soft);font-weight:500}th:first-child,td:first-child{text-align:left}.best{background:var(--mark);font-weight:600}
.plots{display:flex;flex-wrap:wrap;gap:1.2rem;margin-top:1.2rem}svg{max-width:100%;height:auto}svg text{fill:var(--ink);font:12px system-ui,sans-serif}
svg .soft{fill:var(--soft)}svg .axis{stroke:var(--line)}svg .title{font-weight:600;font-size:13px}
</style></head><body><h1>Kvasir simulation</h1>
{{if .Stopped}}<p><b>Stopped before the end: unfinished runs are marked.</b></p>{{end}}
{{range .Groups}}{{$b := .Best}}<h2>{{.Input}}</h2><p>{{.Fleet}}. Times in seconds; hit rate by tokens; decode CV is the variation of load between replicas in bins of 0.5 s.</p>
<div class="wide"><table><tr><th>policy<th>seed<th>requests<th>hit %<th>TTFT mean<th>p50<th>p95<th>p99<th>E2E mean<th>p95<th>TPOT ms<th>decode CV<th>sticky %<th>max share %<th>makespan</tr>
{{range .Runs}}<tr><td>{{.Policy}}{{if .Partial}} (unfinished){{end}}<td>{{.Seed}}<td>{{n .Requests}}<td{{if eq .HitRate (index $b "hit")}} class="best"{{end}}>{{pct .HitRate}}<td{{if eq .TTFT.Mean (index $b "ttft")}} class="best"{{end}}>{{s .TTFT.Mean}}<td>{{s .TTFT.P50}}<td{{if eq .TTFT.P95 (index $b "p95")}} class="best"{{end}}>{{s .TTFT.P95}}<td>{{s .TTFT.P99}}<td{{if eq .E2E.Mean (index $b "e2e")}} class="best"{{end}}>{{s .E2E.Mean}}<td>{{s .E2E.P95}}<td>{{ms .TPOT.Mean}}<td>{{s .DecodeCV}}<td>{{pct .Stickiness}}<td>{{pct .MaxShare}}<td>{{s .Makespan}}</tr>
{{end}}</table></div><div class="plots">{{range .Plots}}{{.}}{{end}}</div>{{end}}
{{if .Scale}}<h2>Fleet size</h2><div class="plots">{{.Scale}}</div>{{end}}
</body></html>
`))
