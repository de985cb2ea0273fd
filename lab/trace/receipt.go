package trace

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// ReceiptVersion is the version of the receipt log that this package writes. A
// reader refuses later ones.
const ReceiptVersion = 1

// A ReceiptHeader is the first line of a receipt log.
type ReceiptHeader struct {
	Kvasir  string    `json:"kvasir"` // "receipts"
	Version int       `json:"version"`
	Start   time.Time `json:"start"` // what At counts from
}

// A Receipt is one line of a receipt log: what was asked, where it went and what
// came of it. With Blocks it can be played again under another policy.
type Receipt struct {
	At        float64  `json:"at"` // arrival, seconds since the header's start
	ID        uint64   `json:"id"`
	Model     string   `json:"model,omitempty"`
	Session   string   `json:"session,omitempty"`
	Policy    string   `json:"policy,omitempty"`
	Replica   string   `json:"replica,omitempty"`
	Rank      int      `json:"rank,omitempty"`
	Tokens    int      `json:"tokens"`            // of the prompt, 0 unknown
	Output    int      `json:"output"`            // tokens generated
	Predicted int      `json:"predicted"`         // prompt tokens thought cached there
	Cached    *int     `json:"cached,omitempty"`  // as the engine reported; absent: not told
	TTFT      float64  `json:"ttft_s,omitempty"`  // seconds since the decision
	Took      float64  `json:"took_s,omitempty"`  // seconds since the decision
	Outcome   string   `json:"outcome,omitempty"` // "ok", "failed", "cancelled"
	Cost      *float64 `json:"cost,omitempty"`    // of the winner
	BlockSize int      `json:"block_size,omitempty"`
	Blocks    []uint64 `json:"blocks,omitempty"` // chained hashes of the full blocks
}

// A ReceiptWriter writes a receipt log as JSON Lines.
type ReceiptWriter struct {
	w *bufio.Writer
	e *json.Encoder
}

// NewReceiptWriter writes the header to w. The caller calls Flush before it
// closes w.
func NewReceiptWriter(w io.Writer, start time.Time) (*ReceiptWriter, error) {
	b := bufio.NewWriterSize(w, 1<<16)
	r := &ReceiptWriter{w: b, e: json.NewEncoder(b)}
	return r, r.e.Encode(ReceiptHeader{Kvasir: "receipts", Version: ReceiptVersion, Start: start.UTC()})
}

// Write appends one receipt.
func (r *ReceiptWriter) Write(v *Receipt) error { return r.e.Encode(v) }

// Flush hands everything written so far to the underlying writer.
func (r *ReceiptWriter) Flush() error { return r.w.Flush() }

// NextReceipt returns the next receipt of a receipt log, io.EOF at its end.
func (r *Reader) NextReceipt() (Receipt, error) {
	if r.format != Receipts {
		return Receipt{}, fmt.Errorf("%s is no receipt log but %s", r.name, r.format)
	}
	for {
		line, err := r.next()
		if err != nil {
			return Receipt{}, err
		}
		v, header, err := r.receipt(line)
		if err == nil {
			if header {
				continue
			}
			return v, nil
		}
		if err = r.bad(err); err != nil {
			return Receipt{}, err
		}
	}
}

func (r *Reader) receipt(line []byte) (v Receipt, header bool, err error) {
	var m struct {
		ReceiptHeader
		Receipt
	}
	if err := r.unmarshal(line, &m); err != nil {
		return v, false, err
	}
	if m.Kvasir != "" {
		if m.Kvasir != "receipts" || m.Version < 1 || m.Version > ReceiptVersion {
			return v, true, r.lineError("version", "is %d of %q, want version 1 to %d of \"receipts\": use the release that wrote it", m.Version, m.Kvasir, ReceiptVersion)
		}
		return v, true, nil
	}
	v = m.Receipt
	switch {
	case !(v.At >= 0 && v.At <= maxTime):
		return v, false, r.lineError("at", "is %v, want seconds between 0 and %v", v.At, maxTime)
	case v.Tokens < 0 || v.Tokens > maxTokens:
		return v, false, r.lineError("tokens", "is %d, want a number between 0 and %d", v.Tokens, maxTokens)
	case v.Output < 0 || v.Output > maxTokens:
		return v, false, r.lineError("output", "is %d, want a number between 0 and %d", v.Output, maxTokens)
	case v.BlockSize < 0 || v.BlockSize > maxTokens:
		return v, false, r.lineError("block_size", "is %d, want a number between 0 and %d", v.BlockSize, maxTokens)
	case len(v.Blocks) > 0 && (v.BlockSize == 0 || len(v.Blocks) > v.Tokens/v.BlockSize):
		return v, false, r.lineError("blocks", "has %d hashes, but %d tokens have %d full blocks of %d", len(v.Blocks), v.Tokens, v.Tokens/max(v.BlockSize, 1), v.BlockSize)
	}
	return v, false, nil
}

// receiptRequest reads a receipt as a request of an open-loop trace. Header lines
// and receipts of unknown length are skipped.
func (r *Reader) receiptRequest(line []byte) (q Request, skip bool, err error) {
	v, header, err := r.receipt(line)
	if err != nil || header || v.Tokens == 0 {
		return q, err == nil, err
	}
	size := v.BlockSize
	if size == 0 {
		size = BlockSize
	}
	return Request{ID: int64(v.ID), At: v.At, Input: v.Tokens, Output: max(v.Output, 1), Session: v.Session, Blocks: v.Blocks, BlockSize: size}, false, nil
}
