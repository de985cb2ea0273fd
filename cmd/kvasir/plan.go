package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"

	"kvasir/lab/mock"
	"kvasir/lab/plan"
	"kvasir/lab/sim"
)

type planCmd struct {
	Replicas   int     `default:"8" help:"Engines."`
	Profile    string  `help:"Engine to simulate, as for kvasir sim; --flops and --parameters follow from it. Default: 70b, or 8b for models below 30e9 parameters."`
	Parameters float64 `help:"Of the model; 0: 70e9, or the profile's."`
	Flops      float64 `name:"flops" help:"Effective FLOP/s of one replica for prefill; 0: 2e15, or the profile's."`
	Rate       float64 `default:"10" help:"Requests per second, whole fleet."`
	Prompt     float64 `default:"4000" help:"Tokens of a mean prompt."`
	Output     float64 `default:"300" help:"Tokens of a mean answer."`
	Reuse      float64 `default:"0.6" help:"Share of prompt tokens found in cache, 0 to 1."`
	Price      float64 `default:"3" help:"Of one replica per hour."`
	Trace      string  `short:"t" placeholder:"FILE" help:"Take rate, lengths and reuse from a trace of requests or of sessions, or from a generator (gen:NAME), and simulate that."`
	Users      int     `help:"Trace of sessions: sessions at a time; 0: 6 per replica."`
	Speed      float64 `default:"1" help:"Trace of requests: factor on the rate."`
	Limit      int     `short:"n" help:"Trace: first requests only."`
	SkipBad    bool    `help:"Trace: count malformed lines and go on."`
	NoSim      bool    `name:"no-sim" help:"Leave out the simulation."`
	JSON       bool    `help:"Print as JSON."`
}

func (planCmd) Help() string {
	return `Examples:
  kvasir plan                                          # the textbook example: 280 ms cold, 112 ms warm
  kvasir plan --replicas 16 --rate 40 --prompt 6000 --reuse 0.7 --price 4
  kvasir plan --trace conv.jsonl.gz --replicas 8
  kvasir plan --trace weka_cc_sessions_512.jsonl.gz --replicas 8 --users 64 --profile 8b

Napkin arithmetic, each line with its formula, and beside it what the simulator says of the same input.
Sessions have no rate of their own (each turn waits for the last answer): theirs is that of the simulated fleet.`
}

// A planReport is what --json prints.
type planReport struct {
	Version  int          `json:"version"`
	Input    plan.Input   `json:"input"`
	Measured []plan.Line  `json:"measured,omitempty"` // from the trace
	Napkin   plan.Plan    `json:"napkin"`
	Sim      []sim.Result `json:"simulated,omitempty"`
	// Fewest is the smallest fleet on which the default policy is as fast as round
	// robin on the whole one; 0: there is none, or it wasn't looked for.
	Fewest int `json:"fewest_replicas,omitempty"`
}

func (c planCmd) Run(ctx context.Context) error {
	in, profile, err := c.input()
	if err != nil {
		return err
	}
	out := planReport{Version: 1}
	var sums sim.Sums
	if c.Trace != "" {
		w, err := c.workload(c.Replicas, in)
		if err != nil {
			return err
		}
		if sums = w.Sums(); sums.Requests < 2 || !sums.Closed && sums.Span <= 0 {
			return fmt.Errorf("%s: too few requests (%d) to have a rate: give --rate, --prompt and --reuse instead", c.Trace, sums.Requests)
		}
		if sums.Closed && c.NoSim {
			return fmt.Errorf("%s has sessions, whose rate is the fleet's doing and comes from the simulation: leave out --no-sim, or give --rate, --prompt and --reuse instead of --trace", c.Trace)
		}
	}
	if !c.NoSim && c.Replicas > 1024 {
		return fmt.Errorf("--replicas %d: the simulator has at most 1024; --no-sim leaves it out", c.Replicas)
	}
	if !c.NoSim {
		out.Sim, err = c.simulate(ctx, in, profile, c.Replicas, "round_robin", "auto")
		if err == nil {
			out.Fewest, err = c.fewest(ctx, in, profile, &out.Sim[0], &out.Sim[1])
		}
		switch {
		case errors.Is(err, context.Canceled) && sums.Closed && len(out.Sim) == 0:
			return errors.New("interrupted before the simulation told the rate of these sessions: nothing is known yet")
		case errors.Is(err, context.Canceled):
			fmt.Fprintln(os.Stderr, "interrupted; this is what is known so far:")
		case err != nil:
			return err
		}
	}
	if c.Trace != "" {
		in, out.Measured = measured(in, sums, out.Sim)
		if err := in.Validate(); err != nil {
			return fmt.Errorf("%s: %w", c.Trace, err)
		}
	}
	out.Input, out.Napkin = in, plan.Make(in)
	if napkin := 2 * in.Parameters / in.FLOPS; len(out.Sim) > 0 && (napkin > 1.1*profile.CP || napkin < .9*profile.CP) {
		out.Napkin.Notes = append(out.Napkin.Notes, fmt.Sprintf("The simulated engine computes a prompt token in %.3g µs, the napkin's in %.3g µs: with --profile both have the same.", 1e6*profile.CP, 1e6*napkin))
	}
	if c.JSON {
		return json.NewEncoder(os.Stdout).Encode(out)
	}
	c.print(out)
	return nil
}

// input is what the flags say. The engine's speed and the model's size are the
// profile's where they aren't given.
func (c planCmd) input() (plan.Input, mock.Profile, error) {
	in := plan.Input{Replicas: c.Replicas, Parameters: c.Parameters, FLOPS: c.Flops, Rate: c.Rate, Prompt: c.Prompt, Output: c.Output, Reuse: c.Reuse, Price: c.Price}
	d := plan.Defaults()
	name := c.Profile
	if name == "" {
		if name = "70b"; in.Parameters > 0 && in.Parameters < 30e9 {
			name = "8b"
		}
	}
	profile, err := profileOf(name)
	if err != nil {
		return in, profile, err
	}
	if in.Parameters == 0 {
		if in.Parameters = d.Parameters; strings.HasPrefix(name, "8b") {
			in.Parameters = 8e9
		}
	}
	if in.FLOPS == 0 {
		if in.FLOPS = d.FLOPS; c.Profile != "" && profile.CP > 0 {
			in.FLOPS = 2 * in.Parameters / profile.CP
		}
	}
	return in, profile, in.Validate()
}

// workload is the trace's, or traffic with the input's lengths and reuse: prompts
// whose shared part is Reuse of their length.
func (c planCmd) workload(replicas int, in plan.Input) (*sim.Workload, error) {
	if c.Trace == "" {
		return sim.Generate(fmt.Sprintf("shared_prefix:rate=%g,prefix=%g,input=%g,output=%g", in.Rate/float64(replicas),
			in.Prompt*in.Reuse, max(in.Prompt*(1-in.Reuse), 1), max(in.Output, 1)), replicas)
	}
	users := c.Users
	if users == 0 {
		users = 6 * c.Replicas // also on a smaller fleet
	}
	return simCmd{Speed: c.Speed, Limit: c.Limit, Users: users, SkipBad: c.SkipBad}.workload([]string{c.Trace}, replicas)
}

func (c planCmd) simulate(ctx context.Context, in plan.Input, profile mock.Profile, replicas int, policies ...string) ([]sim.Result, error) {
	w, err := c.workload(replicas, in)
	if err != nil {
		return nil, err
	}
	step, finish := simBar(c.JSON, fmt.Sprintf("%s on %d replicas", strings.Join(policies, " and "), replicas))
	defer finish()
	r, err := sim.Run(ctx, sim.Config{Workload: w, Policies: policies, Replicas: replicas, Profile: profile, Progress: step})
	if err == nil && r.Stopped {
		return nil, context.Canceled
	}
	return r.Runs, err
}

// fewest looks for the smallest fleet on which the default policy's mean time to
// first token and mean whole request are no longer than base's; whole is what it does
// on all replicas. A generator's load is by replica, so there is no smaller fleet for
// the same load.
func (c planCmd) fewest(ctx context.Context, in plan.Input, profile mock.Profile, base, whole *sim.Result) (int, error) {
	asFast := func(r *sim.Result) bool { return r.TTFT.Mean <= base.TTFT.Mean && r.E2E.Mean <= base.E2E.Mean }
	if strings.HasPrefix(c.Trace, "gen:") || !asFast(whole) {
		return 0, nil
	}
	low, high := 0, c.Replicas // low is too few; high isn't
	for high-low > 1 {
		n := (low + high) / 2
		r, err := c.simulate(ctx, in, profile, n, "auto")
		if err != nil {
			return 0, err
		}
		if asFast(&r[0]) {
			high = n
		} else {
			low = n
		}
	}
	return high, nil
}

// measured puts the trace's figures into the input, and says how it came by them.
func measured(in plan.Input, s sim.Sums, runs []sim.Result) (plan.Input, []plan.Line) {
	n := float64(s.Requests)
	in.Prompt, in.Output, in.Reuse = float64(s.Prompt)/n, float64(s.Output)/n, float64(s.Reused)/float64(s.Prompt)
	rate := fmt.Sprintf("%d requests / %.0f s of the trace", s.Requests, s.Span)
	if s.Closed {
		r := runs[len(runs)-1]
		in.Rate = float64(r.Requests) / r.Makespan
		rate = fmt.Sprintf("%d requests of %d sessions / %.0f s simulated under %s, %d sessions at a time", r.Requests, s.Sessions, r.Makespan, r.Policy, s.Users)
	} else {
		in.Rate = n / s.Span
	}
	return in, []plan.Line{
		{Name: "rate", Value: in.Rate, Unit: "requests/s", Formula: rate},
		{Name: "mean prompt", Value: in.Prompt, Unit: "tokens", Formula: fmt.Sprintf("%d tokens / %d requests", s.Prompt, s.Requests)},
		{Name: "mean answer", Value: in.Output, Unit: "tokens", Formula: fmt.Sprintf("%d tokens / %d requests", s.Output, s.Requests)},
		{Name: "reuse", Value: 100 * in.Reuse, Unit: "%", Formula: fmt.Sprintf("%d tokens that one endless cache would find / %d tokens of prompts", s.Reused, s.Prompt)},
	}
}

func (c planCmd) print(out planReport) {
	t := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	lines := func(title string, list []plan.Line) {
		fmt.Println(title)
		for _, l := range list {
			fmt.Fprintf(t, "  %s\t%s\t%s\t= %s\n", l.Name, figure(l.Value), l.Unit, l.Formula)
		}
		t.Flush()
		fmt.Println()
	}
	if len(out.Measured) > 0 {
		lines("from "+c.Trace+":", out.Measured)
	}
	lines("on a napkin:", out.Napkin.Lines)
	if len(out.Sim) > 0 {
		fmt.Printf("simulated, with queues, decode and caches of %s tokens (profile %s, %d replicas):\n", figure(float64(out.Sim[0].KVTokens)), out.Sim[0].Profile, c.Replicas)
		for _, r := range out.Sim {
			fmt.Fprintf(t, "  %s\thit rate %.0f %%\tTTFT mean %.0f ms\tp95 %.0f ms\twhole request %.2f s\tengines at work %.0f %% of the time\n",
				r.Policy, 100*r.HitRate, 1e3*r.TTFT.Mean, 1e3*r.TTFT.P95, r.E2E.Mean, 100*r.Busy)
		}
		t.Flush()
		switch n := out.Fewest; {
		case n == c.Replicas:
			fmt.Printf("  on fewer than %d replicas auto is slower than round_robin on %d: none saved\n", n, n)
		case n > 0:
			fmt.Printf("  auto on %d replicas is no slower than round_robin on %d, in mean TTFT and mean whole request: %d saved, %s per year\n",
				n, c.Replicas, c.Replicas-n, figure(float64(c.Replicas-n)*c.Price*24*365))
		}
		fmt.Println()
	}
	for _, n := range out.Napkin.Notes {
		fmt.Println("-", n)
	}
}

// figure writes a number for people: four digits that count, or thousands apart.
func figure(v float64) string {
	if v < 10_000 {
		return strconv.FormatFloat(v, 'g', 4, 64)
	}
	s := strconv.FormatFloat(v, 'f', 0, 64)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
