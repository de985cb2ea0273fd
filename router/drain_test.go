package router

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"kvasir/config"
)

// A scripted engine says what every router asks, and serves completions by a handler.
func scripted(t *testing.T, serve http.HandlerFunc) string {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("/health", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/v1/models", func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, `{"object":"list","data":[{"id":"m","object":"model","owned_by":"vllm","max_model_len":1024}]}`)
	})
	mux.HandleFunc("/v1/completions", serve)
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s.URL
}

// startRouter runs a router over engines; stop ends it.
func startRouter(t *testing.T, edit func(*config.Config), engines ...string) (r *Router, stop func()) {
	t.Helper()
	cfg := config.Defaults()
	cfg.Listen, cfg.Admin, cfg.Poll, cfg.Tokens.Mode = "127.0.0.1:0", "off", 50*time.Millisecond, "off"
	for _, e := range engines {
		c := config.NewEngine(e)
		c.Events = "off"
		cfg.Engines = append(cfg.Engines, c)
	}
	if edit != nil {
		edit(&cfg)
	}
	r, err := New(cfg, slog.New(slog.DiscardHandler), "test")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	if err := r.Start(ctx); err != nil {
		t.Fatal(err)
	}
	stop = func() { cancel(); r.Close() }
	if err := r.Ready(ctx, len(engines), 30*time.Second); err != nil {
		t.Fatal(err)
	}
	return r, stop
}

const wholeBody = `{"choices":[{"index":0,"text":"fine","finish_reason":"stop"}]}`

// An answer that is on its way when the router is told to go arrives whole, also if it is
// the only one. (Finding I5: it was cut in 12 of 27 rounds.)
func TestDrainSendsTheLastAnswerWhole(t *testing.T) {
	reached, answer := make(chan struct{}), make(chan struct{})
	engine := scripted(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		reached <- struct{}{}
		<-answer
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, wholeBody)
	})
	for round := range 40 {
		r, stop := startRouter(t, nil, engine)
		got := make(chan string, 1)
		go func() {
			resp, err := http.Post(r.URL()+"/v1/completions", "application/json", strings.NewReader(`{"model":"m","prompt":"x"}`))
			if err != nil {
				got <- err.Error()
				return
			}
			defer resp.Body.Close()
			b, err := io.ReadAll(resp.Body)
			if err != nil {
				b = append(b, err.Error()...)
			}
			got <- string(b)
		}()
		<-reached
		done := make(chan error, 1)
		go func() {
			err := r.Drain(context.Background())
			r.front.Close() // as Close does first
			done <- err
		}()
		answer <- struct{}{}
		err := <-done
		stop()
		if body := <-got; body != wholeBody || err != nil {
			t.Fatalf("round %d: %q, drain: %v", round, body, err)
		}
	}
}

// Between Leave and Drain a load balancer finds out, and nobody is refused: /ready says
// 503, requests are served, each answer closes its connection. Then nobody comes in.
func TestLeaveServesOn(t *testing.T) {
	r, stop := startRouter(t, func(c *config.Config) { c.DrainGrace = 0 }, scripted(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, wholeBody)
	}))
	defer stop()
	kept, err := net.Dial("tcp", strings.TrimPrefix(r.URL(), "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Close()
	in := bufio.NewReader(kept)
	ask := func() *http.Response {
		t.Helper()
		io.WriteString(kept, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 26\r\n\r\n"+`{"model":"m","prompt":"x"}`)
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(resp.Body); string(b) != wholeBody || err != nil {
			t.Fatalf("%q, %v", b, err)
		}
		return resp
	}
	if ask().Close {
		t.Error("the connection is closed before anybody leaves")
	}
	r.Leave(context.Background())
	resp, err := http.Get(r.URL() + "/ready")
	if err != nil || resp.StatusCode != 503 {
		t.Errorf("/ready: %v, %v; want 503", resp, err)
	}
	if !ask().Close {
		t.Error("the connection is kept although the router leaves")
	}
	if err := r.Drain(context.Background()); err != nil {
		t.Error(err)
	}
	if _, err := net.Dial("tcp", strings.TrimPrefix(r.URL(), "http://")); err == nil {
		t.Error("connections are taken after Drain")
	}
}

// What is open when the limit is over is told: a stream by an event, a request without an
// answer by a 503. And the caller learns how many.
func TestDrainLimitIsTold(t *testing.T) {
	const event = `data: {"choices":[{"index":0,"text":"A"}]}` + "\n\n"
	waits := make(chan struct{})
	engine := scripted(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		if strings.Contains(string(b), "flow") {
			io.WriteString(w, event)
		}
		w.(http.Flusher).Flush()
		waits <- struct{}{}
		<-r.Context().Done()
	})
	r, stop := startRouter(t, func(c *config.Config) { c.Drain = time.Millisecond }, engine)
	defer stop()
	type answer struct {
		code int
		body string
	}
	ask := func(prompt string) chan answer {
		got := make(chan answer, 1)
		go func() {
			resp, err := http.Post(r.URL()+"/v1/completions", "application/json", strings.NewReader(`{"model":"m","stream":true,"prompt":"`+prompt+`"}`))
			if err != nil {
				got <- answer{body: err.Error()}
				return
			}
			defer resp.Body.Close()
			b, err := io.ReadAll(resp.Body)
			if err != nil {
				b = append(b, err.Error()...)
			}
			got <- answer{resp.StatusCode, string(b)}
		}()
		<-waits
		return got
	}
	flows, hangs := ask("flow"), ask("hang")
	err := r.Drain(context.Background())
	if err == nil || !strings.Contains(err.Error(), "2 requests were still open after 1ms ") {
		t.Errorf("drain: %v", err)
	}
	const told = `{"error":{"message":"this router is shutting down, and the time for open requests is over: try again, on another connection","type":"server_error","param":null,"code":"draining"}}`
	if a := <-flows; a.code != 200 || a.body != event+"data: "+told+"\n\ndata: [DONE]\n\n" {
		t.Errorf("the stream: %d %q", a.code, a.body)
	}
	if a := <-hangs; a.code != 503 || a.body != told {
		t.Errorf("the waiting request: %d %q", a.code, a.body)
	}
}

// A second signal ends Drain at once.
func TestDrainEndsWithItsContext(t *testing.T) {
	waits := make(chan struct{})
	r, stop := startRouter(t, nil, scripted(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		close(waits)
		<-r.Context().Done()
	}))
	defer stop()
	go http.Post(r.URL()+"/v1/completions", "application/json", strings.NewReader(`{"model":"m","prompt":"x"}`))
	<-waits
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := r.Drain(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want context.Canceled", err)
	}
}
