// Package ledger is the ledger of owed work: what each target has been asked to
// do and has not finished, as this router's own decisions add it up. Nothing is
// read from engines, so a booking is visible to the very next decision.
//
// It counts as Dynamo's ledger does (reference: ai-dynamo/dynamo
// lib/kv-router/src/sequences): a request owes its uncached prompt tokens from
// the pick to the first token, and its blocks from the pick to the end; blocks
// that several requests of one target share are counted once. Beside that it
// keeps the virtual clock of the policy `marginal`: when the prefills booked on a
// target will have drained, corrected at every first token.
//
// The ledger has no clock (now is an argument), no goroutine and no lock: the
// scheduler calls it in the critical section in which it picks.
package ledger

import (
	"time"

	"kvasir/kv"
)

// An ID names one admitted request. It holds a generation, so calls with the ID
// of a request that has ended, expired or been forgotten are harmless: they
// change nothing and report false. The zero ID names none.
type ID uint64

// Config says what the ledger counts.
type Config struct {
	// OutputBlocks counts the blocks that a request's output begins, beside
	// those of its prompt. Dynamo: track_output_blocks, off by default.
	OutputBlocks bool
	// Private counts blocks once for each request, also those that requests
	// share. Dynamo: assume_kv_reuse=false.
	Private bool
}

// An Admission is a request as it is booked.
type Admission struct {
	Target    kv.Target
	Hashes    []kv.Hash // of the prompt's full blocks, one chain in order, in the target's block size; copied
	BlockSize int       // tokens per block of Hashes; 0: only blocks with a hash are counted
	Prompt    int       // prompt tokens
	Uncached  int       // of those, not held by the target
	// Output is the number of output tokens expected, 0 if no one said. With
	// Config.OutputBlocks the weight of the blocks that the request alone has
	// falls to 0 on the way there.
	Output  int
	Private bool // as Config.Private, for this request
	// Prefill is the predicted duration of this request's own prefill, waiting
	// excluded. 0 if the policy doesn't predict time.
	Prefill time.Duration
	// Silent says that the answer comes whole, so that no first token will be
	// seen. Prefill is then taken to be over when it should be, or when a
	// request admitted later has its first token, as engines serve in order.
	Silent bool
	// Connected says that the owner holds the request's connection and will
	// call Done whatever happens: such a request never expires.
	Connected bool
}
