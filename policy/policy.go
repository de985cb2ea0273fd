// Package policy picks the target that serves a request.
//
// Every policy is one file and one row of the table in table.go. A policy has no clock
// and no source of chance of its own: time comes with the request, chance through the
// function that New is given. It performs no I/O, and it needs no lock, because
// the scheduler serializes all calls.
//
// The life of a decision, as the scheduler calls it:
//
//	i := p.Pick(req, cands)                // changes no state but the dice: safe for "what if"
//	why, no := p.Shed(req, cands, i)       // or it is refused
//	p.Placed(req, cands, i)                // the request goes there: state follows
//	p.FirstToken(...)
//	p.Done(...)
//
// Pick decides, Placed remembers. So a combinator may overrule the policy that
// it wraps without leaving a false memory in it, and a dry run is a dry run.
package policy

import (
	"errors"
	"time"

	"kvasir/kv"
	"kvasir/policy/learn"
)

// A Policy picks the target that serves a request. A policy that needs not all of these
// methods embeds Basic, which answers for the rest, and writes its own. A combinator
// embeds the Policy that it is put around, so that all goes to that one but what the
// combinator does itself.
//
// The scheduler calls nothing else, and serializes all calls: a policy with state needs
// no lock. It may not keep what it is given: neither req nor cands nor o.
type Policy interface {
	// Pick returns an index into cands, which is never empty. It may write the fields of
	// req and cands that say so, and changes nothing else but the dice.
	Pick(req *Request, cands []Candidate) int
	// Shed reports whether the request that Pick would place at cands[i] should be
	// refused, and why.
	Shed(req *Request, cands []Candidate, i int) (why Refusal, shed bool)
	// Placed tells that the request goes to cands[i], in the critical section in which it
	// was picked. i need not be what Pick returned. State follows.
	Placed(req *Request, cands []Candidate, i int)

	// FirstToken and Done tell what became of requests, to learn from.
	FirstToken(o *kv.FirstToken)
	Done(o *kv.Done)
	// Forget tells that the target is gone and its number may be reused.
	Forget(t kv.Target)

	// Terms names Candidate.Terms in order, and the unit that Cost is in ("s", "blocks",
	// "requests", "points"). No names and no unit: the cost says nothing to a person.
	Terms() (names []string, unit string)
	// Learned returns what has been learned of how fast t is; false if nothing ever is.
	Learned(t kv.Target) (learn.Learned, bool)
	// AppendState appends what is worth keeping over a restart, in a versioned text form;
	// nothing if nothing is.
	AppendState(dst []byte) []byte
	// LoadState replaces the state. On an error it is unchanged; ErrNoState if there is
	// none to keep.
	LoadState(src []byte) error
}

// ErrNoState says that a policy has no state that is kept over a restart.
var ErrNoState = errors.New("keeps no state")

// Basic is a Policy but for Pick: it refuses nothing, learns nothing and keeps nothing.
type Basic struct{}

func (Basic) Shed(*Request, []Candidate, int) (Refusal, bool) { return Refusal{}, false }
func (Basic) Placed(*Request, []Candidate, int)               {}
func (Basic) FirstToken(*kv.FirstToken)                       {}
func (Basic) Done(*kv.Done)                                   {}
func (Basic) Forget(kv.Target)                                {}
func (Basic) Terms() ([]string, string)                       { return nil, "" }
func (Basic) Learned(kv.Target) (learn.Learned, bool)         { return learn.Learned{}, false }
func (Basic) AppendState(dst []byte) []byte                   { return dst }
func (Basic) LoadState([]byte) error                          { return ErrNoState }

// A Refusal is what a client is told of a request that is refused.
type Refusal struct {
	Retry time.Duration // when it may be tried again
	// Late: no target could begin to answer before Soonest, and the request's
	// deadline is Deadline. Else it is refused for its priority.
	Late              bool
	Soonest, Deadline time.Duration
	Alone             time.Duration // Late: of Soonest, what an idle target needs at least
}

// A Request is what a policy may know of a request.
type Request struct {
	Now       time.Time
	Tokens    int // prompt tokens, estimated where they aren't known; at least 1
	MaxOutput int // limit on the output, 0 if none

	// SessionHash is the well-mixed hash of the key that keeps a conversation together,
	// 0 if the client sent none.
	SessionHash uint64

	// The first chain of the prompt: hashes of its full blocks.
	Hashes    []kv.Hash
	BlockSize int

	// Text is the prompt as text, for policies with a text tree: what its messages
	// say, joined with Need.Between. nil if the policy doesn't need it, and where
	// there is none (token ids, images only).
	Text []byte

	// NextTurn is when the client expects to continue the session, counted
	// from the end of this request; 0 if it didn't say.
	NextTurn time.Duration

	Priority int           // below 0: may be shed
	Deadline time.Duration // to the first token; 0: none

	// Branch is written by Pick: which rule decided, "" for the policy's only
	// one. It is a constant string, for receipts.
	Branch string

	// Tag is written by Placed: the policy's own name for the placement, which
	// the scheduler hands back in kv.FirstToken and kv.Done. 0: it needs none.
	Tag uint64
}

// MaxTerms bounds the number of cost terms.
const MaxTerms = 6

// A Candidate is a target that may serve the request: healthy, not draining, of
// the right model and role.
type Candidate struct {
	Target kv.Target
	// Identity is the same for the same replica and rank in every router and
	// after every restart: a well-mixed hash of its name. Never 0.
	Identity uint64

	Overlap   kv.Overlap
	Trust     kv.Trust
	Load      kv.Load
	BlockSize int // tokens; 0: unknown, the request's is taken
	Blocks    int // size of the GPU pool in blocks; 0: unknown
	Held      int // blocks that the index has for the target on GPU
	MaxBatch  int // tokens that the engine computes per step (max_num_batched_tokens); 0: unknown

	Engine kv.Gauge // what the engine reports of itself; zero where it doesn't, or too long ago

	// Written by Pick. Cost is infinite where a policy would not go at all.
	Cost  float64           // lowest wins
	Terms [MaxTerms]float64 // what Cost is made of; see Policy.Terms
	// Uncached is what the ledger should book as owed prefill, in tokens; 0:
	// the prompt less what is held in any tier.
	Uncached int
	// Prefill is the predicted duration of this request's prefill there,
	// waiting excluded: the ledger books it. 0 if the policy doesn't predict.
	Prefill time.Duration
}
