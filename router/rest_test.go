package router

import (
	"strings"
	"testing"
	"time"

	"kvasir/fleet"
	"kvasir/proxy"
)

// An engine that says when it wants to be asked again is left alone until then, for
// a bounded time, and unless it is the last one.
func TestOverloadedRests(t *testing.T) {
	f := newFleet(t, 2, nil)
	r := f.router
	row := func(n int) *fleet.Replica { return r.table.Snapshot().Replicas[n] }
	f.until(func() bool { return row(0).State == fleet.Up && row(1).State == fleet.Up })

	r.failed(row(0), proxy.Overloaded, nil)
	if row(0).State != fleet.Up {
		t.Errorf("without a Retry-After: %v (%s)", row(0).State, row(0).Reason)
	}
	r.failed(row(0), proxy.Overloaded, &proxy.BusyError{After: time.Hour})
	if row(0).State != fleet.Down || !strings.Contains(row(0).Reason, "left alone for 1h") {
		t.Errorf("%v (%s)", row(0).State, row(0).Reason)
	}
	rest := time.Until(time.Unix(0, r.followers[0].rest.Load()))
	if rest <= 0 || rest > restFor {
		t.Errorf("left alone for %v, want at most %v", rest, restFor)
	}
	for range 5 {
		if a := f.ask("hello", ""); a.code != 200 || a.replica != row(1).Name {
			t.Errorf("%d from %s", a.code, a.replica)
		}
	}
	r.failed(row(1), proxy.Overloaded, &proxy.BusyError{After: time.Second})
	if row(1).State != fleet.Up {
		t.Errorf("the last one: %v (%s)", row(1).State, row(1).Reason)
	}
	r.followers[0].rest.Store(time.Now().UnixNano()) // its time is over
	f.until(func() bool { return row(0).State == fleet.Up })
}
