package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"kvasir/lab/mock"
	"kvasir/lab/report"
	"kvasir/lab/sim"
	"kvasir/policy"
)

type simCmd struct {
	Input    []string `short:"i" sep:"none" placeholder:"FILE" help:"A trace, cell, receipt log or rl_rollouts.json (plain or gzip), repeatable; a pattern in quotes, as 'receipts*.jsonl*'; or a generator as gen:NAME[:key=value,…]. Receipt logs are played together."`
	Trace    []string `short:"t" sep:"none" placeholder:"FILE" help:"The same as --input."`
	Starts   string   `placeholder:"FILE" help:"Closed loop: file with the users' start times."`
	Speed    float64  `default:"1" help:"Open loop: factor on the rate."`
	Limit    int      `short:"n" help:"First requests only."`
	Users    int      `help:"Closed loop: users; 0: 6 per replica."`
	Ticks    string   `default:"" enum:",spread,keep" help:"Mooncake rows with equal time stamps: spread over the tick, or keep together."`
	NoReuse  bool     `help:"Make every block unique: the control without prefixes."`
	SkipBad  bool     `help:"Count malformed lines and go on."`
	Policy   []string `short:"p" default:"all" help:"Policies, or all; kvasir sim --list names them."`
	Replicas []int    `short:"r" placeholder:"8" help:"Fleet sizes. Of receipt logs it is what they recorded, if not given."`
	Profile  string   `default:"70b" help:"Engine: 70b, 8b, demo, or a file from kvasir replay --fit-profile --json; constants can be changed behind a colon, as in 8b:cp=2e-4,kv_tokens=8192."`
	KVTokens int      `name:"kv-tokens" help:"KV cache per replica in tokens; 0: the profile's."`
	Host     int      `name:"host-tokens" help:"Host tier per replica in tokens."`
	Seed     []uint64 `default:"1" help:"Seeds of ties and faults, each a run."`
	Dice     string   `default:"python" enum:"python,pcg" help:"Source of ties: as in the reference, or Go's own."`
	Engine   string   `default:"reserved" enum:"reserved,paged" help:"Engine: the reference's, or with vLLM's paging and preemption."`

	EventDelay float64  `group:"Faults" help:"Seconds until cache events reach the router."`
	Jitter     float64  `name:"event-jitter" group:"Faults" help:"Mean of an exponential delay on top, seconds."`
	EventLoss  float64  `group:"Faults" help:"Share of event batches that are lost for good."`
	Gauges     float64  `group:"Faults" help:"Age in seconds that engines' own figures reach."`
	Routers    int      `group:"Faults" default:"1" help:"Routers that share the fleet."`
	Share      string   `group:"Faults" default:"0" help:"Seconds between routers' exchanges of load; 0: at once; never."`
	Change     []string `group:"Faults" sep:"none" help:"slow:2@100-200x4, dead:2@100-160, add:4@300, remove:3@500; repeatable."`

	MaxOutput bool   `name:"max-output" group:"Hints of clients" help:"Requests carry their output length as max_tokens, as kvasir replay sends it."`
	NextTurn  string `name:"next-turn" group:"Hints of clients" default:"" enum:",exact,noisy" help:"Sessions say when they will go on (x-kvasir-next-turn): exact, or noisy: off by a log-normal factor, sigma 0.5."`

	JSON bool   `help:"Print as JSON."`
	HTML string `name:"html" placeholder:"FILE" help:"Write a page with plots."`
	List bool   `help:"List policies and generators."`
}

func (simCmd) Help() string {
	return `Examples:
  kvasir sim -t mooncake_conversation.jsonl.gz --policy all --replicas 8 --json
  kvasir sim -i conv.jsonl.gz --speed 1.8 -p marginal,dynamo,round_robin --html report.html
  kvasir sim -i claude_code_seed3.jsonl.gz --starts claude_code_starts.json
  kvasir sim -i gen:shared_prefix:rate=2,zipf=1.2 -r 4,8,16
  kvasir sim -i rl_rollouts.json --change dead:2@100-160
  kvasir sim -i 'receipts*.jsonl*' -p auto,least_load     # recorded traffic (serve --receipts-file), and what was chosen

The production scheduler decides, in virtual time: same arguments, same bytes (but for wall_s).

Columns: hit, prompt tokens found in cache; TTFT, time to first token; E2E, whole request; TPOT, time per token after the first;
load CV, unevenness of decoding over replicas in bins of 0.5 s (0: even); sticky, later turns on the replica of the one before;
fullest, requests on the replica that got most; phantom, prompt tokens believed cached and not found.
lost, refused: requests that died with their engine, or that the policy shed; only where there are any, and in no other figure.`
}

func (c simCmd) Run(ctx context.Context) error {
	if c.List {
		listArms(os.Stdout)
		fmt.Print("\ngenerators, with parameters and their defaults:\n")
		for _, g := range sim.Generators() {
			fmt.Printf("  gen:%s\n", strings.ReplaceAll(g, "\n", "\n  "))
		}
		return nil
	}
	inputs, err := gather(slices.Concat(c.Input, c.Trace))
	if err != nil {
		return err
	}
	if len(inputs) == 0 {
		return errors.New("nothing to simulate: give --input FILE, or a generator such as --input gen:shared_prefix (kvasir sim --list)")
	}
	profile, err := profileOf(c.Profile)
	if err != nil {
		return err
	}
	rep := sim.Report{Version: 1}
	for _, in := range inputs {
		sizes, err := c.sizes(in)
		if err != nil {
			return err
		}
		for _, n := range sizes {
			r, err := c.play(ctx, in, n, profile)
			if err != nil {
				return err
			}
			rep.Runs = append(rep.Runs, r.Runs...)
			if r.Recorded != nil {
				rep.Recorded = r.Recorded
			}
			if rep.Stopped = rep.Stopped || r.Stopped; rep.Stopped {
				break
			}
		}
	}
	names := make([]string, len(inputs))
	for i, in := range inputs {
		names[i] = filepath.Base(in[0])
	}
	return c.print(rep, "Policies on "+strings.Join(names, ", "))
}

// play simulates one input on one fleet.
func (c simCmd) play(ctx context.Context, input []string, replicas int, profile mock.Profile) (sim.Report, error) {
	w, err := c.workload(input, replicas)
	if err != nil {
		return sim.Report{}, err
	}
	cfg := sim.Config{
		Workload: w, Policies: c.Policy, Replicas: replicas, Profile: profile, KVTokens: c.KVTokens, HostTokens: c.Host, Seeds: c.Seed, Dice: c.Dice,
		Engine: c.Engine, Clock: time.Now, Curves: c.HTML != "",
		Faults: sim.Faults{EventDelay: c.EventDelay, EventJitter: c.Jitter, EventLoss: c.EventLoss, Gauges: c.Gauges, Routers: c.Routers},
		Hints:  sim.Hints{MaxOutput: c.MaxOutput, NextTurn: c.NextTurn},
	}
	if cfg.Faults.Share, err = shareOf(c.Share); err != nil {
		return sim.Report{}, err
	}
	for _, s := range c.Change {
		x, err := sim.ParseChange(s)
		if err != nil {
			return sim.Report{}, err
		}
		cfg.Faults.Changes = append(cfg.Faults.Changes, x)
	}
	var finish func()
	cfg.Progress, finish = simBar(c.JSON, fmt.Sprintf("%s, %d replicas", input[0], replicas))
	defer finish()
	return sim.Run(ctx, cfg)
}

// simBar shows a simulation's progress on a terminal, and nothing elsewhere.
func simBar(quiet bool, what string) (step func(sim.Progress), finish func()) {
	if quiet || !term.IsTerminal(int(os.Stderr.Fd())) {
		return nil, func() {}
	}
	bar := progressbar.NewOptions(1, progressbar.OptionSetWriter(os.Stderr), progressbar.OptionSetPredictTime(true),
		progressbar.OptionClearOnFinish(), progressbar.OptionSetDescription(what), progressbar.OptionThrottle(100*time.Millisecond))
	return func(p sim.Progress) {
		bar.ChangeMax(max(p.Requests, p.RequestsDone, 1))
		bar.Set(p.RequestsDone)
	}, func() { bar.Finish() }
}

// shareOf reads --share. A negative number means never, too.
func shareOf(text string) (float64, error) {
	if text == "never" {
		return math.Inf(1), nil
	}
	s, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(s) {
		return 0, fmt.Errorf("--share is %q: want seconds, 0 for at once, or never", text)
	}
	if s < 0 {
		return math.Inf(1), nil
	}
	return s, nil
}

func (c simCmd) workload(input []string, replicas int) (*sim.Workload, error) {
	if spec, ok := strings.CutPrefix(input[0], "gen:"); ok {
		return sim.Generate(spec, replicas)
	}
	w, told, err := sim.Load(sim.Input{
		File: input[0], More: input[1:], Starts: c.Starts, Speed: c.Speed, Limit: c.Limit, Ticks: c.Ticks, Replicas: replicas, Users: c.Users,
		NoReuse: c.NoReuse, SkipBad: c.SkipBad,
	})
	if told.Skipped > 0 {
		fmt.Fprintf(os.Stderr, "skipped %d malformed lines; the first: %v\n", told.Skipped, told.FirstBad)
	}
	return w, err
}

// lowest names the best of each table of three and more policies. Bounds (ref:POOL)
// and runs that ended early don't count.
func lowest(runs []sim.Result) (lines []string) {
	for len(runs) > 0 {
		n := 1
		for n < len(runs) && runs[n].Input == runs[0].Input && runs[n].Replicas == runs[0].Replicas {
			n++
		}
		var ttft, e2e *sim.Result
		seen := map[string]bool{}
		for i := range runs[:n] {
			r := &runs[i]
			if r.Policy == "ref:POOL" || r.Policy == sim.RecordedPolicy || r.Partial || r.Requests == 0 {
				continue
			}
			seen[r.Policy] = true
			if ttft == nil || r.TTFT.Mean < ttft.TTFT.Mean {
				ttft = r
			}
			if e2e == nil || r.E2E.Mean < e2e.E2E.Mean {
				e2e = r
			}
		}
		if len(seen) > 2 {
			lines = append(lines, fmt.Sprintf("%s, %d replicas: lowest mean TTFT %s (%.3f s), lowest mean E2E %s (%.3f s)", runs[0].Input, runs[0].Replicas, ttft.Policy, ttft.TTFT.Mean, e2e.Policy, e2e.E2E.Mean))
		}
		runs = runs[n:]
	}
	return lines
}

// listArms says what --policy accepts.
func listArms(w io.Writer) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "policies:")
	var more, ref []string
	for _, name := range sim.Arms() {
		switch what := policy.Summary(name); {
		case strings.HasPrefix(name, "ref:"):
			ref = append(ref, name)
		case what == "":
			more = append(more, name)
		default:
			fmt.Fprintf(t, "  %s\t%s\n", name, what)
		}
	}
	t.Flush()
	fmt.Fprintf(w, "\nthe same under other settings, or inside a combinator:\n  %s\n", strings.Join(more, "\n  "))
	fmt.Fprintf(w, "\nall: all of these but for the combinators; combinators: policies inside one\n")
	fmt.Fprintf(w, "\nforms of the reference simulator, with perfect views (ref:all for all of them):\n  %s\n", strings.Join(ref, "\n  "))
}

func (c simCmd) print(rep sim.Report, title string) error {
	if c.HTML != "" {
		f, err := os.Create(c.HTML)
		if err != nil {
			return err
		}
		if err := errors.Join(report.Write(f, title, rep), f.Close()); err != nil {
			return err
		}
		for i := range rep.Runs {
			rep.Runs[i].Curves = nil
		}
	}
	if c.JSON {
		return json.NewEncoder(os.Stdout).Encode(rep)
	}
	if rep.Stopped {
		fmt.Println("interrupted; this is what was known by then:")
	}
	t := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	lost, refused := false, false
	for _, r := range rep.Runs {
		lost, refused = lost || r.Failed > 0, refused || r.Shed > 0
	}
	fmt.Fprint(t, "input\tN\tpolicy\tseed\thit %\tTTFT mean s\tp50\tp95\tp99\tE2E mean s\tTPOT ms\tload CV\tsticky %\tfullest %\tphantom %\t")
	if lost {
		fmt.Fprint(t, "lost\t")
	}
	if refused {
		fmt.Fprint(t, "refused\t")
	}
	fmt.Fprintln(t)
	for _, r := range rep.Runs {
		partial := ""
		if r.Partial {
			partial = "*"
		}
		fmt.Fprintf(t, "%s%s\t%d\t%s\t%d\t%.1f\t%.3f\t%.3f\t%.3f\t%.3f\t%.3f\t%.2f\t%.2f\t%.0f\t%.1f\t%.1f\t", r.Input, partial, r.Replicas, r.Policy, r.Seed,
			100*r.HitRate, r.TTFT.Mean, r.TTFT.P50, r.TTFT.P95, r.TTFT.P99, r.E2E.Mean, 1e3*r.TPOT.Mean, r.DecodeCV, 100*r.Stickiness, 100*r.MaxShare, 100*r.Phantom)
		if lost {
			fmt.Fprintf(t, "%d\t", r.Failed)
		}
		if refused {
			fmt.Fprintf(t, "%d\t", r.Shed)
		}
		fmt.Fprintln(t)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, l := range lowest(rep.Runs) {
		fmt.Println(l)
	}
	printRecorded(os.Stdout, rep)
	if c.HTML != "" {
		fmt.Println("plots:", c.HTML)
	}
	return nil
}
