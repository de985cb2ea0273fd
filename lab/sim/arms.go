package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"kvasir/lab/mock"
	"kvasir/policy"
)

// An arm is a policy under test: one of the product's, or a twin of the
// reference simulator.
type arm struct {
	name   string
	config policy.Config
	twin   *twin
}

// A preset is a product policy under settings of its own.
type preset struct {
	name string // policy:settings
	set  func(c *policy.Config, p mock.Profile)
}

// presets are product policies under settings that the tables compare. A name
// without one is the policy's own defaults.
var presets = []preset{
	{"dynamo:prefill8", func(c *policy.Config, _ mock.Profile) { c.Dynamo.PrefillScale = 8 }},
	{"dynamo:decay1", func(c *policy.Config, _ mock.Profile) { c.Dynamo.CreditDecay = 1 }},
	{"dynamo:credit0", func(c *policy.Config, _ mock.Profile) { c.Dynamo.OverlapCredit = 0 }},
	// The agentic preset is tuned for blocks of 16; w is in blocks, so it is
	// rescaled to 512 (docs/mock.md, "Sweeps").
	{"dynamo:agentic", func(c *policy.Config, _ mock.Profile) {
		c.Dynamo.OverlapCredit, c.Dynamo.PrefillScale, c.Dynamo.RequestWeight = 2, 4, 2
	}},
	{"dynamo:predict", func(c *policy.Config, _ mock.Profile) { c.Dynamo.Predicted = true }},
	{"dynamo:trackout", func(c *policy.Config, _ mock.Profile) { c.Dynamo.OutputBlocks = true }},
	{"sglang_cache_aware:library", func(c *policy.Config, _ mock.Profile) { library(c) }},
	// By exact knowledge of the caches, as the reference plays it; its original, and what
	// users run, remembers the text that it has sent.
	{"sglang_cache_aware:reference", func(c *policy.Config, _ mock.Profile) {
		library(c)
		c.SGLang.Match = "index"
	}},
	{"lmetric:predicted", func(c *policy.Config, _ mock.Profile) { c.LMetric.Predicted = true }},
	{"ray_prefix:threshold10", func(c *policy.Config, _ mock.Profile) { c.RayPrefix.Imbalance = 10 }},
	{"least_load:tokens", func(c *policy.Config, _ mock.Profile) { c.LeastLoad.By = "tokens" }},
	// The engine's constants are given, not learned: what the reference knows.
	{"marginal:known", func(c *policy.Config, p mock.Profile) { known(c, p) }},
	{"marginal:wp", func(c *policy.Config, p mock.Profile) {
		known(c, p)
		c.Marginal.Kappa, c.Marginal.Delta, c.Marginal.Omega, c.Marginal.Memory, c.Marginal.Evict = 0, 0, 0, 0, 0
	}},
	// The formula as the reference has it: without the prices for memory, and with
	// constant ones for decoding.
	{"marginal:reference", func(c *policy.Config, p mock.Profile) {
		known(c, p)
		c.Marginal.Memory, c.Marginal.Evict, c.Marginal.DecodeTop = 0, 0, 0
	}},
	{"marginal:111", func(c *policy.Config, p mock.Profile) {
		known(c, p)
		c.Marginal.Delta, c.Marginal.Omega = 1, 1
	}},
	{"marginal:hot_prefix", func(c *policy.Config, _ mock.Profile) { c.HotPrefix.Enabled = true }},
	{"steer:hot_prefix", func(c *policy.Config, _ mock.Profile) { c.HotPrefix.Enabled = true }},
}

// combos are policies inside a combinator each. They are apart from the presets:
// what they prevent is seen in faults, and "all" needn't play them.
var combos = []preset{
	{"marginal:guard", func(c *policy.Config, _ mock.Profile) { c.Guard.Enabled = true }},
	{"marginal:explore", func(c *policy.Config, _ mock.Profile) { c.Explore.Enabled = true }},
	{"marginal:min_spread", func(c *policy.Config, _ mock.Profile) { c.MinSpread.Enabled = true }},
	{"marginal:dwell", func(c *policy.Config, _ mock.Profile) { c.Dwell.Enabled = true }},
	// Refuses what no replica could begin to answer within 10 s.
	{"marginal:shed", func(c *policy.Config, _ mock.Profile) { c.Shed.Enabled, c.Shed.Deadline = true, 10*time.Second }},
	{"dynamo:hot_prefix", func(c *policy.Config, _ mock.Profile) { c.HotPrefix.Enabled = true }},
	{"dynamo:dwell", func(c *policy.Config, _ mock.Profile) { c.Dwell.Enabled = true }},
	{"session:guard", func(c *policy.Config, _ mock.Profile) { c.Guard.Enabled = true }},
	{"pure_affinity:guard", func(c *policy.Config, _ mock.Profile) { c.Guard.Enabled = true }},
}

// Combinators returns the names of the policies inside a combinator.
func Combinators() []string {
	var list []string
	for _, p := range combos {
		list = append(list, p.name)
	}
	return list
}

// settings are all of them.
func settings() []preset { return slices.Concat(presets, combos) }

// library sets what SGLang's router has as defaults where it is used as a library.
func library(c *policy.Config) {
	c.SGLang.CacheThreshold, c.SGLang.BalanceAbs, c.SGLang.BalanceRel, c.SGLang.RandomTies = .5, 32, 1.1, true
}

func known(c *policy.Config, p mock.Profile) {
	c.Marginal.Learn = false
	c.Marginal.Coefficients = policy.Coefficients{PrefillToken: p.CP, Attention: p.CA, Step: p.C0,
		DecodeStep: p.C0, DecodeRequest: p.CD, DecodeToken: p.CKV}
}

// Arms returns the names that Config.Policies accepts: the product's policies,
// presets of them ("dynamo:prefill8"), some inside a combinator ("marginal:dwell";
// "combinators" stands for these), and the twins of the reference simulator
// ("ref:dynamo", "ref:POOL").
func Arms() []string {
	list := policy.Names()
	for _, p := range settings() {
		list = append(list, p.name)
	}
	for _, t := range twins() {
		list = append(list, "ref:"+t.name)
	}
	return list
}

// resolve turns names into arms.
func resolve(policies []string, profile mock.Profile) ([]arm, error) {
	var arms []arm
	seen := map[string]bool{}
	add := func(name string) error {
		a, err := armOf(name, profile)
		if err == nil && !seen[name] {
			seen[name] = true
			arms = append(arms, a)
		}
		return err
	}
	for _, name := range policies {
		switch name {
		case "all":
			for _, n := range policy.Names() {
				if err := add(n); err != nil {
					return nil, err
				}
			}
			for _, p := range presets {
				if err := add(p.name); err != nil {
					return nil, err
				}
			}
		case "combinators":
			for _, p := range Combinators() {
				if err := add(p); err != nil {
					return nil, err
				}
			}
		case "ref:all":
			for _, t := range twins() {
				if err := add("ref:" + t.name); err != nil {
					return nil, err
				}
			}
		default:
			if err := add(name); err != nil {
				return nil, err
			}
		}
	}
	return arms, nil
}

func armOf(name string, profile mock.Profile) (arm, error) {
	if ref, ok := strings.CutPrefix(name, "ref:"); ok {
		for _, t := range twins() {
			if t.name == ref {
				return arm{name: name, twin: &t}, nil
			}
		}
		var have []string
		for _, t := range twins() {
			have = append(have, "ref:"+t.name)
		}
		return arm{}, fmt.Errorf("policy %q is unknown: the reference's are %s", name, strings.Join(have, ", "))
	}
	c := policy.Defaults()
	base, preset, ok := strings.Cut(name, ":")
	c.Name = base
	if ok {
		found := false
		for _, p := range settings() {
			if p.name == name {
				p.set(&c, profile)
				found = true
			}
		}
		if !found {
			var have []string
			for _, p := range settings() {
				if strings.HasPrefix(p.name, base+":") {
					have = append(have, p.name)
				}
			}
			return arm{}, fmt.Errorf("policy %q: no preset %q of %s: there are %q", name, preset, base, have)
		}
	}
	if err := c.Validate(); err != nil {
		return arm{}, err
	}
	return arm{name: name, config: c}, nil
}
