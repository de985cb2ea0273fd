package replay

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"kvasir/lab/mock"
	"kvasir/lab/mockserver"
	"kvasir/lab/trace"
)

func engine(t *testing.T) *mockserver.Server {
	t.Helper()
	cfg := mockserver.Defaults()
	cfg.Profile = mock.Profile8B.Faster(200)
	s, err := mockserver.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func blocks(from, n int) []uint64 {
	out := make([]uint64, n)
	for i := range out {
		out[i] = uint64(from + i)
	}
	return out
}

// A session whose turns share blocks is served from the cache exactly as far as
// the trace says, in every shape. Chat adds the template's tokens in front.
func TestClosedLoopSharesWhatTheTraceShares(t *testing.T) {
	for _, shape := range []Shape{Text, IDs, Chat} {
		s := engine(t)
		cfg := Defaults()
		cfg.URL, cfg.Shape = s.URL(), shape
		cfg.Writer = trace.Writer{BlockTokens: 32, Word: trace.Pseudo}
		cfg.IDRange = [2]uint32{0, 8000}
		rep, err := Run(context.Background(), cfg, Workload{Sessions: []trace.Session{{ID: "a", BlockSize: 64, Turns: []trace.Turn{
			{Input: 640, Output: 4, Blocks: blocks(0, 10)},
			{Input: 1280, Output: 4, Blocks: blocks(0, 20)},
		}}}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if rep.Failed > 0 || rep.Requests != 2 {
			t.Fatalf("%s: %d requests, errors %q", shape, rep.Requests, rep.Errors)
		}
		a, b := rep.Samples[0], rep.Samples[1]
		if shape == Chat {
			// The template's head and the end of the first prompt shift the blocks: all whole blocks before the divergence hit.
			if b.Cached < 320 || b.Cached > 352 || b.Cached%16 != 0 {
				t.Errorf("chat: %d cached, want about 320 and whole blocks of 16", b.Cached)
			}
		} else if a.Prompt != 320 || a.Cached != 0 || b.Prompt != 640 || b.Cached != 320 {
			t.Errorf("%s: prompts %d and %d with %d and %d cached, want 320 and 640 with 0 and 320", shape, a.Prompt, b.Prompt, a.Cached, b.Cached)
		}
		if a.Output != 4 || len(a.Gaps) != 3 || a.TTFT <= 0 || a.E2E < a.TTFT {
			t.Errorf("%s: %+v", shape, a)
		}
	}
}

// Open loop sends requests at their times, whether the endpoint answers or not,
// and counts latency from when they were due.
func TestOpenLoopDoesNotWait(t *testing.T) {
	const n = 20
	arrived := make(chan struct{}, n)
	release := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		<-release
		fmt.Fprint(w, "data: {\"choices\":[{\"text\":\"x\"}]}\n\ndata: [DONE]\n\n")
	}))
	defer srv.Close()
	go func() {
		for range n { // all arrive although none has been answered
			<-arrived
		}
		close(release)
	}()
	var w Workload
	for i := range n {
		w.Requests = append(w.Requests, trace.Request{ID: int64(i), At: 100 + float64(i), Input: 10, Output: 1, BlockSize: 512})
	}
	cfg := Defaults()
	cfg.URL, cfg.Model, cfg.Speed, cfg.Shape = srv.URL, "m", 1000, Text
	rep, err := Run(context.Background(), cfg, w, nil)
	if err != nil || rep.Failed != 0 || rep.Requests != n {
		t.Fatalf("%v: %+v", err, rep)
	}
	for i, s := range rep.Samples {
		if s.TTFT <= 0 || s.E2E < s.TTFT || s.Due > time.Duration(n)*time.Millisecond {
			t.Errorf("sample %d: %+v", i, s)
		}
	}
}

func TestFailuresAreToldApart(t *testing.T) {
	for _, c := range []struct{ answer, want string }{
		{`data: {"choices":[{"text":"x"}]}` + "\n\n", "broke off before [DONE]"},
		{"data: [DONE]\n\n", "without content"},
		{`data: {"error":{"message":"boom"}}` + "\n\n", "boom"},
		{"", "broke off"},
	} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, c.answer) }))
		cfg := Defaults()
		cfg.URL, cfg.Model = srv.URL, "m"
		rep, err := Run(context.Background(), cfg, Workload{Requests: []trace.Request{{Input: 1, BlockSize: 512}}}, nil)
		if err != nil || rep.Failed != 1 || !strings.Contains(strings.Join(rep.Errors, ""), c.want) {
			t.Errorf("%q: %v %+v, want an error with %q", c.answer, err, rep, c.want)
		}
		srv.Close()
	}
}

func TestLimits(t *testing.T) {
	s := engine(t)
	cfg := Defaults()
	cfg.URL, cfg.Limit, cfg.MaxInput, cfg.MaxOutput = s.URL(), 3, 100, 2
	cfg.Writer = trace.Writer{BlockTokens: 512, Word: trace.Pseudo}
	turn := func(in int) trace.Turn { return trace.Turn{Input: in, Output: 50} }
	rep, err := Run(context.Background(), cfg, Workload{Sessions: []trace.Session{
		{ID: "a", BlockSize: 512, Turns: []trace.Turn{turn(10), turn(5000), turn(10)}},
		{ID: "b", BlockSize: 512, Turns: []trace.Turn{turn(10), turn(10), turn(10)}},
	}}, nil)
	if err != nil || rep.Failed > 0 || rep.OutputTokens != 2*rep.Requests {
		t.Fatalf("%v %+v", err, rep)
	}
	if rep.Left != 2 {
		t.Errorf("%d left out, want 2: the long turn and the one behind it", rep.Left)
	}
	if _, err := Run(context.Background(), cfg, Workload{}, nil); err != errEmpty {
		t.Errorf("empty workload: %v", err)
	}
	cfg.Speed = 0
	if _, err := Run(context.Background(), cfg, Workload{}, nil); err == nil || !strings.Contains(err.Error(), "speed: 0") {
		t.Errorf("speed 0: %v", err)
	}
}
