package metrics

// A Group is a section of docs/metrics.md.
type Group struct {
	Title, Look string
	Metrics     []Info
}

// Reference returns every metric, with its labels, for the documentation. Names have
// the prefix.
func Reference() []Group {
	var out []Group
	for _, s := range sections {
		g := Group{Metrics: s.Infos()}
		g.Title, g.Look = s.Title()
		for i := range g.Metrics {
			g.Metrics[i].Name = prefix + g.Metrics[i].Name
		}
		out = append(out, g)
	}
	return out
}
