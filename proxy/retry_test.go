package proxy

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"kvasir/fleet"
)

const (
	deadDoc  = `{"error":{"message":"EngineCore encountered an issue. See stack trace (above) for the root cause.","type":"InternalServerError","param":null,"code":500}}`
	deadSSE  = "data: " + deadDoc + "\n\ndata: [DONE]\n\n"
	abortDoc = `{"id":"cmpl-9","object":"text_completion","choices":[{"index":0,"text":"","logprobs":null,"finish_reason":"abort","stop_reason":null}],"usage":{"prompt_tokens":3,"total_tokens":3,"completion_tokens":0}}`
	goodDoc  = `{"choices":[{"index":0,"text":"fine","finish_reason":"stop"}]}`
)

// reading reads one request from a raw connection, then runs f.
func reading(f func(c net.Conn)) func(int, net.Conn) {
	return func(_ int, c net.Conn) {
		r, err := http.ReadRequest(bufio.NewReader(c))
		if err != nil {
			return
		}
		io.Copy(io.Discard, r.Body)
		f(c)
	}
}

const sseHead = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"

// The first engine fails in some way before the client has anything: the second
// serves, the client sees only that, and the first is left alone.
func TestFailureBeforeTheFirstByteGoesElsewhere(t *testing.T) {
	for _, c := range []struct {
		name   string
		stream bool
		http   http.HandlerFunc        // the first engine's way to fail
		raw    func(n int, c net.Conn) // or on the wire; neither: connection refused
		why    Reason
		took   time.Duration
	}{
		{name: "refused", why: Unreachable},
		{name: "reset before an answer", raw: reading(func(net.Conn) {}), why: Broken},
		{name: "closed after the headers", stream: true, raw: reading(func(c net.Conn) { io.WriteString(c, sseHead) }), why: Broken},
		{name: "closed after a keep-alive", stream: true, http: timed(keepAlive, "ABORT"), why: Broken},
		{name: "closed after the role", stream: true, http: timed(chatRole, "ABORT"), why: Broken},
		{name: "closed in the middle of the role", stream: true, http: timed(chatRole[:20], "ABORT"), why: Broken},
		{name: "a clean end with nothing in it", stream: true, http: timed(), why: Broken},
		{name: "cut in the middle of a whole answer", raw: reading(func(c net.Conn) {
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n{\"choices\":[")
		}), why: Broken},
		{name: "cut in the middle of a short text", raw: reading(func(c net.Conn) {
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 500\r\n\r\nhello")
		}), why: Broken},
		{name: "503 whose body never ends", raw: reading(func(c net.Conn) {
			io.WriteString(c, "HTTP/1.1 503 Busy\r\nContent-Length: 500\r\n\r\nbusy")
			io.Copy(io.Discard, c)
		}), why: Overloaded, took: keepTime},
		{name: "502", http: answerJSON(502, "bad"), why: Gateway},
		{name: "503", http: answerJSON(503, "busy", "Retry-After", "7"), why: Overloaded},
		{name: "504", http: answerJSON(504, "slow"), why: Gateway},
		{name: "429", http: answerJSON(429, "many"), why: Overloaded},
		{name: "500 of a dead engine", http: answerJSON(500, deadDoc), why: ServerError},
		{name: "an error for a stream", stream: true, http: stream(deadSSE), why: ServerError},
		{name: "an error after the role", stream: true, http: stream(chatRole, deadSSE), why: ServerError},
		{name: "an error, and no end", stream: true, http: timed(deadSSE[:strings.Index(deadSSE, "data: [DONE]")], time.Hour), why: ServerError},
		{name: "an error object as the whole answer", http: answerJSON(200, deadDoc), why: ServerError},
		{name: "an abort as the whole answer", http: answerJSON(200, abortDoc), why: Aborting},
		{name: "an abort as a stream", stream: true, http: stream(
			`data: {"choices":[{"index":0,"text":"","finish_reason":"abort"}]}`+"\n\n", `data: {"choices":[],"usage":{"prompt_tokens":3}}`+"\n\n", chatDone), why: Aborting},
		{name: "an abort in one piece", stream: true, http: stream(
			`data: {"choices":[{"index":0,"text":"","finish_reason":"abort"}]}` + "\n\n" + `data: {"choices":[],"usage":{"prompt_tokens":3}}` + "\n\n" + chatDone), why: Aborting},
		{name: "headers, then nothing", stream: true, http: timed(time.Hour), why: Silent, took: 10 * time.Minute},
		{name: "keep-alives, then nothing", stream: true, http: timed(keepAlive, time.Minute, keepAlive, time.Hour), why: Silent, took: 10 * time.Minute},
		{name: "nothing at all", http: func(_ http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
		}, why: Silent, took: 30 * time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, setup{cfg: func(c *Config) { c.RetryFor = time.Hour }})
				defer w.close()
				w.engine("a:80")
				w.engine("b:80")
				switch {
				case c.http != nil:
					w.serve("a:80", c.http)
				case c.raw != nil:
					w.raw("a:80", c.raw)
				}
				body, want := chatBody, goodDoc
				good := answerJSON(200, goodDoc)
				if c.stream {
					body, want = chatStream, chatRole+chatA+chatB+chatDone
					good = stream(chatRole, chatA, chatB, chatDone)
				}
				w.serve("b:80", good)

				start := time.Now()
				code, h, got := w.do("POST", chatPath, body)
				if comments := strings.Count(got, keepAlive); comments > 0 && c.took > 0 {
					got = strings.ReplaceAll(got, keepAlive, "") // the first engine's, after the hold
				}
				if code != 200 || got != want {
					t.Fatalf("%d %q\nwant 200 %q", code, got, want)
				}
				if took := time.Since(start); took != c.took {
					t.Errorf("took %v, want %v", took, c.took)
				}
				if o := w.outcomes(); o != "a:failed b:completed" {
					t.Errorf("outcomes %q", o)
				}
				if by := h.Get("X-Kvasir-Replica"); by != "b:80" && c.took == 0 {
					t.Errorf("served by %q", by)
				}
				w.idle()
			})
		})
	}
}

// After the first content there is no way back: one error event, in the words of
// the endpoint, and no other engine.
func TestFailureAfterTheFirstByteIsToldOnce(t *testing.T) {
	anthropicStart := "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"type\":\"text_delta\",\"text\":\"a\"},\"index\":0}\n\n"
	responsesStart := "event: response.output_text.delta\ndata: {\"delta\":\"a\",\"sequence_number\":0,\"type\":\"response.output_text.delta\"}\n\n"
	for _, c := range []struct {
		name, path string
		events     []any
		tail       string // what we add; "" and cut: the connection is cut
		cut        bool
		took       time.Duration
		why        Reason
	}{
		{"chat", chatPath, []any{chatRole, chatA, "ABORT"},
			`data: {"error":{"message":"the engine that had this request failed before its answer was complete (broken)","type":"server_error","param":null,"code":"engine_failed"}}` + "\n\ndata: [DONE]\n\n", false, 0, Broken},
		{"messages", "/v1/messages", []any{anthropicStart, "ABORT"},
			"event: error\ndata: " + `{"type":"error","error":{"type":"api_error","message":"the engine that had this request failed before its answer was complete (broken)"}}` + "\n\n", false, 0, Broken},
		{"responses", "/v1/responses", []any{responsesStart, responsesStart, "ABORT"},
			"event: error\ndata: " + `{"type":"error","code":"engine_failed","message":"the engine that had this request failed before its answer was complete (broken)","param":null,"sequence_number":2}` + "\n\n", false, 0, Broken},
		{"a stream that hangs", chatPath, []any{chatA, time.Minute, chatA, time.Hour},
			`data: {"error":{"message":"the engine that has this request did not answer in time (stalled)","type":"server_error","param":null,"code":"engine_timeout"}}` + "\n\ndata: [DONE]\n\n", false, 3 * time.Minute, Stalled},
		{"in the middle of an event", chatPath, []any{chatA, chatB[:30], "ABORT"}, "", true, 0, Broken},
		{"the engine's own words", chatPath, []any{chatA, deadSSE}, "", false, 0, ServerError},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, setup{})
				defer w.close()
				w.engine("a:80")
				w.engine("b:80")
				w.serve("a:80", timed(c.events...))
				w.serve("b:80", stream(chatA, chatDone))
				want := ""
				for _, e := range c.events {
					if s, ok := e.(string); ok && s != "ABORT" {
						want += s
					}
				}
				want += c.tail
				if c.cut {
					want += "<unexpected EOF>"
				}
				start := time.Now()
				code, _, got := w.do("POST", c.path, chatStream)
				if code != 200 || got != want {
					t.Errorf("%d\n%q\nwant\n%q", code, got, want)
				}
				if took := time.Since(start); took != c.took {
					t.Errorf("took %v, want %v", took, c.took)
				}
				if o := w.outcomes(); o != "a:failed" {
					t.Errorf("outcomes %q", o)
				}
				if !slices.Equal(w.failed, []Reason{c.why}) {
					t.Errorf("failures %v, want %v", w.failed, c.why)
				}
				w.idle()
			})
		})
	}
}

// A whole answer that breaks off after the client has its start ends in a broken
// connection, not in a short answer that looks complete.
func TestWholeAnswerThatBreaksOffIsCut(t *testing.T) {
	for _, framing := range []string{"Content-Length: 900000", "Transfer-Encoding: chunked"} {
		t.Run(framing, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, setup{})
				defer w.close()
				w.engine("a:80")
				part := strings.Repeat("x", 500_000) // more than is held back
				w.raw("a:80", reading(func(c net.Conn) {
					if strings.Contains(framing, "chunked") {
						part = "7a120\r\n" + part + "\r\n"
					}
					io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"+framing+"\r\n\r\n"+part)
				}))
				code, _, got := w.do("POST", chatPath, chatBody)
				if code != 200 || len(got) < 400_000 || !strings.HasSuffix(got, "<unexpected EOF>") {
					t.Errorf("%d, %d bytes, end %q", code, len(got), got[max(0, len(got)-40):])
				}
				if o := w.outcomes(); o != "a:failed" {
					t.Errorf("outcomes %q", o)
				}
				w.idle()
			})
		})
	}
}

// An engine's 4xx is the client's: passed on as it is, never tried elsewhere, and
// no word against the engine.
func TestClientErrorsPassThrough(t *testing.T) {
	for _, c := range []struct {
		name string
		h    http.HandlerFunc
		code int
		body string
	}{
		{"400", answerJSON(400, `{"error":{"message":"too long"}}`), 400, `{"error":{"message":"too long"}}`},
		{"401", answerJSON(401, `{"error":"Unauthorized"}`), 401, `{"error":"Unauthorized"}`},
		{"413 in HTML", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			w.WriteHeader(413)
			io.WriteString(w, "<h1>no</h1>")
		}, 413, "<h1>no</h1>"},
		{"422", answerJSON(422, "{}"), 422, "{}"},
		{"a 400 within a stream", stream("data: {\"error\":{\"message\":\"too long\",\"code\":400}}\n\n", chatDone), 200, "data: {\"error\":{\"message\":\"too long\",\"code\":400}}\n\n" + chatDone},
		{"an abort with something in it", answerJSON(200, `{"choices":[{"message":{"content":"half a"},"finish_reason":"abort"}]}`), 200, `{"choices":[{"message":{"content":"half a"},"finish_reason":"abort"}]}`},
		{"307 is not followed", answerJSON(307, "", "Location", "http://b:80/"), 307, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, setup{})
				defer w.close()
				w.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
				w.engine("a:80")
				w.engine("b:80")
				w.serve("a:80", c.h)
				w.serve("b:80", stream(chatA))
				code, _, body := w.do("POST", chatPath, chatStream)
				if code != c.code || body != c.body {
					t.Errorf("%d %q, want %d %q", code, body, c.code, c.body)
				}
				if o := w.outcomes(); o != "a:completed" || len(w.failed) > 0 {
					t.Errorf("outcomes %q, failures %v", o, w.failed)
				}
			})
		})
	}
}

// When no engine is left the client gets what the last one that spoke had said.
func TestNobodyLeft(t *testing.T) {
	for _, c := range []struct {
		name string
		a, b http.HandlerFunc // nil: connection refused
		code int
		body string // prefix
		wait string // Retry-After
	}{
		{"both busy", answerJSON(503, "A busy", "Retry-After", "7"), answerJSON(503, "B busy", "Retry-After", "9"), 503, "B busy", "9"},
		{"busy, then refused", answerJSON(503, "A busy", "Retry-After", "7"), nil, 503, "A busy", "7"},
		{"both refused", nil, nil, 503, `{"error":{"message":"no engine that serves this model can be reached"`, "1"},
		{"both limit", answerJSON(429, "A many"), answerJSON(429, "B many", "Retry-After", "3"), 429, "B many", "3"},
		{"both dead", answerJSON(500, deadDoc), stream(chatRole, deadSSE), 200, chatRole + deadSSE, ""},
		{"both abort", answerJSON(200, abortDoc), answerJSON(200, abortDoc), 200, abortDoc, ""},
		{"both break", timed("ABORT"), timed("ABORT"), 502, `{"error":{"message":"the engine that had this request failed`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, setup{})
				defer w.close()
				for addr, h := range map[string]http.HandlerFunc{"a:80": c.a, "b:80": c.b} {
					if h != nil {
						w.serve(addr, h)
					}
				}
				w.engine("a:80")
				w.engine("b:80")
				code, h, body := w.do("POST", chatPath, chatStream)
				if code != c.code || !strings.HasPrefix(body, c.body) || h.Get("Retry-After") != c.wait {
					t.Errorf("%d %q, Retry-After %q; want %d %q, %q", code, body, h.Get("Retry-After"), c.code, c.body, c.wait)
				}
				if o := w.outcomes(); o != "a:failed b:failed" {
					t.Errorf("outcomes %q", o)
				}
				w.idle()
			})
		})
	}
}

// What the engine before has said does not leak into the next one's answer.
func TestAnswersAreNotMixed(t *testing.T) {
	for name, first := range map[string]http.HandlerFunc{
		"kept": answerJSON(503, "busy"), "held": timed(keepAlive, chatRole, "ABORT"), "whole": answerJSON(200, abortDoc),
	} {
		t.Run(name, func(t *testing.T) {
			for _, second := range []http.HandlerFunc{answerJSON(400, "no"), answerJSON(200, goodDoc), stream(chatA, chatDone), answerJSON(200, strings.Repeat("x", 300_000))} {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t, setup{})
					defer w.close()
					w.engine("a:80")
					w.engine("b:80")
					w.serve("a:80", first)
					w.serve("b:80", second)
					code, _, got := w.do("POST", chatPath, chatStream)
					alone := httptest.NewRecorder()
					second(alone, httptest.NewRequest("POST", "/", nil))
					if code != alone.Code || got != alone.Body.String() {
						t.Errorf("%d %.200q, want %d %.200q", code, got, alone.Code, alone.Body)
					}
				})
			}
		})
	}
}

// The number of engines that one request may try is bounded; and one that kills
// engines gets two.
func TestRetryBudget(t *testing.T) {
	for _, c := range []struct {
		name string
		h    http.HandlerFunc
		cfg  func(*Config)
		want string
	}{
		{"busy: three", answerJSON(503, "busy"), nil, "a:failed b:failed c:failed"},
		{"busy: one", answerJSON(503, "busy"), func(c *Config) { c.Attempts = 1 }, "a:failed"},
		{"deadly: two that were well", answerJSON(500, deadDoc), nil, "a:failed b:failed"},
		{"of engines that were never well", answerJSON(500, deadDoc), nil, "a:failed b:failed c:failed"},
		{"deadline", timed(time.Hour), func(c *Config) { c.RetryFor = 5 * time.Minute }, "a:failed"},
		{"later deadline", timed(time.Hour), func(c *Config) { c.RetryFor = time.Hour }, "a:failed b:failed"},
		{"429 goes on", answerJSON(429, "many"), nil, "a:failed b:failed c:failed"},
		{"429 passes", answerJSON(429, "many"), func(c *Config) { c.Retry429 = false }, "a:completed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, setup{cfg: c.cfg})
				defer w.close()
				for _, addr := range []string{"a:80", "b:80", "c:80", "d:80"} {
					r := w.engine(addr)
					w.serve(addr, c.h)
					if c.name != "of engines that were never well" {
						w.proxy.breakers.succeeded(r.Targets[0], r.ID)
					}
				}
				w.do("POST", chatPath, chatStream)
				if o := w.outcomes(); o != c.want {
					t.Errorf("outcomes %q, want %q", o, c.want)
				}
			})
		})
	}
}

// Keep-alives that went out after the hold commit to no engine; its successor's
// refusal is told in the stream.
func TestStreamGoesOnElsewhereAfterKeepAlives(t *testing.T) {
	for _, c := range []struct {
		name string
		b    http.HandlerFunc
		want string
	}{
		{"and is served", stream(chatRole, chatA, chatDone), keepAlive + keepAlive + chatRole + chatA + chatDone},
		{"and is refused", answerJSON(400, "no"), keepAlive + keepAlive + `data: {"error":{"message":"the engine that took the request over answered 400: no","type":"invalid_request_error","param":null,"code":"engine_refused"}}` + "\n\n" + chatDone},
		{"and finds it busy", answerJSON(503, "busy"), keepAlive + keepAlive + `data: {"error":{"message":"the engine that had this request failed before its answer was complete (overloaded)","type":"server_error","param":null,"code":"engine_failed"}}` + "\n\n" + chatDone},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, setup{})
				defer w.close()
				w.engine("a:80")
				w.engine("b:80")
				w.serve("a:80", timed(keepAlive, 20*time.Second, keepAlive, 20*time.Second, "ABORT"))
				w.serve("b:80", c.b)
				if code, _, body := w.do("POST", chatPath, chatStream); code != 200 || body != c.want {
					t.Errorf("%d\n%q\nwant\n%q", code, body, c.want)
				}
				w.idle()
			})
		})
	}
}

// A replica that is taken out of the fleet lets go of the requests that wait for it,
// and keeps those that flow.
func TestGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{})
		defer w.close()
		a := w.engine("a:80")
		b := w.engine("b:80")
		w.serve("a:80", timed(time.Hour))
		w.serve("b:80", timed(chatA, time.Minute, chatB, chatDone))
		got := make(chan string, 1)
		go func() {
			_, _, body := w.do("POST", chatPath, chatStream)
			got <- body
		}()
		synctest.Wait()
		if err := w.table.Update(a.ID, func(r *fleet.Replica) { r.State = fleet.Down }); err != nil {
			t.Fatal(err)
		}
		w.proxy.Gone(a.ID)
		synctest.Wait()
		w.proxy.Gone(b.ID)
		if body := <-got; body != chatA+chatB+chatDone {
			t.Errorf("%q", body)
		}
		if o := w.outcomes(); o != "a:failed b:completed" || !slices.Equal(w.failed, []Reason{Gone}) {
			t.Errorf("outcomes %q, failures %v", o, w.failed)
		}
	})
}

// An engine may close a connection that was idle just when a request comes: that is
// neither the client's trouble nor the engine's fault.
func TestStaleConnectionIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{})
		defer w.close()
		w.engine("a:80")
		served := 0
		w.raw("a:80", func(n int, c net.Conn) {
			in := bufio.NewReader(c)
			for turn := 0; ; turn++ {
				r, err := http.ReadRequest(in)
				if err != nil {
					return
				}
				io.Copy(io.Discard, r.Body)
				if _, ok := r.Header["Idempotency-Key"]; ok {
					t.Error("Idempotency-Key was sent")
				}
				served++
				io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")
				if turn == 1 {
					return // the third request on a connection finds it closed
				}
			}
		})
		for i := range 10 {
			if code, _, body := w.do("POST", chatPath, chatBody); code != 200 || body != "{}" {
				t.Fatalf("request %d: %d %q", i, code, body)
			}
			synctest.Wait()
		}
		if served != 10 || w.net.dials["a:80"] < 5 || len(w.failed) > 0 {
			t.Errorf("served %d over %d connections, failures %v", served, w.net.dials["a:80"], w.failed)
		}
	})
}

// One that finds out only when it has the connection, from net/http, dials again.
func TestConnectionClosedWhileIdleIsDialledAgain(t *testing.T) {
	w := newWorld(t, setup{})
	defer w.close()
	w.engine("a:80")
	trips := 0
	w.proxy.transport = roundTripper(func(r *http.Request) (*http.Response, error) {
		b, err := io.ReadAll(r.Body)
		if r.Body.Close(); err != nil || string(b) != chatBody {
			t.Errorf("trip %d: %q, %v", trips, b, err)
		}
		if trips++; trips < 4 {
			return nil, errors.New(closedIdle)
		}
		rec := httptest.NewRecorder()
		answerJSON(200, goodDoc)(rec, httptest.NewRequest("POST", "/", nil))
		return rec.Result(), nil
	})
	if code, _, body := w.do("POST", chatPath, chatBody); code != 200 || body != goodDoc || trips != 4 || len(w.failed) > 0 {
		t.Errorf("%d %q after %d trips, failures %v", code, body, trips, w.failed)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Idle connections are dropped before uvicorn drops them: after IdleConn.
func TestIdleConnectionsEndInTime(t *testing.T) {
	for _, limit := range []time.Duration{time.Second, Defaults().IdleConn} {
		synctest.Test(t, func(t *testing.T) { idleConnectionEnds(t, limit) })
	}
}

func idleConnectionEnds(t *testing.T, limit time.Duration) {
	w := newWorld(t, setup{cfg: func(c *Config) { c.IdleConn = limit }})
	defer w.close()
	w.engine("a:80")
	closed := make(chan time.Time, 1)
	w.raw("a:80", func(_ int, c net.Conn) {
		in := bufio.NewReader(c)
		for {
			r, err := http.ReadRequest(in)
			if err != nil {
				closed <- time.Now()
				return
			}
			io.Copy(io.Discard, r.Body)
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")
		}
	})
	w.do("POST", chatPath, chatBody)
	start := time.Now()
	if quiet := (<-closed).Sub(start); quiet != limit || quiet > 4*time.Second {
		t.Errorf("closed after %v, want %v, and at most 4 s", quiet, limit)
	}
}
