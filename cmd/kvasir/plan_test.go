package main

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Rate, lengths and reuse of sessions come from their sums and the simulated run.
func TestPlanOfSessions(t *testing.T) {
	file := filepath.Join(t.TempDir(), "s.jsonl")
	text := ""
	for _, s := range []string{"a", "b", "c"} {
		text += `{"session": "` + s + `", "block_size": 512, "turns": [{"think": 0, "input": 1024, "output": 10, "blocks": [1, 2]}, {"think": 3, "input": 1536, "output": 10, "blocks": [1, 2, 3]}]}` + "\n"
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c := planCmd{Replicas: 2, Trace: file, Users: 1, Limit: 6, Rate: 10, Prompt: 4000, Reuse: .6, Speed: 1}
	in, profile, err := c.input()
	if err != nil {
		t.Fatal(err)
	}
	w, err := c.workload(2, in)
	if err != nil {
		t.Fatal(err)
	}
	runs, err := c.simulate(t.Context(), in, profile, 2, "round_robin", "auto")
	if err != nil {
		t.Fatal(err)
	}
	in, lines := measured(in, w.Sums(), runs)
	// One user: each session takes 3 s of thinking, 1 s goes by between sessions, and
	// the answers take little.
	if in.Prompt != 1280 || in.Output != 10 || !(in.Rate > 6/14. && in.Rate < 6/11.) || len(lines) != 4 {
		t.Errorf("%+v, %d lines", in, len(lines))
	}
	if err := in.Validate(); err != nil {
		t.Error(err)
	}
	// Interrupted before there is a rate, or without the simulation, there is nothing to
	// plan with.
	gone, stop := context.WithCancel(t.Context())
	stop()
	if err := c.Run(gone); err == nil || !strings.Contains(err.Error(), "interrupted") {
		t.Errorf("error %v", err)
	}
	c.NoSim = true
	if err := c.Run(t.Context()); err == nil {
		t.Error("a rate of sessions without a simulation")
	}
}

func TestPlanInput(t *testing.T) {
	base := planCmd{Replicas: 8, Rate: 10, Prompt: 4000, Output: 300, Reuse: .6, Price: 3}
	for name, x := range map[string]struct {
		edit          func(*planCmd)
		parameters    float64
		flops         float64
		profile       string
		secondsAToken float64
	}{
		"textbook":    {func(*planCmd) {}, 70e9, 2e15, "70b", 70e-6},
		"small model": {func(c *planCmd) { c.Parameters = 8e9 }, 8e9, 2e15, "8b", 8e-6},
		"profile":     {func(c *planCmd) { c.Profile = "8b" }, 8e9, 6.4e14, "8b", 25e-6},
		"changed":     {func(c *planCmd) { c.Profile = "8b:cp=1e-4" }, 8e9, 1.6e14, "8b:cp=1e-4", 1e-4},
	} {
		c := base
		x.edit(&c)
		in, p, err := c.input()
		if err != nil || in.Parameters != x.parameters || math.Abs(in.FLOPS/x.flops-1) > 1e-9 || p.Name != x.profile || math.Abs(2*in.Parameters/in.FLOPS/x.secondsAToken-1) > 1e-9 {
			t.Errorf("%s: %+v with profile %s, %v", name, in, p.Name, err)
		}
	}
}

func TestFigure(t *testing.T) {
	for v, want := range map[float64]string{0: "0", .12346: "0.1235", 2.5: "2.5", 9999: "9999", 44150.4: "44,150", 1234567: "1,234,567"} {
		if got := figure(v); got != want {
			t.Errorf("%v: %s, want %s", v, got, want)
		}
	}
}
