package sched

import (
	"slices"
	"sync/atomic"
	"time"

	"kvasir/fleet"
	"kvasir/kv"
	"kvasir/ledger"
)

// An Outcome says how a request ended.
type Outcome uint8

// The outcomes of a request.
const (
	Open      Outcome = iota // not ended yet
	Completed                // the engine's answer was delivered whole; also its 4xx: it says nothing against the engine
	Cancelled                // the client went away
	Failed                   // the engine's fault, or the way to it
)

var outcomeNames = [...]string{"open", "completed", "cancelled", "failed"}

func (o Outcome) String() string { return outcomeNames[o] }

// A Decision is one request on its way: where it goes, and the work that is
// booked for it there until Done. Its methods are idempotent, may come in any
// order and from any goroutine; the first FirstToken, Served and Done count.
type Decision struct {
	s     *Scheduler
	id    uint64
	at    time.Time
	model string

	// What was decided; read-only.
	Target  kv.Target
	Rank    int
	Replica *fleet.Replica // as it was at the decision
	Tokens  int            // of the prompt; 0 if unknown
	Overlap kv.Overlap     // predicted, on Target

	epoch               uint32 // of Target at the decision
	fromPeer            bool   // Request.Only
	unread, odd         bool   // of Request
	promised            int    // tokens that the index has on Target
	first, served, done atomic.Bool
	output              atomic.Int64 // tokens reported by Progress
	booking             ledger.ID    // in the ledger
	tag                 uint64       // the policy's own name for the placement
	hashes              []kv.Hash    // of the predicted blocks; owned
	blockSize, maxBatch int
	prompt, cached      int // as served; guarded by s.mu
}

// ID numbers the decisions of one process from 1.
func (d *Decision) ID() uint64 { return d.id }

// Cached returns how many prompt tokens are predicted to be served from cache.
func (d *Decision) Cached() int { return d.Overlap.Held() }

// book charges d's work to the candidate that was picked; caller holds s.mu. It
// returns the hashes of the prompt's blocks there; they are r's.
func (s *Scheduler) book(d *Decision, sc *scratch, pick int, r *Request, snap *fleet.Snapshot, now time.Time) []kv.Hash {
	c := &sc.cands[pick]
	d.Target, d.Overlap, d.Tokens = c.Target, c.Overlap, r.Prompt.Tokens
	d.blockSize, d.maxBatch, d.fromPeer = c.BlockSize, c.MaxBatch, r.Only != nil
	d.epoch = s.epochs[d.Target].Load()
	d.unread, d.odd, d.promised = r.Unread, r.Odd, sc.over[c.Target].Held()
	d.Replica = snap.Replica(c.Target)
	d.Rank = d.Replica.Rank(c.Target)
	hashes := chainFor(&r.Prompt, c.BlockSize)
	uncached := c.Uncached
	if uncached <= 0 {
		uncached = max(sc.req.Tokens-c.Overlap.Held(), 0)
	}
	d.booking = s.ledger.Admit(now, &ledger.Admission{
		Target: c.Target, Hashes: hashes, BlockSize: kv.ChainSize(c.BlockSize), Prompt: sc.req.Tokens, Uncached: uncached,
		Output: r.Output, Prefill: c.Prefill, Silent: r.Silent, Connected: !d.fromPeer,
	})
	s.policy.Placed(&sc.req, sc.cands, pick)
	s.states.picked(d.Target)
	s.audit.booked(d)
	s.check()
	return hashes
}

// predict tells the index that d's target will have the blocks. Nobody but Route
// has d yet, so this comes before its Done takes them back; that is all the order
// there has to be, as the index counts predictions. So it needs no lock: 2,000 new
// blocks take longer than a decision.
func (s *Scheduler) predict(d *Decision, hashes []kv.Hash) {
	if len(hashes) > 0 {
		d.hashes = append([]kv.Hash(nil), hashes...)
		s.index.Apply(&kv.Event{Kind: kv.Stored, Source: kv.Dispatch, Target: d.Target, Hashes: d.hashes})
		if s.gone(d) { // while it was on its way: nobody else will take them back
			s.index.Apply(&kv.Event{Kind: kv.Removed, Source: kv.Dispatch, Target: d.Target, Hashes: d.hashes})
		}
	}
	s.audit.predicted(d, len(hashes))
}

// gone says that d's target has been forgotten since, and its number perhaps given
// to another: d changes nothing there any more.
func (s *Scheduler) gone(d *Decision) bool { return s.epochs[d.Target].Load() != d.epoch }

// FirstToken says that the first content of the answer has come: the prefill is
// done.
func (d *Decision) FirstToken(now time.Time) {
	if d.first.Swap(true) {
		return
	}
	s := d.s
	s.mu.Lock()
	var ok bool
	f := &s.first
	if *f, ok = s.ledger.FirstToken(d.booking, now); ok && d.Tokens > 0 {
		if d.served.Load() {
			f.Cached = d.cached
		}
		f.MaxBatch, f.Tag, f.FromPeer = d.maxBatch, d.tag, d.fromPeer
		s.policy.FirstToken(f)
	}
	s.mu.Unlock()
	s.receipts.edit(d.id, func(r *Receipt) { r.FirstToken = now.Sub(d.at) })
}

// Progress says that n more tokens of the answer have come.
func (d *Decision) Progress(n int, now time.Time) {
	if n <= 0 || d.done.Load() {
		return
	}
	d.output.Add(int64(n))
	s := d.s
	s.mu.Lock()
	s.ledger.Progress(d.booking, now, n)
	s.mu.Unlock()
}

// Served says what the engine reported at the end: the length of the prompt and
// how much of it came from the cache. A target that serves less than predicted
// again and again is reported by Hooks.Drifted, or Hooks.Short.
func (d *Decision) Served(prompt, cached int) {
	if d.served.Swap(true) {
		return
	}
	s := d.s
	s.mu.Lock()
	d.prompt, d.cached = prompt, cached
	s.mu.Unlock()
	if !s.gone(d) {
		s.compare(d, cached)
	}
	s.receipts.edit(d.id, func(r *Receipt) { r.ServedPrompt, r.ServedCached, r.Served = prompt, cached, true })
}

// compare puts what was predicted beside what was served, and says so where that
// isn't chance.
func (s *Scheduler) compare(d *Decision, cached int) {
	tell := s.hooks.Short
	why, refill := s.states.served(d, cached)
	if refill {
		tell = s.hooks.Drifted
	}
	if why != "" && tell != nil {
		tell(d.Target, why)
	}
}

// Done gives the booked work back. A request that failed takes its predicted
// blocks with it; else they are believed for a while, for the engine's events
// may lag behind its answer.
func (d *Decision) Done(now time.Time, outcome Outcome) {
	if d.done.Swap(true) {
		return
	}
	s := d.s
	s.mu.Lock()
	var ok bool
	f := &s.last
	if *f, ok = s.ledger.Done(d.booking, now); ok {
		f.Tag, f.Failed, f.FromPeer = d.tag, outcome != Completed, d.fromPeer
		s.policy.Done(f)
	}
	hashes, all := d.hashes, d.hashes
	if d.hashes = nil; len(hashes) > 0 && outcome != Failed {
		s.predicted.add(prediction{
			until: now.Add(s.cfg.PredictFor), target: d.Target, epoch: d.epoch, hashes: hashes, blockSize: d.blockSize,
			checked: outcome == Completed && d.first.Load() && !d.unread,
		})
		hashes = nil
	}
	s.audit.ended(d)
	if len(hashes) > 0 {
		s.audit.leaving()
	}
	s.check()
	s.mu.Unlock()
	if len(hashes) > 0 {
		s.unpredict(d.Target, d.epoch, hashes)
	}
	if !s.gone(d) {
		s.states.ended(d.Target, outcome)
	}
	var out *Receipt
	if s.hooks.Ended != nil {
		out = pooled.Get().(*Receipt)
		defer pooled.Put(out)
	}
	if s.receipts.end(d.id, now.Sub(d.at), int(d.output.Load()), outcome, out) && out != nil {
		if len(all) > 0 {
			out.Blocks = kv.Chain{BlockSize: kv.ChainSize(d.blockSize), Hashes: all}
		}
		s.hooks.Ended(out)
	}
}

// A prediction is what a Dispatch event promised.
type prediction struct {
	until     time.Time
	target    kv.Target
	epoch     uint32 // of the target
	hashes    []kv.Hash
	blockSize int
	checked   bool // the engine has answered: by now it must have announced these blocks
}

// predictions end in about the order in which they came, so that the queue is
// looked at from its front.
type predictions struct {
	q    []prediction
	head int
}

func (p *predictions) add(x prediction) { p.q = append(p.q, x) }

// next returns a prediction that has ended by now, if there is one at the front.
func (p *predictions) next(now time.Time) (x prediction, ok bool) {
	if p.head == len(p.q) || p.q[p.head].until.After(now) {
		return x, false
	}
	x = p.q[p.head]
	p.q[p.head] = prediction{}
	if p.head++; p.head > 64 && 2*p.head > len(p.q) {
		p.q = append(p.q[:0], p.q[p.head:]...)
		p.head = 0
	}
	return x, true
}

// expirePredictions takes back what is not believed any more, and checks it
// against what the engine has announced since.
func (s *Scheduler) expirePredictions(now time.Time) {
	over := make([]kv.Overlap, s.fleet.Snapshot().NumTargets())
	for {
		s.mu.Lock()
		x, ok := s.predicted.next(now)
		if ok {
			s.audit.leaving()
		}
		s.mu.Unlock()
		if !ok {
			return
		}
		s.unpredict(x.target, x.epoch, x.hashes)
		if x.checked && int(x.target) < len(over) && x.epoch == s.epochs[x.target].Load() {
			s.confirm(&x, over)
		}
	}
}

// confirm looks whether the engine holds the prompt of a request that it has
// answered. Where it holds none of it, though its stream is complete, we and the
// engine disagree about the tokens (or it evicted them at once).
func (s *Scheduler) confirm(x *prediction, over []kv.Overlap) {
	if s.states.trust(x.target) != kv.Exact {
		return
	}
	size := kv.ChainSize(x.blockSize)
	p := kv.Prompt{Tokens: len(x.hashes)*size + 1, Chains: []kv.Chain{{BlockSize: size, Hashes: x.hashes}}}
	s.index.Match(&p, over)
	s.states.confirmed(x.target, over[x.target].Held() > 0)
}

// unpredict takes predicted blocks back, unless they went with the target.
func (s *Scheduler) unpredict(t kv.Target, epoch uint32, hashes []kv.Hash) {
	if s.epochs[t].Load() == epoch {
		s.index.Apply(&kv.Event{Kind: kv.Removed, Source: kv.Dispatch, Target: t, Hashes: hashes})
	}
	s.audit.unpredicted(t, len(hashes))
}

// Tick does what is due at now although no request came: predictions end,
// bookings whose owner is lost are given up, and what each target holds is
// counted. It returns how many bookings it has given up. Call it about once a second.
func (s *Scheduler) Tick(now time.Time) int {
	s.expirePredictions(now)
	for _, r := range s.fleet.Snapshot().Replicas {
		for _, t := range r.Targets {
			s.states.hold(t, int(s.index.TargetStats(t).Blocks[kv.GPU]))
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expired = s.ledger.Expire(s.expired[:0], now, s.cfg.Silence)
	s.audit.dropped(func(_ kv.Target, id ledger.ID) bool { return slices.Contains(s.expired, id) })
	s.check()
	return len(s.expired)
}

// Forget drops everything known of a target: its blocks, its bookings, its
// trust. Its open decisions stay valid and end as no-ops, also when the number has
// been given to another replica by then.
func (s *Scheduler) Forget(t kv.Target, now time.Time) {
	s.mu.Lock()
	s.epochs[t].Add(1)
	s.ledger.Forget(t)
	s.audit.dropped(func(of kv.Target, _ ledger.ID) bool { return of == t })
	s.check()
	s.policy.Forget(t)
	s.mu.Unlock()
	s.index.Forget(t)
	s.states.forget(t, now)
}
