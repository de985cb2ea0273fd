package policy

import (
	"testing"
	"time"

	"kvasir/kv"
)

// An engine computes at least one token, even of a prompt that it holds whole (or whose
// length was guessed too low).
func TestMarginalComputesOneToken(t *testing.T) {
	p := must(t, named("marginal"), lowestIndex)
	cands := fleet(1)
	for _, held := range []int32{31, 32, 48} {
		cands[0].Overlap.GPU = held
		p.Pick(&Request{Tokens: 32}, cands)
		if cands[0].Uncached != 1 {
			t.Errorf("%d of 32 held: %d tokens are booked, want 1", held, cands[0].Uncached)
		}
	}
}

// A figure that is wrong by far books no more than an hour.
func TestMarginalBooksAnHourAtMost(t *testing.T) {
	cfg := named("marginal")
	cfg.Marginal.Coefficients, cfg.Marginal.Learn = nominal, false
	cfg.Marginal.Coefficients.PrefillToken = 1 // second
	p := must(t, cfg, lowestIndex)
	cands := fleet(1)
	p.Pick(&Request{Tokens: 100_000}, cands)
	if cands[0].Prefill != time.Hour {
		t.Errorf("%v are booked, want 1 h", cands[0].Prefill)
	}
}

// Eight requests are enough to tell that a prefix is hot, seven aren't.
func TestHotAfterEight(t *testing.T) {
	var s sketch
	for n := 1; n <= 9; n++ {
		s.tick(t0, time.Minute)
		s.add(kv.Hash(7))
		want := 0.
		if n >= 8 {
			want = 1
		}
		if got := s.share(7); got != want {
			t.Errorf("after %d requests: a share of %v, want %v", n, got, want)
		}
	}
}

// What each policy needs, so that what is missing can be told.
func TestNeedsOfTheRest(t *testing.T) {
	for _, c := range []struct {
		cfg  Config
		want Need
	}{
		{named("auto"), Need{Events: true, Tokens: true, Dispatch: true}},
		{named("steer"), Need{Events: true, Tokens: true, Dispatch: true}},
		{named("hrw"), Need{Session: true}},
		{named("chwbl"), Need{Session: true}},
		{with("chwbl", func(c *Config) { c.CHWBL.Key = "prefix" }), Need{Tokens: true}},
		{named("prefix_hash"), Need{Tokens: true}},
		{named("llmd_precise"), Need{Tokens: true, Events: true, Engine: true, Blocks: true}},
		{with("llmd_precise", func(c *Config) { c.LLMD.Speculative = true }), Need{Tokens: true, Events: true, Dispatch: true, Engine: true, Blocks: true}},
		{named("lmetric"), Need{Tokens: true, Events: true}},
		{with("lmetric", func(c *Config) { c.LMetric.Predicted = true }), Need{Tokens: true, Events: true, Dispatch: true}},
		{named("pure_affinity"), Need{Tokens: true, Events: true}},
		{with("pure_affinity", func(c *Config) { c.PureAffinity.Predicted = true }), Need{Tokens: true, Events: true, Dispatch: true}},
		{named("weighted"), Need{Tokens: true, Events: true, Dispatch: true, Engine: true, Blocks: true}},
		{named("sglang_cache_aware"), Need{Text: true, Between: " "}},
		{with("sglang_cache_aware", func(c *Config) { c.SGLang.BalanceUsage = .5 }), Need{Text: true, Between: " ", Engine: true}},
		{with("sglang_cache_aware", func(c *Config) { c.SGLang.OverloadUsage = .5 }), Need{Text: true, Between: " ", Engine: true}},
		{with("sglang_cache_aware", func(c *Config) { c.SGLang.Match = "index" }), Need{Between: " ", Tokens: true, Dispatch: true}},
		{with("sglang_cache_aware", func(c *Config) { c.SGLang.Match = "events" }), Need{Between: " ", Tokens: true, Dispatch: true, Events: true}},
		{with("random", func(c *Config) { c.HotPrefix.Enabled = true }), Need{Tokens: true, Dispatch: true}},
		{with("random", func(c *Config) { c.MinSpread.Enabled = true }), Need{Dispatch: true}},
	} {
		if got := Needs(c.cfg); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.cfg.Name, got, c.want)
		}
	}
}
