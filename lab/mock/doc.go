// Package mock is a modelled LLM engine: what one vLLM replica does with time
// and with its KV cache, without a clock, a goroutine or a socket. Time is an
// argument, so one model serves `kvasir mock` in real time and `kvasir sim`
// in virtual time.
//
// # Use
//
// The owner of an Engine calls Submit when a request arrives, asks Next when the
// step in progress ends, and calls Advance at that moment; the Outcome says which
// requests got tokens and what the engine announces about its cache, in the
// engine's own order:
//
//	e, err := model.New(model.Config{Profile: model.Profile8B, BlockSize: 16, Blocks: 4096, Stream: true})
//	err = e.Submit(&model.Request{ID: 1, Prompt: 6200, Output: 300, Blocks: hashes}, now)
//	for {
//		at, busy := e.Next()
//		if !busy { /* wait for the next Submit */ }
//		/* wait until at, or until another Submit or Abort; ask Next again after each */
//		e.Advance(at, &out)
//	}
//
// An Engine is not safe for concurrent use.
//
// # Steps
//
// Continuous batching with chunked prefill (vLLM's V1 scheduler; docs/mock.md
// has the constants and where they come from). A step takes one
// token of every decoding sequence and fills the rest of the token budget with
// prompt tokens, strictly first come first served: the head of the queue blocks
// everyone behind it. Its length in seconds is
//
//	c0 + cp*tok + ca*att + ckv*kv + cd*nd
//
// with tok prompt tokens, att = sum over chunks of c*(pos + c/2) (each new token
// attends to the context before it: quadratic in the prompt), kv tokens of
// context held by the nd decoding sequences. A step without prompt tokens lasts
// c0 + cd*nd + ckv*kv, and kv grows by nd with each. c0 is the cost of launching
// a step and of reading the weights, cp compute per token (2*parameters/FLOPs),
// ca attention per pair, ckv KV bytes per token over memory bandwidth, cd
// per-sequence overhead.
//
// # Cache
//
// A pool of physical blocks with reference counts. Freed blocks stay findable
// and go to the young end of one queue, the tail of a chain first, so the tail
// is evicted first; a block loses its content only when it is allocated again
// (vllm/v1/core/block_pool.py). A prompt uses at most n-1 cached tokens, whole
// blocks only: floor((n-1)/B)*B. One hash may live in several physical blocks.
//
// # Events
//
// As vLLM 0.32 emits them (docs/mock.md, "vLLM's events"): in the
// order of the step's work, at the step's end; one Removed with one hash for
// each block taken over; Stored for every block that became full, also when the
// hash is held already (another physical copy) and when output tokens filled it;
// Cleared after a reset only together with the next step that schedules a
// request.
package mock
