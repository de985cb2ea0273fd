package doctor

import (
	"path/filepath"
	"strings"
	"testing"

	"kvasir/config"
	"kvasir/lab/mock"
	"kvasir/lab/mockserver"
)

func find(f Finding, what string) (lines []Line) {
	for _, l := range f.Lines {
		if l.What == what {
			lines = append(lines, l)
		}
	}
	return lines
}

// One engine that lacks nothing, one without events and replay, and one that isn't
// there: each line says what is, and a fix only where something is missing.
func TestCheck(t *testing.T) {
	start := func(edit func(*mockserver.Config)) *mockserver.Server {
		cfg := mockserver.Defaults()
		cfg.Profile = mock.Profile8B.Faster(100)
		edit(&cfg)
		s, err := mockserver.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}
	full := start(func(*mockserver.Config) {})
	bare := start(func(c *mockserver.Config) { c.Events, c.Replay, c.NoRender = "off", "off", true })
	cfg := config.Defaults()
	cfg.Engines = []config.Engine{config.NewEngine(full.URL()), config.NewEngine(bare.URL()), config.NewEngine("http://127.0.0.1:1")}
	found := Check(t.Context(), cfg)
	if len(found) != 3 || found[0].Engine != full.URL() {
		t.Fatalf("%+v", found)
	}
	for _, c := range []struct {
		engine    int
		what, has string
		bad, fix  bool
	}{
		{0, "health", "vllm 0.32.0, 1 rank(s)", false, false},
		{0, "models", "modelled-8b", false, false},
		{0, "cache", "blocks of 16 tokens", false, false},
		{0, "events", "rank 0 at tcp://", false, false},
		{0, "tokens", "exact, from the engine's render endpoint", false, false},
		{1, "events", "none: requests go there by load", false, true},
		{1, "tokens", "from /tokenize", false, true},
		{2, "health", "connection refused", true, true},
	} {
		lines := find(found[c.engine], c.what)
		if len(lines) != 1 {
			t.Errorf("engine %d: %d lines about %s: %+v", c.engine, len(lines), c.what, found[c.engine])
			continue
		}
		if l := lines[0]; !strings.Contains(l.Says, c.has) || l.Bad != c.bad || (l.Fix != "") != c.fix {
			t.Errorf("engine %d: %+v, want %q, bad %v, with a fix %v", c.engine, l, c.has, c.bad, c.fix)
		}
	}
}

// A file that can't be written is told before serve would fail at it.
func TestCheckFiles(t *testing.T) {
	cfg := config.Defaults()
	if got := CheckFiles(cfg); got != nil {
		t.Errorf("no file, but %v", got)
	}
	cfg.ReceiptsFile = filepath.Join(t.TempDir(), "r.jsonl")
	if got := CheckFiles(cfg); len(got) != 1 || got[0].Lines[0].Bad {
		t.Errorf("writable: %v", got)
	}
	cfg.ReceiptsFile = filepath.Join(t.TempDir(), "no", "r.jsonl")
	if got := CheckFiles(cfg); len(got) != 1 || !got[0].Lines[0].Bad || !strings.Contains(got[0].Lines[0].Says, "no such file") {
		t.Errorf("not writable: %v", got)
	}
}
