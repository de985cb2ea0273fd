package policy

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// A Config names a policy and holds the settings of all of them: those of others
// than the named one, and of the combinators that are off, have no effect. Start
// from Defaults.
type Config struct {
	Name         string       `yaml:"name"`
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

// Defaults returns the settings with which every policy behaves as its original
// does, or as package docs say where it has none.
func Defaults() Config {
	return Config{
		Name:         "auto",
		Dynamo:       defaultDynamo(),
		Marginal:     defaultMarginal(),
		Steer:        defaultSteer(),
		LeastLoad:    LeastLoad{By: "requests"},
		Session:      Session{VirtualNodes: 100, Fallback: "least_load"},
		HRW:          HRW{Fallback: "least_load"},
		CHWBL:        CHWBL{VirtualNodes: 100, LoadFactor: 1.25, Floor: 2, Key: "session", Fallback: "least_load"},
		PrefixHash:   PrefixHash{Tokens: 256, LoadFactor: 1.25, Fallback: "least_load"},
		PureAffinity: PureAffinity{Ties: "load"},
		LMetric:      LMetric{Backlog: true},
		Weighted:     Weighted{Alpha: 1},
		RayPrefix:    defaultRayPrefix(),
		SGLang:       defaultSGLang(),
		LLMD:         defaultLLMD(),

		Guard:     Guard{By: "tokens", Abs: 100000, Rel: 2},
		Explore:   Explore{Share: .01, Extra: 2},
		MinSpread: MinSpread{Floor: .6, Window: time.Minute, Cold: 1024},
		Dwell:     Dwell{For: 10 * time.Second, Gain: .1, Step: .01, MaxWait: 2 * time.Second},
		HotPrefix: HotPrefix{HalfLife: time.Minute, Hot: 1.25, Fill: .8},
		Shed:      Shed{Queue: 5, KVUsage: .8},
	}
}

// Validate returns an error that names the first field with a bad value, the
// value, and what is accepted.
func (c *Config) Validate() error {
	if err := checkName("policy.name", c.Name, Names()); err != nil {
		return err
	}
	for _, check := range []func() error{
		c.Dynamo.validate,
		c.Marginal.validate,
		c.Steer.validate,
		c.LeastLoad.validate,
		c.Session.validate,
		c.HRW.validate,
		c.CHWBL.validate,
		c.PrefixHash.validate,
		c.PureAffinity.validate,
		c.Weighted.validate,
		c.RayPrefix.validate,
		c.SGLang.validate,
		c.LLMD.validate,
		c.Guard.validate,
		c.Explore.validate,
		c.MinSpread.validate,
		c.Dwell.validate,
		c.HotPrefix.validate,
		c.Shed.validate,
	} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// checkRange accepts finite lo <= v <= hi.
func checkRange(field string, v, lo, hi float64) error {
	if v >= lo && v <= hi && !math.IsInf(v, 0) {
		return nil
	}
	if math.IsInf(hi, 1) {
		return fmt.Errorf("%s is %v: must be a finite number of at least %v", field, v, lo)
	}
	return fmt.Errorf("%s is %v: must be between %v and %v", field, v, lo, hi)
}

func checkInt(field string, v, lo, hi int) error {
	if v >= lo && v <= hi {
		return nil
	}
	return fmt.Errorf("%s is %d: must be between %d and %d", field, v, lo, hi)
}

func checkDuration(field string, v, lo, hi time.Duration) error {
	if v >= lo && v <= hi {
		return nil
	}
	return fmt.Errorf("%s is %v: must be between %v and %v", field, v, lo, hi)
}

var infinity = math.Inf(1)

// checkName accepts one of names, and suggests the nearest otherwise.
func checkName(field, v string, names []string) error {
	best, dist := "", math.MaxInt
	for _, n := range names {
		if n == v {
			return nil
		}
		if d := distance(v, n); d < dist {
			best, dist = n, d
		}
	}
	hint := ""
	if dist <= 1+len(best)/3 {
		hint = fmt.Sprintf(" (did you mean %q?)", best)
	}
	return fmt.Errorf("%s is %q%s: must be one of %s", field, v, hint, strings.Join(names, ", "))
}

// distance is the number of letters to insert, delete or change between a and b,
// where "-" and "_" are the same.
func distance(a, b string) int {
	a, b = strings.ReplaceAll(strings.ToLower(a), "-", "_"), strings.ToLower(b)
	if len(a) > 64 {
		return math.MaxInt - 1
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diag := row[0]
		row[0] = i + 1
		for j := range len(b) {
			up := row[j+1]
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(diag+cost, up+1, row[j]+1)
			diag = up
		}
	}
	return row[len(b)]
}
