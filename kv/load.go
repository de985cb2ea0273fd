package kv

import "time"

// A Load is the work that a target owes, as the router's own ledger sees it.
type Load struct {
	Requests     int // admitted and not done
	Prefilling   int // of those, without a first token yet
	Prefill      int // tokens to compute before those have their first token
	Prompt       int // prompt tokens of all requests admitted and not done
	DecodeBlocks int // distinct blocks of all requests admitted and not done
	NewBlocks    int // blocks that the request at hand would add to DecodeBlocks
	Decode       int // prompt tokens of those requests that have their first token
	Output       int // tokens generated so far by all requests admitted and not done

	// Wait is how long the prefills booked there are expected to keep a
	// newcomer waiting; 0 if the policy in use doesn't predict time.
	Wait time.Duration
}

// A Gauge is what an engine reports of its own load. The zero Gauge is unknown: the
// engine has not told it, or too long ago; then its numbers mean nothing.
type Gauge struct {
	Running int       `json:"running"`  // requests in the batch
	Waiting int       `json:"waiting"`  // requests in the engine's queue
	KVUsage float64   `json:"kv_usage"` // share of the GPU pool in use by running requests, 0 to 1
	At      time.Time `json:"at"`       // of the report
}

// Known reports whether the engine has told it.
func (g *Gauge) Known() bool { return !g.At.IsZero() }
