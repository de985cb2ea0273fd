package sched_test

import (
	"errors"
	"strings"
	"time"

	"kvasir/kv"
	"kvasir/policy"
)

// A spy is a policy that tells what it is told: every field of the request and of
// the candidates, of placements, first tokens and ends. It does what the command
// `spy` says.
type spy struct {
	policy.Basic
	script   *script
	quiet    bool   // say nothing
	pick     string // else the first candidate
	outside  string // "above", "below": pick what is no candidate
	cost     map[string]float64
	branch   string
	uncached int
	prefill  time.Duration
	shed     time.Duration // refuse, and say this; 0: don't
	tag      uint64
}

func (p *spy) Pick(r *policy.Request, cands []policy.Candidate) int {
	s := p.script
	if !p.quiet {
		s.say("asked: %s", s.show(*r))
		for i := range cands {
			s.say("  %s", s.show(cands[i]))
		}
	}
	switch p.outside {
	case "above":
		return len(cands)
	case "below":
		return -1
	}
	picked := 0
	for i := range cands {
		c := &cands[i]
		name := s.names[c.Target]
		if name == p.pick {
			picked = i
		}
		c.Cost, c.Uncached, c.Prefill = p.cost[name], p.uncached, p.prefill
		c.Terms[0], c.Terms[1] = c.Cost-1, 1
	}
	r.Branch = p.branch
	return picked
}

func (p *spy) Shed(_ *policy.Request, cands []policy.Candidate, i int) (policy.Refusal, bool) {
	return policy.Refusal{Retry: p.shed}, p.shed != 0
}

func (p *spy) Placed(r *policy.Request, cands []policy.Candidate, i int) {
	r.Tag = p.tag
	if !p.quiet {
		p.script.say("placed: %s of %d, after %d more", p.script.names[cands[i].Target], len(cands), cands[i].Load.Requests)
	}
}

func (p *spy) FirstToken(o *kv.FirstToken) { p.script.say("first token: %s", p.script.show(*o)) }
func (p *spy) Done(o *kv.Done)             { p.script.say("end: %s", p.script.show(*o)) }
func (p *spy) Forget(t kv.Target)          { p.script.say("policy forgets %s", p.script.names[t]) }
func (p *spy) Terms() ([]string, string)   { return []string{"toll", "fare"}, "coins" }

func (p *spy) AppendState(dst []byte) []byte { return append(dst, "I know "+p.branch...) }

func (p *spy) LoadState(src []byte) error {
	what, ok := strings.CutPrefix(string(src), "I know ")
	if !ok {
		return errors.New("this is no memory of mine")
	}
	p.branch = what
	return nil
}
