package sim

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"runtime"
	"strings"
	"testing"

	"kvasir/kv"
	"kvasir/lab/mock"
	"kvasir/lab/trace/demo"
)

// demoWorkload is the embedded set of agent sessions, closed loop.
func demoWorkload(t *testing.T, replicas, users int) *Workload {
	t.Helper()
	sessions, err := demo.Sessions()
	if err != nil {
		t.Fatal(err)
	}
	var list []chat
	n := 0
	for _, s := range sessions {
		var c chat
		for _, x := range s.Turns {
			c.turns = append(c.turns, chatTurn{x.Think, x.Input, x.Output, hashes(x.Blocks)})
			n++
		}
		list = append(list, c)
	}
	w, err := crowdWorkload(list, sessions[0].BlockSize, Input{File: "demo", Replicas: replicas, Users: users, Limit: n})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// The product's policies, driven by events through the production core, decide
// as the reference's do with a perfect view: same places, same times.
func TestCoreEqualsTwin(t *testing.T) {
	pairs := [][2]string{
		{"round_robin", "ref:round_robin"}, {"least_load", "ref:least_requests"}, {"marginal:reference", "ref:marg 1/.3/.3"},
		{"marginal:wp", "ref:time W+p"}, {"dynamo", "ref:dynamo"}, {"dynamo:prefill8", "ref:dynamo_prefill8"}, {"llmd_precise", "ref:llmd_3_2_2"},
		{"sglang_cache_aware:reference", "ref:sglang_cache_aware"},
	}
	works := []*Workload{demoWorkload(t, 3, 20)}
	for _, spec := range []string{"shared_prefix:requests=400,rate=2,prefixes=12", "agent_serial:requests=60", "burst:bursts=4", "diurnal:requests=400,period=60"} {
		w, err := Generate(spec, 3)
		if err != nil {
			t.Fatal(err)
		}
		works = append(works, w)
	}
	for _, w := range works {
		for _, p := range pairs {
			small := func(c *Config) { c.KVTokens = 200 * w.size }
			if w.size == genBlock {
				small = func(c *Config) { c.KVTokens = 150_000 }
			}
			a, b := runArm(t, w, p[0], 3, small), runArm(t, w, p[1], 3, small)
			if len(a.metrics.lives) != len(b.metrics.lives) {
				t.Errorf("%s: %s completed %d requests, %s %d", w.name, p[0], len(a.metrics.lives), p[1], len(b.metrics.lives))
				continue
			}
			for id, x := range a.metrics.byID {
				y := b.metrics.byID[id]
				if x.replica != y.replica || x.hit != y.hit || math.Abs(x.first-y.first) > 1e-6 || math.Abs(x.done-y.done) > 1e-6 {
					t.Errorf("%s, request %d: %s on %d, hit %d, %.6f to %.6f; %s on %d, hit %d, %.6f to %.6f", w.name, id,
						p[0], x.replica, x.hit, x.first, x.done, p[1], y.replica, y.hit, y.first, y.done)
					break
				}
			}
		}
	}
}

// quiet checks what must hold when nothing is under way any more: no work is
// owed, and the cores believe exactly what the engines hold.
func quiet(t *testing.T, c *cluster, w *Workload) {
	t.Helper()
	g := c.router.(*gateways)
	late := c.now + 3600 // predictions have ended
	for i, k := range g.all {
		k.sched.Tick(at(late))
		for r, target := range k.targets {
			if l := k.sched.Load(target, at(late)); l.Requests != 0 || l.Prefilling != 0 || l.Prefill != 0 || l.Prompt != 0 || l.DecodeBlocks != 0 {
				t.Errorf("router %d, replica %d: after drain %+v is owed", i, r, l)
			}
		}
		over := make([]kv.Overlap, len(k.replica))
		for _, q := range c.metrics.byID {
			p := kv.Prompt{Tokens: q.Prompt + 1, Chains: []kv.Chain{{BlockSize: k.size, Hashes: k.names.chain(nil, q.blocks())}}}
			k.index.Match(&p, over)
			for r, target := range k.targets {
				gpu, host := 0, 0
				if e := c.engines[r]; e != nil {
					gpu = e.Match(q.blocks())
					host = e.MatchOnHost(q.blocks()[gpu:])
				}
				if got := over[target]; int(got.GPU) != gpu*k.size || int(got.Host) != host*k.size || got.Disk != 0 || got.Predicted != 0 {
					t.Fatalf("%s, router %d, replica %d, request %d: believes %+v, engine holds %d blocks and %d on host", w.name, i, r, q.ID, got, gpu, host)
				}
			}
		}
	}
}

// After every event: no load is negative and the live requests are those that the
// ledger counts. At the end: see quiet.
func TestInvariants(t *testing.T) {
	for _, engine := range []string{"reserved", "paged", "paged+host"} {
		for _, f := range []Faults{
			{},
			{Routers: 3},
			{Routers: 2, Share: .5},
			{Routers: 2, Share: math.Inf(1)},
			{EventDelay: .2, EventJitter: .3},
			{EventDelay: .05, Changes: []Change{{Kind: "slow", Replica: 0, From: 3, To: 9, Factor: 5}, {Kind: "dead", Replica: 1, From: 4, To: 12},
				{Kind: "add", Replica: 2, From: 6}, {Kind: "remove", Replica: 2, From: 8}}},
		} {
			w := demoWorkload(t, 3, 12)
			for _, policy := range []string{"marginal", "dynamo", "least_load"} {
				c := Config{Workload: w, Policies: []string{policy}, Replicas: 3, Profile: mock.ProfileDemo, Engine: strings.TrimSuffix(engine, "+host"), Faults: f}
				if engine == "paged+host" {
					c.HostTokens = 40_000
				}
				if err := c.Validate(); err != nil {
					t.Fatal(err)
				}
				arms, err := resolve(c.Policies, c.Profile)
				if err != nil {
					t.Fatal(err)
				}
				w.prepare()
				cl, err := c.build(arms[0], 1, false)
				if err != nil {
					t.Fatal(err)
				}
				cl.metrics.byID = map[uint64]*request{}
				n := 0
				cl.check = func(c *cluster) {
					if n++; n%16 != 0 {
						return
					}
					for _, k := range c.router.(*gateways).all {
						owed := 0
						for _, target := range k.targets {
							l := k.sched.Load(target, at(c.now))
							if l.Requests < 0 || l.Prefilling < 0 || l.Prefilling > l.Requests || l.Prefill < 0 || l.Prompt < 0 || l.DecodeBlocks < 0 {
								t.Fatalf("negative load %+v", l)
							}
							owed += l.Requests
						}
						if f.Routers <= 1 && owed != len(c.live) {
							t.Fatalf("at %.3f s %d requests are under way, the ledger has %d", c.now, len(c.live), owed)
						}
					}
				}
				if err := cl.run(); err != nil {
					t.Fatalf("%s %+v %s: %v", engine, f, policy, err)
				}
				r := cl.result()
				if got := r.Requests + r.Failed; got != w.total {
					t.Errorf("%s %+v %s: %d requests ended, %d were issued", engine, f, policy, got, w.total)
				}
				if g := cl.router.(*gateways); f.Share > 0 && !math.IsInf(f.Share, 1) {
					g.spread(cl.now) // the last news
				}
				drainEvents(cl)
				quiet(t, cl, w)
			}
		}
	}
}

// drainEvents delivers what is still under way.
func drainEvents(c *cluster) {
	for until := c.now + 60; c.queue.len() > 0; {
		e := c.queue.pop()
		if e.do != nil && e.at < until {
			c.now = max(c.now, e.at)
			e.do()
		}
	}
}

// What faults do shows in the figures.
func TestFaultsShow(t *testing.T) {
	w := demoWorkload(t, 4, 16)
	run := func(policy string, f Faults) Result {
		return runArm(t, w, policy, 4, func(c *Config) { c.Profile, c.Faults = mock.ProfileDemo, f }).result()
	}
	clean := run("marginal", Faults{})
	if clean.Failed+clean.Rerouted+clean.Refused+clean.LostEvents != 0 {
		t.Errorf("without faults: %+v", clean)
	}
	// dynamo believes nothing but events; all lost, it can't know of a cache.
	if lossy, exact := run("dynamo", Faults{EventLoss: 1}), run("dynamo", Faults{}); lossy.LostEvents == 0 || lossy.HitRate >= exact.HitRate-.03 {
		t.Errorf("all events lost: %d batches, hit rate %.4f, %.4f without", lossy.LostEvents, lossy.HitRate, exact.HitRate)
	}
	slow := Faults{Changes: []Change{{Kind: "slow", Replica: 2, From: 0, Factor: 8}}}
	rr, marg := run("round_robin", slow), run("least_load", slow)
	if marg.Share[2] >= rr.Share[2] || marg.TTFT.Mean >= rr.TTFT.Mean {
		t.Errorf("a slow replica: least load gives it %d requests at %.3f s, round robin %d at %.3f s", marg.Share[2], marg.TTFT.Mean, rr.Share[2], rr.TTFT.Mean)
	}
	dead := run("least_load", Faults{Changes: []Change{{Kind: "dead", Replica: 1, From: 5, To: 10}}})
	if dead.Failed+dead.Rerouted == 0 {
		t.Error("nothing was under way on the replica that died")
	}
	balanced := run("least_load", Faults{})
	added := run("least_load", Faults{Changes: []Change{{Kind: "add", Replica: 2, From: 5}, {Kind: "remove", Replica: 0, From: 5}}})
	if len(added.Share) != 6 || added.Share[4] == 0 || added.Share[0] >= balanced.Share[0]*2/3 {
		t.Errorf("shares after adding two replicas and removing the first: %v, before %v", added.Share, balanced.Share)
	}
	if all := run("least_load", Faults{Changes: []Change{{Kind: "dead", Replica: 0, From: 5, To: 7}, {Kind: "dead", Replica: 1, From: 5, To: 7},
		{Kind: "dead", Replica: 2, From: 5, To: 7}, {Kind: "dead", Replica: 3, From: 5, To: 7}}}); all.Refused == 0 || all.Requests+all.Failed != w.total {
		t.Errorf("with the whole fleet down: %d refused, %d of %d ended", all.Refused, all.Requests+all.Failed, w.total)
	}
}

// The same Config gives the same bytes, whatever GOMAXPROCS.
func TestSameBytes(t *testing.T) {
	report := func(procs, parallel int) []byte {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
		w := demoWorkload(t, 4, 12)
		r, err := Run(context.Background(), Config{Workload: w, Policies: []string{"marginal", "dynamo", "random", "p2c", "ref:dynamo"}, Replicas: 4, Profile: mock.ProfileDemo,
			Seeds: []uint64{1, 2}, Parallel: parallel, Curves: true})
		if err != nil {
			t.Fatal(err)
		}
		b, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	one := report(1, 1)
	for range 2 {
		if !bytes.Equal(one, report(4, 5)) {
			t.Fatal("another GOMAXPROCS, another report")
		}
	}
	if bytes.Count(one, []byte(`"policy"`)) != 10 {
		t.Errorf("not ten runs: %.200s", one)
	}
}

// A run that is stopped tells what is known by then.
func TestStopped(t *testing.T) {
	w, err := Generate("uniform:requests=20000,rate=3", 4)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	seen := 0
	r, err := Run(ctx, Config{Workload: w, Policies: []string{"round_robin"}, Replicas: 4, Profile: mock.Profile8B, Progress: func(p Progress) {
		if seen = p.RequestsDone; seen > 1000 {
			cancel()
		}
	}})
	if err != nil || !r.Stopped || len(r.Runs) != 1 || !r.Runs[0].Partial || r.Runs[0].Requests < 1000 || r.Runs[0].Requests >= 20000 {
		t.Errorf("stopped %v, error %v, runs %d, progress %d", r.Stopped, err, len(r.Runs), seen)
	}
}

func TestBadConfig(t *testing.T) {
	w := micro()
	ok := Config{Workload: w, Policies: []string{"round_robin"}, Replicas: 2, Profile: mock.Profile70B}
	for name, edit := range map[string]func(c *Config){
		"no workload":             func(c *Config) { c.Workload = nil },
		"replicas is 0":           func(c *Config) { c.Replicas = 0 },
		"no policy":               func(c *Config) { c.Policies = nil },
		"round_robn":              func(c *Config) { c.Policies = []string{"round_robn"} },
		"no preset":               func(c *Config) { c.Policies = []string{"dynamo:nope"} },
		"ref:nope":                func(c *Config) { c.Policies = []string{"ref:nope"} },
		"dice":                    func(c *Config) { c.Dice = "d20" },
		"needs engine paged":      func(c *Config) { c.HostTokens = 1000 },
		"engine":                  func(c *Config) { c.Engine = "steam" },
		"event loss":              func(c *Config) { c.Faults.EventLoss = 2 },
		"no replica 7":            func(c *Config) { c.Faults.Changes = []Change{{Kind: "dead", Replica: 7, From: 1}} },
		"sees engines directly":   func(c *Config) { c.Policies, c.Faults.EventLoss = []string{"ref:dynamo"}, .1 },
		"give the engine more":    func(c *Config) { c.KVTokens = 1024 },
		"share interval is -1":    func(c *Config) { c.Faults.Share = -1 },
		"the end after the start": func(c *Config) { c.Faults.Changes = []Change{{Kind: "dead", Replica: 1, From: 5, To: 4}} },
		"factor 0, must":          func(c *Config) { c.Faults.Changes = []Change{{Kind: "slow", Replica: 1, From: 5}} },
		`fault "odd" is unknown`:  func(c *Config) { c.Faults.Changes = []Change{{Kind: "odd", Replica: 1, From: 5}} },
	} {
		c := ok
		edit(&c)
		if _, err := Run(context.Background(), c); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: error is %v", name, err)
		}
	}
	for _, s := range []string{"", "slow", "slow:1", "slow:1@x", "burn:1@2", "slow:1@2-3y4", "dead:1@1..2"} {
		if c, err := ParseChange(s); err == nil {
			t.Errorf("ParseChange(%q) = %v", s, c)
		}
	}
	for _, s := range []string{"slow:2@100-200x4", "dead:2@100-160", "add:4@300", "remove:3@500", "slow:2@0.5x1.5"} {
		c, err := ParseChange(s)
		if err != nil || c.String() != s {
			t.Errorf("ParseChange(%q) = %v, %v", s, c, err)
		}
	}
	for _, s := range []string{"nope", "uniform:x=1", "uniform:rate=0", "uniform:rate=x", "rl_rollouts:stragglers=9"} {
		if _, err := Generate(s, 2); err == nil {
			t.Errorf("Generate(%q) succeeded", s)
		}
	}
}

// The JSON of a report is a contract: names may be added, never changed.
func TestSchema(t *testing.T) {
	r, err := Run(context.Background(), Config{Workload: micro(), Policies: []string{"dynamo:trackout"}, Replicas: 2, Profile: mock.Profile70B})
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Version int
		Runs    []map[string]any
	}
	if err := json.Unmarshal(b, &doc); err != nil {
		t.Fatal(err)
	}
	if doc.Version != 1 || len(doc.Runs) != 1 {
		t.Fatalf("version %d, %d runs", doc.Version, len(doc.Runs))
	}
	for _, name := range []string{"input", "policy", "replicas", "profile", "kv_tokens", "seed", "requests", "hit_rate", "decode_cv", "stickiness", "makespan_s", "max_share", "wall_s"} {
		if _, ok := doc.Runs[0][name]; !ok {
			t.Errorf("run has no %q", name)
		}
	}
	for _, name := range []string{"ttft_s", "e2e_s", "tpot_s"} {
		m, _ := doc.Runs[0][name].(map[string]any)
		for _, part := range []string{"mean", "p50", "p95", "p99"} {
			if _, ok := m[part]; !ok {
				t.Errorf("%s has no %q", name, part)
			}
		}
	}
}
