package policy

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"kvasir/kv"
	"kvasir/policy/learn"
)

var t0 = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func at(seconds float64) time.Time {
	return t0.Add(time.Duration(seconds * float64(time.Second)))
}

// nominal is the engine that is taken where nothing is known.
var nominal = Coefficients(learn.KnownEngine())

func seeded(seed uint64) func(int) int { return rand.New(rand.NewPCG(seed, 0)).IntN }

// lowestIndex breaks every tie towards the first.
func lowestIndex(int) int { return 0 }

// fleet returns n idle candidates with blocks of 16 tokens.
func fleet(n int) []Candidate {
	c := make([]Candidate, n)
	for i := range c {
		c[i] = Candidate{Target: kv.Target(i), Identity: uint64(i + 1), BlockSize: 16, Trust: kv.Exact, Blocks: 10000, MaxBatch: 8192}
	}
	return c
}

func must(t testing.TB, cfg Config, intn func(int) int) Policy {
	t.Helper()
	p, err := New(cfg, intn)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func named(name string) Config {
	c := Defaults()
	c.Name = name
	return c
}

// run places one request, as the scheduler does.
func run(p Policy, req *Request, cands []Candidate) int {
	i := p.Pick(req, cands)
	p.Placed(req, cands, i)
	return i
}

// every returns the configurations to try what must hold for all of them: each
// policy, and each combinator around two of them.
func every() map[string]Config {
	all := map[string]Config{}
	for _, name := range Names() {
		all[name] = named(name)
	}
	for _, name := range []string{"marginal", "ray_prefix"} {
		for wrap, enable := range map[string]func(*Config){
			"guard":      func(c *Config) { c.Guard.Enabled = true },
			"explore":    func(c *Config) { c.Explore.Enabled = true; c.Explore.Share = .3 },
			"min_spread": func(c *Config) { c.MinSpread.Enabled = true },
			"dwell":      func(c *Config) { c.Dwell.Enabled = true },
			"hot_prefix": func(c *Config) { c.HotPrefix.Enabled = true },
			"shed":       func(c *Config) { c.Shed.Enabled = true },
		} {
			c := named(name)
			enable(&c)
			all[wrap+"("+name+")"] = c
		}
	}
	return all
}

// Every policy: builds from the defaults, picks a candidate on an idle, a busy,
// a blind and a one-target fleet, and doesn't allocate while it does.
func TestEveryPolicyPicksWithoutAllocating(t *testing.T) {
	for name, cfg := range every() {
		t.Run(name, func(t *testing.T) {
			p := must(t, cfg, seeded(1))
			cands := fleet(16)
			for i := range cands {
				cands[i].Load = kv.Load{Requests: i % 5, Prefilling: i % 2, Prefill: i * 300, Prompt: i * 1000, DecodeBlocks: i * 60, NewBlocks: 40, Decode: i * 700}
				cands[i].Overlap = kv.Overlap{GPU: int32(i%7) * 160, Host: int32(i%3) * 16}
				if cands[i].Engine = (kv.Gauge{}); i%4 != 0 {
					cands[i].Engine = kv.Gauge{At: t0, Waiting: i % 3, Running: i, KVUsage: float64(i) / 16}
				}
			}
			text := []byte(strings.Repeat("You are a helpful assistant. ", 60))
			req := &Request{Now: t0, Tokens: 1000, SessionHash: 77, Hashes: make([]kv.Hash, 62), BlockSize: 16, Text: text}
			for k := range req.Hashes {
				req.Hashes[k] = kv.Hash(h64(uint64(k)))
			}
			requests := []*Request{req, {Now: t0}, {Now: t0, Tokens: 100}}
			for _, q := range requests {
				for _, c := range [][]Candidate{cands, cands[3:4], fleet(3)} {
					if i := run(p, q, c); i < 0 || i >= len(c) {
						t.Fatalf("picked %d of %d", i, len(c))
					}
				}
			}
			for _, q := range requests {
				if n := testing.AllocsPerRun(50, func() { p.Pick(q, cands) }); n != 0 {
					t.Errorf("%v allocations per pick, want 0", n)
				}
			}
			p.Forget(3)
			run(p, req, cands)
			if names, unit := p.Terms(); len(names) > MaxTerms || len(names) > 0 && unit == "" {
				t.Errorf("terms %v in %q", names, unit)
			}
			Needs(cfg)
			if Summary(cfg.Name) == "" {
				t.Error("no summary")
			}
		})
	}
}

// Pick changes nothing: asked twice with the same dice, it says the same.
func TestPickIsADryRun(t *testing.T) {
	for name, cfg := range every() {
		intn := seeded(3)
		p := must(t, cfg, func(n int) int { return intn(n) })
		cands := fleet(5)
		r := rand.New(rand.NewPCG(9, 9))
		for k := range 200 {
			req := &Request{Now: at(float64(k)), Tokens: 400, SessionHash: uint64(r.IntN(20)), BlockSize: 16,
				Text: []byte(strings.Repeat("abc", r.IntN(200)))}
			for i := range cands {
				cands[i].Load.Requests = r.IntN(9)
				cands[i].Overlap.GPU = int32(r.IntN(20)) * 16
			}
			intn = seeded(uint64(k))
			want := p.Pick(req, cands)
			intn = seeded(uint64(k))
			if got := p.Pick(req, cands); got != want {
				t.Fatalf("%s: request %d: %d, then %d", name, k, want, got)
			}
			p.Placed(req, cands, want)
		}
	}
}

// What is missing is told from what is needed.
func TestNeeds(t *testing.T) {
	for _, c := range []struct {
		cfg  Config
		want Need
	}{
		{named("round_robin"), Need{}},
		{named("session"), Need{Session: true}},
		{named("dynamo"), Need{Events: true, Tokens: true, Blocks: true}},
		{with("dynamo", func(c *Config) { c.Dynamo.Preset = "load-aware" }), Need{Blocks: true, Private: true}},
		{with("dynamo", func(c *Config) { c.Dynamo.UseEvents = false }), Need{Tokens: true, Dispatch: true, Blocks: true}},
		{with("dynamo", func(c *Config) { c.Dynamo.OutputBlocks = true }), Need{Events: true, Tokens: true, Blocks: true, OutputBlocks: true}},
		{named("marginal"), Need{Events: true, Tokens: true, Dispatch: true}},
		{named("llmd_approx"), Need{Tokens: true, Dispatch: true, Engine: true, Blocks: true}},
		{named("ray_prefix"), Need{Text: true}},
		{with("ray_prefix", func(c *Config) { c.RayPrefix.Match = "index" }), Need{Tokens: true, Dispatch: true}},
		{with("random", func(c *Config) { c.Dwell.Enabled = true }), Need{Session: true}},
	} {
		if got := Needs(c.cfg); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.cfg.Name, got, c.want)
		}
	}
}

func TestValidate(t *testing.T) {
	for _, c := range []struct {
		edit func(*Config)
		want string
	}{
		{func(c *Config) { c.Name = "round-robbin" }, `did you mean "round_robin"?`},
		{func(c *Config) { c.Name = "xyzzyplugh" }, `policy.name: "xyzzyplugh", want auto, chwbl, `},
		{func(c *Config) { c.Name = "" }, `policy.name: "", want auto, chwbl, `},
		{func(c *Config) { c.Dynamo.HostWeight = 1.5 }, "policy.dynamo.host_cache_hit_weight: 1.5, want 0 to 1"},
		{func(c *Config) { c.Dynamo.Temperature = -1 }, "policy.dynamo.router_temperature: -1, want at least 0"},
		{func(c *Config) { c.Dynamo.Preset = "agentik" }, `did you mean "agentic"?`},
		{func(c *Config) { c.Dynamo.Temperature = infinity }, "policy.dynamo.router_temperature: +Inf, want at least 0"},
		{func(c *Config) { c.Dynamo.OutputBlocks, c.Dynamo.ActiveBlocks = true, false }, "policy.dynamo.router_track_output_blocks: true, want router_track_active_blocks as well"},
		{func(c *Config) { c.Marginal.Coefficients.Step = 1 }, "policy.marginal.coefficients.prefill_token: 0, want 1e-09 to 1"},
		{func(c *Config) { c.RayPrefix.EvictThreshold = 5 }, "policy.ray_prefix.eviction_target_chars: 360000, want at most eviction_threshold_chars, 5"},
		{func(c *Config) { c.Session.VirtualNodes = 0 }, "policy.session.virtual_nodes: 0, want 1 to 1000"},
		{func(c *Config) { c.Session.Fallback = "dynamo" }, `policy.session.fallback: "dynamo", want least_load, random or round_robin`},
		{func(c *Config) { c.LeastLoad.By = "queue" }, `policy.least_load.by: "queue", want requests or tokens`},
	} {
		cfg := Defaults()
		c.edit(&cfg)
		_, err := New(cfg, seeded(1))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want ...%s...", err, c.want)
		}
	}
	d := Defaults()
	if err := d.Validate(); err != nil {
		t.Error(err)
	}
}
