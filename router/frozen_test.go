package router

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"kvasir/config"
	"kvasir/fleet"
	"kvasir/proxy"
)

// An engine that is late with its health gets no new work, and when it is late again what
// waits there goes elsewhere: unless it sends answers meanwhile, or must not be repeated.
func TestFrozenEngineLetsGo(t *testing.T) {
	type arrival struct {
		at     int
		answer chan string
	}
	reached := make(chan arrival)
	engine := func(n int) string {
		return scripted(t, func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			a := arrival{n, make(chan string)}
			reached <- a
			select {
			case s := <-a.answer:
				w.Header().Set("Content-Type", "application/json")
				io.WriteString(w, s)
			case <-r.Context().Done():
			}
		})
	}
	r, stop := startRouter(t, func(c *config.Config) { c.Poll, c.Policy.Name = time.Hour, "round_robin" }, engine(0), engine(1))
	defer stop()
	got := make(chan string)
	ask := func() {
		go func() {
			resp, err := http.Post(r.URL()+"/v1/completions", "application/json", strings.NewReader(`{"model":"m","prompt":"x"}`))
			if err != nil {
				got <- err.Error()
				return
			}
			defer resp.Body.Close()
			b, _ := io.ReadAll(resp.Body)
			got <- string(b)
		}()
	}
	row := func(n int) *fleet.Replica { return r.table.Snapshot().Replicas[n] }
	late := &wrapped{context.DeadlineExceeded}

	ask()
	first := <-reached
	f := r.followers[first.at]
	f.missed(errors.New("GET /health: 500"), 1, time.Now())
	if s := row(first.at).State; s != fleet.Up {
		t.Errorf("one failure: %v, want up", s)
	}
	f.missed(late, 1, time.Now())
	if s := row(first.at).State; s != fleet.Down {
		t.Errorf("late once: %v, want no new work", s)
	}
	ask()
	second := <-reached
	if second.at == first.at {
		t.Error("new work for the engine that is late")
	}
	second.answer <- wholeBody
	if b := <-got; b != wholeBody {
		t.Errorf("the second request: %s", b)
	}
	f.missed(late, 2, time.Now())
	moved := <-reached // else this waits for ever
	if moved.at == first.at {
		t.Error("what waited went to the same engine")
	}
	moved.answer <- wholeBody
	if b := <-got; b != wholeBody {
		t.Errorf("the first request: %s", b)
	}

	// It sends an answer while its health check hangs: then it is well.
	f = r.followers[second.at]
	began := time.Now()
	r.followers[first.at].up()
	for range 2 {
		ask()
		a := <-reached
		a.answer <- wholeBody
		<-got
	}
	f.missed(late, 1, began)
	f.missed(late, 2, began)
	if x := row(second.at); x.State != fleet.Up || !strings.Contains(x.Reason, "but serves requests") {
		t.Errorf("%v (%s), want up", x.State, x.Reason)
	}
	f.missed(&wrapped{syscall.ECONNREFUSED}, 1, began)
	if x := row(second.at); x.State != fleet.Down {
		t.Errorf("refused: %v (%s), want down", x.State, x.Reason)
	}
}

type wrapped struct{ error }

func (w *wrapped) Unwrap() error { return w.error }

// What an engine says to one client doesn't take it from the others; one that can't be
// reached is down until it answers.
func TestOutcomesAndState(t *testing.T) {
	answer := func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, wholeBody) }
	r, stop := startRouter(t, func(c *config.Config) { c.Poll = time.Hour }, scripted(t, answer), scripted(t, answer))
	defer stop()
	row := func() *fleet.Replica { return r.table.Snapshot().Replicas[0] }
	for _, why := range []proxy.Reason{proxy.Overloaded, proxy.Elsewhere, proxy.Gone, proxy.Aborting, proxy.ServerError, proxy.Local} {
		if r.failed(row(), why, nil); row().State != fleet.Up {
			t.Errorf("after %v: %v (%s)", why, row().State, row().Reason)
		}
	}
	r.avoid(row(), row().Targets[0], "avoided for 5s")
	r.followers[0].up()
	if row().State != fleet.Up || row().Reason != "avoided for 5s" {
		t.Errorf("%v (%s), want the page to show why it is avoided", row().State, row().Reason)
	}
	r.avoid(row(), row().Targets[0], "")
	if row().Reason != "" {
		t.Errorf("back: %s", row().Reason)
	}
}

// The same complaint is a line now and then, with how many there were.
func TestComplaintsAreSampled(t *testing.T) {
	c := complaints{}
	now := time.Unix(1, 0)
	lines, told := 0, 0
	for range 1000 {
		if n, due := c.count(complaint{"a", "broken"}, now); due {
			lines, told = lines+1, told+n
		}
		now = now.Add(100 * time.Millisecond)
	}
	if lines != 10 || told < 900 {
		t.Errorf("%d lines for 1000 complaints in 100 s, of %d; want 10", lines, told)
	}
	if _, due := c.count(complaint{"b", "broken"}, now); !due {
		t.Error("another engine's first complaint is not told")
	}
}
