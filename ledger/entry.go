package ledger

import (
	"time"

	"kvasir/kv"
)

// An entry is one admitted request. Entries are pooled: the generation tells
// uses of the same entry apart.
type entry struct {
	gen       uint32
	index     uint32 // in Ledger.entries
	live      bool
	connected bool
	private   bool // its blocks are counted, not compared
	prefilled bool // has its first token
	silent    bool // none will be seen
	alone     bool
	target    kv.Target

	prompt, uncached, output int // tokens
	expect                   int // expected output, 0: unknown
	size                     int // tokens per block
	hashed                   int // blocks of the prompt that have a hash
	grown                    int // blocks begun that have none: the prompt's tail and the output's
	only                     int // blocks that no other request on the target has
	faded                    int64
	hashes                   *chunk // of the prompt, in any order of chunks

	booked                     time.Duration
	order                      uint64 // of admission
	admitted, firstAt, touched int64
	drained                    int64  // when its prefill should be over
	decoding, context          int    // on the target when admitted
	asked                      uint64 // the account's, this request included

	// The account's integrals and count at the first token.
	requestTime, tokenTime float64
	firsts                 uint64
	before                 time.Duration // computed until then

	links [numLists]link
}

// one is the weight of a whole block: weights are fixed-point, so that sums are
// exact and a drained ledger is exactly zero.
const one = 1 << 16

// A chunk is a piece of an entry's hashes. They are shared out from one list, so
// memory follows the blocks that were in flight at the peak, not the longest
// prompt times the number of entries.
type chunk struct {
	next   *chunk
	n      int
	hashes [62]kv.Hash
}

// An account is what one target owes.
type account struct {
	requests, prefilling            int
	prefill, prompt, decode, output int
	blocks                          int   // distinct blocks, those of outputs included
	faded                           int64 // what expected outputs take off blocks, in units of 1/one block
	live                            table // blocks of prompts, shared ones counted
	open                            list  // all entries
	silent                          list  // those in prefill of which no first token will be seen
	booked                          time.Duration
	drained                         int64 // when the booked prefills will have been computed
	since                           int64 // when the integrals were last advanced
	requestTime, tokenTime          float64
	asked                           uint64        // uncached tokens of all admissions so far
	began                           int64         // of the busy period: since when prefill is owed without a pause
	admitted                        int           // requests since then
	firsts                          uint64        // first tokens so far
	past                            time.Duration // the prefills booked for those
}

// advance brings the integrals of requests and tokens over time up to at. Call
// it before anything changes.
func (a *account) advance(at int64) {
	if at > a.since {
		dt := float64(at - a.since)
		a.requestTime += dt * float64(a.requests-a.prefilling)
		a.tokenTime += dt * float64(a.decode+a.output)
		a.since = at
	}
}

// done returns how much of the prefills booked so far has been computed by at:
// those that had their first token, and the progress of the rest since the clock
// was last set.
func (a *account) done(at int64) time.Duration {
	left := time.Duration(max(a.drained-at, 0))
	return a.past + max(a.booked-left, 0)
}

// weighted returns the blocks, faded ones in proportion, rounded to nearest.
func (a *account) weighted() int {
	return int((int64(a.blocks)*one - a.faded + one/2) / one)
}

func (l *Ledger) nanos(now time.Time) int64 {
	if !l.started {
		l.started, l.base = true, now
	}
	return int64(now.Sub(l.base))
}

func (l *Ledger) account(t kv.Target) *account {
	for int(t) >= len(l.targets) {
		l.targets = append(l.targets, nil)
	}
	if l.targets[t] == nil {
		l.targets[t] = &account{open: list{none, none}, silent: list{none, none}}
	}
	return l.targets[t]
}

// entry returns the live entry of id, nil if there is none.
func (l *Ledger) entry(id ID) *entry {
	i := uint32(id)
	if int(i) >= len(l.entries) {
		return nil
	}
	if e := l.entries[i]; e.live && e.gen == uint32(id>>32) {
		return e
	}
	return nil
}

func (l *Ledger) newEntry() uint32 {
	if n := len(l.free); n > 0 {
		i := l.free[n-1]
		l.free = l.free[:n-1]
		e := l.entries[i]
		if e.gen++; e.gen == 0 { // 0 would make the ID of entry 0 the zero ID
			e.gen = 1
		}
		return i
	}
	l.entries = append(l.entries, &entry{gen: 1, index: uint32(len(l.entries))})
	return uint32(len(l.entries) - 1)
}

func (l *Ledger) freeEntry(e *entry, i uint32) {
	for c := e.hashes; c != nil; {
		next := c.next
		c.next, l.chunks = l.chunks, c
		c = next
	}
	e.hashes = nil
	e.live = false
	l.free = append(l.free, i)
}

// touch notes a sign of life.
func (l *Ledger) touch(e *entry, i uint32, at int64) {
	if at <= e.touched {
		return
	}
	e.touched = at
	if !e.connected && l.idle.tail != i {
		l.unlink(&l.idle, i, byIdle)
		l.link(&l.idle, i, byIdle)
	}
}

// first moves e from prefill to decode. The clock rule is that of docs/mock.md,
// "The reference's view": what the engine has computed is known now, so the drain time is now plus
// the rest, whether it had been thought earlier or later.
func (l *Ledger) first(e *entry, at int64) {
	acc := l.targets[e.target]
	acc.advance(at)
	for i := acc.silent.head; i != none && l.entries[i].order < e.order; i = acc.silent.head {
		l.computed(acc, l.entries[i], at)
	}
	l.computed(acc, e, at)
	acc.drained = at + int64(acc.booked)
}

// computed moves e from prefill to decode. It leaves the clock alone.
func (l *Ledger) computed(acc *account, e *entry, at int64) {
	e.prefilled = true
	e.firstAt = at
	acc.prefilling--
	acc.prefill -= e.uncached
	acc.decode += e.prompt
	acc.booked -= e.booked
	if e.silent {
		l.unlink(&acc.silent, e.index, bySilent)
	}
	acc.firsts++
	acc.past += e.booked
	e.requestTime, e.tokenTime, e.firsts, e.before = acc.requestTime, acc.tokenTime, acc.firsts, acc.past
}

// settle brings an account up to at: its integrals, and the silent requests whose
// prefill should be over.
func (l *Ledger) settle(acc *account, at int64) {
	acc.advance(at)
	for i := acc.silent.head; i != none; i = acc.silent.head {
		e := l.entries[i]
		if e.booked == 0 || e.drained > at {
			return
		}
		l.computed(acc, e, at)
	}
}

// release takes e off its account. The account must have been advanced.
func (l *Ledger) release(acc *account, e *entry, i uint32, at int64) {
	acc.requests--
	acc.prompt -= e.prompt
	acc.output -= e.output
	if e.prefilled {
		acc.decode -= e.prompt
	} else {
		acc.prefilling--
		acc.prefill -= e.uncached
		acc.booked -= e.booked
		acc.drained = max(acc.drained-int64(e.booked), at)
		if e.silent {
			l.unlink(&acc.silent, i, bySilent)
		}
	}
	if e.private {
		acc.blocks -= e.only
		acc.faded -= e.faded * int64(e.only)
	} else {
		l.drop(acc, e, i)
	}
	l.unlink(&acc.open, i, byTarget)
	if !e.connected {
		l.unlink(&l.idle, i, byIdle)
	}
	l.freeEntry(e, i)
	l.live--
}

// hold counts the blocks of entry i and keeps their hashes.
func (l *Ledger) hold(acc *account, i uint32, hashes []kv.Hash) {
	e := l.entries[i]
	for len(hashes) > 0 {
		c := l.chunks
		if c != nil {
			l.chunks = c.next
		} else {
			c = new(chunk)
		}
		c.n = copy(c.hashes[:], hashes)
		hashes = hashes[c.n:]
		c.next, e.hashes = e.hashes, c
		for _, h := range c.hashes[:c.n] {
			refs, sole := acc.live.add(h, i)
			switch refs {
			case 1:
				acc.blocks++
				l.addOnly(acc, e, 1)
			case 2: // not only the other's any more
				l.addOnly(acc, l.entries[sole], -1)
			}
		}
	}
}

// drop is the reverse of hold, for output blocks too.
func (l *Ledger) drop(acc *account, e *entry, i uint32) {
	for c := e.hashes; c != nil; c = c.next {
		for _, h := range c.hashes[:c.n] {
			refs, sole := acc.live.remove(h, i)
			switch refs {
			case 0:
				acc.blocks--
				l.addOnly(acc, e, -1)
			case 1:
				l.addOnly(acc, l.entries[sole], 1)
			}
		}
	}
	acc.blocks -= e.grown
	l.addOnly(acc, e, -e.grown)
}

// addOnly changes the number of blocks that e alone has. They fade with its
// output; shared ones don't.
func (l *Ledger) addOnly(acc *account, e *entry, n int) {
	e.only += n
	acc.faded += e.faded * int64(n)
}

// grow counts the blocks that e's output has begun. At each new one the weight of
// all that e alone has falls to the share of its expected output that is still
// to come (Dynamo: decay_fraction of add_output_block).
func (l *Ledger) grow(acc *account, e *entry) {
	grown := blocksOf(e.prompt+e.output, e.size) - e.hashed
	add := grown - e.grown
	if add <= 0 {
		return
	}
	e.grown = grown
	acc.blocks += add
	l.addOnly(acc, e, add)
	if e.expect > 0 {
		faded := int64(min(e.output, e.expect)) * one / int64(e.expect)
		acc.faded += (faded - e.faded) * int64(e.only)
		e.faded = faded
	}
}

// blocksOf returns how many blocks tokens begin.
func blocksOf(tokens, size int) int { return (tokens + size - 1) / size }
