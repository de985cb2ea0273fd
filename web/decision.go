package web

import (
	"math"
	"time"

	"kvasir/kv"
	"kvasir/sched"
)

// A Decision is a receipt as JSON. Tokens are those of the prompt.
type Decision struct {
	ID      uint64    `json:"id"`
	At      time.Time `json:"at"`
	Model   string    `json:"model"`
	Policy  string    `json:"policy"`
	Branch  string    `json:"branch,omitempty"` // which of the policy's rules decided
	Session string    `json:"session,omitempty"`

	// What the client said of itself and of the answer.
	Tenant     string   `json:"tenant,omitempty"`
	Priority   int      `json:"priority,omitempty"`
	DeadlineMS *float64 `json:"deadline_ms,omitempty"`
	NextTurnMS *float64 `json:"next_turn_ms,omitempty"`
	MaxOutput  int      `json:"max_output_tokens,omitempty"`
	Expected   int      `json:"expected_output_tokens,omitempty"`

	Tokens int    `json:"prompt_tokens"`          // 0: not known
	Source string `json:"token_source,omitempty"` // where they came from
	Why    string `json:"no_tokens,omitempty"`    // why they are not known

	Replica string  `json:"replica"`
	Rank    int     `json:"rank"`
	Overlap Overlap `json:"overlap"`
	Cost    float64 `json:"cost"`
	Unit    string  `json:"cost_unit,omitempty"`

	Candidates []Candidate `json:"candidates"` // the winner first, then by cost
	Considered int         `json:"candidates_considered"`

	Outcome      string   `json:"outcome"`
	FirstTokenMS *float64 `json:"first_token_ms"`
	TookMS       *float64 `json:"took_ms"`
	Output       int      `json:"output_tokens,omitempty"`

	ServedPrompt *int `json:"served_prompt_tokens"` // as the engine reported
	ServedCached *int `json:"served_cached_tokens"`
}

// An Overlap is what a target holds of the prompt, in tokens.
type Overlap struct {
	GPU       int32 `json:"gpu"`
	Host      int32 `json:"host,omitempty"`
	Disk      int32 `json:"disk,omitempty"`
	Predicted int32 `json:"predicted,omitempty"`
}

// A Candidate is what was known of one target when the decision was made.
type Candidate struct {
	Replica      string   `json:"replica"`
	Target       int      `json:"target"`
	Overlap      Overlap  `json:"overlap"`
	Trust        string   `json:"trust"`
	Requests     int      `json:"requests"`
	Prefill      int      `json:"prefill_tokens"`
	DecodeBlocks int      `json:"decode_blocks"`
	Cost         *float64 `json:"cost"` // null: would not go there at all

	Terms map[string]float64 `json:"cost_terms,omitempty"` // what the cost is made of, by the policy's names
}

func overlap(o kv.Overlap) Overlap { return Overlap(o) }

func decision(r *sched.Receipt, terms []string, unit string) Decision {
	d := Decision{
		ID: r.ID, At: r.At, Model: r.Model, Policy: r.Policy, Branch: r.Branch, Session: r.Session,
		Tenant: r.Tenant, Priority: r.Priority, DeadlineMS: millis(r.Deadline), NextTurnMS: millis(r.NextTurn), MaxOutput: r.MaxOutput, Expected: r.Expected,
		Tokens: r.Tokens, Source: r.Source, Why: r.Why,
		Replica: r.Replica, Rank: r.Rank, Overlap: overlap(r.Overlap), Cost: r.Cost,
		Considered: r.NumAll, Outcome: r.Outcome.String(), Output: r.Output,
		FirstTokenMS: millis(r.FirstToken), TookMS: millis(r.Took),
	}
	d.Unit = unit
	if !finite(d.Cost) {
		d.Cost = 0
	}
	for _, c := range r.Candidates[:r.NumKept] {
		x := Candidate{
			Replica: c.Replica, Target: int(c.Target), Overlap: overlap(c.Overlap), Trust: c.Trust.String(),
			Requests: c.Load.Requests, Prefill: c.Load.Prefill, DecodeBlocks: c.Load.DecodeBlocks,
		}
		if finite(c.Cost) {
			x.Cost = &c.Cost
		}
		for i, name := range terms {
			if x.Terms == nil {
				x.Terms = map[string]float64{}
			}
			if finite(c.Terms[i]) {
				x.Terms[name] = c.Terms[i]
			}
		}
		d.Candidates = append(d.Candidates, x)
	}
	if r.Served {
		d.ServedPrompt, d.ServedCached = &r.ServedPrompt, &r.ServedCached
	}
	return d
}

func finite(f float64) bool { return !math.IsInf(f, 0) && !math.IsNaN(f) }

func millis(d time.Duration) *float64 {
	if d == 0 {
		return nil
	}
	ms := float64(d.Microseconds()) / 1e3
	return &ms
}
