package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kvasir/lab/mock"
)

type refRow struct {
	Cell         string
	Replicas     int
	Model        string
	KV           int `json:"kv_tokens"`
	Policy, Name string
	N            int
	Hit          float64
	TTFTMean     float64 `json:"ttft_mean"`
	TTFT95       float64 `json:"ttft_p95"`
	E2E          float64 `json:"e2e_mean"`
	Makespan     float64
	WorkCV       float64 `json:"work_cv"`
	KVCV         float64 `json:"kv_cv"`
	MaxShare     float64
	Speed        float64
	Seed         int
}

// armNames has the arms to compare with each row of reference.json.
var armNames = map[string][]string{
	"round_robin":          {"ref:round_robin", "round_robin"},
	"least_requests":       {"ref:least_requests", "least_load"},
	"session_hash":         {"ref:session_hash"},
	"dynamo":               {"ref:dynamo", "dynamo"},
	"dynamo_decay1":        {"ref:dynamo_decay1", "dynamo:decay1"},
	"dynamo_prefill8":      {"ref:dynamo_prefill8", "dynamo:prefill8"},
	"time W+p":             {"ref:time W+p", "marginal:wp"},
	"marg k1 d0.3 o0.3 s0": {"ref:marg 1/.3/.3", "marginal:reference", "marginal"},
	"POOL shared cache":    {"ref:POOL"},
	"llmd_3_2_2":           {"ref:llmd_3_2_2", "llmd_precise"},
	"sglang_cache_aware":   {"ref:sglang_cache_aware", "sglang_cache_aware:reference"},
	"ray_prefix_affinity":  {"ref:ray_prefix_affinity"},
	"pure_affinity_low":    {"ref:pure_affinity_low"},
	"pure_affinity_load":   {"ref:pure_affinity_load"},
	"prefix_hash_1":        {"ref:prefix_hash_1"},
}

// TestAgreement compares with reference.json in the folder KVASIR_CELLS and
// prints the table of the notes; ONLY picks rows by a part of their name.
func TestAgreement(t *testing.T) {
	dir := os.Getenv("KVASIR_CELLS")
	if dir == "" {
		t.Skip("set KVASIR_CELLS to the folder with reference.json")
	}
	raw, err := os.ReadFile(filepath.Join(dir, "reference.json"))
	if err != nil {
		t.Fatal(err)
	}
	var ref struct{ Rows []refRow }
	if err := json.Unmarshal(raw, &ref); err != nil {
		t.Fatal(err)
	}
	only := os.Getenv("ONLY")
	cache := map[string]*Workload{}
	for _, row := range ref.Rows {
		for _, name := range armNames[row.Name] {
			key := fmt.Sprint(row.Cell, " N=", row.Replicas)
			if only != "" && !strings.Contains(key+" "+name, only) {
				continue
			}
			w := cache[key]
			if w == nil {
				in := Input{File: filepath.Join(dir, row.Cell+".jsonl.gz"), Speed: row.Speed, Replicas: row.Replicas}
				if row.Cell == "claude_code" {
					in.File = filepath.Join(dir, fmt.Sprintf("claude_code_seed%d.jsonl.gz", row.Seed))
					in.Starts = filepath.Join(dir, "claude_code_starts.json")
				}
				if w, _, err = Load(in); err != nil {
					t.Fatal(err)
				}
				cache[key] = w
			}
			p, _ := mock.ProfileByName(row.Model)
			rep, err := Run(context.Background(), Config{Workload: w, Policies: []string{name}, Replicas: row.Replicas, Profile: p, KVTokens: row.KV, Clock: time.Now})
			if err != nil {
				t.Errorf("%s %s: %v", key, name, err)
				continue
			}
			r := rep.Runs[0]
			rel := func(a, b float64) string { return fmt.Sprintf("%+.4f%%", (a/b-1)*100) }
			fmt.Printf("| %s | %s | %.6f | %s | %.6f | %s | %s | %s | %s | %.4f | %.2fs |\n", key, name, r.HitRate, rel(r.HitRate, row.Hit),
				r.TTFT.Mean, rel(r.TTFT.Mean, row.TTFTMean), rel(r.TTFT.P95, row.TTFT95), rel(r.E2E.Mean, row.E2E), rel(r.Makespan, row.Makespan), r.ContextCV/row.KVCV, r.Wall)
		}
	}
}
