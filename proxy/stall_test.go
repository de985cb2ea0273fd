package proxy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"kvasir/kv"
)

// Sockets that stall, the client's and the engine's, at every point of a request, stop
// nobody else: not while they stall, not when the engine dies meanwhile. And they end.
func TestStalledSocketsStopNobody(t *testing.T) {
	big := `data: {"choices":[{"index":0,"delta":{"content":"` + strings.Repeat("x", 128<<10) + `"}}]}` + "\n\n"
	whole := `{"choices":[{"index":0,"text":"` + strings.Repeat("y", 300<<10) + `"}]}`
	text := func(n int) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", "text/plain")
			w.(http.Flusher).Flush()
			for range n {
				io.WriteString(w, strings.Repeat("z", 1<<10))
				w.(http.Flusher).Flush()
			}
			<-r.Context().Done()
		}
	}
	engines := []struct {
		name string
		body string
		http http.HandlerFunc
		raw  func(int, net.Conn)
	}{
		{"a big first event", chatStream, timed(big, time.Hour), nil},
		{"an event larger than what is held", chatStream, timed(strings.Repeat(big, 3), time.Hour), nil},
		{"small events", chatStream, timed(strings.Repeat(chatA, 1000), time.Hour), nil},
		{"a head only", chatStream, timed(time.Hour), nil},
		{"comments", chatStream, timed(strings.Repeat(keepAlive, 1000), time.Hour), nil},
		{"comments, then content", chatStream, timed(keepAlive, 15*time.Second, big, time.Hour), nil},
		{"a whole stream", chatStream, stream(chatRole, chatA, chatB, chatDone), nil},
		{"a stream that breaks", chatStream, timed(chatA, "ABORT"), nil},
		{"a whole answer", chatBody, answerJSON(200, goodDoc), nil},
		{"a long whole answer", chatBody, answerJSON(200, whole), nil},
		{"a refusal", chatBody, answerJSON(503, "busy"), nil},
		{"text without end", chatBody, text(1000), nil},
		{"text, a head only", chatBody, text(0), nil},
		{"nothing", chatStream, nil, func(_ int, c net.Conn) { time.Sleep(time.Hour) }},
		{"half of the request taken", chatStream, nil, func(_ int, c net.Conn) { io.CopyN(io.Discard, c, 100); time.Sleep(time.Hour) }},
		{"half of the head", chatStream, nil, reading(func(c net.Conn) { io.WriteString(c, sseHead[:20]); time.Sleep(time.Hour) })},
		{"half of a chunk", chatStream, nil, reading(func(c net.Conn) { io.WriteString(c, sseHead+"ff\r\ndata: "); time.Sleep(time.Hour) })},
		{"half of a document", chatBody, nil, reading(func(c net.Conn) {
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n{")
			time.Sleep(time.Hour)
		})},
	}
	for _, e := range engines {
		for _, takes := range []int{0, 1, 150, 400, 70_000} { // bytes that the client reads
			t.Run(fmt.Sprintf("%s, client stops after %d", e.name, takes), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t, setup{cfg: func(c *Config) {
						c.Idle, c.FirstToken, c.Answer = 20*time.Second, time.Minute, time.Minute
					}})
					defer w.close()
					sick := w.engine("a:80", kv.Model{ID: "sick"})
					w.engine("b:80")
					w.serve("b:80", answerJSON(200, goodDoc))
					if e.http != nil {
						w.serve("a:80", e.http)
					} else {
						w.raw("a:80", e.raw)
					}
					others := func(when string) {
						t.Helper()
						start := time.Now()
						if code, _, body := w.do("POST", chatPath, chatBody); code != 200 || body != goodDoc {
							t.Errorf("%s: %d %q", when, code, body)
						}
						if code, _, _ := w.do("GET", "/health", ""); code != 200 {
							t.Errorf("%s: health %d", when, code)
						}
						if took := time.Since(start); took > 0 {
							t.Errorf("%s: took %v", when, took)
						}
					}
					stuck := w.dial(post(chatPath, "", strings.Replace(e.body, `"m"`, `"sick"`, 1)))
					defer stuck.Close()
					w.running.Go(func() { io.CopyN(io.Discard, stuck, int64(takes)) })
					synctest.Wait()
					others("at once")
					time.Sleep(12 * time.Second) // beyond the hold
					others("later")
					w.proxy.Gone(sick.ID) // must not wait for anybody
					others("after the engine has gone")
					time.Sleep(5 * time.Minute)
					if n := w.proxy.Stats().Open; n != 0 {
						t.Errorf("%d requests are open after every limit", n)
					}
					w.idle()
				})
			})
		}
	}
}

// Finding I1: the engine's first event is larger than what the sockets take, the client
// doesn't read, and the engine goes. The idle limit ends the request, on time.
func TestClientThatTakesNothingIsCutByIdle(t *testing.T) {
	for name, e := range map[string]http.HandlerFunc{
		"content": timed(strings.Repeat(chatA, 3000), time.Hour),
		"hold":    timed(strings.Repeat(keepAlive, 3000), time.Hour),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, setup{cfg: func(c *Config) { c.Idle, c.HoldFor = 20*time.Second, 0 }})
				defer w.close()
				w.engine("a:80")
				w.serve("a:80", e)
				start := time.Now()
				c := w.dial(post(chatPath, "", chatStream))
				defer c.Close()
				w.untilEnded()
				if took := time.Since(start); took != 20*time.Second {
					t.Errorf("ended after %v, want 20 s", took)
				}
				if o := w.outcomes(); o != "a:cancelled" || len(w.failed) > 0 {
					t.Errorf("%s, failures %v: it is the client's doing", o, w.failed)
				}
				w.idle()
			})
		})
	}
}

// halfClosing is a pipe of which one can close the client's side of sending, as shutdown(2) does.
type halfClosing struct {
	net.Conn
	shut chan struct{}
}

func (c halfClosing) Read(p []byte) (int, error) {
	type got struct {
		n   int
		err error
	}
	done := make(chan got, 1)
	go func() { n, err := c.Conn.Read(p); done <- got{n, err} }()
	select {
	case g := <-done:
		return g.n, g.err
	case <-c.shut:
		c.Conn.SetReadDeadline(time.Unix(1, 0))
		if g := <-done; g.n > 0 {
			return g.n, nil
		}
		return 0, io.EOF
	}
}

// A client that sends no more looks as one that has left. It is cut off: what it has of
// the answer must not look whole.
func TestHalfClosedClientIsCut(t *testing.T) {
	for _, c := range []struct {
		name, body string
		engine     http.HandlerFunc
		want       string
	}{
		{"while it waits for a stream", chatStream, timed(time.Hour), "closed"},
		{"while it waits for an answer", chatBody, func(_ http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body); <-r.Context().Done() }, "closed"},
		{"in a stream", chatStream, timed(chatA, time.Hour), "200 " + chatA + " cut"},
		{"after its end", chatStream, timed(chatA, chatDone, time.Hour), "200 " + chatA + chatDone},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, setup{})
				defer w.close()
				w.engine("a:80")
				w.serve("a:80", c.engine)
				ours, theirs := net.Pipe()
				defer ours.Close()
				half := halfClosing{theirs, make(chan struct{})}
				one := &oneListener{conn: make(chan net.Conn, 1)}
				one.conn <- half
				srv := &http.Server{Handler: w.proxy}
				w.running.Go(func() { srv.Serve(one) })
				w.servers = append(w.servers, srv)
				defer close(one.conn)
				go io.WriteString(ours, post(chatPath, "", c.body))
				time.AfterFunc(time.Second, func() { close(half.shut) })
				if got, _ := answerOf(ours); got != c.want {
					t.Errorf("%q, want %q", got, c.want)
				}
				synctest.Wait()
				w.idle()
			})
		})
	}
}

type oneListener struct{ conn chan net.Conn }

func (l *oneListener) Accept() (net.Conn, error) {
	if c, ok := <-l.conn; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}
func (l *oneListener) Close() error   { return nil }
func (l *oneListener) Addr() net.Addr { return pipeAddr("one") }

// What an engine may have begun is not repeated: neither on another engine nor, by
// net/http on a fresh connection, on the same one. What leaves nothing behind is, elsewhere.
func TestWhatMustNotBeRepeatedIsNot(t *testing.T) {
	for _, c := range []struct {
		method, path, body string
		key                bool   // the client gives an Idempotency-Key
		want               string // engines that got the request
		code               int
	}{
		{"POST", chatPath, chatBody, false, "a b", 200},
		{"POST", chatPath, chatStream, false, "a b", 200},
		{"POST", "/tokenize", chatBody, false, "a b", 200},
		{"GET", "/v1/files", "", false, "a a b", 200}, // by net/http on a fresh connection: a GET may be
		{"POST", "/v1/files", chatBody, false, "a", 502},
		{"DELETE", "/v1/files/abc", "", false, "a", 502},
		{"PUT", "/v1/files/abc", chatBody, false, "a", 502},
		{"POST", "/v1/responses/resp_1/cancel", "", false, "a", 502},
		{"POST", "/v1/files", chatBody, true, "a a", 502},
	} {
		t.Run(fmt.Sprint(c.method, c.path, c.key), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, setup{cfg: func(c *Config) { c.Pass = []string{"/v1/files"} }})
				defer w.close()
				w.engine("a:80")
				w.engine("b:80")
				var got []string
				for _, name := range []string{"a", "b"} {
					w.raw(name+":80", func(n int, conn net.Conn) {
						in := bufio.NewReader(conn)
						for turn := 0; ; turn++ {
							r, err := http.ReadRequest(in)
							if err != nil {
								return
							}
							io.Copy(io.Discard, r.Body)
							if r.URL.Path != "/rerank" { // else it only makes the connection a kept one
								got = append(got, name)
								if name == "a" {
									return // it has read the request, and dies
								}
							}
							io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")
						}
					})
				}
				for range 2 { // round robin: a, then b; both have a kept connection
					w.do("POST", "/rerank", chatBody)
				}
				var headers []string
				if c.key {
					headers = []string{"Idempotency-Key", "k"}
				}
				code, _, body := w.do(c.method, c.path, c.body, headers...)
				if s := strings.Join(got, " "); s != c.want || code != c.code {
					t.Errorf("engines %q, %d %s; want %q, %d", s, code, body, c.want, c.code)
				}
				w.idle()
			})
		})
	}
}
