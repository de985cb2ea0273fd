// Package plan is napkin arithmetic: what routing by prefix saves, line by line,
// each with its formula, before anything is measured. Queueing is not in it: the
// simulator says what the napkin leaves out.
package plan

import (
	"fmt"
	"math"
)

// An Input is what a person knows of a fleet. Defaults are the example of the
// reference (docs/mock.md, "Napkin"): 70 billion parameters, 2 PFLOP/s.
type Input struct {
	Replicas   int     // engines
	Parameters float64 // of the model, in units
	FLOPS      float64 // effective for prefill, per replica and second
	Rate       float64 // requests per second, whole fleet
	Prompt     float64 // tokens of a mean prompt
	Output     float64 // tokens of a mean answer
	Reuse      float64 // share of prompt tokens in the right replica's cache, 0 to 1
	Price      float64 // of one replica per hour
}

// Defaults returns the reference's example.
func Defaults() Input {
	return Input{Replicas: 8, Parameters: 70e9, FLOPS: 2e15, Rate: 10, Prompt: 4000, Output: 300, Reuse: .6, Price: 3}
}

// Validate names the first field that is out of range.
func (in Input) Validate() error {
	if in.Replicas < 1 || in.Replicas > 100_000 {
		return fmt.Errorf("replicas: %d, want 1 to 100000", in.Replicas)
	}
	for _, x := range []struct {
		name   string
		v      float64
		lo, hi float64
	}{
		{"parameters", in.Parameters, 1e6, 1e15}, {"flops", in.FLOPS, 1e9, 1e20}, {"rate", in.Rate, 1e-6, 1e9},
		{"prompt", in.Prompt, 1, 1e8}, {"output", in.Output, 0, 1e8}, {"reuse", in.Reuse, 0, 1}, {"price", in.Price, 0, 1e6},
	} {
		if !(x.v >= x.lo && x.v <= x.hi) {
			return fmt.Errorf("%s: %v, want %v to %v", x.name, x.v, x.lo, x.hi)
		}
	}
	return nil
}

// A Line is one quantity with the arithmetic behind it.
type Line struct {
	Name    string  `json:"name"`
	Value   float64 `json:"value"`
	Unit    string  `json:"unit"`
	Formula string  `json:"formula"`
}

// A Plan is the napkin.
type Plan struct {
	Lines []Line   `json:"lines"`
	Notes []string `json:"notes"`
}

// Line returns the line called name.
func (p Plan) Line(name string) (Line, bool) {
	for _, l := range p.Lines {
		if l.Name == name {
			return l, true
		}
	}
	return Line{}, false
}

// Make writes the napkin of a valid input.
func Make(in Input) Plan {
	perToken := 2 * in.Parameters
	cold := in.Prompt * perToken / in.FLOPS
	warm := in.Prompt * (1 - in.Reuse) * perToken / in.FLOPS
	busyCold, busyWarm := in.Rate*cold, in.Rate*warm
	hours := 24 * 365.
	p := Plan{Lines: []Line{
		{"work per token", perToken / 1e9, "GFLOP", fmt.Sprintf("2 x %.3g parameters", in.Parameters)},
		{"cold prefill", 1e3 * cold, "ms", fmt.Sprintf("%.0f tokens x %.0f GFLOP / %.3g FLOP/s", in.Prompt, perToken/1e9, in.FLOPS)},
		{"warm prefill", 1e3 * warm, "ms", fmt.Sprintf("%.0f tokens x (1 - %.2f) x %.0f GFLOP / %.3g FLOP/s", in.Prompt, in.Reuse, perToken/1e9, in.FLOPS)},
		{"speed-up of prefill", ratio(cold, warm), "x", "cold / warm"},
		{"prefill load, cold", busyCold, "replica-seconds per second", fmt.Sprintf("%.3g requests/s x cold", in.Rate)},
		{"prefill load, warm", busyWarm, "replica-seconds per second", fmt.Sprintf("%.3g requests/s x warm", in.Rate)},
		{"capacity freed", busyCold - busyWarm, "replicas' worth of prefill", "load cold - load warm"},
		{"utilisation by prefill, cold", 100 * busyCold / float64(in.Replicas), "%", fmt.Sprintf("load cold / %d replicas", in.Replicas)},
		{"utilisation by prefill, warm", 100 * busyWarm / float64(in.Replicas), "%", fmt.Sprintf("load warm / %d replicas", in.Replicas)},
		{"money", (busyCold - busyWarm) * in.Price * hours, "per year", fmt.Sprintf("capacity freed x %.2f per hour x %.0f hours", in.Price, hours)},
		{"replicas for the same utilisation", math.Ceil(float64(in.Replicas)*ratioOr1(busyWarm, busyCold) - 1e-9), "replicas", fmt.Sprintf("%d x load warm / load cold, rounded up; decode and memory not counted", in.Replicas)},
	}}
	p.Notes = notes(in, busyCold, busyWarm)
	return p
}

func ratio(a, b float64) float64 {
	if b == 0 {
		return math.Inf(1)
	}
	return a / b
}

func ratioOr1(a, b float64) float64 {
	if b == 0 {
		return 1
	}
	return a / b
}

// notes says where the napkin is wrong.
func notes(in Input, cold, warm float64) []string {
	out := []string{
		"Reuse is what the router makes of the traffic, not a property of it: with N replicas and round robin about 1/N of the later turns find their prefix.",
		"Attention grows with context: at 12,000 tokens a cold prefill takes about 19 % more than 2 x parameters x tokens, and a token at depth 64,000 three times a token at depth 0.",
		"Decode shares the same engine: prefill that is saved shortens every running answer as well, which is not counted here.",
	}
	if u := cold / float64(in.Replicas); u >= 1 {
		out = append(out, fmt.Sprintf("Cold, prefill alone asks for %.0f %% of the fleet: queues grow without end, and a mean wait does not exist. That is where the napkin parts from queueing.", 100*u))
	} else if u > .5 {
		out = append(out, fmt.Sprintf("Cold, prefill alone keeps the fleet %.0f %% busy: a queue's mean wait grows as u/(1-u), here %.1f against %.1f warm, so the difference in TTFT is larger than that of prefill times.",
			100*u, u/(1-u), (warm/float64(in.Replicas))/(1-warm/float64(in.Replicas))))
	}
	return out
}
