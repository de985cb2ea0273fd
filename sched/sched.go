// Package sched is the core: one call, Route, that answers which target serves a
// request, and the life of that decision until the last token. It joins the
// table of replicas (fleet), the prefix index (index), the ledger of owed work
// (load) and a policy. It has no clock, no goroutine, no socket and no logger:
// the proxy drives it in real time, the simulator in virtual time.
//
// One request, top to bottom:
//
//	fleet.Snapshot      who serves this model, is up and not excluded
//	index.Match         what each target holds of the prompt (no scheduler lock)
//	lock
//	  ledger.View       what each target owes
//	  policy.Pick       which one
//	  ledger.Admit      book the work, so that the next request sees it
//	unlock
//	index.Apply         predict the blocks
//	Decision            FirstToken, Progress, Served, Done
//
// Pick and book are one critical section: a burst of equal requests can't herd
// on one stale number.
package sched

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"kvasir/fleet"
	"kvasir/index"
	"kvasir/kv"
	"kvasir/ledger"
	"kvasir/policy"
)

// Config says how a Scheduler behaves. The zero Config works: see withDefaults.
type Config struct {
	// Receipts is how many of the latest decisions are kept. Default 2,048; negative keeps none.
	Receipts int
	// PredictFor is how long after a request's end its predicted blocks are still
	// believed when the engine has not reported them. Default 3 s.
	PredictFor time.Duration
	// Silence is how long a peer's booked request may show no progress before the ledger
	// gives it up, if nobody holds its Decision alive. Default 10 minutes.
	Silence time.Duration
}

func (c Config) withDefaults() Config {
	if c.Receipts == 0 {
		c.Receipts = 2048
	}
	if c.PredictFor == 0 {
		c.PredictFor = 3 * time.Second
	}
	if c.Silence == 0 {
		c.Silence = 10 * time.Minute
	}
	return c
}

// Hooks are told what has happened, outside of every lock. A nil func is off.
type Hooks struct {
	// Decided gets each decision just made; the receipt may not be kept by reference.
	Decided func(*Receipt)
	// Ended gets each decision's receipt when its request is over, likewise; not if
	// the ring has turned over it since.
	Ended func(*Receipt)
	// Drifted gets a target that serves less from its cache than predicted, again
	// and again, and the figures: what is known of it should be filled afresh.
	Drifted func(t kv.Target, why string)
	// Short gets a target that goes on to do so, likewise: from now on its overlaps
	// are priced with what it serves of them.
	Short func(t kv.Target, why string)
}

// A Scheduler decides. Its methods may be called from many goroutines.
type Scheduler struct {
	cfg   Config
	fleet *fleet.Table
	index *index.Index
	seed  kv.Seed
	hooks Hooks

	name  string   // of the policy
	terms []string // of its costs, in the order of Candidate.Terms
	unit  string   // of its costs

	mu        sync.Mutex     // pick and book; guards what follows
	ledger    *ledger.Ledger //
	policy    policy.Policy  //
	predicted predictions    //
	expired   []ledger.ID    // scratch of Tick,
	first     kv.FirstToken  // of Decision.FirstToken
	last      kv.Done        // and of Decision.Done

	// epochs says how often each target's number has been forgotten, so that what ends
	// late leaves the number's next owner alone.
	epochs [kv.MaxTargets]atomic.Uint32

	lastID   atomic.Uint64
	states   states
	receipts ring
	scratch  sync.Pool // of *scratch
	audit    audit
}

// Parts are what New joins. All but Hooks are needed.
type Parts struct {
	Fleet  *fleet.Table
	Index  *index.Index
	Seed   kv.Seed // of the index's chains
	Ledger *ledger.Ledger
	Policy policy.Policy
	Name   string // of the policy, for receipts
	Hooks  Hooks
}

// New returns a scheduler over p. It takes the ledger and the policy for itself:
// nobody else may call them afterwards.
func New(cfg Config, p Parts) *Scheduler {
	s := &Scheduler{
		cfg: cfg.withDefaults(), fleet: p.Fleet, index: p.Index, seed: p.Seed, hooks: p.Hooks,
		name: p.Name, policy: p.Policy, ledger: p.Ledger,
	}
	s.terms, s.unit = p.Policy.Terms()
	s.scratch.New = func() any { return new(scratch) }
	s.receipts.init(s.cfg.Receipts)
	return s
}

// A Request is what Route needs to know.
type Request struct {
	Model string // as the client wrote it

	// Prompt is the content; see Scheduler.Chains. With Tokens 0 the content is
	// unknown: the request is routed by load alone and Why says why.
	Prompt kv.Prompt
	Why    string
	Source string // where the tokens came from: "ids", "render", "local", …

	Bytes     int    // length of the body: the estimate of work when Tokens is 0
	Unread    bool   // its engine computes all of the prompt, whatever it holds: nothing is predicted
	Odd       bool   // it may keep its engine from the cache: what is served shows nothing of the target
	Room      int    // tokens of the longest prompt and of one answer at least, 0 if unknown: see eligible
	Output    int    // tokens that the client expects to get (a hint), 0 if it doesn't say
	MaxOutput int    // tokens that the client allows, 0 if it doesn't say
	Session   string // what ties the requests of one conversation together, or ""
	Tenant    string
	Text      []byte        // of the prompt, for policies that read text; see policy.Need
	ID        string        // the request's name in receipts
	Silent    bool          // the answer comes whole: its first token can't be told from its last
	NextTurn  time.Duration // when the client expects to go on after the answer, 0 if it doesn't say
	Priority  int           // below 0: may be refused under load
	Deadline  time.Duration // from now to the first token, 0 if the client names none

	// Exclude has targets that must not be chosen: those that failed this request.
	Exclude []kv.Target
	// Desperate takes targets that are down, too: nobody else is left, and one that doesn't
	// answer its health checks may still serve.
	Desperate bool
	// Only, if not nil, is the single target that may be chosen, as another router
	// has placed the request there and has told us, late (the simulator's do; those
	// of kvasir serve don't talk). It is booked like our own, but its times are those
	// of the news: nothing is learned from them.
	Only *kv.Target
}

// scratch is the working memory of one Route.
type scratch struct {
	over  []kv.Overlap // by target
	cands []policy.Candidate
	req   policy.Request
}

// Route chooses a target for r and books its work there. The caller must call
// Done on the decision at least once. UnknownModelError if no replica serves the
// model, UnavailableError if none of those can take it, ShedError if the policy
// refuses it; then nothing has been booked.
func (s *Scheduler) Route(r *Request, now time.Time) (*Decision, error) {
	snap := s.fleet.Snapshot()
	group := snap.Group(r.Model)
	if group == nil {
		return nil, &UnknownModelError{Model: r.Model, Known: modelNames(snap)}
	}
	sc := s.scratch.Get().(*scratch)
	defer s.scratch.Put(sc)
	if err := s.eligible(sc, snap, group, r); err != nil {
		return nil, err
	}
	s.match(sc, snap, r)
	s.states.fill(sc.cands, now)

	d := &Decision{s: s, id: s.lastID.Add(1), at: now, model: r.Model}
	s.mu.Lock()
	s.weigh(sc, r, now)
	pick := s.policy.Pick(&sc.req, sc.cands)
	if pick < 0 || pick >= len(sc.cands) {
		s.mu.Unlock()
		panic(fmt.Sprintf("sched: policy %s picked %d of %d candidates", s.name, pick, len(sc.cands)))
	}
	if why, shed := s.policy.Shed(&sc.req, sc.cands, pick); shed {
		s.mu.Unlock()
		return nil, &ShedError{Refusal: why, Priority: r.Priority}
	}
	hashes := s.book(d, sc, pick, r, snap, now)
	d.tag = sc.req.Tag
	s.mu.Unlock()

	s.predict(d, hashes)
	s.record(d, sc, pick, r)
	return d, nil
}

// eligible fills sc.cands with the targets that may be chosen. Where a request has
// room on some replicas only, the others aren't asked, even while those are down: 2,000
// tokens go to the one with 131,072, never to the one with 512. Where it has room
// nowhere anybody may be asked, as the engine itself says best what is too long.
func (s *Scheduler) eligible(sc *scratch, snap *fleet.Snapshot, group *fleet.Group, r *Request) error {
	sc.cands = sc.cands[:0]
	no := UnavailableError{Model: r.Model, Total: len(group.Targets)}
	short := r.Room > group.Shortest && group.Shortest > 0 && fitsAny(snap, group, r)
	for _, t := range group.Targets {
		rep := snap.Replica(t)
		switch {
		case r.Only != nil && *r.Only != t:
			no.Excluded++
		case contains(r.Exclude, t):
			no.Excluded++
		case short && r.Only == nil && !fits(rep, r):
			no.Short++
		case rep.State == fleet.Draining:
			no.Draining++
		case rep.State != fleet.Up && !(r.Desperate && rep.State == fleet.Down):
			no.Down++
		default:
			sc.cands = append(sc.cands, policy.Candidate{
				Target: t, Identity: identity(rep, t), BlockSize: rep.BlockSize, Blocks: rep.Blocks, MaxBatch: rep.MaxBatch,
			})
		}
	}
	if len(sc.cands) == 0 {
		return &no
	}
	return nil
}

// fits says that rep has room for r, or doesn't say how much it has.
func fits(rep *fleet.Replica, r *Request) bool {
	n := rep.MaxLen(r.Model)
	return n == 0 || n >= r.Room
}

func fitsAny(snap *fleet.Snapshot, group *fleet.Group, r *Request) bool {
	for _, t := range group.Targets {
		if fits(snap.Replica(t), r) {
			return true
		}
	}
	return false
}

// match fills in what each candidate holds of the prompt.
func (s *Scheduler) match(sc *scratch, snap *fleet.Snapshot, r *Request) {
	n := snap.NumTargets()
	if cap(sc.over) < n {
		sc.over = make([]kv.Overlap, n)
	}
	sc.over = sc.over[:n]
	if len(r.Prompt.Chains) == 0 || r.Unread {
		clear(sc.over)
	} else {
		s.index.Match(&r.Prompt, sc.over)
	}
	for i := range sc.cands {
		c := &sc.cands[i]
		c.Overlap = sc.over[c.Target]
	}
}

// weigh fills in what each candidate owes and what the policy may know of the
// request; caller holds mu.
func (s *Scheduler) weigh(sc *scratch, r *Request, now time.Time) {
	tokens := r.Prompt.Tokens
	if tokens == 0 {
		tokens = max(kv.EstimateTokens(r.Bytes), 1)
	}
	sc.req = policy.Request{
		Now: now, Tokens: tokens, MaxOutput: r.MaxOutput, Text: r.Text, NextTurn: r.NextTurn, Priority: r.Priority, Deadline: r.Deadline,
	}
	if r.Session != "" {
		sc.req.SessionHash = hashString(r.Session)
	}
	if len(r.Prompt.Chains) > 0 {
		sc.req.Hashes, sc.req.BlockSize = r.Prompt.Chains[0].Hashes, r.Prompt.Chains[0].BlockSize
	}
	for i := range sc.cands {
		c := &sc.cands[i]
		c.Load = s.ledger.View(c.Target, now, chainFor(&r.Prompt, c.BlockSize))
	}
}

// chainFor returns p's hashes for targets of the given block size: nil if p was
// not hashed at that size, so nothing is believed about them.
func chainFor(p *kv.Prompt, blockSize int) []kv.Hash {
	size := kv.ChainSize(blockSize)
	for i := range p.Chains {
		if p.Chains[i].BlockSize == size {
			return p.Chains[i].Hashes
		}
	}
	return nil
}

// Chains fills p with the chains that Route needs to match tokens: one for each
// block size among the replicas that serve model. It reuses p's memory. A model
// that nobody serves gets none.
func (s *Scheduler) Chains(p *kv.Prompt, model string, tokens []uint32, key kv.Key, extras func(blockSize int) []kv.Extra) {
	p.Tokens = len(tokens)
	chains := p.Chains[:0]
	if g := s.fleet.Snapshot().Group(model); g != nil {
		for _, bs := range g.BlockSizes {
			size := kv.ChainSize(bs)
			if hasChain(chains, size) {
				continue
			}
			var hs []kv.Hash
			if len(chains) < cap(p.Chains) {
				hs = p.Chains[:len(chains)+1][len(chains)].Hashes[:0]
			}
			var ex []kv.Extra
			if extras != nil {
				ex = extras(size)
			}
			chains = append(chains, kv.Chain{BlockSize: size, Hashes: s.seed.Extend(hs, s.seed.Root(key, size), tokens, size, ex)})
		}
	}
	p.Chains = chains
}

func hasChain(cs []kv.Chain, size int) bool {
	for i := range cs {
		if cs[i].BlockSize == size {
			return true
		}
	}
	return false
}

// identity is the same for the same rank of the same replica in every router and
// after every restart.
func identity(r *fleet.Replica, t kv.Target) uint64 {
	return r.Identity + uint64(r.Rank(t))*0x9e3779b97f4a7c15
}

// hashString is FNV-1a with a finish: for session keys, not against attackers.
func hashString(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := 0; i < len(s); i++ {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	h ^= h >> 32
	h *= 0x9e3779b97f4a7c15
	return max(h^h>>29, 1)
}

func contains(ts []kv.Target, t kv.Target) bool {
	for _, x := range ts {
		if x == t {
			return true
		}
	}
	return false
}

// PolicyState returns what the policy has learned, in its own text form; nil if it
// learns nothing.
func (s *Scheduler) PolicyState() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.policy.AppendState(nil)
}

// RestorePolicy gives the policy back what an earlier one had learned. On an error
// it starts as if it knew nothing.
func (s *Scheduler) RestorePolicy(state []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.policy.LoadState(state)
	if errors.Is(err, policy.ErrNoState) {
		return fmt.Errorf("policy %s %w", s.name, err)
	}
	return err
}

// Costs names the terms of the policy's costs, in the order of a receipt's Terms,
// and their unit. Empty for a policy without costs.
func (s *Scheduler) Costs() (terms []string, unit string) { return s.terms, s.unit }

// Apply takes one cache event of an engine into the index.
func (s *Scheduler) Apply(ev *kv.Event) { s.index.Apply(ev) }
