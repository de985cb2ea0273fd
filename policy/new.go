package policy

import "kvasir/setting"

// Names returns the names of all policies.
func Names() []string {
	list := make([]string, len(table))
	for i, r := range table {
		list[i] = r.name
	}
	return list
}

// find returns the row of the named policy, nil if there is none.
func find(name string) *row {
	for i := range table {
		if table[i].name == name {
			return &table[i]
		}
	}
	return nil
}

// Summary returns what the named policy does in a line, "" if there is none.
func Summary(name string) string {
	if r := find(name); r != nil {
		return r.summary
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
	g := given{intn: intn}
	g.named = func(name string) Policy { return find(name).build(&cfg, g) }
	p := g.named(cfg.Name)
	for _, c := range combinators {
		if c.enabled(&cfg) {
			p = c.wrap(&cfg, p, intn)
		}
	}
	return p, nil
}

// resolve replaces auto by what it stands for (docs/notes/0006).
func (c *Config) resolve() {
	if c.Name == "auto" {
		c.Name, c.HotPrefix.Enabled = "marginal", true
	}
}

// A Need is what a policy needs to be itself. Where it isn't met the policy falls back
// as its documentation says, and the configuration check tells.
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
	n := find(cfg.Name).needs(&cfg)
	for _, c := range combinators {
		if c.enabled(&cfg) {
			c.needs(&n)
		}
	}
	return n
}

// Idle returns the keys of the sections of cfg that say something else than Defaults
// though nothing reads them: those of policies other than the one named, and those of
// combinators that are off. cfg must be valid.
func Idle(cfg Config) []string {
	cfg.resolve()
	read := find(cfg.Name).settings(&cfg)
	for _, c := range combinators {
		if c.enabled(&cfg) {
			read = append(read, c.settings(&cfg))
		}
	}
	defaults := Defaults()
	return setting.Unread(&cfg, &defaults, read)
}
