package policy

import "fmt"

// Names returns the names of all policies.
func Names() []string {
	return []string{
		"dynamo", "least_load", "marginal", "random", "round_robin", "session",
	}
}

// New returns the policy that cfg names. intn(n) returns an integer in [0, n), n
// > 0, and is the only source of chance: rand.IntN, or a seeded one.
func New(cfg Config, intn func(int) int) (Policy, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return build(&cfg, cfg.Name, intn), nil
}

// build is the switch. cfg is valid.
func build(cfg *Config, name string, intn func(int) int) Policy {
	switch name {
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
func Needs(cfg Config) Need { return needs(&cfg, cfg.Name) }

func needs(cfg *Config, name string) Need {
	switch name {
	case "dynamo":
		return cfg.Dynamo.Effective().needs()
	case "marginal":
		return Need{Events: true, Tokens: true, Dispatch: true}
	case "session":
		n := needs(cfg, cfg.Session.Fallback)
		n.Session = true
		return n
	}
	return Need{}
}
