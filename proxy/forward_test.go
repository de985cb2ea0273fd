package proxy

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
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
	"kvasir/kv"
)

// wire sends a request as these very bytes and returns the answer as it came.
func (w *world) wire(raw string) string {
	w.tb.Helper()
	c, err := w.net.dial(context.Background(), "tcp", "router:80")
	if err != nil {
		w.tb.Fatal(err)
	}
	defer c.Close()
	go io.WriteString(c, raw)
	b, err := io.ReadAll(c)
	if err != nil {
		w.tb.Fatal(err)
	}
	return string(b)
}

// recorder keeps the head and body of each request on the wire, and answers.
func (w *world) recorder(addr, answer string) *[]string {
	var got []string
	w.raw(addr, func(_ int, c net.Conn) {
		in := bufio.NewReader(c)
		for {
			var head strings.Builder
			length := 0
			for {
				line, err := in.ReadString('\n')
				if err != nil {
					return
				}
				head.WriteString(line)
				fmt.Sscanf(line, "Content-Length: %d", &length)
				if line == "\r\n" {
					break
				}
			}
			body := make([]byte, length)
			if _, err := io.ReadFull(in, body); err != nil {
				return
			}
			got = append(got, head.String()+string(body))
			io.WriteString(c, answer)
		}
	})
	return &got
}

// On the wire: the engine gets the client's method, path, query, headers and body;
// nothing is added but X-Forwarded-For, nothing dropped but what belongs to the hop.
func TestRequestOnTheWire(t *testing.T) {
	body := "{ \"model\" : \"m\",\n\t\"messages\":[{\"content\":\"caf\\u00e9 \\ud83d \xff\",\"x_meta\":{\"a\":1}}], \"seed\":9007199254740993, \"zz\":1,\"zz\":1e400, \"stop\":null }\n"
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{})
		defer w.close()
		w.engine("a:80/base")
		got := w.recorder("a:80", "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")
		w.wire("POST /v1/chat/completions?api-version=1&x=%2F HTTP/1.1\r\nHost: front.example\r\nUser-Agent: probe/1\r\nAuthorization: Bearer one\r\nAuthorization: Bearer two\r\n" +
			"Accept-Encoding: br;q=1.0, identity\r\nX-Custom-Thing: c\r\nCookie: a=b\r\nTraceparent: 00-0af7\r\nBaggage: k=v\r\nX-Request-Id: req-1\r\nIdempotency-Key: idem\r\nCache-Salt: s\r\n" +
			"Te: trailers\r\nConnection: close, X-Hop\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\nProxy-Authorization: Basic zzz\r\nProxy-Connection: keep-alive\r\nUpgrade: h2c\r\n" +
			"X-Forwarded-For: 198.51.100.7\r\nContent-Type: application/json\r\nContent-Length: " + fmt.Sprint(len(body)) + "\r\n\r\n" + body)
		if len(*got) != 1 {
			t.Fatalf("the engine got %d requests", len(*got))
		}
		head, sent, _ := strings.Cut((*got)[0], "\r\n\r\n")
		lines := strings.Split(head, "\r\n")
		if sent != body {
			t.Errorf("body %q", sent)
		}
		if lines[0] != "POST /base/v1/chat/completions?api-version=1&x=%2F HTTP/1.1" {
			t.Errorf("%q", lines[0])
		}
		want := []string{
			"Accept-Encoding: br;q=1.0, identity", "Authorization: Bearer one", "Authorization: Bearer two", "Baggage: k=v", "Cache-Salt: s", "Content-Length: " + fmt.Sprint(len(body)),
			"Content-Type: application/json", "Cookie: a=b", "Host: a:80", "Idempotency-Key: idem", "Traceparent: 00-0af7", "User-Agent: probe/1",
			"X-Custom-Thing: c", "X-Forwarded-For: 198.51.100.7, 192.0.2.1", "X-Request-Id: req-1",
		}
		if headers := slices.Sorted(slices.Values(lines[1:])); !slices.Equal(headers, want) {
			t.Errorf("headers\n%s\nwant\n%s", strings.Join(headers, "\n"), strings.Join(want, "\n"))
		}
	})
}

// A client that says little: we say nothing for it.
func TestNoHeadersOfOurs(t *testing.T) {
	for _, c := range []struct {
		name string
		cfg  func(*Config)
		want []string
	}{
		{"defaults", nil, []string{"Content-Length: 13", "Host: a:80", "X-Forwarded-For: 192.0.2.1"}},
		{"nothing", func(c *Config) { c.ForwardedFor = false }, []string{"Content-Length: 13", "Host: a:80"}},
		{"an id", func(c *Config) { c.RequestID = true }, []string{"Content-Length: 13", "Host: a:80", "X-Forwarded-For: 192.0.2.1", "X-Request-Id: "}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, setup{cfg: c.cfg})
				defer w.close()
				w.engine("a:80")
				got := w.recorder("a:80", "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")
				w.wire("POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 13\r\n\r\n{\"model\":\"m\"}")
				head, _, _ := strings.Cut((*got)[0], "\r\n\r\n")
				headers := slices.Sorted(slices.Values(strings.Split(head, "\r\n")[1:]))
				if last := headers[len(headers)-1]; strings.HasPrefix(last, "X-Request-Id: ") && len(last) > 30 {
					headers[len(headers)-1] = "X-Request-Id: "
				}
				if !slices.Equal(headers, c.want) {
					t.Errorf("%q, want %q", headers, c.want)
				}
			})
		})
	}
}

// The engine's headers reach the client, ours beside them; nothing is guessed.
func TestAnswerOnTheWire(t *testing.T) {
	for _, explain := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, setup{cfg: func(c *Config) { c.Explain = explain }})
			defer w.close()
			w.engine("a:80")
			w.recorder("a:80", "HTTP/1.1 201 Made\r\nDate: Sun, 29 Nov 2026 17:01:43 GMT\r\nServer: uvicorn\r\nVary: Origin\r\nX-Request-Id: r\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\n"+
				"Connection: keep-alive, X-Hop\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\nContent-Length: 4\r\n\r\n<p>x")
			answer := w.wire("POST /v1/other HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 13\r\n\r\n{\"model\":\"m\"}")
			head, body, _ := strings.Cut(answer, "\r\n\r\n")
			lines := strings.Split(head, "\r\n")
			want := []string{"Connection: close", "Content-Length: 4", "Date: Sun, 29 Nov 2026 17:01:43 GMT", "Server: uvicorn", "Set-Cookie: a=1", "Set-Cookie: b=2", "Vary: Origin"}
			if explain {
				want = append(want, "X-Kvasir-Decision-Us: 0", "X-Kvasir-Replica: a:80")
			}
			want = append(want, "X-Request-Id: r")
			if headers := slices.Sorted(slices.Values(lines[1:])); lines[0] != "HTTP/1.1 201 Created" || body != "<p>x" || !slices.Equal(headers, want) {
				t.Errorf("%s\n%s\n%q", lines[0], strings.Join(headers, "\n"), body)
			}
		})
	}
}

func TestTrailers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{})
		defer w.close()
		w.engine("a:80")
		w.serve("a:80", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			rw.Header().Set("Trailer", "X-Sum")
			rw.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(rw, chatA)
			rw.Header().Set("X-Sum", "abc")
			rw.Header().Set(http.TrailerPrefix+"X-Late", "def")
		}))
		resp, err := w.send(context.Background(), "POST", chatPath, chatStream)
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if resp.Trailer.Get("X-Sum") != "abc" || resp.Trailer.Get("X-Late") != "def" {
			t.Errorf("trailers %v", resp.Trailer)
		}
	})
}

// Expect: 100-continue is answered when the body is wanted, and a body that isn't
// wanted is not sent.
func TestExpectContinue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{cfg: func(c *Config) { c.MaxBody = 6 << 20 }})
		defer w.close()
		w.engine("a:80")
		var got int64
		w.serve("a:80", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Expect") != "" {
				t.Error("Expect went on to the engine, which has the body anyway")
			}
			got, _ = io.Copy(io.Discard, r.Body)
			io.WriteString(rw, "ok")
		}))
		big := `{"model":"m","x":"` + strings.Repeat("x", 5<<20) + `"}`
		if code, _, body := w.do("POST", chatPath, big, "Expect", "100-continue"); code != 200 || body != "ok" || got != int64(len(big)) {
			t.Errorf("%d %q, the engine got %d bytes of %d", code, body, got, len(big))
		}
		c, err := w.net.dial(context.Background(), "tcp", "router:80")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		io.WriteString(c, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 7000000\r\n\r\n")
		line, err := bufio.NewReader(c).ReadString('\n')
		if line != "HTTP/1.1 413 Request Entity Too Large\r\n" {
			t.Errorf("%q, %v", line, err)
		}
		c.Close()
		time.Sleep(time.Second) // the bubble's: net/http lingers
	})
}

// Bodies of every size and framing arrive whole.
func TestBodies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{})
		defer w.close()
		w.engine("a:80")
		w.serve("a:80", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			b, err := io.ReadAll(r.Body)
			if err != nil || r.ContentLength != int64(len(b)) {
				t.Errorf("%d bytes, Content-Length %d, %v", len(b), r.ContentLength, err)
			}
			rw.Write(b)
		}))
		for _, n := range []int{0, 1, 4000, 4096, 32768, 32769, 131073, 262144, 262145, 1 << 20, 5_000_000} {
			for _, chunked := range []bool{false, true} {
				body := `{"model":"m","x":"` + strings.Repeat("y", n) + `"}`
				var r io.Reader = strings.NewReader(body)
				if chunked {
					r = io.MultiReader(r)
				}
				resp, err := w.client.Post("http://router:80/v1/other", "application/json", r)
				if err != nil {
					t.Fatal(err)
				}
				got, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				if err != nil || string(got) != body {
					t.Errorf("%d bytes, chunked %v: got %d, %v", len(body), chunked, len(got), err)
				}
			}
		}
	})
}

// A body without an announced length is cut off at the limit, too.
func TestChunkedBodyTooLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{cfg: func(c *Config) { c.MaxBody = 1000 }})
		defer w.close()
		w.engine("a:80")
		resp, err := w.client.Post("http://router:80"+chatPath, "application/json", io.MultiReader(strings.NewReader(strings.Repeat("x", 1001))))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != 413 {
			t.Errorf("%d", resp.StatusCode)
		}
		time.Sleep(time.Second) // the bubble's: net/http lingers
	})
}

// Nothing is unpacked or packed: neither a body in gzip, nor an answer.
func TestCompressionIsTheirs(t *testing.T) {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	io.WriteString(z, chatStream)
	z.Close()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{})
		defer w.close()
		w.engine("a:80")
		w.serve("a:80", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			b, _ := io.ReadAll(r.Body)
			if !bytes.Equal(b, packed.Bytes()) || r.Header.Get("Content-Encoding") != "gzip" || r.Header.Get("Accept-Encoding") != "gzip" {
				t.Errorf("%q, %v", b, r.Header)
			}
			rw.Header().Set("Content-Type", "text/event-stream")
			rw.Header().Set("Content-Encoding", "gzip")
			rw.Write(b)
		}))
		code, h, body := w.do("POST", chatPath, packed.String(), "Content-Encoding", "gzip", "Accept-Encoding", "gzip")
		if code != 200 || body != packed.String() || h.Get("Content-Encoding") != "gzip" {
			t.Errorf("%d %v %q", code, h, body)
		}
	})
}

// Other paths go to some engine, as they are.
func TestOtherPaths(t *testing.T) {
	form := "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\n\r\nRIFF\r\n--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nasr\r\n--b--\r\n"
	for _, c := range []struct{ method, path, body, typ, by string }{
		{"POST", "/v1/embeddings", `{"model":"m","input":"x"}`, "", "a:80"},
		{"POST", "/v1/chat/completions/render", chatBody, "", "a:80"},
		{"POST", "/v1/messages/count_tokens", chatBody, "", "a:80"},
		{"POST", "/tokenize", `{"model":"asr","prompt":"x"}`, "", "b:80"},
		{"POST", "/detokenize", `{"model":"m","tokens":[1]}`, "", "a:80"},
		{"POST", "/inference/v1/generate", `{"model":"m","token_ids":[1]}`, "", "a:80"},
		{"POST", "/v1/some/new/endpoint", `{"model":"asr"}`, "", "b:80"},
		{"POST", "/v1/some/new/endpoint", "neither JSON nor a form", "text/plain", "a:80"},
		{"POST", "/v1/audio/transcriptions", form, "multipart/form-data; boundary=b", "b:80"},
		{"GET", "/v1/responses/resp_1?x=1", "", "", "a:80"},
		{"DELETE", "/v1/responses/resp_1", "", "", "a:80"},
		{"OPTIONS", "/v1/chat/completions", "", "", "a:80"},
		{"GET", "/v2/thing", "", "", "a:80"},
		{"GET", "/extra/thing", "", "", "a:80"},
	} {
		t.Run(c.method+" "+c.path, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, setup{cfg: func(c *Config) { c.Pass = []string{"/extra/", "/v1/some", "/v2/thing"} }})
				defer w.close()
				w.engine("a:80")
				w.engine("a2:80") // m has more targets than asr
				w.table.Update(1, func(r *fleet.Replica) { r.State = fleet.Down })
				w.engine("b:80", kv.Model{ID: "asr"})
				for _, addr := range []string{"a:80", "b:80"} {
					w.serve(addr, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
						b, _ := io.ReadAll(r.Body)
						fmt.Fprintf(rw, "%s %s %s", r.Method, r.URL, b)
					}))
				}
				headers := []string{}
				if c.typ != "" {
					headers = append(headers, "Content-Type", c.typ)
				}
				req, _ := http.NewRequest(c.method, "http://router:80"+c.path, strings.NewReader(c.body))
				for i := 0; i < len(headers); i += 2 {
					req.Header.Set(headers[i], headers[i+1])
				}
				resp, err := w.client.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				got, _ := io.ReadAll(resp.Body)
				if want := fmt.Sprintf("%s %s %s", c.method, c.path, c.body); resp.StatusCode != 200 || string(got) != want || resp.Header.Get("X-Kvasir-Replica") != c.by {
					t.Errorf("%d %q by %s; want %q by %s", resp.StatusCode, got, resp.Header.Get("X-Kvasir-Replica"), want, c.by)
				}
				if o := w.outcomes(); o != strings.TrimSuffix(c.by, ":80")+":completed" {
					t.Errorf("outcomes %q", o)
				}
				w.idle()
			})
		})
	}
}

// Work is booked for paths that we know nothing of, by the size of the body; next to
// none for those that don't run the model.
func TestUnknownPathsAreLoad(t *testing.T) {
	body := `{"model":"m","x":"` + strings.Repeat("y", 4000) + `"}`
	for path, tokens := range map[string]int{"/v1/foo": kv.EstimateTokens(len(body)), "/tokenize": 1, "/v1/chat/completions/render": 1} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, setup{})
			defer w.close()
			w.engine("a:80")
			seen, done := make(chan bool), make(chan bool)
			w.serve("a:80", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body)
				<-seen
			}))
			go func() { w.do("POST", path, body); close(done) }()
			synctest.Wait()
			if l := w.sched.Load(0, time.Now()); l.Requests != 1 || l.Prefill != tokens {
				t.Errorf("%s: %d requests, %d tokens booked; want 1, %d", path, l.Requests, l.Prefill, tokens)
			}
			close(seen)
			<-done
			w.idle()
		})
	}
}

// A writer that some wrapper has robbed of its Flush still gets every byte.
func TestWriterWithoutFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{})
		defer w.close()
		w.engine("a:80")
		w.serve("a:80", stream(chatRole, chatA, chatB, chatDone))
		rec := httptest.NewRecorder()
		w.proxy.ServeHTTP(struct{ http.ResponseWriter }{rec}, httptest.NewRequest("POST", chatPath, strings.NewReader(chatStream)))
		if got := rec.Body.String(); got != chatRole+chatA+chatB+chatDone || w.outcomes() != "a:completed" {
			t.Errorf("%q, %s", got, w.outcomes())
		}
	})
}
