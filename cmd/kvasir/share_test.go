package main

import (
	"math"
	"testing"
)

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
