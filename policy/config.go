package policy

import (
	"math"

	"kvasir/setting"
)

// A Config names a policy and holds the settings of all of them: those of others
// than the named one, and of the combinators that are off, have no effect. Start
// from Defaults.
type Config struct {
	// Name is the policy. `kvasir check` says what each does.
	Name string `yaml:"name" default:"auto" oneof:"*"`

	Dynamo       Dynamo       `yaml:"dynamo"`
	Marginal     Marginal     `yaml:"marginal"`
	Steer        Steer        `yaml:"steer"`
	LeastLoad    LeastLoad    `yaml:"least_load"`
	Session      Session      `yaml:"session"`
	HRW          HRW          `yaml:"hrw"`
	CHWBL        CHWBL        `yaml:"chwbl"`
	PrefixHash   PrefixHash   `yaml:"prefix_hash"`
	PureAffinity PureAffinity `yaml:"pure_affinity"`
	LMetric      LMetric      `yaml:"lmetric"`
	Weighted     Weighted     `yaml:"weighted"`
	RayPrefix    RayPrefix    `yaml:"ray_prefix"`
	SGLang       SGLang       `yaml:"sglang_cache_aware"`
	LLMD         LLMD         `yaml:"llmd"`

	// Combinators, around any policy.

	Guard     Guard     `yaml:"guard"`
	Explore   Explore   `yaml:"explore"`
	MinSpread MinSpread `yaml:"min_spread"`
	Dwell     Dwell     `yaml:"dwell"`
	HotPrefix HotPrefix `yaml:"hot_prefix"`
	Shed      Shed      `yaml:"shed"`
}

// Choices returns the names of all policies.
func (Config) Choices(string) []string { return Names() }

// Defaults returns the settings with which every policy behaves as its original
// does, or as package docs say where it has none.
func Defaults() Config { return setting.Defaults[Config]() }

// Validate returns an error that names the first field with a bad value, the
// value, and what is accepted.
func (c *Config) Validate() error { return setting.Check("policy.", c) }

var infinity = math.Inf(1)

// Resolved returns the settings with auto and presets replaced by what they stand
// for: the policy decides as before.
func (c Config) Resolved() Config {
	c.resolve()
	c.Dynamo = c.Dynamo.Effective()
	return c
}
