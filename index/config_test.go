package index

import (
	"strings"
	"testing"

	"kvasir/kv"
)

func TestValidate(t *testing.T) {
	var tiers [kv.NumTiers]TierLimit
	tiers[kv.Disk].Events = -1
	for _, c := range []struct {
		cfg  Config
		want []string // in the error; none: valid
	}{
		{Config{}, nil},
		{Config{MaxBytes: 1 << 20, MaxCopies: 1, Orphans: 1, OrphansPerTarget: 1}, nil},
		{Config{MaxBytes: 1000}, []string{"MaxBytes", "1000", "1048576"}},
		{Config{MaxCopies: -1}, []string{"MaxCopies", "-1"}},
		{Config{Orphans: -2}, []string{"Orphans", "-2"}},
		{Config{OrphansPerTarget: 1 << 31}, []string{"OrphansPerTarget", "2147483648"}},
		{Config{Target: TargetConfig{Copies: 9}}, []string{"Copies", "9", "first-remove"}},
		{Config{Target: TargetConfig{Tiers: tiers}}, []string{"Tiers[disk].Events", "-1"}},
	} {
		err := c.cfg.Validate()
		if (err == nil) != (c.want == nil) {
			t.Errorf("%+v: %v", c.cfg, err)
			continue
		}
		for _, w := range c.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%+v: %q doesn't name %s", c.cfg, err, w)
			}
		}
	}
	for m := Auto; m <= FirstRemove; m++ {
		if got, err := ParseCopyMode(m.String()); err != nil || got != m {
			t.Errorf("%v reads back as %v, %v", m, got, err)
		}
	}
	if _, err := ParseCopyMode("all"); err == nil || !strings.Contains(err.Error(), "last-copy") {
		t.Errorf("unknown mode: %v", err)
	}
}

// TestBadEvents: what is out of range costs only itself, and says so.
func TestBadEvents(t *testing.T) {
	ix := New(Config{Seed: testSeed})
	hs := []kv.Handle{1}
	for _, ev := range []*kv.Event{
		{Target: kv.MaxTargets, Handles: hs}, {Target: kv.NoTarget, Handles: hs}, {Tier: 3, Handles: hs}, {Kind: 9, Handles: hs},
		{Source: 7, Handles: hs}, {BlockSize: -16, Root: true, Handles: hs, Tokens: make([]uint32, 16)},
		{BlockSize: 1 << 30, Root: true, Handles: hs, Tokens: make([]uint32, 16)}, {BlockSize: 16, Root: true, Handles: hs, Tokens: make([]uint32, 15)},
		{Attention: 200, Handles: hs},
	} {
		if r := ix.Apply(ev); r.Reason == NotSkipped || r.Skipped != 1 || r.Reason.String() == "" {
			t.Errorf("%+v: %+v", ev, r)
		}
	}
	ix.Forget(kv.NoTarget)
	ix.SetTarget(kv.NoTarget, TargetConfig{})
	if s := ix.Stats(); s.Blocks != 0 || s.Totals.Events == 0 && s.Totals.Stored != 0 {
		t.Errorf("%+v", s)
	}
	// prompts that make no sense match nothing
	over := make([]kv.Overlap, 3)
	for _, p := range []*kv.Prompt{{}, {Tokens: -5, Chains: []kv.Chain{{BlockSize: 16, Hashes: make([]kv.Hash, 4)}}},
		{Tokens: 100, Chains: []kv.Chain{{BlockSize: 0, Hashes: make([]kv.Hash, 4)}}}, {Tokens: 100, Chains: []kv.Chain{{BlockSize: 16}}}} {
		over[1].GPU = 7
		if ix.Match(p, over); over[1] != (kv.Overlap{}) {
			t.Errorf("%+v: %+v", p, over)
		}
	}
	ix.Match(&kv.Prompt{Tokens: 100, Chains: []kv.Chain{{BlockSize: 16, Hashes: make([]kv.Hash, 4)}}}, nil)
}

// TestStatsAndDump: what is counted is what is dumped.
func TestStatsAndDump(t *testing.T) {
	for seed := range uint64(8) {
		ix, p := played(seed, 3000)
		s := ix.Stats()
		var tiers [kv.NumTiers]int64
		blocks, predicted := 0, int64(0)
		for b := range ix.dump() {
			blocks++
			for _, h := range b.Holders {
				switch {
				case h.Predicted:
					predicted++
				case !h.Sliding:
					for tier, in := range h.Tiers {
						if in {
							tiers[tier]++
						}
					}
				}
			}
		}
		var sum [kv.NumTiers]int64
		orphans := 0
		for id := range p.targets {
			ts := ix.TargetStats(kv.Target(id))
			orphans += ts.Orphans
			for tier, n := range ts.Blocks {
				sum[tier] += n
			}
		}
		if blocks != s.Blocks || predicted != s.Predicted || sum != s.Memberships || orphans != s.Orphans || !p.hybrid && tiers != s.Memberships {
			t.Errorf("seed %d: stats %+v; dumped %d blocks, %d predicted, %v by tier; targets have %v", seed, s, blocks, predicted, tiers, sum)
		}
	}
}
