package proxy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"kvasir/fleet"
	"kvasir/kv"
	"kvasir/sched"
)

// The client leaves, at any time: the engine's request ends at once, the booked work
// is given back, and nobody is blamed.
func TestClientLeaves(t *testing.T) {
	for _, c := range []struct {
		name   string
		engine http.HandlerFunc
		after  time.Duration
		code   int // what the request is counted under
	}{
		{"before the headers", func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
		}, time.Second, StatusClientGone},
		{"before the first content", timed(keepAlive, chatRole, time.Hour), time.Second, StatusClientGone},
		{"after the hold", timed(keepAlive, time.Hour), time.Minute, 200},
		{"in the middle", timed(chatA, time.Minute, chatA, time.Hour), 90 * time.Second, 200},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, setup{})
				defer w.close()
				w.engine("a:80")
				var left time.Time
				w.serve("a:80", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
					defer func() { left = time.Now() }()
					c.engine(rw, r)
					<-r.Context().Done()
				}))
				ctx, cancel := context.WithTimeout(context.Background(), c.after)
				defer cancel()
				start := time.Now()
				resp, err := w.send(ctx, "POST", chatPath, chatStream)
				if err == nil {
					_, err = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Fatalf("client: %v", err)
				}
				synctest.Wait()
				if left.Sub(start) != c.after {
					t.Errorf("the engine saw it after %v, want %v", left.Sub(start), c.after)
				}
				if o := w.outcomes(); o != "a:cancelled" || len(w.failed) > 0 {
					t.Errorf("outcomes %q, failures %v", o, w.failed)
				}
				if s := w.proxy.Stats().Requests; len(s) != 1 || s[0] != (Requests{Chat, c.code, sched.Cancelled, 1}) {
					t.Errorf("counted %+v", s)
				}
				w.idle()
			})
		})
	}
}

// A client that takes nothing more does not keep an engine busy for ever.
func TestClientStopsReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{})
		defer w.close()
		w.engine("a:80")
		w.serve("a:80", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			rw.Header().Set("Content-Type", "text/event-stream")
			for r.Context().Err() == nil {
				if _, err := io.WriteString(rw, chatA); err != nil {
					return
				}
				rw.(http.Flusher).Flush()
			}
		}))
		c, err := w.net.dial(context.Background(), "tcp", "router:80")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", chatPath, len(chatStream), chatStream)
		start := time.Now()
		if _, err := bufio.NewReader(c).ReadString('\n'); err != nil { // and no more
			t.Fatal(err)
		}
		w.untilEnded()
		if o, took := w.outcomes(), time.Since(start); o != "a:cancelled" || took > 5*time.Minute || len(w.failed) > 0 {
			t.Errorf("%q after %v, failures %v", o, took, w.failed)
		}
		w.idle()
	})
}

func TestErrorsInTheClientsWords(t *testing.T) {
	two := []kv.Model{{ID: "m"}}
	for _, c := range []struct {
		name, method, path, body string
		setup                    func(w *world)
		code                     int
		kind, words              string
	}{
		{name: "not JSON", body: "hello", code: 400, kind: "invalid_json", words: "want a value at byte 0"},
		{name: "cut off", body: `{"model":"m","messages":"hi`, code: 400, kind: "invalid_json", words: "string without an end"},
		{name: "empty", body: "", code: 400, kind: "empty_body"},
		{name: "an array", body: "[1,2,3]", code: 400, kind: "invalid_body"},
		{name: "a string", body: `"x"`, code: 400, kind: "invalid_body"},
		{name: "data behind it", body: "{} {}", code: 400, kind: "invalid_json"},
		{name: "too deep", body: `{"model":"m","x":` + strings.Repeat("[", 5000) + strings.Repeat("]", 5000) + "}", code: 400, kind: "invalid_json", words: "nested deeper than 4096"},
		{name: "unknown model", body: `{"model":"nope"}`, code: 404, kind: "model_not_found", words: `model \"nope\" is not served here; served: m`},
		{name: "no model among several", body: `{}`, setup: func(w *world) { w.engine("b:80", kv.Model{ID: "other"}) }, code: 400, kind: "model_missing"},
		{name: "too large", body: `{"model":"m","x":"` + strings.Repeat("x", 1<<20) + `"}`, code: 413, kind: "request_too_large", words: "1000000 bytes"},
		{name: "wrong method", method: "GET", code: 405, kind: "method_not_allowed", words: "want POST"},
		{name: "unknown path", path: "/metrics", code: 404, kind: "unknown_url"},
		{name: "a path in disguise", path: "/v1/../metrics", code: 404, kind: "unknown_url"},
		{name: "another one", path: "/v1/%2e%2e/metrics", code: 404, kind: "unknown_url"},
		{name: "all down", setup: func(w *world) {
			w.table.Update(0, func(r *fleet.Replica) { r.State = fleet.Starting })
		}, code: 503, kind: "no_engine_available", words: "1 down"},
		{name: "administration", path: "/v1/load_lora_adapter", code: 404, kind: "unknown_url"},
		{name: "nobody has told a model yet", setup: func(w *world) {
			w.table.Update(0, func(r *fleet.Replica) { r.Models, r.State = nil, fleet.Starting })
		}, code: 503, kind: "no_engine_available", words: "no engine has told its models yet"},
		{name: "draining", setup: func(w *world) { w.proxy.Cut() }, code: 503, kind: "draining"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, setup{cfg: func(c *Config) { c.MaxBody = 1_000_000 }})
				defer w.close()
				w.engine("a:80", two...)
				w.serve("a:80", answerJSON(200, "{}"))
				if c.setup != nil {
					c.setup(w)
				}
				if c.method == "" {
					c.method = "POST"
				}
				if c.path == "" {
					c.path = chatPath
				}
				if c.body == "" && c.code != 400 {
					c.body = chatBody
				}
				code, h, body := w.do(c.method, c.path, c.body)
				if code != c.code || !strings.HasPrefix(body, `{"error":{"message":"`) || !strings.Contains(body, `"code":"`+c.kind+`"`) || !strings.Contains(body, c.words) {
					t.Errorf("%d %s\nwant %d, code %q, %q", code, body, c.code, c.kind, c.words)
				}
				if (code == 503) != (h.Get("Retry-After") == "1") {
					t.Errorf("Retry-After %q with %d", h.Get("Retry-After"), code)
				}
				if (code == 405) != (h.Get("Allow") == "POST, OPTIONS") {
					t.Errorf("Allow %q with %d", h.Get("Allow"), code)
				}
				if h.Get("Content-Type") != "application/json" {
					t.Errorf("Content-Type %q", h.Get("Content-Type"))
				}
				if code == 413 {
					time.Sleep(time.Second) // the bubble's: net/http lingers before it closes
				}
				if o := w.outcomes(); o != "" {
					t.Errorf("an engine had it: %q", o)
				}
			})
		})
	}
	t.Run("Anthropic's", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, setup{})
			defer w.close()
			w.engine("a:80")
			code, _, body := w.do("POST", "/v1/messages", `{"model":"nope"}`)
			if want := `{"type":"error","error":{"type":"not_found_error","message":"model \"nope\" is not served here; served: m"}}`; code != 404 || body != want {
				t.Errorf("%d %s", code, body)
			}
		})
	})
}

// A missing model is the fleet's only one: under any of its names, adapters aside.
func TestMissingModelIsTheOnlyOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{})
		defer w.close()
		w.engine("a:80", kv.Model{ID: "m"}, kv.Model{ID: "alias"}, kv.Model{ID: "lora", Parent: "m"})
		w.serve("a:80", answerJSON(200, "{}"))
		w.engine("b:80", kv.Model{ID: "m"}, kv.Model{ID: "alias"})
		w.serve("b:80", answerJSON(200, "{}"))
		for _, body := range []string{`{"messages":[]}`, `{"model":null}`, `{"model":""}`, `{"model":7}`} {
			if code, _, got := w.do("POST", chatPath, body); code != 200 {
				t.Errorf("%s: %d %s", body, code, got)
			}
		}
	})
}

// Leave changes only what load balancers see. Cut ends what is open, and refuses the rest.
func TestLeaveAndCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{})
		defer w.close()
		w.engine("a:80")
		w.serve("a:80", timed(chatA, time.Minute, chatB, chatDone))
		ready := func() int { code, _, _ := w.do("GET", "/ready", ""); return code }
		if ready() != 200 {
			t.Fatal("not ready")
		}
		w.proxy.Leave()
		if ready() != 503 {
			t.Error("ready while leaving")
		}
		if code, _, _ := w.do("GET", "/health", ""); code != 200 {
			t.Error("not alive while leaving")
		}
		if code, _, body := w.do("POST", chatPath, chatStream); code != 200 || body != chatA+chatB+chatDone {
			t.Errorf("a request while leaving: %d %q", code, body)
		}
		got := make(chan string, 1)
		go func() {
			_, _, body := w.do("POST", chatPath, chatStream)
			got <- body
		}()
		synctest.Wait()
		w.proxy.Cut()
		if code, h, body := w.do("POST", chatPath, chatBody); code != 503 || h.Get("Retry-After") == "" || !strings.Contains(body, "draining") {
			t.Errorf("after the cut: %d, %v", code, h)
		}
		if body := <-got; !strings.HasPrefix(body, chatA+`data: {"error":{"message":"this router is shutting down`) || !strings.HasSuffix(body, "\n\n"+chatDone) {
			t.Errorf("the open stream: %q", body)
		}
		if len(w.failed) > 0 {
			t.Errorf("failures %v: nothing is wrong with the engine", w.failed)
		}
		w.idle()
	})
}

func TestModelsAndHealth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{})
		defer w.close()
		if code, _, body := w.do("GET", "/ready", ""); code != 503 || !strings.Contains(body, "no engine is up") {
			t.Errorf("/ready without engines: %d %s", code, body)
		}
		if code, _, body := w.do("GET", "/v1/models", ""); code != 200 || body != `{"object":"list","data":[]}` {
			t.Errorf("/v1/models without engines: %d %s", code, body)
		}
		w.engine("a:80", kv.Model{ID: "org/base", MaxLen: 1024}, kv.Model{ID: "support-bot", Parent: "org/base"})
		w.engine("b:80", kv.Model{ID: "org/base", MaxLen: 1024}, kv.Model{ID: "other"})
		const base = `{"id":"org/base","object":"model","created":946684800,"owned_by":"kvasir","root":"org/base","parent":null,"max_model_len":1024}`
		code, h, body := w.do("GET", "/v1/models", "")
		want := `{"object":"list","data":[` + base + `,` +
			`{"id":"other","object":"model","created":946684800,"owned_by":"kvasir","root":"other","parent":null,"max_model_len":null},` +
			`{"id":"support-bot","object":"model","created":946684800,"owned_by":"kvasir","root":"support-bot","parent":"org/base","max_model_len":null}]}`
		if code != 200 || body != want || h.Get("Content-Type") != "application/json" {
			t.Errorf("%d %s\nwant %s", code, body, want)
		}
		if code, _, body := w.do("GET", "/v1/models/org/base", ""); code != 200 || body != base {
			t.Errorf("one: %d %s", code, body)
		}
		if code, _, _ := w.do("GET", "/v1/models/nope", ""); code != 404 {
			t.Errorf("unknown: %d", code)
		}
		if code, _, _ := w.do("POST", "/v1/models", "{}"); code != 405 {
			t.Errorf("POST: %d", code)
		}
		for _, path := range []string{"/health", "/ready"} {
			if code, _, body := w.do("GET", path, ""); code != 200 || body != "" {
				t.Errorf("%s: %d %q", path, code, body)
			}
		}
	})
}

// A panic, of ours or by ErrAbortHandler, leaves no booking behind.
func TestPanicGivesTheBookingBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{})
		w.engine("a:80")
		w.proxy.transport = panicking{}
		w.front.ErrorLog = quiet
		if _, err := w.send(context.Background(), "POST", chatPath, chatBody); err == nil {
			t.Error("no error")
		}
		w.close()
		if o := w.outcomes(); o != "a:cancelled" {
			t.Errorf("outcomes %q", o)
		}
		if n := w.proxy.door.count(); n != 0 {
			t.Errorf("%d inside", n)
		}
		w.idle()
	})
}

type panicking struct{}

func (panicking) RoundTrip(r *http.Request) (*http.Response, error) {
	r.Body.Close()
	panic("boom")
}

// A hundred streams that are cut leave nothing: no work, no goroutine of ours, no
// word in the log.
func TestManyCancelledStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{policy: "least_load"})
		for _, a := range []string{"a:80", "b:80"} {
			w.engine(a)
			w.serve(a, timed(keepAlive, 50*time.Millisecond, chatA, time.Hour))
		}
		done := make(chan error, 100)
		for i := range 100 {
			go func() {
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(i)*time.Millisecond+1)
				defer cancel()
				resp, err := w.send(ctx, "POST", chatPath, chatStream)
				if err == nil {
					_, err = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
				done <- err
			}()
		}
		for range 100 {
			if err := <-done; !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
		}
		synctest.Wait()
		w.idle()
		if len(w.failed) != 0 {
			t.Errorf("failures %v", w.failed)
		}
		w.close() // and the bubble ends only if every goroutine has
	})
}
