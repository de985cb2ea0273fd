package metrics

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"kvasir/fleet"
	"kvasir/index"
	"kvasir/kv"
	"kvasir/ledger"
	"kvasir/policy"
	"kvasir/sched"
)

// Every name has the prefix, no series comes twice, and a scrape without the
// optional parts works.
func TestScrape(t *testing.T) {
	table := new(fleet.Table)
	r, err := table.Add("http://a:8000", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := table.SetRanks(r.ID, 2); err != nil {
		t.Fatal(err)
	}
	ix := index.New(index.Config{})
	p, err := policy.New(policy.Defaults(), func(int) int { return 0 })
	if err != nil {
		t.Fatal(err)
	}
	s := sched.New(sched.Config{}, sched.Parts{Fleet: table, Index: ix, Ledger: ledger.New(ledger.Config{}), Policy: p})
	s.SetTrust(1, kv.Stale, "test", time.Now())
	h := Handler(Parts{
		Fleet: table, Sched: s, Index: ix.Stats, Now: time.Now, Version: "v1",
		Kept:     func() Kept { return Kept{Last: time.Unix(1000, 0), Bytes: 77, Took: time.Second / 2, Failed: 3} },
		Receipts: func() Receipts { return Receipts{Written: 5, Slow: 6, Failed: 7, Overwritten: 8} },
		Blocks:   func(t kv.Target) [kv.NumTiers]int64 { return [kv.NumTiers]int64{7, 0, 0} },
	})
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	text := w.Body.String()
	if w.Code != 200 {
		t.Fatalf("%d: %s", w.Code, text)
	}
	for _, want := range []string{
		`kvasir_build_info{version="v1"} 1`, `kvasir_replica_up{replica="a:8000"} 0`, `kvasir_replica_state{replica="a:8000",state="starting"} 1`,
		`kvasir_target_trust{rank="1",replica="a:8000",state="stale"} 1`, `kvasir_target_held_blocks{rank="0",replica="a:8000",tier="gpu"} 7`,
		"kvasir_index_snapshot_timestamp_seconds 1000\n", "kvasir_index_snapshot_bytes 77\n", "kvasir_index_snapshot_duration_seconds 0.5\n", "kvasir_index_snapshot_failed_total 3\n",
		"kvasir_receipts_written_total 5\n", `kvasir_receipts_dropped_total{reason="slow"} 6`, `kvasir_receipts_dropped_total{reason="failed"} 7`,
		`kvasir_receipts_dropped_total{reason="overwritten"} 8`,
		"kvasir_index_bytes", "process_resident_memory_bytes", "go_goroutines",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the scrape lacks %s", want)
		}
	}
	seen := map[string]bool{}
	for _, line := range strings.Split(text, "\n") {
		series, _, _ := strings.Cut(line, " ")
		if line != "" && line[0] != '#' && seen[series] {
			t.Errorf("%s comes twice", series)
		}
		seen[series] = line != "" && line[0] != '#'
	}
}
