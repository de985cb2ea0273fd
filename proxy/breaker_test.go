package proxy

import (
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"kvasir/fleet"
	"kvasir/kv"
)

// asked counts requests to an engine.
func asked(n *atomic.Int64, h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		n.Add(1)
		h(w, r)
	}
}

// Finding I7: two of three engines fail every request. None fails for the client, from
// the first one on, and soon the broken ones are no longer asked.
func TestBrokenEnginesCostNoRequest(t *testing.T) {
	for name, broken := range map[string]any{
		"500":           answerJSON(500, deadDoc),
		"reset":         reading(func(net.Conn) {}),
		"error event":   stream(deadSSE),
		"502":           answerJSON(502, "bad"),
		"abort":         answerJSON(200, abortDoc),
		"empty streams": timed(),
	} {
		for _, body := range []string{chatBody, chatStream} {
			t.Run(name+body[len(body)-20:], func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t, setup{})
					defer w.close()
					var bad atomic.Int64
					for _, addr := range []string{"a:80", "b:80"} {
						w.engine(addr)
						switch h := broken.(type) {
						case http.HandlerFunc:
							w.serve(addr, asked(&bad, h))
						case func(int, net.Conn):
							w.raw(addr, func(n int, c net.Conn) { bad.Add(1); h(n, c) })
						}
					}
					w.engine("c:80")
					w.serve("c:80", stream(chatA, chatB, chatDone))
					for i := range 40 {
						if code, _, got := w.do("POST", chatPath, body); code != 200 || got != chatA+chatB+chatDone {
							t.Fatalf("request %d: %d %q", i, code, got)
						}
					}
					if n := bad.Load(); n > 2*ejectRow {
						t.Errorf("the broken ones were asked %d times for 40 requests, want at most %d", n, 2*ejectRow)
					}
					if s := w.proxy.Stats(); s.Avoided != 2 || s.Panics != 0 {
						t.Errorf("%d avoided, %d panics; want 2, 0", s.Avoided, s.Panics)
					}
					w.idle()
				})
			})
		}
	}
}

// An avoided target is asked again by one request when its time is over, waits twice as
// long if that fails, and is back with the first success.
func TestAvoidedTargetIsProbed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{})
		defer w.close()
		var n atomic.Int64
		var well atomic.Bool
		w.engine("a:80")
		w.serve("a:80", asked(&n, func(rw http.ResponseWriter, r *http.Request) {
			if well.Load() {
				answerJSON(200, goodDoc)(rw, r)
				return
			}
			answerJSON(500, deadDoc)(rw, r)
		}))
		w.engine("b:80")
		w.serve("b:80", answerJSON(200, goodDoc))
		ask := func(times int) (asked int64) {
			t.Helper()
			before := n.Load()
			for range times {
				if code, _, _ := w.do("POST", chatPath, chatBody); code != 200 {
					t.Errorf("%d", code)
				}
			}
			return n.Load() - before
		}
		if got := ask(20); got != ejectRow {
			t.Errorf("asked %d times before it is avoided, want %d", got, ejectRow)
		}
		wait := ejectFirst
		for range 4 {
			time.Sleep(wait - time.Second)
			if got := ask(10); got != 0 {
				t.Errorf("asked %d times within %v", got, wait)
			}
			time.Sleep(time.Second)
			if got := ask(10); got != 1 {
				t.Errorf("asked %d times after %v, want one probe", got, wait)
			}
			wait *= 2
		}
		well.Store(true)
		time.Sleep(wait)
		if got := ask(20); got != 10 {
			t.Errorf("asked %d times of 20 once it is well, want 10", got)
		}
		if s := w.proxy.Stats(); s.Avoided != 0 {
			t.Errorf("%d avoided", s.Avoided)
		}
	})
}

// What an engine says to one client is no word about the engine: 4xx, 429 and 503, with or
// without Retry-After, keep nobody else from it.
func TestNeutralAnswersStayWithTheRequest(t *testing.T) {
	for _, status := range []int{400, 401, 404, 422, 429, 503} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, setup{})
				defer w.close()
				w.engine("a:80")
				w.serve("a:80", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
					if r.Header.Get("X-Tenant") == "limited" {
						answerJSON(status, "no", "Retry-After", "30")(rw, r)
						return
					}
					answerJSON(200, goodDoc)(rw, r)
				}))
				w.engine("b:80")
				w.serve("b:80", answerJSON(200, goodDoc))
				for range 20 {
					w.do("POST", chatPath, chatBody, "X-Tenant", "limited")
				}
				by := map[string]int{}
				for range 20 {
					_, h, _ := w.do("POST", chatPath, chatBody)
					by[h.Get("X-Kvasir-Replica")]++
				}
				if by["a:80"] != 10 || by["b:80"] != 10 || w.proxy.Stats().Avoided != 0 {
					t.Errorf("others' requests went to %v", by)
				}
			})
		})
	}
}

// When every target looks bad, requests go to the least bad: a fleet of which all fail
// their health checks serves, and so does one that is avoided and alone.
func TestPanicMode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{})
		defer w.close()
		for _, addr := range []string{"a:80", "b:80"} {
			r := w.engine(addr)
			w.serve(addr, answerJSON(200, goodDoc))
			w.table.Update(r.ID, func(r *fleet.Replica) { r.State = fleet.Down })
		}
		if code, _, body := w.do("POST", chatPath, chatBody); code != 200 || body != goodDoc || w.proxy.Stats().Panics != 1 {
			t.Errorf("all down: %d %s, %d panics", code, body, w.proxy.Stats().Panics)
		}
		w.table.Update(0, func(r *fleet.Replica) { r.State = fleet.Up })
		a := w.table.Snapshot().Replicas[0]
		for range ejectRow {
			w.proxy.breakers.failed(failure{0, a, Broken}, []kv.Target{0, 1}, false, time.Now())
		}
		w.table.Update(1, func(r *fleet.Replica) { r.State = fleet.Draining })
		if code, _, _ := w.do("POST", chatPath, chatBody); code != 200 || w.proxy.Stats().Panics != 2 {
			t.Errorf("avoided and alone: %d, %d panics", code, w.proxy.Stats().Panics)
		}
		w.idle()
	})
}

// Never more than the share is avoided; a sole target never.
func TestEjectionIsCapped(t *testing.T) {
	for n, want := range map[int]int{1: 0, 2: 1, 3: 2, 4: 2, 8: 5, 10: 7} {
		b := breakers{share: 0.7}
		var all []kv.Target
		for i := range n {
			all = append(all, kv.Target(i))
		}
		r := &fleet.Replica{ID: 7}
		for range 20 {
			for i := range n {
				b.failed(failure{kv.Target(i), r, Broken}, all, false, time.Unix(1, 0))
			}
		}
		if got := len(b.avoid(nil, time.Unix(2, 0))); got != want {
			t.Errorf("of %d that all fail %d are avoided, want %d", n, got, want)
		}
	}
}

// The share is a setting: none, or all but one.
func TestEjectShare(t *testing.T) {
	for share, want := range map[float64]int{0: 0, 0.4: 1, 1: 2} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, setup{cfg: func(c *Config) { c.EjectShare = share }})
			defer w.close()
			for _, addr := range []string{"a:80", "b:80"} {
				w.engine(addr)
				w.serve(addr, answerJSON(500, deadDoc))
			}
			w.engine("c:80")
			w.serve("c:80", answerJSON(200, goodDoc))
			for range 20 {
				if code, _, _ := w.do("POST", chatPath, chatBody); code != 200 {
					t.Errorf("share %v: %d", share, code)
				}
			}
			if got := w.proxy.Stats().Avoided; got != want {
				t.Errorf("share %v: %d of 3 are avoided, want %d", share, got, want)
			}
		})
	}
}

// A target number that comes back with another replica doesn't inherit.
func TestRecordsBelongToReplicas(t *testing.T) {
	b := breakers{share: 0.7}
	all := []kv.Target{0, 1}
	for range ejectRow - 1 {
		b.failed(failure{0, &fleet.Replica{ID: 1}, Broken}, all, false, time.Unix(1, 0))
	}
	if wait := b.failed(failure{0, &fleet.Replica{ID: 2}, Broken}, all, false, time.Unix(1, 0)); wait != 0 {
		t.Errorf("the successor's first failure counts as its third: avoided for %v", wait)
	}
	b.succeeded(0, 2)
	if b.bad.Load() != 1 || b.out.Load() != 0 {
		t.Errorf("%d records, %d avoided", b.bad.Load(), b.out.Load())
	}
	for range 16 {
		b.succeeded(0, 2)
	}
	if b.bad.Load() != 0 || len(b.by) != 0 {
		t.Errorf("%d records are left after 16 successes", len(b.by))
	}
}

// Half of the requests fail, never three in a row: that is seen, too.
func TestEveryOtherFailureIsSeen(t *testing.T) {
	b := breakers{share: 0.7}
	for i := range 16 {
		wait := b.failed(failure{0, &fleet.Replica{}, Broken}, []kv.Target{0, 1}, false, time.Unix(1, 0))
		if wait > 0 {
			if i != ejectOf-1 {
				t.Errorf("avoided after %d failures, want %d", i+1, ejectOf)
			}
			return
		}
		b.succeeded(0, 0)
	}
	t.Error("never avoided")
}

// The paths of engines' administration are never reached, in no disguise, whatever Pass says.
func TestAdministrationIsNotReached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{cfg: func(c *Config) { c.Pass = []string{"/v1", "/v2", "/inference", "/sleep", "/metrics", "/extra"} }})
		defer w.close()
		w.engine("a:80")
		var n atomic.Int64
		w.serve("a:80", asked(&n, answerJSON(200, goodDoc)))
		for _, path := range []string{
			"/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/v1/sleep", "/sleep", "/v1/Sleep", "/extra/flush_cache", "/metrics", "/v1/x/collective_rpc",
			"/v1/..;/reset_prefix_cache", "/v1/..%5csleep", "/v1/%252e%252e/sleep", "/v1/..%2fsleep", "/v1/%2e%2e/sleep", "/v1//sleep", "/v1/x;y", "/v1/sl%65ep", "/v1/%2573leep",
			"/v1/responses/../sleep", "/v1/responses/a/b", "/v1/responses/",
		} {
			if code, _, body := w.do("POST", path, chatBody); code != 404 || n.Load() != 0 {
				t.Errorf("%s: %d %s, the engine was asked %d times", path, code, clip(body, 100), n.Load())
			}
		}
		for _, path := range []string{"/v1/anything", "/extra/deep/er", "/v1/chat/completions", "/v1/%63hat/completions", "/v1/responses/resp_1/cancel"} {
			before := n.Load()
			if code, _, body := w.do("POST", path, chatBody); code != 200 || n.Load() != before+1 {
				t.Errorf("%s: %d %s", path, code, body)
			}
		}
	})
	synctest.Test(t, func(t *testing.T) { // without Pass: only what is listed
		w := newWorld(t, setup{cfg: func(c *Config) { c.Pass = []string{"/extra"} }})
		defer w.close()
		w.engine("a:80")
		w.serve("a:80", answerJSON(200, goodDoc))
		for path, want := range map[string]int{"/v1/files": 404, "/v1/anything": 404, "/v2/x": 404, "/inference/x": 404, "/extra": 200, "/extras": 404, "/extra/x": 200} {
			if code, _, _ := w.do("POST", path, chatBody); code != want {
				t.Errorf("%s: %d, want %d", path, code, want)
			}
		}
	})
}
