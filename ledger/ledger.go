package ledger

import (
	"time"

	"kvasir/kv"
)

// A Ledger adds up what targets owe. The zero Ledger is not ready; use New.
// It is not safe for concurrent use.
type Ledger struct {
	cfg      Config
	targets  []*account // by target; nil until first used
	entries  []*entry   // by the low half of an ID
	free     []uint32   // unused entries, last in first out
	chunks   *chunk     // unused chunks
	idle     list       // entries that may expire, longest without progress first
	live     int
	expired  uint64
	admitted uint64

	checks sampler

	base    time.Time // times are kept as nanoseconds since the first one seen
	started bool
}

// New returns an empty ledger.
func New(cfg Config) *Ledger {
	return &Ledger{cfg: cfg, idle: list{none, none}}
}

// Admit books a request. In steady state it doesn't allocate; it takes time in
// proportion to the request's blocks. A target out of range books nothing and
// returns the zero ID. Ids of clients, and whether one is used twice, are the
// caller's business.
func (l *Ledger) Admit(now time.Time, a *Admission) ID {
	if int(a.Target) >= kv.MaxTargets {
		return 0
	}
	at := l.nanos(now)
	acc := l.account(a.Target)
	l.settle(acc, at)
	l.admitted++
	i := l.newEntry()
	e := l.entries[i]
	prompt := max(a.Prompt, 0)
	*e = entry{
		gen: e.gen, index: i, order: l.admitted, live: true, silent: a.Silent, connected: a.Connected, target: a.Target,
		prompt: prompt, uncached: min(max(a.Uncached, 0), prompt), expect: max(a.Output, 0),
		size: max(a.BlockSize, 0), hashed: len(a.Hashes), booked: max(a.Prefill, 0),
		admitted: at, touched: at,
		alone: acc.prefilling == 0, decoding: acc.requests - acc.prefilling, context: acc.decode + acc.output,
	}
	if acc.prefilling == 0 {
		acc.began, acc.admitted = at, 0
	}
	acc.admitted++
	if e.private = l.cfg.Private || a.Private; e.private {
		e.only = len(a.Hashes)
		acc.blocks += e.only
	} else {
		l.hold(acc, i, a.Hashes)
	}
	if e.size > 0 {
		// A partial tail, and all of a prompt whose tokens aren't known.
		e.grown = max(0, blocksOf(e.prompt, e.size)-len(a.Hashes))
		acc.blocks += e.grown
		l.addOnly(acc, e, e.grown)
	}
	acc.requests++
	acc.prefilling++
	acc.prompt += e.prompt
	acc.prefill += e.uncached
	acc.asked += uint64(e.uncached)
	e.asked = acc.asked
	acc.booked += e.booked
	acc.drained = max(acc.drained, at) + int64(e.booked)
	e.drained = acc.drained
	l.link(&acc.open, i, byTarget)
	if e.silent {
		l.link(&acc.silent, i, bySilent)
	}
	if !e.connected {
		l.link(&l.idle, i, byIdle)
	}
	l.live++
	if l.checks.due() {
		l.check()
	}
	return ID(e.gen)<<32 | ID(i)
}

// FirstToken ends a request's prefill: what it owed of it is released, and the
// target's clock is set to now plus the prefills that are still owed. It
// reports false, and does nothing, if that has happened before or if the
// request is not admitted (any more). Of a silent request it reports false, as
// its time says nothing about prefill.
func (l *Ledger) FirstToken(id ID, now time.Time) (kv.FirstToken, bool) {
	e := l.entry(id)
	if e == nil || e.prefilled {
		return kv.FirstToken{}, false
	}
	at := l.nanos(now)
	l.touch(e, uint32(id), at)
	l.first(e, at)
	if l.checks.due() {
		l.check()
	}
	if e.silent {
		return kv.FirstToken{}, false
	}
	acc := l.targets[e.target]
	return kv.FirstToken{
		Now: now, Target: e.target, Prompt: e.prompt, Cached: e.prompt - e.uncached,
		Latency: time.Duration(max(at-e.admitted, 0)), Alone: e.alone, Joined: int(acc.asked - e.asked),
		Decoding: e.decoding, Context: e.context,
		Busy: kv.BusyPeriod{For: time.Duration(max(at-acc.began, 0)), Admitted: acc.admitted, Owing: acc.prefilling},
	}, true
}

// Progress tells that n more tokens were generated; 0 is a mere sign of life. A
// token implies that prefill is over, so call FirstToken before. It reports
// whether the request is admitted.
func (l *Ledger) Progress(id ID, now time.Time, n int) bool {
	e := l.entry(id)
	if e == nil {
		return false
	}
	at := l.nanos(now)
	l.touch(e, uint32(id), at)
	if n <= 0 {
		return true
	}
	acc := l.targets[e.target]
	acc.advance(at)
	if !e.prefilled {
		l.first(e, at)
	}
	e.output += n
	acc.output += n
	if l.cfg.OutputBlocks && e.size > 0 {
		l.grow(acc, e)
	}
	if l.checks.due() {
		l.check()
	}
	return true
}

// Done ends a request and releases all it owes. It reports false, and does
// nothing, if the request is not admitted (any more).
func (l *Ledger) Done(id ID, now time.Time) (kv.Done, bool) {
	e := l.entry(id)
	if e == nil {
		return kv.Done{}, false
	}
	at := l.nanos(now)
	acc := l.targets[e.target]
	l.settle(acc, at)
	f := kv.Done{Now: now, Target: e.target, Prompt: e.prompt, Output: e.output}
	if e.prefilled && !e.silent && at > e.firstAt {
		f.Streaming = time.Duration(at - e.firstAt)
		s := float64(at - e.firstAt)
		f.Requests = (acc.requestTime - e.requestTime) / s
		f.Tokens = (acc.tokenTime - e.tokenTime) / s
		f.Prefills = int(acc.firsts - e.firsts)
		f.Stalled = max(acc.done(at)-e.before, 0)
	}
	l.release(acc, e, uint32(id), at)
	if l.checks.due() {
		l.check()
	}
	return f, true
}

// Expire ends every request whose owner doesn't hold its connection and that has
// shown no progress for ttl, and appends their IDs to dst. Age alone never ends
// a request. Times are expected not to run backwards; where they do, a request
// may expire later than it should.
func (l *Ledger) Expire(dst []ID, now time.Time, ttl time.Duration) []ID {
	at := l.nanos(now)
	for l.idle.head != none {
		i := l.idle.head
		e := l.entries[i]
		if at-e.touched < int64(ttl) {
			break
		}
		dst = append(dst, ID(e.gen)<<32|ID(i))
		acc := l.targets[e.target]
		acc.advance(at)
		l.release(acc, e, i, at)
		l.expired++
	}
	if l.checks.due() {
		l.check()
	}
	return dst
}

// Forget drops a target and every request on it, and returns how many those
// were. What its requests report later is ignored, also when the target's number
// has been given to another.
func (l *Ledger) Forget(t kv.Target) int {
	if int(t) >= len(l.targets) || l.targets[t] == nil {
		return 0
	}
	acc := l.targets[t]
	n := 0
	for acc.open.head != none {
		i := acc.open.head
		e := l.entries[i]
		l.unlink(&acc.open, i, byTarget)
		if !e.connected {
			l.unlink(&l.idle, i, byIdle)
		}
		l.freeEntry(e, i)
		n++
	}
	l.live -= n
	l.targets[t] = nil
	if l.checks.due() {
		l.check()
	}
	return n
}

// View returns what t owes. hashes are the full blocks of the request at hand,
// one chain in order, for NewBlocks; nil if nobody asks for that. It doesn't
// allocate and takes time in proportion to the logarithm of the blocks.
func (l *Ledger) View(t kv.Target, now time.Time, hashes []kv.Hash) kv.Load {
	if int(t) >= len(l.targets) || l.targets[t] == nil {
		return kv.Load{NewBlocks: len(hashes)}
	}
	acc := l.targets[t]
	at := l.nanos(now)
	l.settle(acc, at)
	v := kv.Load{
		Requests:     acc.requests,
		Prefilling:   acc.prefilling,
		Prefill:      acc.prefill,
		Prompt:       acc.prompt,
		DecodeBlocks: acc.weighted(),
		NewBlocks:    len(hashes),
		Decode:       acc.decode,
		Output:       acc.output,
	}
	if acc.booked > 0 {
		v.Wait = time.Duration(max(acc.drained-at, 0))
	}
	if !l.cfg.Private {
		v.NewBlocks -= acc.live.prefix(hashes)
	}
	return v
}

// Requests returns how many requests are admitted and not done.
func (l *Ledger) Requests() int { return l.live }

// Expired returns how many requests Expire has ended. It should stay at 0: each
// is an owner who forgot to say Done.
func (l *Ledger) Expired() uint64 { return l.expired }
