package sched

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"kvasir/fleet"
	"kvasir/kv"
	"kvasir/policy"
)

// ReceiptCandidates is how many candidates a receipt keeps: the winner and the
// cheapest others.
const ReceiptCandidates = 8

// A Receipt says why a request went where it went, and what came of it.
type Receipt struct {
	ID     uint64
	At     time.Time
	Model  string
	Policy string
	Branch string // which of the policy's rules decided, "" for its only one

	Tokens  int    // of the prompt, 0 if unknown
	Source  string // where the tokens came from
	Why     string // why they are unknown
	Bytes   int    // of the body
	Session string
	Tenant  string
	Request string // the request's id; equal for all its attempts

	// What the client said of the answer, and of itself.
	MaxOutput int
	Expected  int // tokens
	NextTurn  time.Duration
	Priority  int
	Deadline  time.Duration // from the decision to the first token

	Target  kv.Target
	Replica string
	Rank    int
	Overlap kv.Overlap
	Trust   kv.Trust
	Load    kv.Load
	Cost    float64

	Candidates [ReceiptCandidates]Candidate // the winner first, then by cost
	NumKept    int
	NumAll     int // candidates that there were

	// What came of it.
	Outcome      Outcome
	FirstToken   time.Duration // since the decision; 0: none yet
	Took         time.Duration // since the decision; 0: not ended
	Output       int           // tokens, as far as told
	Served       bool          // the engine reported its usage:
	ServedPrompt int
	ServedCached int

	// Blocks is the prompt in blocks of the target's size, as far as it was hashed.
	// Hooks.Ended gets it, and may keep it: nobody writes to it. Empty elsewhere.
	Blocks kv.Chain
}

// A Candidate is one line of a receipt.
type Candidate struct {
	Target  kv.Target
	Replica string
	Overlap kv.Overlap
	Trust   kv.Trust
	Load    kv.Load
	Cost    float64
	Terms   [policy.MaxTerms]float64 // what Cost is made of; see Scheduler.Costs
}

// ring keeps the latest receipts.
type ring struct {
	mu    sync.Mutex
	buf   []Receipt // guarded by mu; receipt id is at id % len
	early uint64    // guarded by mu: receipts that were overwritten before their request ended
}

func (g *ring) init(n int) {
	if n > 0 {
		g.buf = make([]Receipt, n)
	}
}

// edit changes the receipt of decision id, if it is still kept.
func (g *ring) edit(id uint64, f func(*Receipt)) {
	if len(g.buf) == 0 {
		return
	}
	g.mu.Lock()
	if r := &g.buf[id%uint64(len(g.buf))]; r.ID == id {
		f(r)
	}
	g.mu.Unlock()
}

// end writes how the request ended, and copies the receipt to out, if that is not
// nil. False if it is not kept any more.
func (g *ring) end(id uint64, took time.Duration, output int, o Outcome, out *Receipt) (ok bool) {
	if len(g.buf) == 0 {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	r := &g.buf[id%uint64(len(g.buf))]
	if r.ID != id {
		g.early++
		return false
	}
	r.Took, r.Outcome, r.Output = took, o, max(r.Output, output)
	if out != nil {
		*out = *r
	}
	return true
}

// record writes d's receipt.
func (s *Scheduler) record(d *Decision, sc *scratch, pick int, r *Request) {
	if len(s.receipts.buf) > 0 {
		s.receipts.mu.Lock()
		s.write(&s.receipts.buf[d.id%uint64(len(s.receipts.buf))], d, sc, pick, r)
		s.receipts.mu.Unlock()
	}
	if s.hooks.Decided != nil {
		rec := pooled.Get().(*Receipt)
		s.write(rec, d, sc, pick, r)
		s.hooks.Decided(rec)
		pooled.Put(rec)
	}
}

// pooled are receipts lent to hooks: they are large.
var pooled = sync.Pool{New: func() any { return new(Receipt) }}

func (s *Scheduler) write(rec *Receipt, d *Decision, sc *scratch, pick int, r *Request) {
	win := &sc.cands[pick]
	*rec = Receipt{
		ID: d.id, At: d.at, Model: d.model, Policy: s.name, Branch: sc.req.Branch,
		Tokens: d.Tokens, Source: r.Source, Why: r.Why, Bytes: r.Bytes, Session: r.Session, Tenant: r.Tenant, Request: r.ID,
		MaxOutput: r.MaxOutput, Expected: r.Output, NextTurn: r.NextTurn, Priority: r.Priority, Deadline: r.Deadline,
		Target: d.Target, Replica: d.Replica.Name, Rank: d.Rank, Overlap: d.Overlap,
		Trust: win.Trust, Load: win.Load, Cost: win.Cost, NumAll: len(sc.cands),
	}
	rec.NumKept = s.keepCheapest(rec, sc.cands, pick)
}

// keepCheapest fills rec.Candidates with the winner and the cheapest others.
func (s *Scheduler) keepCheapest(rec *Receipt, cands []policy.Candidate, pick int) int {
	snap := s.fleet.Snapshot()
	line := func(c *policy.Candidate) Candidate {
		out := Candidate{Target: c.Target, Overlap: c.Overlap, Trust: c.Trust, Load: c.Load, Cost: c.Cost, Terms: c.Terms}
		if rep := snap.Replica(c.Target); rep != nil {
			out.Replica = rep.Name
		}
		return out
	}
	rec.Candidates[0] = line(&cands[pick])
	n := 1
	for i := range cands {
		if i == pick {
			continue
		}
		c := &cands[i]
		at := n
		for at > 1 && rec.Candidates[at-1].Cost > c.Cost {
			at--
		}
		if at >= ReceiptCandidates {
			continue
		}
		if n < ReceiptCandidates {
			n++
		}
		copy(rec.Candidates[at+1:n], rec.Candidates[at:n-1])
		rec.Candidates[at] = line(c)
	}
	return n
}

// Receipts appends the kept receipts to dst, newest first, at most limit of them
// (all with limit 0).
func (s *Scheduler) Receipts(dst []Receipt, limit int) []Receipt {
	g := &s.receipts
	g.mu.Lock()
	start := len(dst)
	for i := range g.buf {
		if g.buf[i].ID != 0 {
			dst = append(dst, g.buf[i])
		}
	}
	g.mu.Unlock()
	slices.SortFunc(dst[start:], func(a, b Receipt) int { return cmp.Compare(b.ID, a.ID) })
	if limit > 0 && len(dst)-start > limit {
		dst = dst[:start+limit]
	}
	return dst
}

// ReceiptsOverwritten counts decisions whose receipts the ring gave to later ones
// before their requests had ended: Hooks.Ended was not told of those.
func (s *Scheduler) ReceiptsOverwritten() uint64 {
	s.receipts.mu.Lock()
	defer s.receipts.mu.Unlock()
	return s.receipts.early
}

func modelNames(snap *fleet.Snapshot) []string {
	var out []string
	for _, g := range snap.Groups() {
		out = append(out, g.Model.ID)
	}
	return out
}
