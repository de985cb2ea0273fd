package proxy

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"kvasir/token"
)

// dial opens a connection of a client's and sends text on it.
func (w *world) dial(text string) net.Conn {
	w.tb.Helper()
	c, err := w.net.dial(context.Background(), "tcp", "router:80")
	if err != nil {
		w.tb.Fatal(err)
	}
	if _, err := io.WriteString(c, text); err != nil {
		w.tb.Fatal(err)
	}
	return c
}

// post is a request as a client writes it; length "" is that of the body.
func post(path, length, body string, headers ...string) string {
	if length == "" {
		length = fmt.Sprintf("Content-Length: %d", len(body))
	}
	return "POST " + path + " HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n" + strings.Join(append(headers, length), "\r\n") + "\r\n\r\n" + body
}

// answer reads an answer and what follows until the connection's end: "cut" if it ends
// before the answer does.
func answerOf(c net.Conn) (string, time.Duration) {
	start := time.Now()
	in := bufio.NewReader(c)
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		return "closed", time.Since(start)
	}
	b, err := io.ReadAll(resp.Body)
	took := time.Since(start)
	if err != nil {
		return fmt.Sprintf("%d %s cut", resp.StatusCode, b), took
	}
	return fmt.Sprintf("%d %s", resp.StatusCode, b), took
}

// Every phase of a request ends by its limit, and by none other, with an error in the
// endpoint's words as long as there is a way to tell it. Afterwards nothing is left open.
func TestEveryPhaseHasALimit(t *testing.T) {
	const tooSlow = `408 {"error":{"message":"the request's body came too slowly: want all of it within 1m0s, and 10240 bytes every 10s","type":"invalid_request_error","param":null,"code":"request_timeout"}}`
	const silent = `{"error":{"message":"the engine that has this request did not answer in time (silent)","type":"server_error","param":null,"code":"engine_timeout"}}`
	const stalled = `{"error":{"message":"the engine that has this request did not answer in time (stalled)","type":"server_error","param":null,"code":"engine_timeout"}}`
	slow := token.SourceFunc(func(ctx context.Context, _ *token.Request) token.Result { <-ctx.Done(); return token.Result{} })
	hang := func(_ http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body); <-r.Context().Done() }
	// trickle sends n bytes every pause until the connection ends.
	trickle := func(n int, pause time.Duration, chunked bool) func(net.Conn) {
		part := strings.Repeat("x", n)
		if chunked {
			part = fmt.Sprintf("%x\r\n%s\r\n", n, part)
		}
		return func(c net.Conn) {
			for {
				time.Sleep(pause)
				if _, err := io.WriteString(c, part); err != nil {
					return
				}
			}
		}
	}
	for _, c := range []struct {
		name   string
		send   string
		then   func(c net.Conn) // sends more
		engine http.HandlerFunc
		raw    func(n int, c net.Conn)
		cfg    func(*Config)
		source token.Source
		want   string
		took   time.Duration
	}{
		{name: "header: silence", send: "POST /v1/chat", want: "400 400 Bad Request", took: headTime},
		{name: "header: a trickle", send: "POST /v1/chat", then: trickle(1, time.Second, false), want: "400 400 Bad Request", took: headTime},
		{name: "body: silence", send: post(chatPath, "Content-Length: 100", `{"model"`), want: tooSlow, took: headTime},
		{name: "body: a trickle", send: post(chatPath, "Content-Length: 100", `{"model"`), then: trickle(1, time.Second, false), want: tooSlow, took: headTime},
		{name: "body: a trickle in chunks", send: post(chatPath, "Transfer-Encoding: chunked", ""), then: trickle(1, time.Second, true), want: tooSlow, took: headTime},
		{name: "body: fast, then silence", send: post(chatPath, "Content-Length: 100000", strings.Repeat(" ", 50_000)), want: tooSlow, took: headTime},
		{name: "body: fast enough, without end", send: post(chatPath, "Transfer-Encoding: chunked", ""), then: trickle(2<<10, time.Second, true), want: tooSlow, took: time.Minute},
		{name: "body: of a path that nobody serves", send: post("/nope", "Content-Length: 100", "x"), want: `404 {"error":{"message":"no such path: POST /nope","type":"invalid_request_error","param":null,"code":"unknown_url"}}`},
		{name: "body: Anthropic", send: post("/v1/messages", "Content-Length: 100", "{"), want: `408 {"type":"error","error":{"type":"invalid_request_error","message":"the request's body came too slowly: want all of it within 1m0s, and 10240 bytes every 10s"}}`, took: headTime},
		{name: "tokens", send: post(chatPath, "", chatBody), engine: answerJSON(200, goodDoc), source: slow, cfg: func(c *Config) { c.Tokens = time.Second }, want: "200 " + goodDoc, took: time.Second},
		{name: "first content: nothing", send: post(chatPath, "", chatStream), engine: hang, want: "504 " + silent, took: 40 * time.Second},
		{name: "first content: a head, within the hold", send: post(chatPath, "", chatStream), engine: timed(time.Hour), cfg: func(c *Config) { c.FirstToken = 8 * time.Second }, want: "504 " + silent, took: 8 * time.Second},
		{name: "first content: comments, within the hold", send: post(chatPath, "", chatStream), engine: timed(keepAlive, time.Second, keepAlive, time.Hour), cfg: func(c *Config) { c.FirstToken = 8 * time.Second }, want: "504 " + silent, took: 8 * time.Second},
		{name: "first content: a role, within the hold", send: post(chatPath, "", chatStream), engine: timed(chatRole, time.Hour), cfg: func(c *Config) { c.FirstToken = 8 * time.Second }, want: "504 " + silent, took: 8 * time.Second},
		{name: "first content: a head, beyond the hold", send: post(chatPath, "", chatStream), engine: timed(time.Hour), want: "200 data: " + silent + "\n\n" + chatDone, took: 40 * time.Second},
		{name: "first content: comments, beyond the hold", send: post(chatPath, "", chatStream), engine: timed(keepAlive, time.Hour), want: "200 " + keepAlive + "data: " + silent + "\n\n" + chatDone, took: 40 * time.Second},
		{name: "first content: half an event", send: post(chatPath, "", chatStream), engine: timed(chatA[:20], time.Hour), cfg: func(c *Config) { c.FirstToken = 8 * time.Second }, want: "504 " + silent, took: 8 * time.Second},
		{name: "answer: nothing", send: post(chatPath, "", chatBody), engine: hang, want: "504 " + silent, took: 50 * time.Second},
		{name: "answer: half of its head", send: post(chatPath, "", chatBody), raw: reading(func(c net.Conn) { io.WriteString(c, "HTTP/1.1 200 OK\r\nConte"); io.Copy(io.Discard, c) }), want: "504 " + silent, took: 50 * time.Second},
		{name: "answer: the request is not taken", send: post(chatPath, "", chatBody), raw: func(_ int, c net.Conn) { io.CopyN(io.Discard, c, 10); time.Sleep(time.Hour) }, want: "504 " + silent, took: 50 * time.Second},
		{name: "answer: half of it", send: post(chatPath, "", chatBody), raw: reading(func(c net.Conn) {
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n{\"choices\":[")
			io.Copy(io.Discard, c)
		}), want: "504 " + stalled, took: 20 * time.Second},
		{name: "an answer that matters to nobody", send: post(chatPath, "", chatBody), engine: func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			w.WriteHeader(503)
			io.WriteString(w, "busy")
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}, want: `502 {"error":{"message":"the engine that had this request failed before its answer was complete (overloaded)","type":"server_error","param":null,"code":"engine_failed"}}`, took: keepTime},
		{name: "idle: in a stream", send: post(chatPath, "", chatStream), engine: timed(chatA, time.Hour), want: "200 " + chatA + "data: " + stalled + "\n\n" + chatDone, took: 20 * time.Second},
		{name: "idle: in an event", send: post(chatPath, "", chatStream), engine: timed(chatA+chatB[:20], time.Hour), want: "200 " + chatA + chatB[:20] + " cut", took: 20 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, setup{source: c.source, cfg: func(cfg *Config) {
					cfg.Body, cfg.FirstToken, cfg.Answer, cfg.Idle = time.Minute, 40*time.Second, 50*time.Second, 20*time.Second
					if c.cfg != nil {
						c.cfg(cfg)
					}
				}})
				defer w.close()
				w.engine("a:80")
				switch {
				case c.raw != nil:
					w.raw("a:80", c.raw)
				case c.engine != nil:
					w.serve("a:80", c.engine)
				}
				conn := w.dial(c.send)
				defer conn.Close()
				if c.then != nil {
					w.running.Go(func() { c.then(conn) })
				}
				got, took := answerOf(conn)
				if got != c.want || took != c.took {
					t.Errorf("%s after %v\nwant %s after %v", clip(got, 600), took, c.want, c.took)
				}
				conn.SetReadDeadline(time.Now().Add(time.Minute))
				io.Copy(io.Discard, conn) // until net/http has ended what it does for the request, too
				synctest.Wait()
				if open := w.proxy.Stats().Open; open != 0 || w.proxy.bodies.used.Load() != 0 {
					t.Errorf("%d requests are still open, with %d bytes", open, w.proxy.bodies.used.Load())
				}
				w.idle()
			})
		})
	}
}
