package router

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"kvasir/config"
	"kvasir/metrics"
)

// rare are the metrics that a router exports only once something has happened that
// this test doesn't make happen.
var rare = map[string]string{
	"kvasir_retries_total":                        "an engine that fails",
	"kvasir_engine_failures_total":                "an engine that fails",
	"kvasir_index_skipped_total":                  "blocks that make no prefix",
	"kvasir_index_snapshot_timestamp_seconds":     "a snapshot written",
	"kvasir_index_snapshot_bytes":                 "a snapshot written",
	"kvasir_index_snapshot_duration_seconds":      "a snapshot written",
	"kvasir_token_checks_total":                   "a model whose files are found",
	"kvasir_token_model_demoted":                  "a model whose files are found",
	"kvasir_target_learned_prefill_token_seconds": "first tokens enough to know it",
	"kvasir_target_learned_step_seconds":          "first tokens enough to know it",
	"kvasir_target_learned_decode_step_seconds":   "first tokens enough to know it",
	"kvasir_target_learned_age_seconds":           "a first token that is a sample",
}

// docs/metrics.md says what a running router exports: each series is in it, with its
// labels and its kind, and each of its metrics is exported.
func TestMetricsAreDocumented(t *testing.T) {
	f := newFleet(t, 2, func(c *config.Config) {
		c.IndexSnapshot, c.ReceiptsFile = filepath.Join(t.TempDir(), "index"), filepath.Join(t.TempDir(), "receipts.jsonl")
	})
	for i := range 4 {
		if a := f.ask(fmt.Sprintf("question %d", i), ""); a.code != 200 {
			t.Fatalf("%d", a.code)
		}
	}
	var text string
	f.get("/metrics", &text)
	want, kinds := map[string][]string{}, map[string]string{}
	for _, g := range metrics.Reference() {
		for _, m := range g.Metrics {
			if want[m.Name] != nil {
				t.Errorf("%s is declared twice", m.Name)
			}
			want[m.Name], kinds[m.Name] = append(slices.Sorted(slices.Values(m.Labels)), ""), m.Kind
		}
	}
	label, part := regexp.MustCompile(`(\w+)="`), regexp.MustCompile(`_(bucket|sum|count)$`)
	got := map[string]bool{}
	for _, line := range strings.Split(text, "\n") {
		if kind, ok := strings.CutPrefix(line, "# TYPE kvasir_"); ok {
			name, kind, _ := strings.Cut(kind, " ")
			if kinds["kvasir_"+name] != kind {
				t.Errorf("kvasir_%s is a %s, want a %s", name, kind, kinds["kvasir_"+name])
			}
		}
		if !strings.HasPrefix(line, "kvasir_") {
			continue
		}
		name := regexp.MustCompile(`^\w+`).FindString(line)
		if base := part.ReplaceAllString(name, ""); kinds[base] == "histogram" {
			name = base
		}
		got[name] = true
		labels := []string{}
		for _, m := range label.FindAllStringSubmatch(line, -1) {
			if m[1] != "le" {
				labels = append(labels, m[1])
			}
		}
		slices.Sort(labels)
		if !slices.Equal(append(labels, ""), want[name]) {
			t.Errorf("%s: labels %q, want those of docs/metrics.md: %q", line, labels, want[name])
		}
	}
	for name := range want {
		if !got[name] && rare[name] == "" {
			t.Errorf("docs/metrics.md has %s, and the router doesn't export it", name)
		}
	}
	for name := range rare {
		if want[name] == nil {
			t.Errorf("%s is no metric any more", name)
		}
	}
}
