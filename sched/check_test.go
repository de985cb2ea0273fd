//go:build invariants

package sched

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"kvasir/kv"
)

// Each corruption is one that a slip in sched would make; the next call says so.
func TestCheckSees(t *testing.T) {
	for name, c := range map[string]struct {
		corrupt func(h *house, d *Decision)
		then    func(h *house, d *Decision)
		want    string
	}{
		"a booking ended behind its decision": {
			func(h *house, d *Decision) { h.ledger.Done(d.booking, t0) },
			func(h *house, d *Decision) { h.Route(h.request(ids(64, 2)), t0) },
			"the ledger has 1 requests, open decisions have booked 2",
		},
		"a booking not ended": {
			func(h *house, d *Decision) { d.booking = 0 },
			func(h *house, d *Decision) { d.Done(t0, Completed) },
			"the ledger has 1 requests, open decisions have booked 0",
		},
		"a prediction lost": {
			func(h *house, d *Decision) { d.hashes = nil },
			func(h *house, d *Decision) { d.Done(t0, Completed) },
			"target 0: 4 blocks are predicted to the index, decisions and predictions have 0",
		},
		"a prediction lost from the queue": {
			func(h *house, d *Decision) { d.Done(t0, Completed); h.Scheduler.predicted.head++ },
			func(h *house, d *Decision) { h.Tick(t0) },
			"target 0: 4 blocks are predicted to the index, decisions and predictions have 0",
		},
		"blocks taken back twice": {
			func(h *house, d *Decision) { d.Done(t0, Failed); h.audit.leaving() },
			func(h *house, d *Decision) { h.unpredict(0, 0, make([]kv.Hash, 4)) },
			"target 0: 4 more predicted blocks taken back than given",
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t, 1, "round_robin")
			d := h.route(t, h.request(ids(64, 1)), t0)
			c.corrupt(h, d)
			defer func() {
				if got := fmt.Sprint(recover()); !strings.Contains(got, c.want) {
					t.Errorf("%s, want %s", got, c.want)
				}
			}()
			c.then(h, d)
		})
	}
}

// The books agree over a life with everything in it.
func TestCheckLetsThrough(t *testing.T) {
	h := newHouse(t, 2, "round_robin")
	var open []*Decision
	for i := range 40 {
		now := t0.Add(time.Duration(i) * time.Second)
		open = append(open, h.route(t, h.request(ids(64*(1+i%3), i)), now))
		switch d := open[i/2]; i % 5 {
		case 0:
			d.Done(now, Failed)
		case 1, 2:
			d.Done(now, Completed)
			d.Done(now, Completed)
		case 3:
			h.Forget(kv.Target(i%2), now)
		}
		h.Tick(now)
	}
	for _, d := range open {
		d.Done(t0.Add(time.Minute), Cancelled)
	}
	h.Tick(t0.Add(time.Hour))
	if n := h.ledger.Requests() + len(h.audit.open) + h.audit.owed[0] + h.audit.owed[1]; n != 0 {
		t.Errorf("%d requests and predicted blocks are left when all has ended", n)
	}
}
