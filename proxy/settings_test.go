package proxy

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// An engine that takes no connection costs what Dial says, and then another one has the
// request.
func TestDialIsBounded(t *testing.T) {
	for _, limit := range []time.Duration{100 * time.Millisecond, 2 * time.Second, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, setup{cfg: func(c *Config) { c.Dial = limit }})
			defer w.close()
			w.engine("a:80")
			defer w.net.listen("a:80").Close() // nobody accepts there
			w.engine("b:80")
			w.serve("b:80", answerJSON(200, goodDoc))
			start := time.Now()
			code, _, body := w.do("POST", chatPath, chatBody)
			if took := time.Since(start); code != 200 || body != goodDoc || took != limit {
				t.Errorf("%d %s after %v, want b's answer after %v", code, body, took, limit)
			}
			if o := w.outcomes(); o != "a:failed b:completed" || len(w.failed) != 1 || w.failed[0] != Unreachable {
				t.Errorf("%s, failures %v", o, w.failed)
			}
		})
	}
}

// An answer is held back until HoldFor is over or HoldBytes are full, whichever comes first.
func TestHoldByItsSettings(t *testing.T) {
	var events []any // 14 bytes every second
	for range 60 {
		events = append(events, keepAlive, time.Second)
	}
	for _, c := range []struct {
		name string
		cfg  func(*Config)
		want time.Duration
	}{
		{"defaults", func(*Config) {}, 10 * time.Second},
		{"hold_for", func(c *Config) { c.HoldFor = 25 * time.Second }, 25 * time.Second},
		{"no hold_for", func(c *Config) { c.HoldFor = 0 }, 0},
		{"hold_bytes", func(c *Config) { c.HoldBytes = 3 * len(keepAlive) }, 3 * time.Second}, // the fourth is too much
		{"no hold_bytes", func(c *Config) { c.HoldBytes = 0 }, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, setup{cfg: c.cfg})
			defer w.close()
			w.engine("a:80")
			w.serve("a:80", timed(events...))
			start := time.Now()
			resp, err := w.send(context.Background(), "POST", chatPath, chatStream)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if got := time.Since(start); got != c.want {
				t.Errorf("%s: the head came after %v, want %v", c.name, got, c.want)
			}
			io.Copy(io.Discard, resp.Body)
		})
	}
}

// Whatever it is that we refuse with a 503, the client is told RetryAfter, in whole seconds.
func TestRetryAfterIsTold(t *testing.T) {
	for after, want := range map[time.Duration]string{time.Second: "1", 90*time.Second + 1: "91"} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, setup{cfg: func(c *Config) { c.RetryAfter, c.MaxConns = after, 2 }})
			defer w.close()
			told := map[string]string{}
			note := func(what, code string, status int, h http.Header, body string) {
				if status != 503 || !strings.Contains(body, code) {
					t.Errorf("%s: %d %s, want 503 %s", what, status, body, code)
				}
				told[what] = h.Get("Retry-After")
			}
			status, h, body := w.do("POST", chatPath, chatBody)
			note("no engine", "no_engine_available", status, h, body)
			work := make(chan struct{})
			w.engine("a:80")
			w.serve("a:80", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { <-work; answerJSON(200, goodDoc)(rw, r) }))
			w.client.Transport.(*http.Transport).DisableKeepAlives = true
			w.client.CloseIdleConnections()
			var done []chan bool
			for range 2 { // both places
				d := make(chan bool)
				go func() { defer close(d); w.do("POST", chatPath, chatBody) }()
				synctest.Wait()
				done = append(done, d)
			}
			status, h, body = w.do("POST", chatPath, chatBody)
			note("no connection", `"connections"`, status, h, body)
			close(work)
			for _, d := range done {
				<-d
			}
			synctest.Wait()
			w.proxy.Cut()
			status, h, body = w.do("POST", chatPath, chatBody)
			note("leaving", "draining", status, h, body)
			if got := fmt.Sprint(told); got != fmt.Sprintf("map[leaving:%s no connection:%[1]s no engine:%[1]s]", want) {
				t.Errorf("retry_after %v: told %s, want %s each time", after, got, want)
			}
		})
	}
}
