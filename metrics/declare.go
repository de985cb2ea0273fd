package metrics

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"kvasir/proxy"
)

// A metric is declared once, with the way to its value: a new one is a line in the
// table of its group, and a field in the S that is read.
type metric[S any] struct {
	Info
	kind prometheus.ValueType
	read func(s S, put put)
}

// put gives one series of a metric: its value, and the values of its own labels
// behind those of the group.
type put func(v float64, labels ...string)

// An Info is what docs/metrics.md says of a metric.
type Info struct {
	Name   string // without the prefix
	Kind   string // counter, gauge or histogram
	Help   string
	Look   string // what to look at; "" where the group says it
	Labels []string

	bounds func(any) proxy.Histogram // of histograms
}

// Unit is the unit that the name ends in, "" for a plain number.
func (i *Info) Unit() string {
	name := strings.TrimSuffix(i.Name, "_total")
	for _, u := range []string{"seconds", "bytes", "tokens", "blocks"} {
		if strings.HasSuffix(name, "_"+u) {
			return u
		}
	}
	return ""
}

func count[S any](name, help, look string, read func(S) uint64) metric[S] {
	return counts(name, help, look, nil, func(s S, put put) { put(float64(read(s))) })
}

func gauge[S any](name, help, look string, read func(S) float64) metric[S] {
	return gauges(name, help, look, nil, func(s S, put put) { put(read(s)) })
}

// counts is a counter with labels of its own.
func counts[S any](name, help, look string, labels []string, read func(S, put)) metric[S] {
	return metric[S]{Info{Name: name, Kind: "counter", Help: help, Look: look, Labels: labels}, prometheus.CounterValue, read}
}

// gauges is a gauge with labels of its own.
func gauges[S any](name, help, look string, labels []string, read func(S, put)) metric[S] {
	return metric[S]{Info{Name: name, Kind: "gauge", Help: help, Look: look, Labels: labels}, prometheus.GaugeValue, read}
}

func histogram[S any](name, help, look string, read func(S) proxy.Histogram) metric[S] {
	m := metric[S]{Info: Info{Name: name, Kind: "histogram", Help: help, Look: look}}
	m.bounds = func(s any) proxy.Histogram { return read(s.(S)) }
	return m
}

// A group has the metrics of one thing, S, of which there may be several, told apart
// by labels.
type group[S any] struct {
	title, look string
	labels      []string
	each        func(p *Parts, emit func(s S, labels ...string))
	metrics     []metric[S]
}

// A section is a group of any S.
type section interface {
	collect(p *Parts, ch chan<- prometheus.Metric)
	Title() (title, look string)
	Infos() []Info
}

func (g *group[S]) Title() (title, look string) { return g.title, g.look }

func (g *group[S]) Infos() []Info {
	out := make([]Info, len(g.metrics))
	for i, m := range g.metrics {
		out[i] = m.Info
		out[i].Labels = g.with(m.Labels)
	}
	return out
}

func (g *group[S]) with(own []string) []string {
	return append(append([]string{}, g.labels...), own...)
}

func (g *group[S]) collect(p *Parts, ch chan<- prometheus.Metric) {
	g.each(p, func(s S, labels ...string) {
		for _, m := range g.metrics {
			d := prometheus.NewDesc(prefix+m.Name, m.Help, g.with(m.Labels), nil)
			if m.bounds != nil {
				ch <- constHistogram(d, m.bounds(s), labels)
				continue
			}
			m.read(s, func(v float64, own ...string) {
				ch <- prometheus.MustNewConstMetric(d, m.kind, v, append(append([]string{}, labels...), own...)...)
			})
		}
	})
}

// constHistogram adds up the counts, as Prometheus has them: at most each bound.
func constHistogram(d *prometheus.Desc, h proxy.Histogram, labels []string) prometheus.Metric {
	var total uint64
	by := make(map[float64]uint64, len(h.Bounds))
	for i, n := range h.Counts {
		total += n
		if i < len(h.Bounds) {
			by[h.Bounds[i]] = total
		}
	}
	return prometheus.MustNewConstHistogram(d, total, h.Sum, by, labels...)
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
