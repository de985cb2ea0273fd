package policy

import (
	"testing"
	"time"

	"kvasir/kv"
)

func with(name string, edit func(*Config)) Config {
	c := named(name)
	if edit != nil {
		edit(&c)
	}
	return c
}

// One hot system prompt and a policy that follows it: the guard ends it.
func TestGuardPreventsHerding(t *testing.T) {
	run := func(cfg Config) []int {
		cands := fleet(4)
		cands[2].Overlap.GPU = 512
		return burst(must(t, cfg, seeded(1)), &Request{Tokens: 1000}, cands, 100)
	}
	if got := run(named("pure_affinity")); got[2] != 100 {
		t.Fatalf("without: %v: the failure is not there", got)
	}
	got := run(with("pure_affinity", func(c *Config) { c.Guard = Guard{Enabled: true, By: "tokens", Abs: 10000, Rel: 2} }))
	if maxOf(got) > 60 || got[2] < 25 {
		t.Errorf("with: %v", got)
	}
}

// It holds until the difference is half of what tripped it, or it would flap.
func TestGuardDoesNotFlap(t *testing.T) {
	p := must(t, with("pure_affinity", func(c *Config) { c.Guard = Guard{Enabled: true, By: "requests", Abs: 10, Rel: 1.5} }), lowestIndex)
	cands := fleet(2)
	cands[0].Overlap.GPU = 512
	switches, before := 0, 0
	for k := range 50 {
		cands[0].Load.Requests = 10 + k%2 // 10, 11, 10, 11, ...
		i := run(p, &Request{Tokens: 1000}, cands)
		if i != before {
			switches++
		}
		before = i
	}
	if switches != 1 {
		t.Errorf("%d switches around the threshold, want 1", switches)
	}
	cands[0].Load.Requests = 5
	if i := run(p, &Request{Tokens: 1000}, cands); i != 0 {
		t.Error("half the difference, and it still holds")
	}
}

// A target that came back empty never looks good to a policy that follows the
// cache.
func TestExploreWarmsWhatIsCold(t *testing.T) {
	serve := func(cfg Config) (share [3]int, marked int) {
		p := must(t, cfg, seeded(1))
		cands := fleet(3)
		cands[0].Overlap.GPU, cands[1].Overlap.GPU = 512, 512
		for range 3000 {
			req := &Request{Tokens: 600}
			share[run(p, req, cands)]++
			if req.Branch == "explore" {
				marked++
			}
		}
		return share, marked
	}
	if share, _ := serve(named("dynamo")); share[2] != 0 {
		t.Fatalf("without: %v: the failure is not there", share)
	}
	share, marked := serve(with("dynamo", func(c *Config) { c.Explore.Enabled = true; c.Explore.Share = .05 }))
	if share[2] < 40 || share[2] > 120 {
		t.Errorf("with: %v of 3000, want about 75 on the cold one", share)
	}
	if marked < 100 || marked > 200 {
		t.Errorf("%d marked, want about 150", marked)
	}
}

// Exploring is never dear: not where it would cost seconds.
func TestExploreIsBounded(t *testing.T) {
	p := must(t, with("marginal", func(c *Config) {
		c.Explore = Explore{Enabled: true, Share: .5, Extra: 2}
		c.Marginal.Coefficients = nominal
	}), seeded(1))
	cands := fleet(2)
	cands[0].Overlap.GPU = 99000
	for range 200 {
		if p.Pick(&Request{Tokens: 100000}, cands) != 0 {
			t.Fatal("100,000 tokens were computed again to warm a target")
		}
	}
}

// Serial requests leave nothing in flight, so that a fixed tie-break serves all
// from one target (10,000, 0, 0, 0).
func TestMinSpreadPreventsStarvation(t *testing.T) {
	serve := func(cfg Config) []int {
		cfg.PureAffinity.Ties = "lowest"
		p := must(t, cfg, seeded(1))
		cands := fleet(4)
		share := make([]int, 4)
		for k := range 10000 {
			share[run(p, &Request{Now: at(float64(k) * .1), Tokens: 500}, cands)]++
		}
		return share
	}
	if got := serve(named("pure_affinity")); got[0] != 10000 {
		t.Fatalf("without: %v: the failure is not there", got)
	}
	got := serve(with("pure_affinity", func(c *Config) { c.MinSpread.Enabled = true; c.MinSpread.Floor = .1 }))
	for i, n := range got {
		if n < 200 {
			t.Errorf("target %d got %d of 10,000, want at least a tenth of a fair share: %v", i, n, got)
		}
	}
	if got[0] < 8000 {
		t.Errorf("%v: it is a floor, not a policy", got)
	}
}

func TestMinSpreadLeavesAffinityAlone(t *testing.T) {
	p := must(t, with("pure_affinity", func(c *Config) { c.MinSpread.Enabled = true }), seeded(1))
	cands := fleet(4)
	cands[1].Overlap.GPU = 2000
	for k := range 1000 {
		if run(p, &Request{Now: at(float64(k)), Tokens: 3000}, cands) != 1 {
			t.Fatal("a request was taken from its cache")
		}
	}
	// Nor does it add to a target that is busier than the one picked.
	cold := fleet(2)
	cold[0].Load.Requests = 5
	for k := range 100 {
		if run(p, &Request{Now: at(2000 + float64(k)), Tokens: 500}, cold) != 1 {
			t.Fatal("spread to the busy one")
		}
	}
}

// After an autoscale event two targets cost about the same, and the session goes
// back and forth with every flicker of the load, leaving its cache behind.
func TestDwellPreventsOscillation(t *testing.T) {
	serve := func(cfg Config) (moves int) {
		p := must(t, cfg, seeded(1))
		cands := fleet(2)
		cands[0].Overlap.GPU, cands[1].Overlap.GPU = 8000, 8000
		before := -1
		for k := range 100 {
			cands[0].Load = kv.Load{DecodeBlocks: 1000 + 40*(k%2)}
			cands[1].Load = kv.Load{DecodeBlocks: 1000 + 40*((k+1)%2)}
			i := run(p, &Request{Now: at(float64(k) * 3), Tokens: 9000, SessionHash: 5}, cands)
			if i != before && before >= 0 {
				moves++
			}
			before = i
		}
		return moves
	}
	if n := serve(named("dynamo")); n != 99 {
		t.Fatalf("without: %d moves: the failure is not there", n)
	}
	if n := serve(with("dynamo", func(c *Config) { c.Dwell.Enabled = true })); n != 0 {
		t.Errorf("with: %d moves in 100 turns, want none", n)
	}
}

func TestDwellLetsGo(t *testing.T) {
	cfg := with("dynamo", func(c *Config) { c.Dwell.Enabled = true })
	for _, c := range []struct {
		name  string
		edit  func(cands []Candidate) []Candidate
		after float64
		want  kv.Target
	}{
		{"stays for a small gain", func(c []Candidate) []Candidate { return c }, 1, 0},
		{"a gain of a tenth", func(c []Candidate) []Candidate { c[0].Load.DecodeBlocks = 2000; return c }, 1, 1},
		{"its target is gone", func(c []Candidate) []Candidate { return c[1:] }, 1, 1},
		{"it would wait for seconds", func(c []Candidate) []Candidate { c[0].Load.Wait = 3 * time.Second; return c }, 1, 1},
		{"its time is over", func(c []Candidate) []Candidate { return c }, 11, 1},
	} {
		p := must(t, cfg, lowestIndex)
		cands := fleet(3)
		cands[2].Load.DecodeBlocks = 5000
		cands[1].Load.DecodeBlocks = 5
		cands[0].Load.DecodeBlocks = 1
		if i := run(p, &Request{Now: at(0), Tokens: 1600, SessionHash: 9}, cands); i != 0 {
			t.Fatal(i)
		}
		cands[0].Load.DecodeBlocks = 10 // costs 110 against 105
		now := c.edit(cands)
		if got := now[run(p, &Request{Now: at(c.after), Tokens: 1600, SessionHash: 9}, now)].Target; got != c.want {
			t.Errorf("%s: target %d, want %d", c.name, got, c.want)
		}
		// Another session isn't bound.
		if got := now[p.Pick(&Request{Now: at(c.after), Tokens: 1600, SessionHash: 10}, now)].Target; got == 2 {
			t.Error("another session went to the loaded one")
		}
	}
}

// The table is bounded, and full sets give way oldest first.
func TestDwellTableIsBounded(t *testing.T) {
	p := must(t, with("round_robin", func(c *Config) { c.Dwell.Enabled = true }), seeded(1)).(*dwell)
	cands := fleet(2)
	for k := range 200000 {
		p.Placed(&Request{Now: at(float64(k)), SessionHash: h64(uint64(k)) | 1}, cands, k%2)
	}
	if p.find(h64(199999)|1) == nil {
		t.Error("the last session isn't there")
	}
	p.Forget(0)
	for i := range p.table {
		for _, s := range p.table[i] {
			if s.session != 0 && s.target == 0 {
				t.Fatal("a forgotten target is left")
			}
		}
	}
}

// hot plays n requests under one system prompt of 32 blocks that don't end; each
// target holds what it was sent.
func hot(t *testing.T, cfg Config, n int) []int {
	p := must(t, cfg, seeded(1))
	cands := fleet(4)
	share := make([]int, 4)
	for k := range n {
		req := &Request{Now: at(float64(k) * .01), Tokens: 700, BlockSize: 16}
		for d := range 43 {
			h := uint64(d)
			if d >= 32 {
				h += uint64(k+1) << 32
			}
			req.Hashes = append(req.Hashes, kv.Hash(h64(h)))
		}
		i := run(p, req, cands)
		share[i]++
		cands[i].Overlap.GPU = 512
		cands[i].Load.Requests++
		cands[i].Load.Prefilling++
	}
	return share
}

func TestHotPrefixPreventsOneHotTarget(t *testing.T) {
	if got := hot(t, named("pure_affinity"), 400); maxOf(got) != 400 {
		t.Fatalf("without: %v: the failure is not there", got)
	}
	got := hot(t, with("pure_affinity", func(c *Config) { c.HotPrefix.Enabled = true }), 400)
	if maxOf(got) > 120 {
		t.Errorf("with: %v, want the prefix on all four", got)
	}
}

// A sketch of 256 counters under a flood of unique hashes: only what is frequent
// is called frequent, and it fades.
func TestSketch(t *testing.T) {
	var s sketch
	for k := range 20000 {
		s.tick(at(float64(k)*.001), time.Minute)
		if k%4 == 0 {
			s.add(1)
		}
		s.add(kv.Hash(h64(uint64(k))))
	}
	if got := s.share(1); got < .2 || got > .26 {
		t.Errorf("share %v, want about 1/4", got)
	}
	for k := 19000; k < 20000; k++ {
		if got := s.share(kv.Hash(h64(uint64(k)))); got > .01 {
			t.Fatalf("a hash that came once has a share of %v", got)
		}
	}
	for k := range 2000 {
		s.tick(at(20+float64(k)*.3), time.Minute) // ten half-lives without it
	}
	if got := s.share(1); got > .02 {
		t.Errorf("ten minutes later the share is still %v", got)
	}
}

// An open queue: without shedding everyone is late; with it who is admitted is in
// time, and nobody is refused who could have been.
func TestShedPreventsThatAllAreLate(t *testing.T) {
	serve := func(cfg Config) (late, served, refused int) {
		cfg.Marginal.Coefficients = nominal
		p := must(t, cfg, seeded(1))
		cands := fleet(2)
		for range 100 { // at one moment
			req := &Request{Now: t0, Tokens: 20000}
			i := p.Pick(req, cands)
			soonest := min(cands[0].Load.Wait+cands[0].Prefill, cands[1].Load.Wait+cands[1].Prefill)
			if why, no := p.Shed(req, cands, i); no {
				if soonest <= 5*time.Second {
					t.Fatal("refused what could be in time")
				}
				// Once the least of the queues is this much shorter.
				if over := soonest - 5*time.Second; why.Retry < over || why.Retry > over+time.Second {
					t.Fatalf("retry after %v, it would be late by %v", why.Retry, over)
				}
				if !why.Late || why.Deadline != 5*time.Second || (why.Soonest-soonest).Abs() > time.Microsecond || (why.Alone-cands[0].Prefill).Abs() > time.Microsecond {
					t.Fatalf("%+v, of %v", why, soonest)
				}
				refused++
				continue
			}
			p.Placed(req, cands, i)
			if cands[i].Load.Wait+cands[i].Prefill > 5*time.Second {
				late++
			}
			served++
			cands[i].Load.Wait += cands[i].Prefill
		}
		return
	}
	if late, _, _ := serve(named("marginal")); late < 90 {
		t.Fatalf("without: %d late: the failure is not there", late)
	}
	late, served, refused := serve(with("marginal", func(c *Config) { c.Shed.Enabled = true; c.Shed.Deadline = 5 * time.Second }))
	if late != 0 || served != 6 || refused != 94 { // 1.35 s each, three fit into 5 s on each of two
		t.Errorf("with: %d late, %d served, %d refused", late, served, refused)
	}
}

func TestShedByPriority(t *testing.T) {
	p := must(t, with("least_load", func(c *Config) { c.Shed.Enabled = true }), seeded(1))
	cands := fleet(2)
	ask := func(priority int) bool {
		_, no := p.Shed(&Request{Now: t0, Tokens: 100, Priority: priority}, cands, 0)
		return no
	}
	cands[0].Engine = kv.Gauge{At: t0, Waiting: 9}
	if ask(-1) {
		t.Error("refused while one target has room")
	}
	cands[1].Engine = kv.Gauge{At: t0, KVUsage: .85}
	if !ask(-1) || ask(0) {
		t.Error("saturated: want priority -1 refused and 0 not")
	}
	cands[1].Engine.At = time.Time{}
	if ask(-1) {
		t.Error("refused by a stale figure")
	}
}

// The deepest hot prefix is replicated in proportion to its share.
func TestHotPrefixDegree(t *testing.T) {
	p := must(t, with("pure_affinity", func(c *Config) { c.HotPrefix.Enabled = true }), lowestIndex).(*hotPrefix)
	cands := fleet(10)
	mine := func(k uint64) *Request {
		return &Request{Now: at(float64(k)), Tokens: 100, BlockSize: 16, Hashes: []kv.Hash{kv.Hash(k)}}
	}
	for k := range uint64(1000) {
		if k%4 == 0 {
			p.Placed(mine(7), cands, 0)
		} else {
			p.Placed(mine(1000+k), cands, 0)
		}
	}
	// A quarter of the traffic on ten targets: ceil(.25*10/.8) = 4.
	for n := range 10 {
		for i := range cands {
			cands[i].Overlap.GPU = 0
			if i <= n {
				cands[i].Overlap.GPU = 96
			}
			cands[i].Load.Prefilling = 1
		}
		i := p.Pick(mine(7), cands)
		if holders := n + 1; (i > n) != (holders < 4) {
			t.Errorf("%d holders: placed on %d", holders, i)
		}
	}
	// An idle holder is left alone.
	for i := range cands {
		cands[i].Overlap.GPU, cands[i].Load.Prefilling = 0, 0
	}
	cands[3].Overlap.GPU = 96
	if i := p.Pick(mine(7), cands); i != 3 {
		t.Errorf("idle holder: placed on %d", i)
	}
}

// Serial agents (AMD-AGI/Infera#103: 448 of 448 requests on one replica): 8
// sessions of 28 turns behind a system prompt of 2 blocks, one request at a time,
// so that nothing is in flight when the choice is made.
func serialAgents(t *testing.T, cfg Config) (sessions [2]int, stayed int) {
	p := must(t, cfg, seeded(1))
	cands := fleet(2)
	var held [8][2]int // tokens of each session on each target
	system := [2]int{}
	home := [8]int{-1, -1, -1, -1, -1, -1, -1, -1}
	now := 0.
	for turn := range 28 {
		for s := range held {
			now += 2
			for i := range cands {
				cands[i].Overlap.GPU = int32(max(held[s][i], system[i]))
			}
			n := 32 + (turn+1)*600
			i := run(p, &Request{Now: at(now), Tokens: n, SessionHash: uint64(s + 1)}, cands)
			held[s][i], system[i] = n, 32
			if home[s] < 0 {
				sessions[i]++
			} else if home[s] == i {
				stayed++
			}
			home[s] = i
		}
	}
	return sessions, stayed
}

func TestSerialAgentsSpread(t *testing.T) {
	for _, name := range []string{"dynamo", "marginal", "lmetric"} {
		known := func(c *Config) { c.Marginal.Coefficients = nominal }
		if got, _ := serialAgents(t, with(name, known)); got[0] != 8 && got[1] != 8 {
			t.Errorf("%s without: %v: the failure is not there", name, got)
		}
		got, stayed := serialAgents(t, with(name, func(c *Config) { known(c); c.MinSpread.Enabled = true }))
		if max(got[0], got[1]) > 6 {
			t.Errorf("%s with: sessions placed %v, want at most 70 %% on one", name, got)
		}
		if stayed < 8*27*9/10 {
			t.Errorf("%s: only %d of %d later turns went home", name, stayed, 8*27)
		}
	}
}
