// Package receipt keeps the router's receipts in a file: one JSON line for each
// decision whose request has ended. The file has counts, times and one-way names,
// and neither text nor tokens of a prompt; `kvasir sim -i FILE` plays it again.
// docs/receipts.md describes it for people who read such files.
//
// Where to begin: line.go is the schema, log.go takes receipts off the hands of
// requests, file.go writes and rotates, parse.go reads.
package receipt

import "time"

// Version is the version of the schema that this package writes. Parse refuses
// later ones.
const Version = 1

// A Header is the first line of each file.
type Header struct {
	Kvasir  string    `json:"kvasir"`  // "receipts"
	Version int       `json:"version"` // of the schema
	Run     string    `json:"run"`     // equal for all files of one run of the router; names and blocks mean something within a run only
	Start   time.Time `json:"start"`   // of the run: what At counts from
	Program string    `json:"program,omitempty"`
}

// A Line is one decision and what came of it. Tokens are those of the prompt where
// nothing else is said; times are in seconds.
type Line struct {
	At      float64 `json:"at"`                // of the decision, since the header's Start
	ID      uint64  `json:"id"`                // decisions of a run are numbered from 1; what is missing is not in the log
	Request string  `json:"request,omitempty"` // X-Request-Id; equal for all attempts of one request
	Model   string  `json:"model,omitempty"`
	Session string  `json:"session,omitempty"` // one-way, see Blind
	Tenant  string  `json:"tenant,omitempty"`  // one-way
	Policy  string  `json:"policy"`
	Branch  string  `json:"branch,omitempty"` // which of the policy's rules decided

	Tokens    int     `json:"prompt_tokens"`          // 0: not known
	Source    string  `json:"token_source,omitempty"` // where they came from
	Bytes     int     `json:"bytes,omitempty"`        // of the body
	MaxOutput int     `json:"max_output_tokens,omitempty"`
	Expected  int     `json:"expected_output_tokens,omitempty"` // as a client hinted
	NextTurn  float64 `json:"next_turn_s,omitempty"`            // as a client hinted
	Priority  int     `json:"priority,omitempty"`

	Replica    string      `json:"replica"`
	Rank       int         `json:"rank"`
	Target     int         `json:"target"`                  // the router's number for that rank of that replica
	Predicted  int         `json:"predicted_cached_tokens"` // held there by what engines have reported: gpu, host and disk together
	Candidates []Candidate `json:"candidates,omitempty"`    // the winner first, then by cost; the cheapest only
	Considered int         `json:"candidates_considered"`

	Outcome      string  `json:"outcome"`                        // completed, cancelled or failed
	First        float64 `json:"first_token_s,omitempty"`        // since the decision; absent: none came
	Took         float64 `json:"took_s"`                         // since the decision
	Output       int     `json:"output_tokens"`                  // as far as told
	ServedPrompt *int    `json:"served_prompt_tokens,omitempty"` // as the engine reported; absent: it didn't
	ServedCached *int    `json:"served_cached_tokens,omitempty"`

	BlockSize int    `json:"block_size,omitempty"` // tokens
	Blocks    Blocks `json:"blocks,omitempty"`     // of the prompt's full blocks, from its start
}

// A Candidate is what was known of one target at the decision.
type Candidate struct {
	Replica      string   `json:"replica"`
	Target       int      `json:"target"`
	GPU          int32    `json:"gpu"` // tokens held there, from the prompt's start
	Host         int32    `json:"host,omitempty"`
	Disk         int32    `json:"disk,omitempty"`
	Dispatched   int32    `json:"dispatched,omitempty"` // what gpu would gain by requests sent there whose blocks the engine hasn't reported
	Trust        string   `json:"trust"`
	Requests     int      `json:"requests"`       // admitted and not done
	Prefill      int      `json:"prefill_tokens"` // owed
	DecodeBlocks int      `json:"decode_blocks"`
	Cost         *float64 `json:"cost,omitempty"` // in the policy's unit; absent: would not go there at all
}
