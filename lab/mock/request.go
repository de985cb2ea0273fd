package mock

import (
	"fmt"

	"kvasir/kv"
)

// A Request is one prompt and the number of tokens to generate. It belongs to
// the Engine from Submit until the Outcome that says Done (or until Abort): the
// caller must not change it meanwhile.
type Request struct {
	ID     uint64 // unique among the requests of one engine
	Prompt int    // tokens, at least 1
	Output int    // tokens, at least 1
	// Blocks are the chained hashes of the full blocks of prompt and output, in
	// order, opaque to the model. Shorter is allowed: blocks beyond its end are
	// private, never found and never announced. A partial block has no hash.
	Blocks []kv.Hash
}

// An Outcome is what one step brought. The caller owns it and passes it to
// Advance again and again, so that its memory is reused.
type Outcome struct {
	// Progress in this order: first tokens, then further tokens (only with
	// Config.Stream), then completions. A request that ends with its first
	// token has two entries.
	Progress []Progress
	// Events of the step, in the engine's order. The caller turns them into one
	// batch (vLLM publishes one per step; none if there are no events).
	Events []Event
	// Admitted are the requests that left the queue for the batch.
	Admitted []uint64
}

// A Progress is what one request got from a step.
type Progress struct {
	ID     uint64
	Tokens int  // output tokens since the last report
	First  bool // with its first token
	Cached int  // with First: prompt tokens that came from a cache
	Host   int  // with First: of those, tokens loaded from the host tier
	Done   bool // complete; the engine has forgotten the request
}

// An Event is one change of the cache, as the engine announces it.
type Event struct {
	Kind kv.Kind
	Tier kv.Tier
	// Stored: the blocks Request.Blocks[First:First+N] of request ID, which the
	// event aliases in Hashes. Parent is Blocks[First-1], 0 if First is 0.
	ID     uint64
	First  int
	N      int
	Hashes []kv.Hash
	Parent kv.Hash
	// Removed: the hash of the one physical block that was taken over.
	Hash kv.Hash
}

func (o *Outcome) clear() {
	o.Progress = o.Progress[:0]
	o.Events = o.Events[:0]
	o.Admitted = o.Admitted[:0]
}

// Stats are gauges and counters as an engine's /metrics would show them.
type Stats struct {
	Waiting     int     // requests in the queue
	Running     int     // requests in the batch
	Blocks      int     // capacity in blocks
	BlocksUsed  int     // blocks that running requests refer to
	BlocksHeld  int     // blocks with findable content, used or not
	Usage       float64 // BlocksUsed/Blocks; 0 when idle, even with a full cache
	KVTokens    int     // context tokens of the decoding sequences
	Preemptions int     // since the start
	Queries     int     // prompt tokens looked up in the prefix cache since the start
	Hits        int     // of those, tokens found on the GPU
	HostHits    int     // and tokens loaded from the host tier
	HostHeld    int     // blocks that the host tier holds
	Loading     int     // requests that wait for blocks from there
	Prompt      int     // prompt tokens of finished prefills since the start
	Generated   int     // output tokens since the start
}

func (r *Request) validate(c *Config) error {
	if r.Prompt < 1 {
		return fmt.Errorf("request %d: Prompt is %d tokens, must be at least 1", r.ID, r.Prompt)
	}
	if r.Output < 1 {
		return fmt.Errorf("request %d: Output is %d tokens, must be at least 1", r.ID, r.Output)
	}
	if most := (r.Prompt + r.Output) / c.BlockSize; len(r.Blocks) > most {
		return fmt.Errorf("request %d: %d block hashes, but %d+%d tokens have %d full blocks of %d",
			r.ID, len(r.Blocks), r.Prompt, r.Output, most, c.BlockSize)
	}
	if need := ceilDiv(r.Prompt+r.Output, c.BlockSize); need > c.Blocks {
		return fmt.Errorf("request %d: %d+%d tokens need %d blocks, the pool has %d: shorten the request or give the engine more blocks",
			r.ID, r.Prompt, r.Output, need, c.Blocks)
	}
	return nil
}

func ceilDiv(a, b int) int { return (a + b - 1) / b }
