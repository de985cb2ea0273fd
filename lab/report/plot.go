package report

import (
	"fmt"
	"html/template"
	"math"
	"strings"

	"kvasir/lab/sim"
)

// A plot has linear axes, or a logarithmic x axis.
type plot struct {
	xName, yName   string
	x0, x1, y0, y1 float64
	logX           bool
	lines          []line
	points         []point
}

type line struct {
	name, color string
	pts         [][2]float64
}

type point struct {
	name, color string
	x, y        float64
}

const (
	plotW, plotH           = 640., 320.
	left, right, top, foot = 56., 150., 14., 40.
)

func newPlot(x, y string, x0, x1, y0, y1 float64) *plot {
	return &plot{xName: x, yName: y, x0: x0, x1: x1, y0: y0, y1: y1}
}

func (p *plot) px(x float64) float64 {
	a, b := p.x0, p.x1
	if p.logX {
		a, b, x = math.Log10(a), math.Log10(b), math.Log10(max(x, p.x0))
	}
	if b == a {
		return left
	}
	return left + finite((x-a)/(b-a))*(plotW-left-right)
}

func (p *plot) py(y float64) float64 {
	if p.y1 == p.y0 {
		return plotH - foot
	}
	return plotH - foot - finite((y-p.y0)/(p.y1-p.y0))*(plotH-top-foot)
}

// ticks returns four to eight round places between a and b.
func ticks(a, b float64) (out []float64) {
	if !(b > a) {
		return []float64{a}
	}
	step := math.Pow(10, math.Floor(math.Log10((b-a)/4)))
	for _, m := range []float64{1, 2, 5, 10} {
		if (b-a)/(step*m) <= 6 {
			step *= m
			break
		}
	}
	for v := math.Ceil(a/step) * step; v <= b+step*1e-9; v += step {
		out = append(out, v)
	}
	return out
}

// label writes a number shortly: 25000 is 25k.
func label(v float64) string {
	switch a := math.Abs(v); {
	case a >= 1e6:
		return fmt.Sprintf("%.4gM", v/1e6)
	case a >= 1e4:
		return fmt.Sprintf("%.4gk", v/1e3)
	}
	return fmt.Sprintf("%.4g", v)
}

func logTicks(a, b float64) (out []float64) {
	for e := math.Floor(math.Log10(a)); e <= math.Ceil(math.Log10(b)); e++ {
		if v := math.Pow(10, e); v >= a*0.999 && v <= b*1.001 {
			out = append(out, v)
		}
	}
	return out
}

func (p *plot) svg() template.HTML {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 0 %.0f %.0f" role="img" aria-label="%s over %s">`, plotW, plotH, template.HTMLEscapeString(p.yName), template.HTMLEscapeString(p.xName))
	xs := ticks(p.x0, p.x1)
	if p.logX {
		xs = logTicks(p.x0, p.x1)
	}
	for _, x := range xs {
		fmt.Fprintf(&b, `<line class="grid" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"/><text class="tick" x="%.1f" y="%.1f" text-anchor="middle">%s</text>`,
			p.px(x), p.px(x), top, plotH-foot, p.px(x), plotH-foot+15, label(x))
	}
	for _, y := range ticks(p.y0, p.y1) {
		fmt.Fprintf(&b, `<line class="grid" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"/><text class="tick" x="%.1f" y="%.1f" text-anchor="end">%s</text>`,
			left, plotW-right, p.py(y), p.py(y), left-6, p.py(y)+4, label(y))
	}
	fmt.Fprintf(&b, `<text class="axis" x="%.1f" y="%.1f" text-anchor="middle">%s</text>`, (left+plotW-right)/2, plotH-6, template.HTMLEscapeString(p.xName))
	fmt.Fprintf(&b, `<text class="axis" transform="translate(13 %.1f) rotate(-90)" text-anchor="middle">%s</text>`, (top+plotH-foot)/2, template.HTMLEscapeString(p.yName))
	legend := top + 8
	for _, l := range p.lines {
		var d strings.Builder
		for i, q := range l.pts {
			d.WriteString(map[bool]string{true: "M", false: "L"}[i == 0])
			fmt.Fprintf(&d, "%.1f %.1f", p.px(q[0]), p.py(q[1]))
		}
		fmt.Fprintf(&b, `<path class="line" stroke="%s" d="%s"/>`, l.color, d.String())
		if l.name != "" {
			legend = p.legend(&b, legend, l.name, l.color)
		}
	}
	for _, q := range p.points {
		fmt.Fprintf(&b, `<circle cx="%.1f" cy="%.1f" r="5" fill="%s"><title>%s</title></circle>`, p.px(q.x), p.py(q.y), q.color, template.HTMLEscapeString(q.name))
		legend = p.legend(&b, legend, q.name, q.color)
	}
	b.WriteString("</svg>")
	return template.HTML(b.String())
}

// legend writes one entry and returns where the next one goes.
func (p *plot) legend(b *strings.Builder, y float64, name, color string) float64 {
	if y > plotH-8 {
		return y
	}
	fmt.Fprintf(b, `<rect x="%.1f" y="%.1f" width="10" height="10" fill="%s"/><text class="tick" x="%.1f" y="%.1f">%s</text>`,
		plotW-right+12, y-8, color, plotW-right+27, y+1, template.HTMLEscapeString(name))
	return y + 15
}

// cdf draws the share of requests that had their first token within a time.
func cdf(rows []row) template.HTML {
	p := newPlot("time to first token, s (logarithmic)", "share of requests", math.Inf(1), 0, 0, 1)
	p.logX = true
	for _, r := range rows {
		if r.curves == nil {
			continue
		}
		var pts [][2]float64
		for i, t := range r.curves.TTFT {
			t = max(t, 1e-4)
			pts = append(pts, [2]float64{t, float64(i) / float64(max(len(r.curves.TTFT)-1, 1))})
			p.x0, p.x1 = min(p.x0, t), max(p.x1, t)
		}
		p.lines = append(p.lines, line{r.Policy, string(r.Color), pts})
	}
	if len(p.lines) == 0 || p.x1 <= p.x0 {
		return ""
	}
	return p.svg()
}

// balance draws hit rate against the spread of load: the upper left is good.
func balance(rows []row) template.HTML {
	p := newPlot("unevenness of decode load (CV over replicas; left is better)", "hit rate, % (up is better)", 0, 0, 100, 0)
	for _, r := range rows {
		p.points = append(p.points, point{r.Policy, string(r.Color), r.CV, 100 * r.Hit})
		p.x1, p.y0, p.y1 = max(p.x1, r.CV*1.05), min(p.y0, 100*r.Hit), max(p.y1, 100*r.Hit)
	}
	pad := max((p.y1-p.y0)*.08, .5)
	p.y0, p.y1 = max(p.y0-pad, 0), min(p.y1+pad, 100)
	if p.x1 == 0 {
		p.x1 = 1
	}
	return p.svg()
}

// loadPoints is how many points a line of load has at most.
const loadPoints = 80

// loads draws each replica's load over time.
func loads(c *sim.Curves) template.HTML {
	n := 0
	for _, l := range c.Load {
		n = max(n, len(l))
	}
	p := newPlot("time, s", "decoding blocks", 0, c.Step*float64(max(n-1, 1)), 0, 1)
	every := max((n+loadPoints-1)/loadPoints, 1) // too many points are a thicket
	for i, l := range c.Load {
		var pts [][2]float64
		for j := 0; j < len(l); j += every {
			sum, k := 0., 0
			for ; k < every && j+k < len(l); k++ {
				sum += l[j+k]
			}
			v := sum / float64(k)
			pts = append(pts, [2]float64{c.Step * float64(j), v})
			p.y1 = max(p.y1, v)
		}
		name := ""
		if len(c.Load) <= 18 {
			name = fmt.Sprintf("replica %d", i)
		}
		p.lines = append(p.lines, line{name, color(i, len(c.Load)), pts})
	}
	return p.svg()
}
