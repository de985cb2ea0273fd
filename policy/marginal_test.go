package policy

import (
	"math"
	"testing"
	"time"

	"kvasir/kv"
	"kvasir/policy/learn"
)

func seconds(s float64) time.Duration { return time.Duration(math.Round(s * 1e9)) }

// A worked example, computed with the reference simulator (docs/cost.md, "Where it comes from").
func TestMarginalWorkedExample(t *testing.T) {
	cfg := named("marginal")
	cfg.Marginal.Coefficients = nominal
	cfg.Marginal.Output = 300
	p := must(t, cfg, lowestIndex)
	cands := fleet(3)
	cands[0].Overlap.GPU = 600 * 16
	cands[0].Load = kv.Load{Requests: 4, Prefilling: 1, Prompt: 50000, Decode: 38000, Wait: 60 * time.Millisecond}
	cands[1].Overlap.GPU = 100 * 16
	cands[1].Load = kv.Load{Requests: 2, Prompt: 16000, Decode: 16000}
	if i := p.Pick(&Request{Tokens: 12000}, cands); i != 0 {
		t.Errorf("picked %d, want 0", i)
	}
	for i, want := range []struct{ own, delta, omega, cost float64 }{
		{.172558, .1287, .12384, .657656}, {.654096, .04248, .06192, 1.412592}, {.7352, 0, 0, 1.4704},
	} {
		c := &cands[i]
		for _, f := range []struct {
			name      string
			got, want float64
		}{{"own", c.Terms[1], want.own}, {"delta", c.Terms[3], want.delta}, {"omega", c.Terms[4], want.omega}, {"cost", c.Cost, want.cost}, {"booked", c.Prefill.Seconds(), want.own}} {
			if math.Abs(f.got-f.want) > 5e-7 {
				t.Errorf("%d: %s is %.6f, want %.6f", i, f.name, f.got, f.want)
			}
		}
	}
}

// While nothing is known the cost is one of tokens: the holder wins until what
// it owes outweighs what it holds.
func TestMarginalUncalibrated(t *testing.T) {
	p := must(t, named("marginal"), lowestIndex)
	cands := fleet(2)
	cands[1].Overlap.GPU = 4000
	req := &Request{Tokens: 5000}
	if i := p.Pick(req, cands); i != 1 {
		t.Errorf("idle: picked %d, want the holder", i)
	}
	cands[1].Load = kv.Load{Requests: 3, Prefilling: 3, Prefill: 30000, Prompt: 30000}
	if i := p.Pick(req, cands); i != 0 {
		t.Errorf("30,000 tokens owed: picked %d, want the idle one", i)
	}
}

// seen returns a marginal that knows the known engine, and has placed on n targets.
func seen(t *testing.T, n int) (*marginal, []Candidate) {
	t.Helper()
	p := must(t, named("marginal"), seeded(1)).(*marginal)
	cands := fleet(n)
	for i := range cands {
		p.Placed(&Request{}, cands, i)
	}
	return p, cands
}

// learnt tells p of 50 first tokens on target t, and of 50 ends of 100 tokens each. The
// last ones are at `now`.
func learnt(p *marginal, t kv.Target, slower float64, now time.Time) {
	k := learn.KnownEngine()
	for n := range 50 {
		u := 200 + n*30
		p.FirstToken(&kv.FirstToken{Now: now, Target: t, Prompt: u, Alone: true, Latency: seconds(slower * k.PrefillTime(u, 0, 8192, 0, 0)), MaxBatch: 8192})
		p.Done(&kv.Done{Now: now, Target: t, Output: 100, Streaming: seconds(slower * 99 * k.DecodeStep), Requests: 1})
	}
}

// What is told to marginal is learned, prices with it, and can be seen.
func TestMarginalLearns(t *testing.T) {
	p, cands := seen(t, 2)
	p.Pick(&Request{Tokens: 500}, cands)
	if l, ok := p.Learned(0); !ok || l.Known || cands[0].Prefill != 0 {
		t.Fatalf("claims to know what it has not seen: %+v", l)
	}
	for range 3 {
		learnt(p, 0, 20, at(1))
		learnt(p, 1, 40, at(2))
	}
	a, _ := p.Learned(0)
	b, _ := p.Learned(1)
	if !a.Known || !b.Prefill.Clear || !b.Prefill.Last.Equal(at(2)) || a.Output != 100 {
		t.Errorf("%+v\n%+v", a, b)
	}
	p.Pick(&Request{Tokens: 500}, cands)
	for i, l := range []learn.Learned{a, b} {
		if got, want := cands[i].Prefill.Seconds(), l.PrefillTime(500, 0, 8192, 0, 0); math.Abs(got-want) > 1e-8 || got < 20*.5*nominal.PrefillToken*500 {
			t.Errorf("target %d: prefill is priced at %v s, learned %v", i, got, want)
		}
	}
	p.Forget(1)
	if l, _ := p.Learned(1); l.Prefill.Samples != 0 {
		t.Errorf("a forgotten target's number still has %+v", l)
	}
}

// What has been learned outlives a restart, under other numbers.
func TestMarginalState(t *testing.T) {
	a, cands := seen(t, 2)
	for range 3 {
		learnt(a, 0, 20, at(1))
		learnt(a, 1, 40, at(2))
	}
	b := must(t, named("marginal"), seeded(1)).(*marginal)
	if err := b.LoadState(a.AppendState(nil)); err != nil {
		t.Fatal(err)
	}
	cands[0].Target, cands[1].Target = 1, 0
	b.Placed(&Request{}, cands, 0)
	b.Placed(&Request{}, cands, 1)
	got, _ := b.Learned(0)
	want, _ := a.Learned(1)
	if got.Coefficients != want.Coefficients || got.Prefill.Samples != want.Prefill.Samples || !got.Prefill.Clear {
		t.Errorf("%+v after the restart, want %+v", got, want)
	}
	if err := b.LoadState([]byte("{")); err == nil {
		t.Error("accepted half a file")
	}
}

// A busy period in which a request was sent though memory was short teaches nothing: it
// is longer than its prefills take.
func TestMarginalLeavesOutWaitsForMemory(t *testing.T) {
	for _, short := range []bool{false, true} {
		p, cands := seen(t, 1)
		cands[0].BlockSize, cands[0].Blocks = 32, 256
		if short {
			cands[0].Load = kv.Load{Requests: 5, DecodeBlocks: 300}
		}
		p.Placed(&Request{Now: at(10), Tokens: 1000, BlockSize: 32}, cands, 0)
		for k := range 3 {
			p.FirstToken(&kv.FirstToken{Now: at(11 + float64(k)), Target: 0, Prompt: 1000, Alone: k == 0, Joined: 2000, Latency: time.Second, MaxBatch: 2048,
				Busy: kv.BusyPeriod{For: seconds(float64(k) + 1.1), Admitted: 3, Owing: 2 - k}})
		}
		for range 13 { // with three more, enough to begin with
			p.FirstToken(&kv.FirstToken{Now: at(99), Target: 0, Prompt: 1000, Alone: true, Latency: time.Second, MaxBatch: 2048})
		}
		if l, _ := p.Learned(0); l.Known == short {
			t.Errorf("memory short %v: known %v", short, l.Known)
		}
	}
}
