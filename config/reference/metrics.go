package reference

import (
	"bytes"
	"fmt"
	"strings"

	"kvasir/metrics"
)

const metricsHead = `# Metrics

<!-- Made from the source by config/reference (make docs): edit the declarations in metrics/. -->

` + "`GET /metrics`" + ` of the admin listener (` + "`admin`" + ` in [configuration.md](configuration.md)), in Prometheus's text format. Counters count since the router's start. The
last sentence of each, in italics, says what to look at.
`

func writeMetrics(w *bytes.Buffer) {
	w.WriteString(metricsHead)
	for _, g := range metrics.Reference() {
		fmt.Fprintf(w, "\n## %s\n", g.Title)
		if g.Look != "" {
			fmt.Fprintf(w, "\n%s\n", wrap(g.Look, ""))
		}
		for _, m := range g.Metrics {
			labels := ""
			if len(m.Labels) > 0 {
				labels = "{" + strings.Join(m.Labels, ",") + "}"
			}
			kind := m.Kind
			if u := m.Unit(); u != "" {
				kind += ", " + u
			}
			text := m.Help
			if m.Look != "" {
				text += " *" + sentence(m.Look) + "*"
			}
			fmt.Fprintf(w, "\n- `%s%s` (%s)<br>\n%s\n", m.Name, labels, kind, wrap(text, "  "))
		}
	}
}

// sentence makes one of what there is to look at.
func sentence(s string) string { return strings.ToUpper(s[:1]) + s[1:] + "." }
