// Package trace reads and writes workloads: request logs with arrival times,
// sessions of agents, and the receipts that the router itself writes. It also
// makes prompts whose text and tokens are equal where block ids are equal.
//
// Formats that Open detects, plain or gzip:
//
//	mooncake  {"timestamp": ms, "input_length": n, "output_length": n, "hash_ids": [..]}
//	cell      {"id": n, "t": s, "input": n, "output": n, "session": "..", "blocks": [..]}
//	turns     {"session": n, "turns": [{"think": s, "input": n, "output": n, "blocks": [..]}, ..]}
//	weka      {"id": "..", "tool": n, "sys": n, "main": [[t, in, out, think, api, [ids]], ..], "subs": [[start, [..]], ..]}
//	receipts  {"kvasir": "receipts", "version": 1, ..}, then lines of package receipt
//
// All are JSON Lines. Block ids stand for 512 tokens and everything before them.
// The field descriptions are in traces/README and cells/README of the data.
package trace

import "fmt"

// BlockSize is the tokens per block id in every format above, unless a line of
// turns or a receipt says otherwise ("block_size").
const BlockSize = 512

// A Request is one line of an open-loop trace.
type Request struct {
	ID      int64
	At      float64 // arrival, seconds since the trace's origin, at speed 1
	Input   int     // tokens
	Output  int     // tokens, at least 1
	Session string  // "" if the trace has none

	// Blocks are the ids of the full blocks of BlockSize tokens.
	Blocks    []uint64
	BlockSize int
}

// A Session is a conversation that is played closed loop: the next turn starts
// its Think time after the last one has ended.
type Session struct {
	ID        string
	Turns     []Turn
	BlockSize int // tokens per block id
}

// A Turn is one request of a session.
type Turn struct {
	Think  float64 // seconds after the end of the turn before
	Input  int     // tokens
	Output int     // tokens, at least 1
	Blocks []uint64
}

// A LineError says what is wrong with one line.
type LineError struct {
	File  string
	Line  int    // from 1
	Field string // "" if the line is no JSON object at all
	Msg   string // value and accepted range
}

func (e *LineError) Error() string {
	if e.Field == "" {
		return fmt.Sprintf("%s:%d: %s (--skip-bad counts such lines and goes on)", e.File, e.Line, e.Msg)
	}
	return fmt.Sprintf("%s:%d: field %q: %s (--skip-bad counts such lines and goes on)", e.File, e.Line, e.Field, e.Msg)
}

// Limits on what a line may say. A trace comes from outside.
const (
	maxLine   = 64 << 20 // bytes
	maxTokens = 1 << 28  // per prompt or answer
	maxTime   = 1e10     // seconds
)
