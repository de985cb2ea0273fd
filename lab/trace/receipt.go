package trace

import (
	"errors"
	"fmt"
	"io"
	"time"

	"kvasir/receipt"
)

// NextReceipt returns the next receipt of a receipt log, io.EOF at its end. Half a
// line at the end, as a router leaves it that was killed, counts as bad and is
// skipped in any case.
func (r *Reader) NextReceipt() (receipt.Line, error) {
	if r.format != Receipts {
		return receipt.Line{}, fmt.Errorf("%s is no receipt log but %s", r.name, r.format)
	}
	for {
		text, err := r.next()
		if err != nil {
			return receipt.Line{}, err
		}
		v, h, err := receipt.Parse(text)
		switch {
		case err == nil && h == nil:
			return v, nil
		case err == nil:
			r.header = *h
			continue
		case r.header.Version == 0:
			return receipt.Line{}, r.wrong(err) // no header, or a later version: nothing of the rest can be trusted
		case r.cut:
			r.note(r.wrong(err))
			return receipt.Line{}, io.EOF
		}
		if err = r.bad(r.wrong(err)); err != nil {
			return receipt.Line{}, err
		}
	}
}

// Run names the run of the router that wrote the receipts read last, and says when
// it started: their times count from there.
func (r *Reader) Run() (run string, start time.Time) { return r.header.Run, r.header.Start }

// wrong says where it is that a line is wrong.
func (r *Reader) wrong(err error) error {
	if fe := (*receipt.FieldError)(nil); errors.As(err, &fe) {
		return r.lineError(fe.Field, "%s", fe.Msg)
	}
	return r.lineError("", "%v", err)
}

// nextReceiptRequest reads the next receipt that can be played as a request: its
// engine didn't fail, for else another attempt has a receipt too, and its length is
// known, if only by what the engine said.
func (r *Reader) nextReceiptRequest() (Request, error) {
	for {
		v, err := r.NextReceipt()
		if err != nil {
			return Request{}, err
		}
		if q, ok := ReceiptRequest(&v); ok {
			return q, nil
		}
	}
}

// ReceiptRequest returns v as a request of an open-loop trace; false if it can't be
// played.
func ReceiptRequest(v *receipt.Line) (q Request, ok bool) {
	input, size := v.Tokens, v.BlockSize
	if input == 0 && v.ServedPrompt != nil {
		input = *v.ServedPrompt
	}
	if input == 0 || v.Outcome == "failed" {
		return q, false
	}
	if size == 0 {
		size = BlockSize
	}
	return Request{ID: int64(v.ID), At: v.At, Input: input, Output: max(v.Output, 1), Session: v.Session, Blocks: v.Blocks, BlockSize: size}, true
}
