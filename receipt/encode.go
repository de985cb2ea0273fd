package receipt

import (
	"encoding/json"
	"math"
	"strings"
	"time"

	"kvasir/sched"
)

// MaxBlocks bounds the blocks of a line: of longer prompts the start is kept. At 16
// tokens a block that is a million tokens.
const MaxBlocks = 1 << 16

// maxID bounds a request's id in bytes.
const maxID = 128

// An Encoder makes lines of receipts. Not for use by several goroutines.
type Encoder struct {
	header Header
	start  time.Time // with the process's steady clock, where it has one
	blind  *Blind
	line   Line
	json   writer
}

// NewEncoder returns the encoder of one run, which has started at start.
func NewEncoder(blind *Blind, start time.Time, program string) *Encoder {
	wall := start.Round(0).UTC()
	return &Encoder{blind: blind, start: start, header: Header{
		Kvasir: "receipts", Version: Version, Run: blind.name('r', wall.String()), Start: wall, Program: program,
	}}
}

// AppendHeader appends the first line of a file.
func (e *Encoder) AppendHeader(dst []byte) []byte {
	b, err := json.Marshal(&e.header)
	if err != nil {
		panic(err) // texts and a time
	}
	return append(append(dst, b...), '\n')
}

// Append appends the line of r.
func (e *Encoder) Append(dst []byte, r *sched.Receipt) []byte {
	e.fill(r)
	e.json.b = dst
	e.json.line(&e.line)
	dst, e.json.b = e.json.b, nil
	return dst
}

// fill makes e.line of r. It uses its memory again.
func (e *Encoder) fill(r *sched.Receipt) {
	x := &e.line
	cands, blocks := x.Candidates[:0], x.Blocks[:0]
	*x = Line{
		At: max(0, r.At.Sub(e.start).Seconds()), ID: r.ID, Request: e.request(r.Request), Model: r.Model,
		Session: e.blind.name('s', r.Session), Tenant: e.blind.name('t', r.Tenant), Policy: r.Policy, Branch: r.Branch,
		Tokens: r.Tokens, Source: r.Source, Bytes: r.Bytes, MaxOutput: min(r.MaxOutput, maxTokens), Expected: min(r.Expected, maxTokens),
		NextTurn: r.NextTurn.Seconds(), Priority: r.Priority,
		Replica: r.Replica, Rank: r.Rank, Target: int(r.Target), Predicted: r.Overlap.Held(), Considered: r.NumAll,
		Outcome: r.Outcome.String(), First: r.FirstToken.Seconds(), Took: r.Took.Seconds(), Output: r.Output,
	}
	if r.Served {
		x.ServedPrompt, x.ServedCached = &r.ServedPrompt, &r.ServedCached
	}
	for i := range r.Candidates[:r.NumKept] {
		cands = append(cands, candidate(&r.Candidates[i]))
	}
	if len(r.Blocks.Hashes) > 0 {
		x.BlockSize = r.Blocks.BlockSize
		for _, h := range r.Blocks.Hashes[:min(len(r.Blocks.Hashes), MaxBlocks)] {
			blocks = append(blocks, e.blind.block(h))
		}
	}
	x.Candidates, x.Blocks = cands, blocks
}

func candidate(c *sched.Candidate) Candidate {
	x := Candidate{
		Replica: c.Replica, Target: int(c.Target), GPU: c.Overlap.GPU, Host: c.Overlap.Host, Disk: c.Overlap.Disk,
		Dispatched: c.Overlap.Predicted, Trust: c.Trust.String(), Requests: c.Load.Requests, Prefill: c.Load.Prefill, DecodeBlocks: c.Load.DecodeBlocks,
	}
	if !math.IsInf(c.Cost, 0) && !math.IsNaN(c.Cost) {
		x.Cost = &c.Cost
	}
	return x
}

// request returns a request's id if it looks like one, else a one-way name of it: a
// client may write what it likes there.
func (e *Encoder) request(id string) string {
	if len(id) > maxID || strings.ContainsFunc(id, notInID) {
		return e.blind.name('i', id)
	}
	return id
}

// notInID refuses '@' above all: an address of a person is no id.
func notInID(r rune) bool {
	return !(r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || strings.ContainsRune("-_.:/+=", r))
}
