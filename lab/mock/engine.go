package mock

import (
	"fmt"
	"math"
	"time"

	"kvasir/kv"
)

// An Admission says when a request may leave the queue and what it allocates.
type Admission uint8

const (
	// Paged is vLLM: a request is admitted when its whole prompt fits, takes
	// blocks as its tokens are computed, and the youngest running request is
	// preempted when a decoding one finds no free block.
	Paged Admission = iota
	// Reserved is the reference simulator (docs/mock.md, "Reserved admission"): room
	// for prompt and whole output is taken at admission, nothing is preempted,
	// all prompt blocks are findable from that moment, blocks beyond a hole are
	// found again instead of copied, and output is never cached.
	Reserved
)

// Config says how an engine is built.
type Config struct {
	Profile   Profile
	BlockSize int // tokens per block, at least 1
	// Blocks is the size of the pool; 0 means floor(Profile.KVTokens/BlockSize).
	// (vLLM's --num-gpu-blocks-override N leaves N-1 usable blocks.)
	Blocks    int
	Admission Admission
	// HostBlocks is the size of a second cache in the machine's memory (host.go);
	// 0: none. Paged only.
	HostBlocks int
	// Stream makes every step a token: Progress has an entry for each decoding
	// request at each step. Without it, a Reserved engine takes all decode steps
	// up to the next completion or arrival in one stride, and reports tokens at
	// first token and completion only.
	Stream bool
	// Instant hands out events when the cache changes (Advance and Drain), not at
	// the end of the step that changed it.
	Instant bool
	// Pool, if set, is shared with other engines, which makes one cache of them
	// (a reference point, not a real machine). Blocks is ignored.
	Pool *Pool
}

// An Engine is one modelled replica. The zero Engine is not usable: see New.
type Engine struct {
	cfg  Config
	pool *Pool
	host *hostTier // nil: none

	now    float64 // start of the step in progress, or the last known time
	end    float64 // end of the step in progress
	busy   bool    // a step is in progress
	mixed  bool    // it computes prompt tokens
	idle   bool    // it only waits for the host tier
	stride int     // decode steps in it
	a, b   float64 // decode stride: step j lasts a + b*j

	waiting queue    // in order of arrival; preempted ones in front
	pref    []*seq   // admitted, prompt not finished
	fin     []*seq   // prompt finished by the step in progress
	dec     []*seq   // decoding, in order of admission (Paged or Stream)
	ends    []ending // heap: when each decoding sequence finishes
	nd      int      // decoding sequences
	kv      int      // their context tokens
	ds      int64    // decode steps so far

	seqs     map[uint64]*seq
	spare    []*seq
	aborts   int    // running requests to drop at the end of the step
	done     []*seq // scratch of complete
	events   []Event
	admitted []uint64
	busyFor  float64
	stats    Stats
}

// New returns an idle engine with an empty cache, or an error that names the
// field, its value and the accepted range.
func New(c Config) (*Engine, error) {
	if err := c.Profile.validate(); err != nil {
		return nil, err
	}
	if c.BlockSize < 1 {
		return nil, fmt.Errorf("engine model: BlockSize is %d, must be at least 1 token", c.BlockSize)
	}
	if c.Pool != nil {
		c.Blocks = len(c.Pool.blocks)
	}
	if c.Blocks == 0 {
		c.Blocks = c.Profile.KVTokens / c.BlockSize
	}
	if c.Blocks < 1 || c.Blocks > math.MaxInt32-1 {
		return nil, fmt.Errorf("engine model: Blocks is %d, must be between 1 and %d (KVTokens %d, BlockSize %d)",
			c.Blocks, math.MaxInt32-1, c.Profile.KVTokens, c.BlockSize)
	}
	if c.Admission > Reserved {
		return nil, fmt.Errorf("engine model: Admission is %d, must be Paged or Reserved", c.Admission)
	}
	if c.HostBlocks < 0 || c.HostBlocks > math.MaxInt32-1 || c.HostBlocks > 0 && c.Admission != Paged {
		return nil, fmt.Errorf("engine model: HostBlocks is %d, must be between 0 and %d, and 0 unless Admission is Paged", c.HostBlocks, math.MaxInt32-1)
	}
	e := &Engine{cfg: c, pool: c.Pool, seqs: map[uint64]*seq{}}
	if c.HostBlocks > 0 {
		e.host = &hostTier{pool: NewPool(c.HostBlocks)}
	}
	if e.pool == nil {
		e.pool = NewPool(c.Blocks)
	}
	return e, nil
}

// Config returns the configuration with its defaults filled in.
func (e *Engine) Config() Config { return e.cfg }

// Submit puts r at the end of the queue. An idle engine starts a step at once;
// now is the time of arrival since some origin of the caller's.
func (e *Engine) Submit(r *Request, now time.Duration) error { return e.SubmitAt(r, seconds(now)) }

// Next returns when the step in progress ends, and false if the engine is idle.
// Submit and Abort may change the answer.
func (e *Engine) Next() (at time.Duration, busy bool) {
	if !e.busy {
		return 0, false
	}
	return time.Duration(math.Ceil(e.end * 1e9)), true
}

// maxLate is how late a caller's clock may be for the next step to start where
// the last one ended, so that timer lateness doesn't add up. Beyond it (the
// process was stopped, or can't keep up) time is lost instead of caught up.
const maxLate = 0.25

// Advance completes the step that ends at now, fills out, and starts the next
// step if there is work. Before the end of the step, or when idle, it only
// empties out.
func (e *Engine) Advance(now time.Duration, out *Outcome) {
	t := seconds(now)
	if !e.busy || float64(now) < math.Ceil(e.end*1e9) {
		out.clear()
		return
	}
	if t > e.end && t-e.end <= maxLate {
		t = e.end
	}
	e.AdvanceAt(math.Max(t, e.end), out)
}

// Abort forgets request id: at once if it waits, at the end of the step in
// progress if it runs. Its blocks stay cached. No Progress follows. An unknown
// id is ignored.
func (e *Engine) Abort(id uint64, now time.Duration) { e.AbortAt(id, seconds(now)) }

// Reset empties the prefix cache, the host tier included. It does
// nothing and returns false while requests hold blocks. The Cleared event comes
// with the next step that schedules a request.
func (e *Engine) Reset() bool {
	if e.pool.used() > 0 {
		return false
	}
	e.pool.forget()
	if e.host != nil {
		e.host.pool.forget()
	}
	e.events = append(e.events, Event{Kind: kv.Cleared})
	return true
}

// Stats returns gauges and counters.
func (e *Engine) Stats() Stats {
	s := e.stats
	s.Waiting = e.waiting.len()
	s.Running = len(e.pref) + len(e.fin) + e.nd
	s.Blocks = len(e.pool.blocks)
	s.BlocksUsed = e.pool.used()
	s.BlocksHeld = e.pool.held
	s.Usage = float64(s.BlocksUsed) / float64(s.Blocks)
	s.KVTokens = e.kv
	if e.host != nil {
		s.HostHeld, s.Loading = e.host.pool.held, len(e.host.loads)
	}
	return s
}

// Truth appends every hash that the engine holds to dst, each once, in the order
// of its physical blocks, and returns it.
func (e *Engine) Truth(dst []kv.Hash) []kv.Hash { return e.pool.truth(dst) }

// TruthOnHost does the same for the host tier.
func (e *Engine) TruthOnHost(dst []kv.Hash) []kv.Hash {
	if e.host == nil {
		return dst
	}
	return e.host.pool.truth(dst)
}

// Copies returns in how many physical blocks h is held.
func (e *Engine) Copies(h kv.Hash) int { return e.pool.copies(h) }

// Match returns how many leading blocks are held.
func (e *Engine) Match(blocks []kv.Hash) int { return e.pool.match(blocks) }

// Busy returns the seconds of work done: steps with prompt tokens counted at
// their start, decode strides at their end.
func (e *Engine) Busy() float64 { return e.busyFor }

func seconds(d time.Duration) float64 { return float64(d) / 1e9 }
