package policy

import "fmt"

// names of the policies, and what each does in a line.
var names = [][2]string{
	{"auto", "what we recommend and the default: marginal, with hot prefixes spread over several targets"},
	{"chwbl", "session key on a ring, with a bound on each target's requests"},
	{"dynamo", "NVIDIA Dynamo's cost: blocks to prefill less a credit for those held, plus live blocks"},
	{"hrw", "session key by rendezvous hashing"},
	{"least_load", "fewest requests, or tokens, in flight"},
	{"llmd_approx", "llm-d's weighted scores, by what the router itself dispatched"},
	{"llmd_precise", "llm-d's weighted scores, by the engines' cache events"},
	{"lmetric", "tokens to prefill times requests in flight"},
	{"marginal", "the delay in seconds that the request adds, with coefficients learned from first tokens"},
	{"p2c", "the less loaded of two drawn at random"},
	{"prefix_hash", "beginning of the prompt by rendezvous hashing, with a bound on each target's requests"},
	{"pure_affinity", "longest match whatever the load; herds, for comparison only"},
	{"random", "uniformly at random; for comparison only"},
	{"ray_prefix", "Ray Serve's prefix tree with power of two choices"},
	{"round_robin", "in turn"},
	{"session", "session key on a ring"},
	{"sglang_cache_aware", "SGLang's hard switch between its prefix tree and the least loaded"},
	{"steer", "marginal, plus the price of delaying sessions that are expected back"},
	{"weighted", "alpha*prefix - beta*queue - gamma*KV use"},
}

// Names returns the names of all policies.
func Names() []string {
	list := make([]string, len(names))
	for i, n := range names {
		list[i] = n[0]
	}
	return list
}

// Summary returns what the named policy does in a line, "" if there is none.
func Summary(name string) string {
	for _, n := range names {
		if n[0] == name {
			return n[1]
		}
	}
	return ""
}

// New returns the policy that cfg names. intn(n) returns an integer in [0, n), n
// > 0, and is the only source of chance: rand.IntN, or a seeded one.
func New(cfg Config, intn func(int) int) (Policy, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg.resolve()
	return combine(&cfg, build(&cfg, cfg.Name, intn), intn), nil
}

// resolve replaces auto by what it stands for (docs/notes/0006).
func (c *Config) resolve() {
	if c.Name == "auto" {
		c.Name, c.HotPrefix.Enabled = "marginal", true
	}
}

// build is the switch. cfg is valid.
func build(cfg *Config, name string, intn func(int) int) Policy {
	switch name {
	case "chwbl":
		return newCHWBL(cfg.CHWBL, build(cfg, cfg.CHWBL.Fallback, intn))
	case "hrw":
		return &hrw{build(cfg, cfg.HRW.Fallback, intn)}
	case "llmd_approx":
		return &llmd{cfg.LLMD, true, intn}
	case "llmd_precise":
		return &llmd{cfg.LLMD, cfg.LLMD.Speculative, intn}
	case "lmetric":
		return &lmetric{cfg.LMetric, intn}
	case "p2c":
		return &p2c{intn}
	case "prefix_hash":
		return &prefixHash{cfg.PrefixHash, build(cfg, cfg.PrefixHash.Fallback, intn)}
	case "pure_affinity":
		return &pureAffinity{cfg.PureAffinity, intn}
	case "ray_prefix":
		return newRayPrefix(cfg.RayPrefix, intn)
	case "sglang_cache_aware":
		return newSGLang(cfg.SGLang, intn)
	case "steer":
		return newSteer(cfg.Marginal, cfg.Steer, intn)
	case "weighted":
		return &weighted{cfg: cfg.Weighted, intn: intn}
	case "dynamo":
		return newDynamo(cfg.Dynamo.Effective(), intn)
	case "least_load":
		return &leastLoad{by: cfg.LeastLoad.By, intn: intn}
	case "marginal":
		return newMarginal(cfg.Marginal, intn)
	case "random":
		return &random{intn}
	case "round_robin":
		return &roundRobin{}
	case "session":
		return newSession(cfg.Session, build(cfg, cfg.Session.Fallback, intn))
	}
	panic(fmt.Sprintf("policy: %q is in Names but not built", name))
}

// What a policy needs to be itself. Where a need isn't met it falls back as its
// documentation says, and the configuration check should tell.
type Need struct {
	Events  bool // the engines' cache events
	Tokens  bool // the prompt's tokens, as block hashes
	Session bool // a session key from the client
	Text    bool // the prompt's text: Request.Text
	// Between is what stands between the messages of that text, as the original
	// router joins them.
	Between string
	Engine  bool // the engines' own load figures: Candidate.Engine
	// Dispatch: predicted blocks from the router's own dispatches are counted
	// as held.
	Dispatch bool

	// How the ledger should count.
	Blocks       bool // Load.DecodeBlocks and NewBlocks are read
	OutputBlocks bool
	Private      bool
}

// Needs returns what the policy that cfg names needs. cfg must be valid.
func Needs(cfg Config) Need {
	cfg.resolve()
	n := needs(&cfg, cfg.Name)
	n.Session = n.Session || cfg.Dwell.Enabled
	n.Tokens = n.Tokens || cfg.HotPrefix.Enabled
	n.Dispatch = n.Dispatch || cfg.HotPrefix.Enabled || cfg.MinSpread.Enabled
	return n
}

func needs(cfg *Config, name string) Need {
	switch name {
	case "chwbl":
		return Need{Session: cfg.CHWBL.Key == "session", Tokens: cfg.CHWBL.Key == "prefix"}
	case "dynamo":
		return cfg.Dynamo.Effective().needs()
	case "hrw", "session":
		return Need{Session: true}
	case "llmd_approx":
		return Need{Tokens: true, Dispatch: true, Engine: true, Blocks: true}
	case "llmd_precise":
		return Need{Tokens: true, Events: true, Dispatch: cfg.LLMD.Speculative, Engine: true, Blocks: true}
	case "lmetric":
		return Need{Tokens: true, Events: true, Dispatch: cfg.LMetric.Predicted}
	case "marginal", "steer":
		return Need{Tokens: true, Events: true, Dispatch: true}
	case "prefix_hash":
		return Need{Tokens: true}
	case "pure_affinity":
		return Need{Tokens: true, Events: true, Dispatch: cfg.PureAffinity.Predicted}
	case "ray_prefix":
		text := cfg.RayPrefix.Match == "text"
		return Need{Text: text, Tokens: !text, Dispatch: !text}
	case "sglang_cache_aware":
		text := cfg.SGLang.Match == "text"
		return Need{Text: text, Between: " ", Tokens: !text, Dispatch: !text, Events: cfg.SGLang.Match == "events", Engine: cfg.SGLang.BalanceUsage < 1 || cfg.SGLang.OverloadUsage < 1}
	case "weighted":
		return Need{Tokens: true, Events: true, Dispatch: true, Engine: true, Blocks: true}
	}
	return Need{}
}
