// Package report draws a simulation's report as one self-contained page: tables and
// plots in SVG, no script, no file beside it. Equal reports give equal bytes.
package report

import (
	"cmp"
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"strings"

	"kvasir/lab/sim"
)

// A row is one policy on one input and fleet, averaged over seeds.
type row struct {
	Input, Policy, Profile string
	Replicas, Seeds        int
	Hit, TTFT, P50, P95    float64
	P99, E2E, TPOT         float64
	CV, MaxShare, Phantom  float64
	Color                  template.CSS
	Best                   bool // lowest mean E2E of its group
	curves                 *sim.Curves
}

// A group is everything that was compared on equal terms.
type group struct {
	Title   string
	Note    string
	Rows    []row
	CDF     template.HTML
	Balance template.HTML
	Loads   []load
}

type load struct {
	Policy string
	SVG    template.HTML
}

// Write writes the page.
func Write(w io.Writer, title string, r sim.Report) error {
	groups := split(r.Runs)
	for i := range groups {
		groups[i].draw()
	}
	return page.Execute(w, map[string]any{"Title": title, "Groups": groups, "Stopped": r.Stopped, "Scales": scales(groups)})
}

// split averages seeds and sorts runs into groups of input, profile and fleet.
func split(runs []sim.Result) []group {
	type key struct {
		input, profile string
		replicas, kv   int
	}
	var keys []key
	by := map[key]map[string]*row{}
	order := map[key][]string{}
	for i := range runs {
		x := &runs[i]
		k := key{x.Input, x.Profile, x.Replicas, x.KVTokens}
		if by[k] == nil {
			keys = append(keys, k)
			by[k] = map[string]*row{}
		}
		y := by[k][x.Policy]
		if y == nil {
			y = &row{Input: x.Input, Policy: x.Policy, Profile: x.Profile, Replicas: x.Replicas, curves: x.Curves}
			by[k][x.Policy] = y
			order[k] = append(order[k], x.Policy)
		}
		y.add(x)
	}
	var out []group
	for _, k := range keys {
		g := group{Title: fmt.Sprintf("%s, %d replicas, profile %s", k.input, k.replicas, k.profile)}
		for _, p := range order[k] {
			g.Rows = append(g.Rows, *by[k][p])
		}
		slices.SortStableFunc(g.Rows, func(a, b row) int { return cmp.Compare(a.E2E, b.E2E) })
		for i := range g.Rows {
			g.Rows[i].Color = template.CSS(color(i, len(g.Rows)))
		}
		g.Rows[0].Best = true
		seeds := 0
		for _, y := range g.Rows {
			seeds = max(seeds, y.Seeds)
		}
		g.Note = fmt.Sprintf("%d tokens of KV cache per replica; means over %d seed(s)", k.kv, seeds)
		out = append(out, g)
	}
	return out
}

// add takes one seed into the running means.
func (y *row) add(x *sim.Result) {
	y.Seeds++
	n := float64(y.Seeds)
	for _, v := range []struct {
		to *float64
		x  float64
	}{
		{&y.Hit, x.HitRate}, {&y.TTFT, x.TTFT.Mean}, {&y.P50, x.TTFT.P50}, {&y.P95, x.TTFT.P95}, {&y.P99, x.TTFT.P99},
		{&y.E2E, x.E2E.Mean}, {&y.TPOT, x.TPOT.Mean}, {&y.CV, x.DecodeCV}, {&y.MaxShare, x.MaxShare}, {&y.Phantom, x.Phantom},
	} {
		*v.to += (v.x - *v.to) / n
	}
}

// color spreads hues; neighbours in rank differ clearly.
func color(i, n int) string {
	return fmt.Sprintf("hsl(%d,%d%%,%d%%)", (i*137+205)%360, 62, 38+10*(i%2))
}

func (g *group) draw() {
	g.CDF = cdf(g.Rows)
	g.Balance = balance(g.Rows)
	for i, r := range g.Rows {
		if r.curves != nil && len(r.curves.Load) > 0 && (i < 3 || r.Policy == "round_robin") {
			g.Loads = append(g.Loads, load{r.Policy, loads(r.curves)})
		}
	}
}

// scales draws, for each input and profile that was played on several fleets, mean
// E2E over the number of replicas.
func scales(groups []group) (out []load) {
	type key struct{ input, profile string }
	var keys []key
	by := map[key][]row{}
	for _, g := range groups {
		for _, r := range g.Rows {
			k := key{r.Input, r.Profile}
			if by[k] == nil {
				keys = append(keys, k)
			}
			by[k] = append(by[k], r)
		}
	}
	for _, k := range keys {
		if svg := scale(by[k]); svg != "" {
			out = append(out, load{k.input + ", profile " + k.profile, svg})
		}
	}
	return out
}

func scale(rows []row) template.HTML {
	by := map[string][][2]float64{}
	var sizes []int
	var names []string
	for _, r := range rows {
		if by[r.Policy] == nil {
			names = append(names, r.Policy)
		}
		by[r.Policy] = append(by[r.Policy], [2]float64{float64(r.Replicas), r.E2E})
		if !slices.Contains(sizes, r.Replicas) {
			sizes = append(sizes, r.Replicas)
		}
	}
	if len(sizes) < 2 {
		return ""
	}
	slices.Sort(sizes)
	slices.Sort(names)
	p := newPlot("replicas", "mean E2E, s", float64(sizes[0]), float64(sizes[len(sizes)-1]), 0, 0)
	for i, n := range names {
		pts := by[n]
		slices.SortFunc(pts, func(a, b [2]float64) int { return cmp.Compare(a[0], b[0]) })
		for _, q := range pts {
			p.y1 = max(p.y1, q[1])
		}
		p.lines = append(p.lines, line{n, color(i, len(names)), pts})
	}
	return p.svg()
}

func ms(s float64) string {
	switch {
	case s < 1:
		return fmt.Sprintf("%.0f ms", 1e3*s)
	case s < 10:
		return fmt.Sprintf("%.2f s", s)
	}
	return fmt.Sprintf("%.1f s", s)
}

func pct(f float64) string { return fmt.Sprintf("%.1f %%", 100*f) }

var page = template.Must(template.New("page").Funcs(template.FuncMap{"ms": ms, "pct": pct}).Parse(strings.TrimSpace(pageHTML)))

// finite replaces what can't be drawn.
func finite(f float64) float64 {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return 0
	}
	return f
}
