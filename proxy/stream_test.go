package proxy

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"kvasir/sched"
)

// timed answers with events, each sent a while after the one before.
func timed(events ...any) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		w.WriteHeader(200)
		w.(http.Flusher).Flush()
		for _, e := range events {
			switch e := e.(type) {
			case time.Duration:
				select {
				case <-time.After(e):
				case <-r.Context().Done():
					return
				}
			case string:
				if e == "ABORT" {
					panic(http.ErrAbortHandler)
				}
				io.WriteString(w, e)
				w.(http.Flusher).Flush()
			}
		}
	}
}

func TestStreamPassesThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{})
		defer w.close()
		w.engine("a:80")
		w.serve("a:80", stream(keepAlive, chatRole, chatA, keepAlive, chatB, chatUsage, chatDone))
		code, h, body := w.do("POST", chatPath, chatStream)
		if want := keepAlive + chatRole + chatA + keepAlive + chatB + chatUsage + chatDone; code != 200 || body != want {
			t.Fatalf("%d\n%q\nwant\n%q", code, body, want)
		}
		if h.Get("X-Kvasir-Replica") != "a:80" {
			t.Errorf("headers %v", h)
		}
		r := w.lastReceipt()
		if r.Outcome.String() != "completed" || r.Output != 4 || !r.Served || r.ServedPrompt != 158 || r.ServedCached != 128 {
			t.Errorf("receipt %+v", r)
		}
		w.idle()
	})
}

// What counts as the first token, on each endpoint: the engine sends the prelude
// at once, and the content a minute later.
func TestFirstTokenIsContent(t *testing.T) {
	const later = time.Minute
	for _, c := range []struct{ name, path, prelude, content string }{
		{"chat, role first", chatPath, keepAlive + chatRole, chatA},
		{"chat, reasoning", chatPath, chatRole, `data: {"choices":[{"index":0,"delta":{"reasoning":"hm"}}]}` + "\n\n"},
		{"chat, reasoning_content", chatPath, chatRole, `data: {"choices":[{"index":0,"delta":{"reasoning_content":"hm"}}]}` + "\n\n"},
		{"chat, tool call", chatPath, chatRole, `data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":""}}]}}]}` + "\n\n"},
		{"chat, empty tool calls", chatPath, `data: {"choices":[{"index":0,"delta":{"content":null,"tool_calls":[]}}]}` + "\n\n", chatA},
		{"chat, second choice", chatPath, chatRole, `data: {"choices":[{"index":1,"delta":{"content":"B"}}]}` + "\n\n"},
		{"chat, usage only", chatPath, `data: {"choices":[],"usage":{"prompt_tokens":3}}` + "\n\n" + `data: {"choices":null}` + "\n\n", chatA},
		{"completions", "/v1/completions", `data: {"choices":[{"index":0,"text":""}]}` + "\n\n", `data: {"choices":[{"index":0,"text":"x"}]}` + "\n\n"},
		{"messages", "/v1/messages", "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"content\":[],\"usage\":{\"input_tokens\":24,\"output_tokens\":0}}}\n\n" +
			"event: content_block_start\ndata: {\"type\":\"content_block_start\",\"content_block\":{\"type\":\"text\",\"text\":\"\"},\"index\":0}\n\nevent: ping\ndata: {\"type\":\"ping\"}\n\n",
			"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"type\":\"text_delta\",\"text\":\"azers\"},\"index\":0}\n\n"},
		{"messages, tool", "/v1/messages", "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"content\":[]}}\n\n",
			"event: content_block_start\ndata: {\"type\":\"content_block_start\",\"content_block\":{\"type\":\"tool_use\",\"name\":\"f\",\"input\":{}},\"index\":0}\n\n"},
		{"responses", "/v1/responses", "event: response.created\ndata: {\"response\":{\"output\":[],\"usage\":null,\"error\":null},\"sequence_number\":0,\"type\":\"response.created\"}\n\n" +
			"event: response.content_part.added\ndata: {\"part\":{\"type\":\"output_text\",\"text\":\"\"},\"type\":\"response.content_part.added\"}\n\n",
			"event: response.output_text.delta\ndata: {\"delta\":\"ricane\",\"type\":\"response.output_text.delta\"}\n\n"},
		{"tokens in, tokens out", "/inference/v1/generate", `data: {"choices":[{"index":0,"token_ids":[]}]}` + "\n\n", `data: {"choices":[{"index":0,"token_ids":[30795]}]}` + "\n\n"},
		{"a path that we don't know", "/v1/other", keepAlive, `data: {"whatever":1}` + "\n\n"},
		{"an event of 4 MiB", chatPath, chatRole, `data: {"choices":[{"index":0,"delta":{"content":"` + strings.Repeat("x", 4<<20) + `"}}]}` + "\n\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, setup{})
				defer w.close()
				w.engine("a:80")
				w.serve("a:80", timed(c.prelude, later, c.content))
				code, _, body := w.do("POST", c.path, chatStream)
				if code != 200 || body != c.prelude+c.content {
					t.Fatalf("%d %q", code, clip(body, 300))
				}
				tokens := 1
				if c.path == "/v1/other" {
					tokens = 0 // of which we know nothing
				}
				if r := w.lastReceipt(); r.FirstToken != later || r.Outcome != sched.Completed || r.Output != tokens {
					t.Errorf("first token after %v, %v, %d tokens; want %v, completed, %d", r.FirstToken, r.Outcome, r.Output, later, tokens)
				}
			})
		})
	}
}

// A whole answer: the first token is its first byte, which comes at its end.
func TestWholeAnswer(t *testing.T) {
	for _, c := range []struct {
		name, path, doc        string
		prompt, cached, output int
	}{
		{"chat", chatPath, `{"choices":[{"index":0,"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":158,"total_tokens":164,"completion_tokens":6,"prompt_tokens_details":{"cached_tokens":128,"created_cache_tokens":0}}}`, 158, 128, 6},
		{"messages", "/v1/messages", `{"type":"message","content":[{"type":"text","text":"x"}],"stop_reason":"max_tokens","usage":{"input_tokens":24,"output_tokens":2,"cache_creation_input_tokens":0,"cache_read_input_tokens":128}}`, 152, 128, 2},
		{"messages, cold", "/v1/messages", `{"type":"message","content":[{"type":"text","text":"x"}],"usage":{"cache_creation_input_tokens":128,"cache_read_input_tokens":0,"input_tokens":24,"output_tokens":2}}`, 152, 0, 2},
		{"responses", "/v1/responses", `{"object":"response","error":null,"output":[{"type":"message"}],"usage":{"input_tokens":152,"input_tokens_details":{"cached_tokens":128},"output_tokens":2}}`, 152, 128, 2},
		{"long", "/v1/completions", `{"choices":[{"text":"` + strings.Repeat("y", 1<<20) + `"}],"usage":{"prompt_tokens":9,"completion_tokens":7,"prompt_tokens_details":{"cached_tokens":1}}}`, 9, 1, 7},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, setup{})
				defer w.close()
				w.engine("a:80")
				w.serve("a:80", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					time.Sleep(time.Second)
					answerJSON(200, c.doc)(w, r)
				}))
				code, _, body := w.do("POST", c.path, chatBody)
				if code != 200 || body != c.doc {
					t.Fatalf("%d %q", code, clip(body, 300))
				}
				r := w.lastReceipt()
				if r.FirstToken != time.Second || r.Outcome != sched.Completed || r.ServedPrompt != c.prompt || r.ServedCached != c.cached || r.Output != c.output {
					t.Errorf("first token %v, %v, served %d/%d, output %d", r.FirstToken, r.Outcome, r.ServedCached, r.ServedPrompt, r.Output)
				}
			})
		})
	}
}

// Without prompt_tokens_details nobody knows what was cached: that is not 0.
func TestUsageWithoutDetails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{})
		defer w.close()
		w.engine("a:80")
		w.serve("a:80", answerJSON(200, `{"choices":[{"text":"x"}],"usage":{"prompt_tokens":9,"completion_tokens":7}}`))
		w.do("POST", "/v1/completions", chatBody)
		if r := w.lastReceipt(); r.Served || r.Output != 7 {
			t.Errorf("served %v, output %d; want false, 7", r.Served, r.Output)
		}
	})
}

// Every read of the engine's stream reaches the client before the next one comes.
func TestChunksAreFlushedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{})
		defer w.close()
		w.engine("a:80")
		half := len(chatB) / 2
		w.serve("a:80", timed(chatA, time.Second, chatB[:half], time.Second, chatB[half:], time.Second, chatDone))
		resp, err := w.send(context.Background(), "POST", chatPath, chatStream)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		start := time.Now()
		buf := make([]byte, 4096)
		for i, want := range []string{chatA, chatB[:half], chatB[half:], chatDone} {
			n, err := io.ReadFull(resp.Body, buf[:len(want)])
			if err != nil || string(buf[:n]) != want {
				t.Fatalf("part %d: %q, %v", i, buf[:n], err)
			}
			if at := time.Since(start); at != time.Duration(i)*time.Second {
				t.Errorf("part %d came after %v", i, at)
			}
		}
	})
}

// The head and keep-alives of an engine that takes long are held back, but not for ever.
func TestHoldIsBounded(t *testing.T) {
	for _, c := range []struct {
		name   string
		events []any
		at     time.Duration // when the head comes
		first  string        // and what comes first
	}{
		{"silence", []any{time.Minute, chatA}, 10 * time.Second, chatA},
		{"keep-alives", []any{keepAlive, 6 * time.Second, keepAlive, time.Minute, chatA}, 10 * time.Second, keepAlive},
		{"a role", []any{chatRole, time.Minute, chatA}, 10 * time.Second, chatRole},
		{"content in time", []any{keepAlive, 6 * time.Second, chatRole, chatA}, 6 * time.Second, keepAlive},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, setup{})
				defer w.close()
				w.engine("a:80")
				w.serve("a:80", timed(c.events...))
				start := time.Now()
				resp, err := w.send(context.Background(), "POST", chatPath, chatStream)
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				if got := time.Since(start); got != c.at {
					t.Errorf("head after %v, want %v", got, c.at)
				}
				first, err := readEvent(bufio.NewReader(resp.Body))
				if err != nil || first != c.first {
					t.Errorf("first %q, %v; want %q", first, err, c.first)
				}
				io.Copy(io.Discard, resp.Body)
			})
		})
	}
}

// A line without an end passes through, too, within the bounds of what is held back.
func TestEndlessLineIsForwarded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{})
		defer w.close()
		w.engine("a:80")
		const size = 8 << 20
		w.serve("a:80", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			rw.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(rw, "data: ")
			for range size >> 10 {
				io.WriteString(rw, strings.Repeat("a", 1<<10))
			}
			rw.(http.Flusher).Flush()
			<-r.Context().Done()
		}))
		ctx, cancel := context.WithCancel(context.Background())
		start := time.Now()
		resp, err := w.send(ctx, "POST", chatPath, chatStream)
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("held back for %v, beyond HoldBytes", took)
		}
		n, err := io.CopyN(io.Discard, resp.Body, size+6)
		if n != size+6 || err != nil {
			t.Errorf("%d bytes, %v", n, err)
		}
		cancel()
		resp.Body.Close()
	})
}

// Many streams at once, for a minute each: all of them end well, and in the middle
// the load shows every one of them.
func TestManyStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 400
		w := newWorld(t, setup{policy: "least_load"})
		defer w.close()
		for _, a := range []string{"a:80", "b:80"} {
			w.engine(a)
			w.serve(a, timed(chatA, 30*time.Second, chatA, 30*time.Second, chatUsage, chatDone))
		}
		done := make(chan string, n)
		for range n {
			go func() {
				_, _, body := w.do("POST", chatPath, chatStream)
				done <- body
			}()
		}
		time.Sleep(45 * time.Second)
		synctest.Wait()
		if a, b := w.sched.Load(0, time.Now()).Requests, w.sched.Load(1, time.Now()).Requests; a+b != n || a != b || w.proxy.Stats().Open != n {
			t.Errorf("in the middle: %d and %d requests, %d open", a, b, w.proxy.Stats().Open)
		}
		for range n {
			if body := <-done; body != chatA+chatA+chatUsage+chatDone {
				t.Errorf("%q", body)
			}
		}
		w.idle()
	})
}

// A relayed chunk costs no allocation of ours: read on the side, clock, progress,
// write and flush included.
func TestRelayingAllocatesNothing(t *testing.T) {
	w := newWorld(t, setup{})
	defer w.close()
	w.engine("a:80")
	d, err := w.sched.Route(&sched.Request{Model: "m"}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	defer d.Done(time.Now(), sched.Completed)
	sink := &sink{h: http.Header{}}
	c := &call{p: w.proxy, w: sink, out: http.NewResponseController(sink), stage: started}
	a := &attempt{c: c, d: d, began: time.Now(), phase: flowing, watch: newWatcher()}
	chunk := []byte(chatA)
	if n := testing.AllocsPerRun(1000, func() {
		now := time.Now()
		a.moved.Store(int64(now.Sub(a.began)))
		if _, err := a.pass(chunk, now); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations a chunk", n)
	}
	if a.watch.tokens != 1001 || sink.n != 1001*len(chunk) {
		t.Errorf("%d tokens, %d bytes", a.watch.tokens, sink.n)
	}
}

type sink struct {
	h http.Header
	n int
}

func (s *sink) Header() http.Header         { return s.h }
func (s *sink) WriteHeader(int)             {}
func (s *sink) Write(p []byte) (int, error) { s.n += len(p); return len(p), nil }
func (s *sink) Flush()                      {}
