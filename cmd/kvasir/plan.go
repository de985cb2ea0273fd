package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"text/tabwriter"

	"kvasir/model"
	"kvasir/plan"
	"kvasir/sim"
)

type planCmd struct {
	Replicas   int     `default:"8" help:"Engines."`
	Parameters float64 `default:"70e9" help:"Of the model."`
	Flops      float64 `name:"flops" default:"2e15" help:"Effective FLOP/s of one replica for prefill."`
	Rate       float64 `default:"10" help:"Requests per second, whole fleet."`
	Prompt     float64 `default:"4000" help:"Tokens of a mean prompt."`
	Output     float64 `default:"300" help:"Tokens of a mean answer."`
	Reuse      float64 `default:"0.6" help:"Share of prompt tokens found in cache, 0 to 1."`
	Price      float64 `default:"3" help:"Of one replica per hour."`
	Trace      string  `placeholder:"FILE" help:"Take rate, lengths and reuse from a trace, and simulate that trace."`
	NoSim      bool    `name:"no-sim" help:"Leave out the simulation."`
	JSON       bool    `help:"Print as JSON."`
}

func (planCmd) Help() string {
	return `Examples:
  kvasir plan                                          # the textbook example: 280 ms cold, 112 ms warm
  kvasir plan --replicas 16 --rate 40 --prompt 6000 --reuse 0.7 --price 4
  kvasir plan --trace conv.jsonl.gz --replicas 8

Napkin arithmetic, each line with its formula, and beside it what the simulator says of the same input.`
}

// A planReport is what --json prints.
type planReport struct {
	Version int          `json:"version"`
	Input   plan.Input   `json:"input"`
	Napkin  plan.Plan    `json:"napkin"`
	Sim     []sim.Result `json:"simulated,omitempty"`
}

func (c planCmd) Run(ctx context.Context) error {
	in := plan.Input{Replicas: c.Replicas, Parameters: c.Parameters, FLOPS: c.Flops, Rate: c.Rate, Prompt: c.Prompt, Output: c.Output, Reuse: c.Reuse, Price: c.Price}
	if err := in.Validate(); err != nil {
		return err
	}
	out := planReport{Version: 1, Input: in}
	var w *sim.Workload
	var err error
	if c.Trace != "" {
		w, _, err = sim.Load(sim.Input{File: c.Trace, Replicas: c.Replicas})
		if err != nil {
			return err
		}
		if out.Input, err = c.measure(in); err != nil {
			return err
		}
	}
	out.Napkin = plan.Make(out.Input)
	if !c.NoSim {
		if out.Sim, err = c.simulate(ctx, out.Input, w); err != nil {
			return err
		}
	}
	if c.JSON {
		return json.NewEncoder(os.Stdout).Encode(out)
	}
	t := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	for _, l := range out.Napkin.Lines {
		fmt.Fprintf(t, "%s\t%.4g\t%s\t= %s\n", l.Name, l.Value, l.Unit, l.Formula)
	}
	t.Flush()
	if len(out.Sim) > 0 {
		fmt.Printf("\nsimulated, with queues and decode (profile %s, %d replicas):\n", out.Sim[0].Profile, c.Replicas)
		for _, r := range out.Sim {
			fmt.Fprintf(t, "  %s\thit rate %.0f %%\tTTFT mean %.0f ms\tp95 %.0f ms\twhole request %.2f s\tbusy %.0f %%\n",
				r.Policy, 100*r.HitRate, 1e3*r.TTFT.Mean, 1e3*r.TTFT.P95, r.E2E.Mean, 100*r.Busy)
		}
		t.Flush()
	}
	fmt.Println()
	for _, n := range out.Napkin.Notes {
		fmt.Println("-", n)
	}
	return nil
}

// measure takes rate, lengths and reuse from the trace.
func (c planCmd) measure(in plan.Input) (plan.Input, error) {
	w, err := loadWorkload(c.Trace, false, 0)
	if err != nil {
		return in, err
	}
	if len(w.Requests) < 2 {
		return in, fmt.Errorf("%s: sessions, or too few requests to have a rate: give --rate, --prompt and --reuse", c.Trace)
	}
	seen := map[uint64]bool{}
	var prompt, output, reused float64
	for _, q := range w.Requests {
		hit := 0
		for hit < len(q.Blocks) && seen[q.Blocks[hit]] {
			hit++
		}
		for _, b := range q.Blocks {
			seen[b] = true
		}
		prompt, output = prompt+float64(q.Input), output+float64(q.Output)
		reused += float64(min(hit*q.BlockSize, q.Input-1))
	}
	n := float64(len(w.Requests))
	in.Prompt, in.Output, in.Reuse = prompt/n, output/n, reused/prompt
	if span := w.Requests[len(w.Requests)-1].At - w.Requests[0].At; span > 0 {
		in.Rate = n / span
	}
	return in, in.Validate()
}

// simulate plays the trace, or traffic with the input's lengths and reuse.
func (c planCmd) simulate(ctx context.Context, in plan.Input, w *sim.Workload) ([]sim.Result, error) {
	if w == nil {
		// Prompts whose shared part is Reuse of their length, under a few prefixes per replica.
		spec := fmt.Sprintf("shared_prefix:rate=%g,prefix=%g,input=%g,output=%g", in.Rate/float64(in.Replicas), in.Prompt*in.Reuse, in.Prompt*(1-in.Reuse), max(in.Output, 1))
		var err error
		if w, err = sim.Generate(spec, in.Replicas); err != nil {
			return nil, err
		}
	}
	profile := model.Profile70B
	if in.Parameters < 30e9 {
		profile = model.Profile8B
	}
	r, err := sim.Run(ctx, sim.Config{Workload: w, Policies: []string{"round_robin", "marginal"}, Replicas: in.Replicas, Profile: profile})
	return r.Runs, err
}
