package main

import (
	"fmt"
	"path/filepath"
	"slices"

	"kvasir/lab/mock"
	"kvasir/lab/sim"
	"kvasir/policy"
)

// A cell is one workload on one fleet: everything in it is compared on equal terms.
type cell struct {
	key      string // unique; also the name of the file with what is kept of it
	group    string // section of the report
	title    string
	gen      string // a generator's text, or else
	input    sim.Input
	replicas int
	profile  mock.Profile
	kv       int // tokens of cache per replica; 0: the profile's
	faults   sim.Faults
	hints    sim.Hints
	arms     []string
	curves   bool
	seeds    int // at most; policies that draw no ties need one
	ref      refKey
}

// A refKey finds a cell's rows in reference.json; the zero refKey has none.
type refKey struct {
	cell     string
	replicas int
}

// Sections of the report.
const (
	mainCells = "main"    // tuned on: N=8, 70b
	moreCells = "more"    // other fleets and the other profile
	others    = "others"  // other traces, orders and loads
	noReuse   = "noreuse" // nothing to reuse
	rollouts  = "rl"
	faulty    = "faults"
	hinted    = "hints"  // sessions that say when they go on
	combined  = "combos" // policies inside a combinator
	loads     = "loads"  // sweeps
	crowds    = "crowds"
)

// arms are all policies of the product, presets of theirs, and the two bounds of
// the reference simulator's that no product policy has.
func arms() []string {
	list := append(policy.Names(), "dynamo:agentic", "dynamo:prefill8", "lmetric:predicted", "sglang_cache_aware:library", "ray_prefix:threshold10",
		"least_load:tokens", "marginal:known", "marginal:wp", "ref:lmetric_u", pool)
	for _, p := range []string{"marginal:hot_prefix", "steer:hot_prefix"} { // once the arena has them
		if slices.Contains(sim.Arms(), p) {
			list = append(list, p)
		}
	}
	return list
}

const pool = "ref:POOL" // one cache of N times the size, exact work: a bound, not a policy

// serious are the policies that are worth a look where things go wrong.
var serious = []string{"auto", "marginal", "marginal:known", "steer", "dynamo", "dynamo:agentic", "llmd_precise", "lmetric", "sglang_cache_aware", "session", "least_load", "round_robin"}

// twins of the reference simulator, and the product's policies that should equal
// them, by their name in reference.json.
var twins = map[string][]string{
	"round_robin":          {"ref:round_robin", "round_robin"},
	"least_requests":       {"ref:least_requests", "least_load"},
	"session_hash":         {"ref:session_hash"},
	"dynamo":               {"ref:dynamo", "dynamo"},
	"dynamo_decay1":        {"ref:dynamo_decay1", "dynamo:decay1"},
	"dynamo_prefill8":      {"ref:dynamo_prefill8", "dynamo:prefill8"},
	"time W+p":             {"ref:time W+p", "marginal:wp"},
	"marg k1 d0.3 o0.3 s0": {"ref:marg 1/.3/.3", "marginal:known", "marginal"},
	"POOL shared cache":    {"ref:POOL"},
	"llmd_3_2_2":           {"ref:llmd_3_2_2", "llmd_precise"},
	"sglang_cache_aware":   {"ref:sglang_cache_aware", "sglang_cache_aware:reference"},
	"ray_prefix_affinity":  {"ref:ray_prefix_affinity"},
	"pure_affinity_low":    {"ref:pure_affinity_low"},
	"pure_affinity_load":   {"ref:pure_affinity_load"},
	"prefix_hash_1":        {"ref:prefix_hash_1"},
}

// plan lists the cells, the important ones first.
func plan(cells, traces string) []cell {
	var list []cell
	open := func(file string, speed float64) sim.Input {
		return sim.Input{File: filepath.Join(cells, file+".jsonl.gz"), Speed: speed}
	}
	closed := func(seed, n int) sim.Input {
		return sim.Input{File: filepath.Join(cells, fmt.Sprintf("claude_code_seed%d.jsonl.gz", seed)), Starts: filepath.Join(cells, "claude_code_starts.json"), Replicas: n}
	}
	add := func(c cell) {
		if c.profile.Name == "" {
			c.profile = mock.Profile70B
		}
		if c.arms == nil {
			c.arms = arms()
		}
		if c.seeds == 0 {
			c.seeds = 3
		}
		c.title = fmt.Sprintf("%s, N=%d, %s", c.title, c.replicas, c.profile.Name)
		c.key = fmt.Sprintf("%s-n%d-%s", c.key, c.replicas, c.profile.Name)
		list = append(list, c)
	}
	grid := func(n int, p mock.Profile, group string) {
		f := float64(n) / 8
		for _, x := range []struct {
			name  string
			speed float64
		}{{"conv", 1.8}, {"tool", 2.2}, {"claude_code", 0}, {"synth", 1.2}} {
			c := cell{key: x.name, group: group, replicas: n, profile: p, curves: group == mainCells}
			if p.Name == "70b" && n != 16 {
				c.ref = refKey{x.name, n}
			}
			if x.speed > 0 {
				c.input, c.title = open(x.name, x.speed*f), fmt.Sprintf("%s %gx", x.name, x.speed*f)
			} else {
				c.input, c.title = closed(3, n), x.name
			}
			add(c)
		}
	}
	grid(8, mock.Profile70B, mainCells)
	add(cell{key: "conv_burst", group: others, title: "conv_burst 1.8x", input: open("conv_burst", 1.8), replicas: 8})
	for _, seed := range []int{4, 5} {
		add(cell{key: fmt.Sprint("claude_code-seed", seed), group: others, title: fmt.Sprint("claude_code, order ", seed), input: closed(seed, 8), replicas: 8})
	}
	for _, speed := range []float64{.9, 1.35, 1.8} {
		in := open("conv", speed)
		in.NoReuse = true
		add(cell{key: fmt.Sprint("noreuse-", speed), group: noReuse, title: fmt.Sprintf("conv %gx, every block unique", speed), input: in, replicas: 8})
	}
	for _, rate := range []float64{1, 2} {
		add(cell{key: fmt.Sprint("uniform-", rate), group: noReuse, title: fmt.Sprintf("uniform, 4,000 tokens, %g/s per replica", rate), gen: fmt.Sprintf("uniform:rate=%g", rate), replicas: 8})
	}
	for _, p := range []mock.Profile{mock.Profile8B, mock.Profile70B} {
		for _, n := range []int{4, 8} {
			add(cell{key: "rl_rollouts", group: rollouts, title: "rl_rollouts", input: sim.Input{File: filepath.Join(cells, "rl_rollouts.json")}, replicas: n, profile: p})
		}
	}
	for _, rate := range []float64{1, 2.5} {
		add(cell{key: fmt.Sprint("hot_prefix-", rate), group: others, title: fmt.Sprintf("hot_prefix, %g/s per replica", rate), gen: fmt.Sprintf("hot_prefix:rate=%g", rate), replicas: 8})
	}
	// What neither marginal nor steer was tuned on: long sessions of agents, and caches
	// that are too small for what is going on.
	add(cell{key: "agent_serial", group: others, title: "agent_serial, 6 users per replica", gen: "agent_serial", replicas: 8})
	add(cell{key: "scarce-claude_code", group: others, title: "claude_code, caches of 250,000 tokens", input: closed(3, 8), replicas: 8, kv: 250_000})
	add(cell{key: "scarce-conv", group: others, title: "conv 1.8x, caches of 250,000 tokens", input: open("conv", 1.8), replicas: 8, kv: 250_000})
	add(cell{key: "half-tool", group: others, title: "tool 1.1x", input: open("tool", 1.1), replicas: 8})
	add(cell{key: "diurnal", group: others, title: "diurnal conversations, 1.2/s per replica", gen: "diurnal:rate=1.2", replicas: 8})
	grid(4, mock.Profile70B, moreCells)
	grid(8, mock.Profile8B, moreCells)
	grid(16, mock.Profile70B, moreCells)
	grid(4, mock.Profile8B, moreCells)
	grid(16, mock.Profile8B, moreCells)
	for _, f := range []struct {
		key, title string
		faults     sim.Faults
	}{
		// 50 ms is how often llm-d's picker reads its engines' figures.
		{"lag", "events 50 ms late (+ exponential 20 ms), 0.1 % of batches lost, engines' figures 50 ms old", sim.Faults{EventDelay: .05, EventJitter: .02, EventLoss: .001, Gauges: .05}},
		{"slowpoll", "engines' figures 1 s old", sim.Faults{EventDelay: .02, Gauges: 1}},
		{"routers", "4 routers that tell each other every 0.5 s", sim.Faults{Routers: 4, Share: .5, EventDelay: .02, Gauges: .05}},
		{"routersfast", "4 routers that tell each other every 50 ms", sim.Faults{Routers: 4, Share: .05, EventDelay: .02, Gauges: .05}},
		{"scale", "2 replicas added at 300 s, one dead from 400 to 460 s, one 3 times slower from 500 s", sim.Faults{EventDelay: .02, Gauges: .05, Changes: changes("add:2@300", "dead:1@400-460", "slow:3@500-0x3")}},
	} {
		for _, name := range []string{"conv", "claude_code"} {
			c := cell{key: f.key + "-" + name, group: faulty, title: name + ": " + f.title, replicas: 8, faults: f.faults, arms: serious, seeds: 2}
			if name == "conv" {
				c.input = open("conv", 1.8)
			} else {
				c.input = closed(3, 8)
			}
			add(c)
		}
	}
	for _, p := range []mock.Profile{mock.Profile70B, mock.Profile8B} {
		for _, seed := range []int{3, 4, 5} {
			for _, says := range []string{"", "exact", "noisy"} {
				c := cell{key: fmt.Sprintf("hints%s-claude_code-seed%d", says, seed), group: hinted, title: fmt.Sprint("claude_code, order ", seed),
					input: closed(seed, 8), replicas: 8, profile: p, hints: sim.Hints{NextTurn: says}, arms: []string{"steer", "steer:hot_prefix"}}
				if says == "" {
					c.arms = append(c.arms, "auto", "marginal", pool)
				}
				add(c)
			}
		}
	}
	inside := append([]string{"marginal", "marginal:hot_prefix", "dynamo", "session", "pure_affinity"}, sim.Combinators()...)
	add(cell{key: "combos-conv", group: combined, title: "conv 1.8x", input: open("conv", 1.8), replicas: 8, arms: inside})
	add(cell{key: "combos-claude_code", group: combined, title: "claude_code", input: closed(3, 8), replicas: 8, arms: inside})
	add(cell{key: "combos-agent_serial", group: combined, title: "agent_serial", gen: "agent_serial", replicas: 8, arms: inside})
	for _, c := range sweepCells(open, cells) {
		add(c)
	}
	add(cell{key: "mooncake-all", group: others, title: "conversation trace, all 12,031 requests, 1.6x", replicas: 8,
		input: sim.Input{File: filepath.Join(traces, "mooncake_conversation.jsonl.gz"), Speed: 1.6}, seeds: 1})
	return list
}

func changes(list ...string) (out []sim.Change) {
	for _, s := range list {
		c, err := sim.ParseChange(s)
		if err != nil {
			panic(err) // a text of ours
		}
		out = append(out, c)
	}
	return out
}
