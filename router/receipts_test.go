package router

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kvasir/config"
	"kvasir/lab/mock"
	"kvasir/lab/sim"
	"kvasir/lab/trace"
	"kvasir/receipt"
)

// readReceipts reads a whole log.
func readReceipts(t *testing.T, name string) (out []receipt.Line) {
	t.Helper()
	r, err := trace.Open(name, trace.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for {
		x, err := r.NextReceipt()
		if err != nil {
			if n, bad := r.Skipped(); n > 0 {
				t.Error(bad)
			}
			return out
		}
		out = append(out, x)
	}
}

// What the router decides stands in the file when it has stopped: counts and one-way
// names, and not a word of a prompt, of a session or of a key.
func TestReceiptsFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "receipts.jsonl")
	f := newFleet(t, 2, func(c *config.Config) { c.ReceiptsFile = name })
	prompt := words(160, 7)
	for turn := 1; turn <= 3; turn++ {
		for c := range 2 {
			f.ask(prompt+words(32*turn, 1000*(c+1)), fmt.Sprintf("alice%d@example.com", c))
		}
	}
	f.until(func() bool {
		var m string
		f.get("/metrics", &m)
		return strings.Contains(m, "kvasir_receipts_written_total 6\n") && strings.Contains(m, `kvasir_receipts_dropped_total{reason="slow"} 0`)
	})
	list := readReceipts(t, name)
	if len(list) != 6 {
		t.Fatalf("%d receipts, want 6", len(list))
	}
	sessions := map[string]int{}
	for i, x := range list {
		sessions[x.Session]++
		if x.ID != uint64(i+1) || x.Tokens != 160+32*(i/2+1) || x.BlockSize != 16 || len(x.Blocks) != x.Tokens/16 || x.Outcome != "completed" ||
			x.ServedPrompt == nil || *x.ServedPrompt != x.Tokens || x.Output != 4 || x.Took <= 0 || x.Considered != 2 || x.Policy != "auto" {
			t.Errorf("receipt %d: %+v", i, x)
		}
		for k := range min(len(x.Blocks), 10) {
			if x.Blocks[k] != list[0].Blocks[k] {
				t.Errorf("receipt %d, block %d: equal beginnings have other names", i, k)
			}
		}
	}
	if len(sessions) != 2 || sessions[""] != 0 {
		t.Errorf("sessions %v, want two", sessions)
	}
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range append(strings.Fields(prompt), "alice", "example.com", "x-session-id") {
		if bytes.Contains(text, []byte(w)) {
			t.Errorf("%q stands in the file", w)
		}
	}
}

// What was recorded over sockets plays again: one request at a time on caches that
// hold all, so that times don't matter, and the policy chooses as recorded but for
// what chance decided.
func TestReceiptsPlayAgain(t *testing.T) {
	name := filepath.Join(t.TempDir(), "receipts.jsonl")
	f := newFleet(t, 3, func(c *config.Config) { c.ReceiptsFile = name })
	var blocks int64
	for turn := 1; turn <= 4; turn++ {
		for c := range 4 {
			f.ask(words(160*turn, 1000*c), fmt.Sprint("s", c))
			blocks += 10
			f.settled(blocks)
		}
	}
	f.until(func() bool {
		var m string
		f.get("/metrics", &m)
		return strings.Contains(m, "kvasir_receipts_written_total 16\n")
	})
	w, told, err := sim.Load(sim.Input{File: name})
	if err != nil || told.Skipped != 0 {
		t.Fatal(told, err)
	}
	rep, err := sim.Run(context.Background(), sim.Config{Workload: w, Policies: []string{"auto", "random"}, Replicas: 3, Profile: mock.Profile8B.Faster(100)})
	if err != nil {
		t.Fatal(err)
	}
	if r := rep.Recorded; r.Replicas != 3 || r.Requests != 16 || r.Missing != 0 || r.Early != 0 {
		t.Errorf("%+v", r)
	}
	// 12 later turns go where their first turn went: where the cache is.
	if c := rep.Runs[1].Choices; c == nil || c.Requests != 16 || c.Same < 12 {
		t.Errorf("auto: %+v, want at least the 12 later turns of 16 as recorded", c)
	}
}

// A file that can't be written is told before anything is served (by check too: doctor).
func TestReceiptsFileUnwritable(t *testing.T) {
	cfg := config.Defaults()
	cfg.Listen, cfg.Admin = "127.0.0.1:0", "off"
	e, err := config.ParseEngine("http://127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	cfg.Engines = []config.Engine{e}
	cfg.ReceiptsFile = filepath.Join(t.TempDir(), "no", "r.jsonl")
	r, err := New(cfg, slog.New(slog.DiscardHandler), "test")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Start(context.Background()); err == nil || !strings.HasPrefix(err.Error(), "receipts_file: ") || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("start: %v", err)
	}
}
