package main

import (
	"math"
	"slices"
	"testing"

	"kvasir/lab/sim"
)

func TestLowest(t *testing.T) {
	run := func(input, policy string, ttft, e2e float64) sim.Result {
		return sim.Result{Input: input, Policy: policy, Replicas: 4, Requests: 1, TTFT: sim.Spread{Mean: ttft}, E2E: sim.Spread{Mean: e2e}}
	}
	half := run("a", "steer", 0, 0)
	half.Partial = true
	got := lowest([]sim.Result{run("a", "auto", 2, 9), run("a", "dynamo", 1, 10), run("a", "ref:POOL", .1, .1), half, run("a", "random", 5, 5.5), run("b", "auto", 1, 1), run("b", "dynamo", 2, 2)})
	if want := []string{"a, 4 replicas: lowest mean TTFT dynamo (1.000 s), lowest mean E2E random (5.500 s)"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestShareOf(t *testing.T) {
	for text, want := range map[string]float64{"0": 0, ".5": .5, "never": math.Inf(1), "-1": math.Inf(1)} {
		if got, err := shareOf(text); err != nil || got != want {
			t.Errorf("%s: %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "soon", "NaN"} {
		if _, err := shareOf(text); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}
