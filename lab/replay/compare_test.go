package replay

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"kvasir/lab/trace"
)

// An answerer is an endpoint that remembers which prompts it got, in order.
type answerer struct {
	mu      sync.Mutex
	prompts []string
	cached  int
}

func (a *answerer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	raw, _ := io.ReadAll(r.Body)
	var body struct {
		Prompt string `json:"prompt"`
	}
	if err := json.Unmarshal(raw, &body); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	a.mu.Lock()
	a.prompts = append(a.prompts, body.Prompt)
	a.mu.Unlock()
	fmt.Fprintf(w, "data: {\"choices\":[{\"text\":\"x\"}]}\n\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":100,\"completion_tokens\":1,\"prompt_tokens_details\":{\"cached_tokens\":%d}}}\n\ndata: [DONE]\n\n", a.cached)
}

func threeTurns() Workload {
	return Workload{Sessions: []trace.Session{{ID: "s", BlockSize: 64, Turns: []trace.Turn{
		{Input: 64, Output: 1, Blocks: blocks(0, 1)}, {Input: 128, Output: 1, Blocks: blocks(0, 2)}, {Input: 192, Output: 1, Blocks: blocks(0, 3)},
	}}}}
}

// Both endpoints get the same workload, every turn in words of its own; within a turn
// the prefixes are shared as recorded.
func TestCompareSharesNothingBetweenTurns(t *testing.T) {
	a, b := &answerer{cached: 20}, &answerer{cached: 60}
	sa, sb := httptest.NewServer(a), httptest.NewServer(b)
	defer sa.Close()
	defer sb.Close()
	cfg := Defaults()
	cfg.Model, cfg.Shape, cfg.URL, cfg.Users = "m", Text, sa.URL, 1
	cfg.Writer = trace.Writer{BlockTokens: 64, Word: trace.Pseudo}
	other := cfg
	other.URL = sb.URL
	last := 0
	c, err := Compare(t.Context(), cfg, other, threeTurns(), 2, func(done, total int, _ *Sample) {
		if done != last+1 || total != 12 {
			t.Errorf("progress %d of %d after %d, want steps of 1 to 12", done, total, last)
		}
		last = done
	})
	if err != nil {
		t.Fatal(err)
	}
	if c.Rounds != 2 || c.A.Requests != 6 || c.B.Requests != 6 || c.A.HitRate != .2 || c.B.HitRate != .6 || len(c.MeanTTFT) != 2 || last != 12 {
		t.Errorf("%d rounds, %d and %d requests, hit rates %v and %v", c.Rounds, c.A.Requests, c.B.Requests, c.A.HitRate, c.B.HitRate)
	}
	if len(a.prompts) != 6 || len(b.prompts) != 6 {
		t.Fatalf("%d and %d prompts", len(a.prompts), len(b.prompts))
	}
	heads := map[string]int{}
	for _, list := range [][]string{a.prompts, b.prompts} {
		for i, p := range list {
			heads[strings.Join(strings.Fields(p)[:32], " ")]++
			if i%3 > 0 && !strings.HasPrefix(p, list[i-1]) {
				t.Errorf("turn %d doesn't begin with the turn before", i)
			}
		}
	}
	if len(heads) != 4 {
		t.Errorf("%d different beginnings, want one for each of 4 turns", len(heads))
	}
	var out bytes.Buffer
	c.Write(&out)
	for _, want := range []string{"hit rate, %", "+40.0 points", "TTFT p95, ms", "by round: mean TTFT lower on B"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, out.String())
		}
	}
}

// Ctrl-C: what has ended is in the report, what was cut off is no failure of the
// endpoint, and nothing more is sent.
func TestInterruptedRunsSayWhatIsKnown(t *testing.T) {
	for _, closed := range []bool{true, false} {
		ctx, stop := context.WithCancel(t.Context())
		var mu sync.Mutex
		n := 0
		three := make(chan struct{}) // closed when three have ended
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			n++
			hang := n > 3
			mu.Unlock()
			io.Copy(io.Discard, r.Body)
			if hang {
				<-three
				stop() // the person has had enough while this one is open
				<-r.Context().Done()
				return
			}
			fmt.Fprint(w, "data: {\"choices\":[{\"text\":\"x\"}]}\n\ndata: [DONE]\n\n")
		}))
		var w Workload
		if closed {
			w = Workload{Sessions: append(threeTurns().Sessions, append(threeTurns().Sessions, threeTurns().Sessions...)...)}
		} else {
			for i := range 9 {
				w.Requests = append(w.Requests, trace.Request{ID: int64(i), At: float64(i), Input: 10, Output: 1, BlockSize: 512})
			}
		}
		cfg := Defaults()
		cfg.URL, cfg.Model, cfg.Shape, cfg.Users, cfg.Speed = srv.URL, "m", Text, 1, 50
		rep, err := Run(ctx, cfg, w, func(done, _ int, _ *Sample) {
			if done == 3 {
				close(three)
			}
		})
		if !errors.Is(err, context.Canceled) || rep == nil {
			t.Fatalf("report %v, error %v; want a report and canceled", rep, err)
		}
		if rep.Requests != 3 || rep.Failed != 0 || rep.Left != 0 || rep.TTFT.N != 3 {
			t.Errorf("closed %v: %d requests, %d failed (%q), %d left out, want the 3 that had ended", closed, rep.Requests, rep.Failed, rep.Errors, rep.Left)
		}
		var out bytes.Buffer
		rep.Write(&out)
		if !strings.Contains(out.String(), "3 requests to m") {
			t.Errorf("%s", out.String())
		}
		srv.Close()
	}
}

// The same for a comparison: the side that was never reached is empty, not missing.
func TestInterruptedComparison(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	a, b := httptest.NewServer(&answerer{}), httptest.NewServer(&answerer{})
	defer a.Close()
	defer b.Close()
	cfg := Defaults()
	cfg.Model, cfg.Shape, cfg.URL, cfg.Users = "m", Text, a.URL, 1
	other := cfg
	other.URL = b.URL
	c, err := Compare(ctx, cfg, other, threeTurns(), 3, func(done, _ int, _ *Sample) {
		if done == 2 {
			stop()
		}
	})
	if !errors.Is(err, context.Canceled) || c == nil || c.Rounds != 0 || c.A.Requests != 2 || c.B.Requests != 0 {
		t.Fatalf("%+v, %v", c, err)
	}
	var out bytes.Buffer
	c.Write(&out)
	if !strings.Contains(out.String(), "TTFT mean, ms") || strings.Contains(out.String(), "NaN") {
		t.Errorf("%s", out.String())
	}
}
