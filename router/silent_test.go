package router

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"kvasir/config"
)

// silentEngine tells nothing but its health and its model: no metrics, no events. Its
// answers wait until the test ends, so that nothing depends on how fast it runs.
func silentEngine(t *testing.T) *httptest.Server {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/health":
		case "/v1/models":
			io.WriteString(w, `{"object":"list","data":[{"id":"m","object":"model","owned_by":"somebody"}]}`)
		case "/v1/completions":
			io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

// TestSilentEngines: an engine that tells no block size, and nothing of its cache, is
// still believed to have what it was sent.
func TestSilentEngines(t *testing.T) {
	for _, c := range []struct {
		size int // configured; 0: the default
		want [3]int32
	}{{0, [3]int32{0, 2000, 4000}}, {128, [3]int32{0, 1920, 3968}}} {
		cfg := config.Defaults()
		cfg.Listen, cfg.Admin, cfg.Poll = "127.0.0.1:0", "127.0.0.1:0", 50*time.Millisecond
		for range 2 {
			e := config.NewEngine(silentEngine(t).URL)
			if e.Events = "off"; c.size > 0 {
				e.BlockSize = c.size
			}
			cfg.Engines = append(cfg.Engines, e)
		}
		r, err := New(cfg, slog.New(slog.DiscardHandler), "test")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		if err := r.Start(ctx); err != nil {
			t.Fatal(err)
		}
		f := &testFleet{t: t, router: r}
		if err := r.Ready(ctx, 2, 30*time.Second); err != nil {
			t.Fatal(err)
		}
		home := ""
		for turn, want := range c.want {
			ids := strings.TrimSuffix(strings.Repeat("7,", 2000*(turn+1)), ",")
			req, _ := http.NewRequestWithContext(ctx, "POST", r.URL()+"/v1/completions", strings.NewReader(fmt.Sprintf(`{"model":"m","prompt":[%s],"max_tokens":4}`, ids)))
			go http.DefaultClient.Do(req)
			f.until(func() bool { return len(r.sched.Receipts(nil, 0)) > turn })
			all := r.sched.Receipts(nil, 0)
			got := all[0]
			for _, x := range all {
				if x.ID > got.ID {
					got = x
				}
			}
			if home == "" {
				home = got.Replica
			}
			if got.Overlap.Predicted != want || got.Replica != home {
				t.Errorf("block size %d, turn %d: %+v at %s, want %d predicted at %s", c.size, turn, got.Overlap, got.Replica, want, home)
			}
		}
		cancel()
		r.Close()
	}
}
