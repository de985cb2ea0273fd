package sched

import (
	"reflect"
	"slices"
	"testing"
	"time"
)

// Whoever keeps a log of receipts gets, at a request's end, its blocks and what the
// client had said; the kept slice stays as it is.
func TestEndedHasTheBlocks(t *testing.T) {
	for _, o := range []Outcome{Completed, Cancelled, Failed} {
		h := newHouse(t, 2, "dynamo")
		var got []Receipt
		h.hooks.Ended = func(r *Receipt) { got = append(got, *r) }
		r := h.request(ids(70, 1))
		r.ID, r.Session, r.Tenant, r.Bytes, r.Output, r.MaxOutput, r.NextTurn, r.Priority, r.Deadline = "req", "s", "t", 321, 5, 9, 3*time.Second, -1, time.Minute
		want := slices.Clone(r.Prompt.Chains[0].Hashes)
		h.route(t, r, t0).Done(t0.Add(time.Second), o)
		h.Tick(t0.Add(time.Minute))
		clear(r.Prompt.Chains[0].Hashes) // the proxy uses its memory again
		if len(got) != 1 {
			t.Fatalf("%v: %d receipts, want 1", o, len(got))
		}
		x := got[0]
		if x.Blocks.BlockSize != 16 || len(want) != 4 || !slices.Equal(x.Blocks.Hashes, want) {
			t.Errorf("%v: blocks %+v, want %v of 16 tokens", o, x.Blocks, want)
		}
		if x.Request != "req" || x.Session != "s" || x.Tenant != "t" || x.Bytes != 321 || x.Expected != 5 || x.MaxOutput != 9 || x.NextTurn != 3*time.Second || x.Priority != -1 || x.Deadline != time.Minute {
			t.Errorf("%v: %+v", o, x)
		}
		if k := h.Receipts(nil, 1)[0]; k.Blocks.Hashes != nil {
			t.Errorf("%v: the ring keeps the blocks too", o)
		}
	}
}

// A receipt that later decisions have overwritten is counted, as its end is told to
// nobody.
func TestOverwrittenReceipts(t *testing.T) {
	h := newHouse(t, 1, "dynamo")
	h.receipts.init(2)
	ended := 0
	h.hooks.Ended = func(*Receipt) { ended++ }
	r := h.request(ids(70, 1))
	var open []*Decision
	for range 5 {
		open = append(open, h.route(t, r, t0))
	}
	for _, d := range open {
		d.Done(t0, Completed)
	}
	if n := h.ReceiptsOverwritten(); n != 3 || ended != 2 {
		t.Errorf("%d overwritten and %d told, want 3 and 2", n, ended)
	}
}

// The receipts are appended to what the caller has, and the limit is for those alone.
func TestReceiptsAreAppended(t *testing.T) {
	h := newHouse(t, 1, "least_load")
	for range 3 {
		h.route(t, h.request(ids(20, 1)), t0)
	}
	mine := []Receipt{{ID: 77}, {ID: 78}, {ID: 79}, {ID: 80}}
	for limit, want := range [][]uint64{{77, 78, 79, 80, 3, 2, 1}, {77, 78, 79, 80, 3}, {77, 78, 79, 80, 3, 2}, {77, 78, 79, 80, 3, 2, 1}, {77, 78, 79, 80, 3, 2, 1}} {
		var got []uint64
		for _, r := range h.Receipts(slices.Clone(mine), limit) {
			got = append(got, r.ID)
		}
		if !slices.Equal(got, want) {
			t.Errorf("limit %d: %v, want %v", limit, got, want)
		}
	}
}

// Without a word of the configuration the latest 2,048 are kept.
func TestReceiptsByDefault(t *testing.T) {
	h := newHouse(t, 1, "least_load")
	for range 2050 {
		h.route(t, &Request{Model: "m"}, t0).Done(t0, Failed)
	}
	rs := h.Receipts(nil, 0)
	if len(rs) != 2048 || rs[0].ID != 2050 || rs[2047].ID != 3 {
		t.Errorf("%d receipts, want the latest 2,048", len(rs))
	}
}

// Who wants each decision as it is made gets the receipt that the ring has, also where
// there is no ring.
func TestDecidedIsTold(t *testing.T) {
	for _, ring := range []int{8, -1} {
		h := newHouse(t, 2, "dynamo")
		h.receipts.buf = nil
		h.receipts.init(ring)
		var got []Receipt
		h.hooks.Decided = func(r *Receipt) { got = append(got, *r) }
		d := h.route(t, h.request(ids(70, 1)), t0)
		if len(got) != 1 || got[0].ID != d.ID() || got[0].Tokens != 70 || got[0].NumAll != 2 || got[0].Outcome != Open {
			t.Fatalf("ring of %d: %+v, want the decision", ring, got)
		}
		if rs := h.Receipts(nil, 0); ring > 0 && !reflect.DeepEqual(rs, got) {
			t.Errorf("%+v was told, %+v is kept", got, rs)
		}
	}
}
