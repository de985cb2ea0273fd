package replay

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"sync"
	"testing"

	"kvasir/lab/trace"
)

// Only sessions that are asked to say when they go on, and not at their last turn.
func TestNextTurn(t *testing.T) {
	s := engine(t)
	target, err := url.Parse(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var said []string
	forward := httputil.NewSingleHostReverseProxy(target)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			mu.Lock()
			said = append(said, r.Header.Get("X-Kvasir-Next-Turn"))
			mu.Unlock()
		}
		http.NewResponseController(w).EnableFullDuplex() // else an early answer can be cut (proxy/cpu_test.go)
		forward.ServeHTTP(w, r)
	}))
	defer front.Close()
	for _, tell := range []bool{true, false} {
		said = nil
		cfg := Defaults()
		cfg.URL, cfg.Shape, cfg.NextTurn, cfg.MaxThink = front.URL, Text, tell, 20e6
		cfg.Writer = trace.Writer{BlockTokens: 32, Word: trace.Pseudo}
		rep, err := Run(context.Background(), cfg, Workload{Sessions: []trace.Session{{ID: "a", BlockSize: 64, Turns: []trace.Turn{
			{Input: 64, Output: 2, Blocks: blocks(0, 1)}, {Think: .01, Input: 128, Output: 2, Blocks: blocks(0, 2)}, {Think: 5, Input: 128, Output: 2, Blocks: blocks(0, 2)},
		}}}}, nil)
		if err != nil || rep.Failed > 0 || rep.Requests != 3 {
			t.Fatalf("%v, %+v", err, rep)
		}
		want := []string{"0.01", "0.02", ""} // 5 s are cut to 20 ms
		if !tell {
			want = []string{"", "", ""}
		}
		if !slices.Equal(said, want) {
			t.Errorf("tell %v: said %q, want %q", tell, said, want)
		}
	}
}

func TestReason(t *testing.T) {
	for body, want := range map[string]string{
		`{"error": {"message": "too long", "code": 400}}`: "too long",
		`{"message": "no such model"}`:                    "no such model",
		`{"detail": "Not Found"}`:                         "Not Found",
		`{"detail": [{"loc": ["body"]}]}`:                 `{"detail": [{"loc": ["body"]}]}`,
		" <html>bad gateway</html>\n":                     "<html>bad gateway</html>",
		"":                                                "",
	} {
		if got := reason([]byte(body)); got != want {
			t.Errorf("%s: %q, want %q", body, got, want)
		}
	}
}
