package router

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"kvasir/config"
	"kvasir/lab/mock"
	"kvasir/lab/mockserver"
	"kvasir/web"
)

// A fleet is modelled engines behind a router, on real sockets.
type testFleet struct {
	t       *testing.T
	engines []*mockserver.Server
	router  *Router
}

func newFleet(t *testing.T, n int, edit func(*config.Config)) *testFleet {
	t.Helper()
	return newFleetOf(t, slices.Repeat([]mockserver.Config{mockserver.Defaults()}, n), edit)
}

func newFleetOf(t *testing.T, engines []mockserver.Config, edit func(*config.Config)) *testFleet {
	t.Helper()
	f := &testFleet{t: t}
	cfg := config.Defaults()
	cfg.Listen, cfg.Admin, cfg.Poll = "127.0.0.1:0", "127.0.0.1:0", 50*time.Millisecond
	for _, e := range engines {
		s := startEngine(t, e)
		f.engines = append(f.engines, s)
		cfg.Engines = append(cfg.Engines, config.NewEngine(s.URL()))
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
	t.Cleanup(func() { cancel(); r.Close() })
	f.router = r
	if err := r.Ready(ctx, len(engines), 30*time.Second); err != nil {
		t.Fatal(err)
	}
	return f
}

func startEngine(t *testing.T, cfg mockserver.Config) *mockserver.Server {
	t.Helper()
	cfg.Profile = mock.Profile8B.Faster(100)
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

// An answer is what a client sees.
type answer struct {
	code              int
	replica           string
	predicted, cached int
	body              string
}

func (f *testFleet) ask(prompt string, session string) answer {
	f.t.Helper()
	body := fmt.Sprintf(`{"model":"modelled-8b","prompt":%q,"max_tokens":4}`, prompt)
	req, _ := http.NewRequest("POST", f.router.URL()+"/v1/completions", strings.NewReader(body))
	if session != "" {
		req.Header.Set("X-Session-Id", session)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		f.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	a := answer{code: resp.StatusCode, replica: resp.Header.Get("X-Kvasir-Replica"), body: string(b)}
	fmt.Sscanf(resp.Header.Get("X-Kvasir-Cached-Tokens"), "%d/", &a.predicted)
	var u struct {
		Usage struct {
			Details struct {
				Cached int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		} `json:"usage"`
	}
	json.Unmarshal(b, &u)
	a.cached = u.Usage.Details.Cached
	return a
}

func (f *testFleet) fleet() (out web.Fleet) {
	f.t.Helper()
	f.get("/v1/kvasir/fleet", &out)
	return out
}

func (f *testFleet) get(path string, to any) {
	f.t.Helper()
	resp, err := http.Get(f.router.AdminURL() + path)
	if err != nil {
		f.t.Fatal(err)
	}
	defer resp.Body.Close()
	if s, ok := to.(*string); ok {
		b, _ := io.ReadAll(resp.Body)
		*s = string(b)
		return
	}
	if err := json.NewDecoder(resp.Body).Decode(to); err != nil {
		f.t.Fatal(err)
	}
}

// until polls until ok; go test's own limit ends what never happens.
func (f *testFleet) until(ok func() bool) {
	for !ok() {
		f.get("/health", new(string))
	}
}

// settled waits until the index has n blocks of every engine together.
func (f *testFleet) settled(n int64) {
	f.until(func() bool {
		var held int64
		for _, r := range f.fleet().Replicas {
			held += r.Ranks[0].HeldBlocks["gpu"]
		}
		return held == n
	})
}

func words(n, from int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(" " + mockserver.Word(from+i))
	}
	return b.String()
}

// Conversations come back to the engine that has them, and every prediction is
// what the engine then serves.
func TestPredictionsAreTrue(t *testing.T) {
	f := newFleet(t, 3, nil)
	var blocks int64
	for turn := 1; turn <= 4; turn++ {
		for c := range 5 {
			a := f.ask(words(160*turn, 1000*c), "")
			if a.code != 200 || a.predicted != a.cached {
				t.Errorf("conversation %d turn %d: %d, predicted %d, served %d", c, turn, a.code, a.predicted, a.cached)
			}
			if turn > 1 && a.cached != 160*(turn-1) {
				t.Errorf("conversation %d turn %d: %d cached, want %d", c, turn, a.cached, 160*(turn-1))
			}
			blocks += 10
			f.settled(blocks)
		}
	}
	for _, r := range f.fleet().Replicas {
		k := r.Ranks[0]
		if k.Trust != "exact" || k.Drift.Over != 0 || k.Drift.Under != 0 || k.Requests != 0 {
			t.Errorf("%s: %+v", r.Name, k)
		}
	}
	var d struct{ Decisions []web.Decision }
	f.get("/v1/kvasir/decisions?limit=3", &d)
	if len(d.Decisions) != 3 || d.Decisions[0].Source != "render" || d.Decisions[0].Outcome != "completed" || len(d.Decisions[0].Candidates) != 3 {
		t.Errorf("%+v", d)
	}
	var m string
	f.get("/metrics", &m)
	for _, want := range []string{
		`kvasir_requests_total{code="200",endpoint="completions",outcome="completed"} 20`, "kvasir_decision_seconds_count 20",
		`kvasir_index_memberships{tier="gpu"} 200`, `state="exact"`, "kvasir_token_questions_total",
	} {
		if !strings.Contains(m, want) {
			t.Errorf("metrics lack %s", want)
		}
	}
}

// An engine that dies and returns with an empty cache: requests go on, and what
// it held is forgotten.
func TestEngineDiesAndReturns(t *testing.T) {
	f := newFleet(t, 2, nil)
	prompt := words(320, 7)
	first := f.ask(prompt, "")
	f.settled(20)
	dead := 0
	if strings.HasSuffix(f.engines[1].URL(), first.replica) {
		dead = 1
	}
	addr := strings.TrimPrefix(f.engines[dead].URL(), "http://")
	f.engines[dead].Close()
	for range 5 {
		if a := f.ask(prompt, ""); a.code != 200 || a.replica == first.replica {
			t.Errorf("%d from %s after it died", a.code, a.replica)
		}
	}
	cfg := mockserver.Defaults()
	cfg.Listen = addr
	startEngine(t, cfg)
	f.until(func() bool {
		for _, r := range f.fleet().Replicas {
			if r.Name == addr {
				return r.State == "up" && r.Ranks[0].Trust == "exact" && r.Ranks[0].HeldBlocks["gpu"] == 0
			}
		}
		return false
	})
	f.settled(20) // the other one's
	if a := f.ask(prompt, ""); a.code != 200 || a.predicted != a.cached || a.cached != 304 {
		t.Errorf("after its return: %+v", a)
	}
}

// Engines that are down at the start are taken in when they answer.
func TestEngineThatComesLater(t *testing.T) {
	spare := startEngine(t, mockserver.Defaults())
	addr := strings.TrimPrefix(spare.URL(), "http://")
	spare.Close()
	f := newFleet(t, 1, func(c *config.Config) {
		c.Engines = append(c.Engines, config.NewEngine("http://"+addr))
	})
	f.until(func() bool { return f.fleet().Replicas[1].State == "down" })
	if a := f.ask("hello", ""); a.code != 200 {
		t.Errorf("%d with one of two engines", a.code)
	}
	cfg := mockserver.Defaults()
	cfg.Listen = addr
	startEngine(t, cfg)
	f.until(func() bool { return f.fleet().Replicas[1].State == "up" })
}

func TestDuplicateEngineIsRefused(t *testing.T) {
	cfg := config.Defaults()
	cfg.Engines = []config.Engine{config.NewEngine("http://a:8000"), config.NewEngine("http://A:8000/v1/")}
	_, err := New(cfg, slog.New(slog.DiscardHandler), "test")
	if err == nil || !strings.Contains(err.Error(), `engines[1].url: "http://A:8000/v1/", want another than engines[0]`) {
		t.Errorf("%v, want the duplicate named", err)
	}
}

// The other topology: the engine dials us.
func TestEngineDialsUs(t *testing.T) {
	// A free port for the events, before either side starts.
	probe := startEngine(t, mockserver.Defaults())
	listen := probe.EventsEndpoint()
	probe.Close()
	cfg := mockserver.Defaults()
	cfg.Connect = listen
	e := startEngine(t, cfg)
	f := newFleet(t, 0, func(c *config.Config) {
		c.EventsListen = listen
		c.Engines = []config.Engine{config.NewEngine(e.URL())}
		c.Engines[0].Events = "listen"
	})
	if err := f.router.Ready(context.Background(), 1, 30*time.Second); err != nil {
		t.Fatal(err)
	}
	f.ask(words(64, 1), "")
	n := int64(4)
	f.until(func() bool { // the first batches may be lost before it has dialled in
		f.ask(words(64, 100*int(n)), "")
		n++
		return f.fleet().Replicas[0].Ranks[0].HeldBlocks["gpu"] > 0
	})
}

// What a learning policy has learned is there after a restart, and a broken file
// costs only that.
func TestPolicyStateIsKept(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state")
	play := func() *testFleet {
		f := newFleet(t, 1, func(c *config.Config) { c.State, c.Policy.Name = file, "marginal" })
		for i := range 20 {
			f.ask(words(320, 100*i), "")
		}
		return f
	}
	f := play()
	f.router.keep()
	first, err := os.ReadFile(file)
	if err != nil || len(first) == 0 {
		t.Fatalf("%q, %v", first, err)
	}
	g := newFleet(t, 1, func(c *config.Config) { c.State, c.Policy.Name = file, "marginal" })
	if got := g.router.sched.PolicyState(); !bytes.Equal(got, first) {
		t.Errorf("restored %q, want %q", got, first)
	}
	if err := os.WriteFile(file, []byte("rubbish"), 0o644); err != nil {
		t.Fatal(err)
	}
	h := newFleet(t, 1, func(c *config.Config) { c.State, c.Policy.Name = file, "marginal" })
	if a := h.ask("hello", ""); a.code != 200 {
		t.Errorf("%d with a broken state file", a.code)
	}
}
