package sim

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kvasir/model"
	"kvasir/policy"
	"kvasir/trace"
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

var twinNames = map[string]string{"marg k1 d0.3 o0.3 s0": "marg 1/.3/.3", "POOL shared cache": "POOL"}

func loadCell(dir, cell string, replicas, seed int, speed float64) (*Workload, error) {
	switch cell {
	case "claude_code":
		r, err := trace.Open(filepath.Join(dir, fmt.Sprintf("claude_code_seed%d.jsonl.gz", seed)), trace.Options{})
		if err != nil {
			return nil, err
		}
		defer r.Close()
		chats, err := readChats(r)
		if err != nil {
			return nil, err
		}
		raw, err := os.ReadFile(filepath.Join(dir, "claude_code_starts.json"))
		if err != nil {
			return nil, err
		}
		var crowds []Crowd
		if err := json.Unmarshal(raw, &crowds); err != nil {
			return nil, err
		}
		for _, c := range crowds {
			if c.Replicas == replicas {
				return &Workload{size: 512, speed: 1, closed: func() source { return &crowdSource{chats: chats, crowd: c, pause: 1} }}, nil
			}
		}
		return nil, fmt.Errorf("no crowd")
	default:
		r, err := trace.Open(filepath.Join(dir, cell+".jsonl.gz"), trace.Options{})
		if err != nil {
			return nil, err
		}
		defer r.Close()
		open, err := readOpen(r, 0)
		return &Workload{size: 512, speed: speed, open: open}, err
	}
}

func TestAgreement(t *testing.T) {
	dir := os.Getenv("KVASIR_CELLS")
	if dir == "" {
		t.Skip("KVASIR_CELLS is not set")
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
		name := row.Name
		if n := twinNames[name]; n != "" {
			name = n
		}
		key := fmt.Sprint(row.Cell, row.Replicas)
		if only != "" && !strings.Contains(key+" "+name, only) {
			continue
		}
		w := cache[key]
		if w == nil {
			if w, err = loadCell(dir, row.Cell, row.Replicas, row.Seed, row.Speed); err != nil {
				t.Fatal(err)
			}
			cache[key] = w
		}
		p, _ := model.ProfileByName(row.Model)
		start := time.Now()
		c, err := runTwin(w, row.Replicas, p, row.KV, twinByName(t, name), 1, never)
		if err != nil {
			t.Errorf("%s %s: %v", key, name, err)
			continue
		}
		m := c.metrics
		rel := func(a, b float64) float64 { return (a/b - 1) * 100 }
		ttft := spread(m.ttft)
		busy := make([]float64, len(c.engines))
		for i, e := range c.engines {
			busy[i] = e.Busy()
		}
		wcv, _ := variation(busy)
		fmt.Printf("%-14s %-20s n %d/%d hit %.6f %+.4f%% ttft %.6f %+.4f%% p95 %+.4f%% e2e %+.4f%% span %+.4f%% workcv %.6f/%.6f kvcv %.6f/%.6f %s\n", key, name, len(m.ttft), row.N,
			float64(m.hit)/float64(m.prompt), rel(float64(m.hit)/float64(m.prompt), row.Hit),
			ttft.Mean, rel(ttft.Mean, row.TTFTMean), rel(ttft.P95, row.TTFT95), rel(spread(m.e2e).Mean, row.E2E),
			rel(m.last-m.firstArrival, row.Makespan), wcv, row.WorkCV, m.contextCV/float64(m.contextN), row.KVCV, time.Since(start).Round(time.Millisecond))
	}
}

func coreConfig(name string, p model.Profile) (policy.Config, bool) {
	c := policy.Defaults()
	switch name {
	case "round_robin":
		c.Name = "round_robin"
	case "least_requests":
		c.Name = "least_load"
	case "dynamo":
		c.Name = "dynamo"
	case "dynamo_prefill8":
		c.Name = "dynamo"
		s := 8.0
		c.Dynamo.PrefillScale = s
	case "marg 1/.3/.3", "marg learned", "time W+p":
		c.Name = "marginal"
		if name != "marg learned" {
			c.Marginal.Learn = false
			c.Marginal.Coefficients = policy.Coefficients{PrefillToken: p.CP, Attention: p.CA, Step: p.C0, DecodeStep: p.C0, DecodeRequest: p.CD, DecodeToken: p.CKV}
		}
		if name == "time W+p" {
			c.Marginal.Kappa, c.Marginal.Delta, c.Marginal.Omega = 0, 0, 0
		}
	default:
		return c, false
	}
	return c, true
}

func TestCoreAgreement(t *testing.T) {
	dir := os.Getenv("KVASIR_CELLS")
	if dir == "" {
		t.Skip("KVASIR_CELLS is not set")
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
		name := row.Name
		if n := twinNames[name]; n != "" {
			name = n
		}
		list := []string{name}
		if name == "marg 1/.3/.3" {
			list = append(list, "marg learned")
		}
		for _, name := range list {
			p, _ := model.ProfileByName(row.Model)
			cfg, ok := coreConfig(name, p)
			key := fmt.Sprint(row.Cell, row.Replicas)
			if !ok || only != "" && !strings.Contains(key+" "+name, only) {
				continue
			}
			w := cache[key]
			if w == nil {
				if w, err = loadCell(dir, row.Cell, row.Replicas, row.Seed, row.Speed); err != nil {
					t.Fatal(err)
				}
				cache[key] = w
			}
			start := time.Now()
			c, err := runCore(w, row.Replicas, p, row.KV, cfg, NewPython(1).Intn, never)
			if err != nil {
				t.Errorf("%s %s: %v", key, name, err)
				continue
			}
			m := c.metrics
			rel := func(a, b float64) float64 { return (a/b - 1) * 100 }
			ttft := spread(m.ttft)
			fmt.Printf("%-14s %-20s hit %.6f %+.4f%% ttft %.6f %+.4f%% p95 %+.4f%% e2e %+.4f%% phantom %.4f %s\n", key, name,
				float64(m.hit)/float64(m.prompt), rel(float64(m.hit)/float64(m.prompt), row.Hit),
				ttft.Mean, rel(ttft.Mean, row.TTFTMean), rel(ttft.P95, row.TTFT95), rel(spread(m.e2e).Mean, row.E2E), float64(m.phantom)/float64(m.prompt), time.Since(start).Round(time.Millisecond))
		}
	}
}
