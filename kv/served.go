package kv

import "time"

// A FirstToken is what is known of a request when its first token arrives: how long
// its prefill took, and beside what. The ledger writes it, but for the fields that
// only the scheduler knows (the last ones).
type FirstToken struct {
	Now     time.Time
	Target  Target
	Prompt  int           // prompt tokens
	Cached  int           // of those, held by the target: as believed at dispatch, or as the engine reported
	Latency time.Duration // from dispatch to the first token
	// Alone: no other prefill was owed on the target at dispatch, so Latency is the
	// request's own prefill and not someone else's.
	Alone bool
	// Joined is the uncached tokens of requests dispatched there since. The engine may
	// have computed them in the same steps, and then Latency is theirs too.
	Joined   int
	Decoding int // requests that were decoding there at dispatch
	Context  int // their prompt tokens and output so far
	Busy     BusyPeriod

	Tag      uint64 // the policy's own name for the placement, 0 if it gave none
	MaxBatch int    // tokens that the engine computes per step, 0 if unknown
	FromPeer bool   // another router placed it, so the times are those of its news and not the engine's
}

// A BusyPeriod (queueing theory's word) is the time from when a target begins to owe
// prefill until it owes none. What it computes meanwhile is known, though nobody can
// tell whose turn it is.
type BusyPeriod struct {
	For      time.Duration // so far
	Admitted int           // requests dispatched there since it began
	Owing    int           // of those, still without a first token
}

// A Done is what is known of a request when it ends. The ledger writes it, but for
// the fields that only the scheduler knows (the last ones).
type Done struct {
	Now       time.Time
	Target    Target
	Prompt    int           // prompt tokens
	Output    int           // tokens generated
	Streaming time.Duration // from the first token to the end, 0 if none was seen

	// What decoded on the target meanwhile, this request included: means over
	// Streaming.
	Requests float64 // number of requests
	Tokens   float64 // of their prompts and outputs so far

	// Prefills is how many other requests had their first token on the target
	// meanwhile, and Stalled how much of the prefills booked there was computed in that
	// time: the request has waited for that.
	Prefills int
	Stalled  time.Duration

	Tag      uint64 // as FirstToken.Tag
	Failed   bool   // no complete answer: don't learn from its length
	FromPeer bool   // as FirstToken.FromPeer
}
