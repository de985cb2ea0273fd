package main

import (
	_ "embed"
	"encoding/json"
	"io"
	"math"
	"strings"
)

// pageHTML draws the data that stands in it: every policy on every cell, to sort, to
// filter and to compare. It loads nothing, so that it opens from a clone.
//
//go:embed page.html
var pageHTML string

// A table is what the page draws. Rows are arrays in the order of Columns, or the
// file would be three times as long.
type table struct {
	Groups   []group     `json:"groups"`
	Cells    []pageCell  `json:"cells"`
	Policies []string    `json:"policies"`
	Columns  []column    `json:"columns"`
	Rows     [][]float64 `json:"rows"` // index of cell, index of policy, then Columns
	Agree    []agreement `json:"agreement"`
}

type group struct {
	Key   string `json:"key"`
	Title string `json:"title"`
}

type pageCell struct {
	Key     string `json:"key"`
	Group   string `json:"group"`
	Title   string `json:"title"`
	Healthy string `json:"healthy,omitempty"` // key of the same cell without the fault
}

// A column is a figure of a line. Where Low is set, less is better.
type column struct {
	Key   string `json:"key"`
	Title string `json:"title"`
	Unit  string `json:"unit"`
	Low   bool   `json:"low,omitempty"`
	More  bool   `json:"more,omitempty"` // shown only on request
	get   func(l *line) float64
}

var columns = []column{
	{"hit", "hit rate", "%", false, false, func(l *line) float64 { return 100 * l.hit }},
	{"ttft", "TTFT mean", "s", true, false, func(l *line) float64 { return l.ttft }},
	{"ttft_sd", "± over seeds", "s", false, true, func(l *line) float64 { return l.ttftSD }},
	{"ttft95", "TTFT p95", "s", true, false, func(l *line) float64 { return l.ttft95 }},
	{"ttft99", "TTFT p99", "s", true, false, func(l *line) float64 { return l.ttft99 }},
	{"e2e", "E2E mean", "s", true, false, func(l *line) float64 { return l.e2e }},
	{"e2e_sd", "± over seeds", "s", false, true, func(l *line) float64 { return l.e2eSD }},
	{"e2e99", "E2E p99", "s", true, false, func(l *line) float64 { return l.e2e99 }},
	{"tpot", "per token", "ms", true, false, func(l *line) float64 { return 1e3 * l.tpot }},
	{"session99", "session p99", "s", true, true, func(l *line) float64 { return l.session99 }},
	{"rate", "output", "tokens/s", false, true, func(l *line) float64 { return l.rate }},
	{"cv", "load CV", "", true, false, func(l *line) float64 { return l.cv }},
	{"sticky", "sticky", "%", false, true, func(l *line) float64 { return 100 * l.sticky }},
	{"fullest", "fullest", "%", true, false, func(l *line) float64 { return 100 * l.maxShare }},
	{"phantom", "phantom", "%", true, true, func(l *line) float64 { return 100 * l.phantom }},
	{"makespan", "all done", "s", true, true, func(l *line) float64 { return l.makespan }},
	{"lost", "lost", "requests", true, true, func(l *line) float64 { return float64(l.lost) }},
	{"shed", "refused", "requests", true, true, func(l *line) float64 { return l.shed }},
	{"seeds", "seeds", "", false, true, func(l *line) float64 { return float64(l.seeds) }},
}

var groups = []group{
	{mainCells, "The four workloads, 8 replicas, profile 70b"}, {moreCells, "Other fleets, and the small model"}, {others, "Other workloads, orders and loads"},
	{noReuse, "Nothing to reuse"}, {rollouts, "RL rollouts with stragglers"}, {faulty, "When things go wrong"}, {hinted, "Clients that say when they go on"},
	{combined, "Combinators"}, {loads, "Load sweep"}, {crowds, "More agents on the same fleet"},
}

// digits rounds to four significant digits.
func digits(f float64) float64 {
	if f == 0 || math.IsNaN(f) || math.IsInf(f, 0) {
		return 0
	}
	p := math.Pow(10, 3-math.Floor(math.Log10(math.Abs(f))))
	return math.Round(f*p) / p
}

func tableOf(done []*outcome, ref []refRow) *table {
	t := &table{Groups: groups, Columns: columns}
	index := map[string]int{}
	keys := map[string]string{} // of the healthy cells, by workload
	for _, o := range done {
		if o.cell.group == mainCells {
			name, _, _ := strings.Cut(o.cell.key, "-")
			keys[name] = o.cell.key
		}
	}
	for i, o := range done {
		c := pageCell{Key: o.cell.key, Group: o.cell.group, Title: o.cell.title}
		if o.cell.hints.NextTurn != "" {
			c.Title += ", hint " + o.cell.hints.NextTurn
		}
		if c.Group == faulty {
			_, name, _ := strings.Cut(c.Key, "-")
			name, _, _ = strings.Cut(name, "-")
			c.Healthy = keys[name]
		}
		t.Cells = append(t.Cells, c)
		for j := range o.lines {
			l := &o.lines[j]
			p, ok := index[l.policy]
			if !ok {
				p = len(t.Policies)
				index[l.policy], t.Policies = p, append(t.Policies, l.policy)
			}
			row := []float64{float64(i), float64(p)}
			for _, col := range columns {
				row = append(row, digits(col.get(l)))
			}
			t.Rows = append(t.Rows, row)
		}
	}
	d := &doc{done: done, ref: ref}
	t.Agree, _, _ = d.agreement()
	return t
}

// page writes the page with its data.
func page(w io.Writer, done []*outcome, ref []refRow) error {
	raw, err := json.Marshal(tableOf(done, ref))
	if err != nil {
		return err
	}
	// A line per row, so that a diff shows what changed. "<" can't end the script:
	// json.Marshal escapes it.
	text := strings.ReplaceAll(string(raw), "],[", "],\n[")
	_, err = io.WriteString(w, strings.Replace(pageHTML, "{{data}}", text, 1))
	return err
}
