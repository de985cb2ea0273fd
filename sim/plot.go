package sim

import (
	"fmt"
	"html/template"
	"math"
	"strconv"
	"strings"
)

// A plot is one picture with two axes, drawn as SVG.
type plot struct {
	title, xName, yName string
	x0, x1, y0, y1      float64
	seen, logX          bool
	marks               strings.Builder
	labels              []label
}

// A label is text beside a mark; labels are moved apart before they are drawn.
type label struct {
	x, y         float64 // pixels
	text, colour string
}

// Size of a picture and of its margins, in pixels.
const (
	plotW, plotH = 560.0, 340.0
	left, right  = 56.0, 130.0
	top, bottom  = 34.0, 44.0
)

func newPlot(title, x, y string) *plot {
	return &plot{title: title, xName: x, yName: y, x0: math.Inf(1), y0: math.Inf(1), x1: math.Inf(-1), y1: math.Inf(-1)}
}

// see widens the axes to a point.
func (p *plot) see(x, y float64) {
	p.seen = true
	p.x0, p.x1 = min(p.x0, x), max(p.x1, x)
	p.y0, p.y1 = min(p.y0, y), max(p.y1, y)
}

func (p *plot) empty() bool { return !p.seen }

// fit fixes the axes; linear ones begin at 0.
func (p *plot) fit(logX bool) {
	p.logX = logX
	p.y0 = min(p.y0, 0)
	if !logX {
		p.x0 = min(p.x0, 0)
		p.x1 *= 1.05
	}
	if p.x1 <= p.x0 {
		p.x1 = p.x0 + 1
	}
	if p.y1 *= 1.02; p.y1 <= p.y0 {
		p.y1 = p.y0 + 1
	}
}

func (p *plot) px(x float64) float64 {
	f := (x - p.x0) / (p.x1 - p.x0)
	if p.logX {
		f = math.Log(x/p.x0) / math.Log(p.x1/p.x0)
	}
	return left + f*(plotW-left-right)
}

func (p *plot) py(y float64) float64 {
	return plotH - bottom - (y-p.y0)/(p.y1-p.y0)*(plotH-top-bottom)
}

func (p *plot) dot(x, y float64, colour, name, tip string) {
	fmt.Fprintf(&p.marks, `<circle cx="%.1f" cy="%.1f" r="5" fill="%s" fill-opacity=".85"><title>%s</title></circle>`, p.px(x), p.py(y), colour, template.HTMLEscapeString(tip))
	if colour != grey {
		p.labels = append(p.labels, label{p.px(x) + 8, p.py(y) + 4, name, colour})
	}
}

// line draws a polyline; name, if any, is written at its end.
func (p *plot) line(pts [][2]float64, colour, name, tip string) {
	if len(pts) == 0 {
		return
	}
	var b strings.Builder
	for _, q := range pts {
		fmt.Fprintf(&b, "%.1f,%.1f ", p.px(q[0]), p.py(q[1]))
	}
	width := 2.0
	if colour == grey {
		width = 1
	}
	fmt.Fprintf(&p.marks, `<polyline fill="none" stroke="%s" stroke-width="%v" stroke-linejoin="round" points="%s"><title>%s</title></polyline>`,
		colour, width, b.String(), template.HTMLEscapeString(tip))
	if name != "" {
		last := pts[len(pts)-1]
		p.labels = append(p.labels, label{p.px(last[0]) + 6, p.py(last[1]) + 4, name, colour})
	}
}

// ticks returns round numbers between lo and hi.
func ticks(lo, hi float64, logarithmic bool) (v []float64) {
	if logarithmic {
		for e := math.Floor(math.Log10(lo)); e <= math.Log10(hi); e++ {
			if x := math.Pow(10, e); x >= lo {
				v = append(v, x)
			}
		}
		return v
	}
	step := math.Pow(10, math.Floor(math.Log10((hi-lo)/4)))
	for _, m := range []float64{5, 2} {
		if (hi-lo)/(step*m) >= 4 {
			step *= m
			break
		}
	}
	for i := math.Ceil(lo / step); i*step <= hi; i++ {
		v = append(v, i*step)
	}
	return v
}

func (p *plot) svg() template.HTML {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg role="img" aria-label="%s" width="%v" height="%v" viewBox="0 0 %v %v">`, template.HTMLEscapeString(p.title), plotW, plotH, plotW, plotH)
	fmt.Fprintf(&b, `<text class="title" x="%v" y="18">%s</text>`, left, template.HTMLEscapeString(p.title))
	number := func(v float64) string { return strconv.FormatFloat(v, 'g', 4, 64) }
	for _, v := range ticks(p.y0, p.y1, false) {
		fmt.Fprintf(&b, `<line class="axis" x1="%v" x2="%v" y1="%.1f" y2="%.1f"/><text class="soft" text-anchor="end" x="%v" y="%.1f">%s</text>`,
			left, plotW-right, p.py(v), p.py(v), left-6, p.py(v)+4, number(v))
	}
	for _, v := range ticks(p.x0, p.x1, p.logX) {
		fmt.Fprintf(&b, `<line class="axis" y1="%v" y2="%v" x1="%.1f" x2="%.1f"/><text class="soft" text-anchor="middle" x="%.1f" y="%v">%s</text>`,
			top, plotH-bottom, p.px(v), p.px(v), p.px(v), plotH-bottom+16, number(v))
	}
	fmt.Fprintf(&b, `<text class="soft" text-anchor="middle" x="%v" y="%v">%s</text>`, (left+plotW-right)/2, plotH-8, template.HTMLEscapeString(p.xName))
	fmt.Fprintf(&b, `<text class="soft" text-anchor="middle" transform="translate(14 %v) rotate(-90)">%s</text>`, (top+plotH-bottom)/2, template.HTMLEscapeString(p.yName))
	b.WriteString(p.marks.String())
	for i := range p.labels { // move labels apart, those drawn last keep their place
		l := &p.labels[len(p.labels)-1-i]
		for moved := true; moved; {
			moved = false
			for j := range i {
				o := &p.labels[len(p.labels)-1-j]
				if math.Abs(l.y-o.y) < 13 && math.Abs(l.x-o.x) < 110 {
					l.y, moved = o.y+13, true
				}
			}
		}
		fmt.Fprintf(&b, `<text x="%.1f" y="%.1f" style="fill:%s">%s</text>`, min(l.x, plotW-right+8), l.y, l.colour, template.HTMLEscapeString(l.text))
	}
	b.WriteString("</svg>")
	return template.HTML(b.String())
}
