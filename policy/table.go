package policy

// A row is a policy: all that New, Names, Summary, Needs and Idle know of it. Rows are
// written without field names, so one without its needs doesn't compile.
type row struct {
	name     string
	summary  string // what it does, in a line
	build    func(c *Config, g given) Policy
	needs    func(c *Config) Need
	settings func(c *Config) []any // pointers to the sections of c that it reads
}

// given is what a policy is built from beside its settings.
type given struct {
	intn  func(int) int            // the source of chance, see New
	named func(name string) Policy // another policy to fall back to, by its default settings of c
}

// table has every policy. A new one is a file and a row here, and a field of Config if
// it has settings.
var table = []row{
	{"auto", "what we recommend and the default: marginal, with hot prefixes spread over several targets",
		buildMarginal, needsOfMarginal, settingsOfMarginal}, // see Config.resolve
	{"chwbl", "session key on a ring, with a bound on each target's requests",
		func(c *Config, g given) Policy { return newCHWBL(c.CHWBL, g.named(c.CHWBL.Fallback)) },
		func(c *Config) Need {
			return Need{Session: c.CHWBL.Key == "session", Tokens: c.CHWBL.Key == "prefix"}
		},
		func(c *Config) []any { return []any{&c.CHWBL, &c.LeastLoad} }},
	{"dynamo", "NVIDIA Dynamo's cost: blocks to prefill less a credit for those held, plus live blocks",
		func(c *Config, g given) Policy { return newDynamo(c.Dynamo.Effective(), g.intn) },
		func(c *Config) Need { return c.Dynamo.Effective().needs() },
		func(c *Config) []any { return []any{&c.Dynamo} }},
	{"hrw", "session key by rendezvous hashing",
		func(c *Config, g given) Policy { return &hrw{none: g.named(c.HRW.Fallback)} },
		func(*Config) Need { return Need{Session: true} },
		func(c *Config) []any { return []any{&c.HRW, &c.LeastLoad} }},
	{"least_load", "fewest requests, or tokens, in flight",
		func(c *Config, g given) Policy { return &leastLoad{by: c.LeastLoad.By, intn: g.intn} },
		nothing,
		func(c *Config) []any { return []any{&c.LeastLoad} }},
	{"llmd_approx", "llm-d's weighted scores, by what the router itself dispatched",
		func(c *Config, g given) Policy { return &llmd{cfg: c.LLMD, predicted: true, intn: g.intn} },
		func(*Config) Need { return Need{Tokens: true, Dispatch: true, Engine: true, Blocks: true} },
		func(c *Config) []any { return []any{&c.LLMD} }},
	{"llmd_precise", "llm-d's weighted scores, by the engines' cache events",
		func(c *Config, g given) Policy {
			return &llmd{cfg: c.LLMD, predicted: c.LLMD.Speculative, intn: g.intn}
		},
		func(c *Config) Need {
			return Need{Tokens: true, Events: true, Dispatch: c.LLMD.Speculative, Engine: true, Blocks: true}
		},
		func(c *Config) []any { return []any{&c.LLMD} }},
	{"lmetric", "tokens to prefill times requests in flight",
		func(c *Config, g given) Policy { return &lmetric{cfg: c.LMetric, intn: g.intn} },
		func(c *Config) Need { return Need{Tokens: true, Events: true, Dispatch: c.LMetric.Predicted} },
		func(c *Config) []any { return []any{&c.LMetric} }},
	{"marginal", "the delay in seconds that the request adds, with coefficients learned from first tokens",
		buildMarginal, needsOfMarginal, settingsOfMarginal},
	{"p2c", "the less loaded of two drawn at random",
		func(_ *Config, g given) Policy { return &p2c{intn: g.intn} }, nothing, none},
	{"prefix_hash", "beginning of the prompt by rendezvous hashing, with a bound on each target's requests",
		func(c *Config, g given) Policy {
			return &prefixHash{cfg: c.PrefixHash, none: g.named(c.PrefixHash.Fallback)}
		},
		func(*Config) Need { return Need{Tokens: true} },
		func(c *Config) []any { return []any{&c.PrefixHash, &c.LeastLoad} }},
	{"pure_affinity", "longest match whatever the load; herds, for comparison only",
		func(c *Config, g given) Policy { return &pureAffinity{cfg: c.PureAffinity, intn: g.intn} },
		func(c *Config) Need { return Need{Tokens: true, Events: true, Dispatch: c.PureAffinity.Predicted} },
		func(c *Config) []any { return []any{&c.PureAffinity} }},
	{"random", "uniformly at random; for comparison only",
		func(_ *Config, g given) Policy { return &random{intn: g.intn} }, nothing, none},
	{"ray_prefix", "Ray Serve's prefix tree with power of two choices",
		func(c *Config, g given) Policy { return newRayPrefix(c.RayPrefix, g.intn) },
		func(c *Config) Need {
			text := c.RayPrefix.Match == "text"
			return Need{Text: text, Tokens: !text, Dispatch: !text}
		},
		func(c *Config) []any { return []any{&c.RayPrefix} }},
	{"round_robin", "in turn",
		func(*Config, given) Policy { return &roundRobin{} }, nothing, none},
	{"session", "session key on a ring",
		func(c *Config, g given) Policy { return newSession(c.Session, g.named(c.Session.Fallback)) },
		func(*Config) Need { return Need{Session: true} },
		func(c *Config) []any { return []any{&c.Session, &c.LeastLoad} }},
	{"sglang_cache_aware", "SGLang's hard switch between its prefix tree and the least loaded",
		func(c *Config, g given) Policy { return newSGLang(c.SGLang, g.intn) },
		func(c *Config) Need {
			text := c.SGLang.Match == "text"
			return Need{
				Text: text, Between: " ", Tokens: !text, Dispatch: !text, Events: c.SGLang.Match == "events",
				Engine: c.SGLang.BalanceUsage < 1 || c.SGLang.OverloadUsage < 1,
			}
		},
		func(c *Config) []any { return []any{&c.SGLang} }},
	{"steer", "marginal, plus the price of delaying sessions that are expected back",
		func(c *Config, g given) Policy { return newSteer(c.Marginal, c.Steer, g.intn) },
		needsOfMarginal,
		func(c *Config) []any { return []any{&c.Steer, &c.Marginal} }},
	{"weighted", "alpha*prefix - beta*queue - gamma*KV use",
		func(c *Config, g given) Policy { return &weighted{cfg: c.Weighted, intn: g.intn} },
		func(*Config) Need {
			return Need{Tokens: true, Events: true, Dispatch: true, Engine: true, Blocks: true}
		},
		func(c *Config) []any { return []any{&c.Weighted} }},
}

func nothing(*Config) Need { return Need{} }
func none(*Config) []any   { return nil }

func buildMarginal(c *Config, g given) Policy { return newMarginal(c.Marginal, g.intn) }
func needsOfMarginal(*Config) Need            { return Need{Tokens: true, Events: true, Dispatch: true} }
func settingsOfMarginal(c *Config) []any      { return []any{&c.Marginal} }

// A combinator is what can be put around any policy.
type combinator struct {
	enabled  func(c *Config) bool
	wrap     func(c *Config, inner Policy, intn func(int) int) Policy
	needs    func(n *Need) // adds what it needs
	settings func(c *Config) any
}

// combinators stand from the inside to the outside: the ones that know more about a
// request inside, the ones that protect the fleet outside.
var combinators = []combinator{
	{func(c *Config) bool { return c.HotPrefix.Enabled },
		func(c *Config, p Policy, _ func(int) int) Policy { return &hotPrefix{Policy: p, cfg: c.HotPrefix} },
		func(n *Need) { n.Tokens, n.Dispatch = true, true },
		func(c *Config) any { return &c.HotPrefix }},
	{func(c *Config) bool { return c.Dwell.Enabled },
		func(c *Config, p Policy, _ func(int) int) Policy { return newDwell(c.Dwell, p) },
		func(n *Need) { n.Session = true },
		func(c *Config) any { return &c.Dwell }},
	{func(c *Config) bool { return c.MinSpread.Enabled },
		func(c *Config, p Policy, intn func(int) int) Policy {
			return &minSpread{Policy: p, cfg: c.MinSpread, intn: intn}
		},
		func(n *Need) { n.Dispatch = true },
		func(c *Config) any { return &c.MinSpread }},
	{func(c *Config) bool { return c.Explore.Enabled },
		func(c *Config, p Policy, intn func(int) int) Policy {
			return &explore{Policy: p, cfg: c.Explore, seconds: inSeconds(p), intn: intn}
		},
		func(*Need) {},
		func(c *Config) any { return &c.Explore }},
	{func(c *Config) bool { return c.Guard.Enabled },
		func(c *Config, p Policy, intn func(int) int) Policy {
			return &guard{Policy: p, cfg: c.Guard, intn: intn}
		},
		func(*Need) {},
		func(c *Config) any { return &c.Guard }},
	{func(c *Config) bool { return c.Shed.Enabled },
		func(c *Config, p Policy, _ func(int) int) Policy { return &shed{Policy: p, cfg: c.Shed} },
		func(*Need) {},
		func(c *Config) any { return &c.Shed }},
}

// inSeconds reports whether the costs that p writes are durations.
func inSeconds(p Policy) bool {
	_, unit := p.Terms()
	return unit == "s"
}
