package web

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"kvasir/fleet"
	kvindex "kvasir/index"
	"kvasir/kv"
	"kvasir/ledger"
	"kvasir/policy"
	"kvasir/policy/learn"
	"kvasir/sched"
)

// A stage is an admin listener over a fleet of one engine with two ranks.
type stage struct {
	t       *testing.T
	now     time.Time
	table   *fleet.Table
	sched   *sched.Scheduler
	handler http.Handler

	forgotten []string
}

func newStage(t *testing.T) *stage {
	t.Helper()
	s := &stage{t: t, now: time.Unix(1e9, 0).UTC(), table: new(fleet.Table)}
	row, err := s.table.Add("http://10.0.0.1:8000", s.now)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.table.SetRanks(row.ID, 2); err != nil {
		t.Fatal(err)
	}
	s.table.Update(row.ID, func(r *fleet.Replica) {
		r.State, r.Version, r.BlockSize, r.Blocks = fleet.Up, "0.32.0", 16, 100
		r.Models = []kv.Model{{ID: "m", MaxLen: 4096}, {ID: "a", Parent: "m"}}
	})
	cfg := policy.Defaults()
	cfg.Name = "least_load"
	pol, err := policy.New(cfg, func(int) int { return 0 })
	if err != nil {
		t.Fatal(err)
	}
	s.sched = sched.New(sched.Config{}, sched.Parts{Fleet: s.table, Index: kvindex.New(kvindex.Config{Seed: 1}), Seed: 1,
		Ledger: ledger.New(ledger.Config{}), Policy: pol, Name: "least_load"})
	s.handler = Handler(Parts{
		Fleet: s.table, Sched: s.sched, Policy: "least_load", Version: "test", Now: func() time.Time { return s.now },
		Blocks: func(tg kv.Target) [kv.NumTiers]int64 { return [kv.NumTiers]int64{int64(tg) + 7, 3, 0} },
		Events: func(tg kv.Target) any {
			if tg == 0 {
				return map[string]uint64{"batches": 5}
			}
			return nil
		},
		Forget: func(replica, adapter string) error {
			if replica != "10.0.0.1:8000" {
				return fmt.Errorf("replica %q: no such", replica)
			}
			s.forgotten = append(s.forgotten, replica+"/"+adapter)
			return nil
		},
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "kvasir_up 1\n") }),
	})
	return s
}

// do sends a request, and reads the answer as JSON unless to is nil.
func (s *stage) do(method, path string, to any) *http.Response {
	s.t.Helper()
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, httptest.NewRequest(method, path, nil))
	if to != nil {
		if ct := w.Result().Header.Get("Content-Type"); ct != "application/json" {
			s.t.Errorf("%s %s: content type %q", method, path, ct)
		}
		d := json.NewDecoder(w.Body)
		d.DisallowUnknownFields()
		if err := d.Decode(to); err != nil {
			s.t.Errorf("%s %s: %v", method, path, err)
		}
	}
	return w.Result()
}

func (s *stage) route(session string) *sched.Decision {
	s.t.Helper()
	d, err := s.sched.Route(&sched.Request{Model: "m", Bytes: 400, Session: session}, s.now)
	if err != nil {
		s.t.Fatal(err)
	}
	return d
}

func TestFleet(t *testing.T) {
	s := newStage(t)
	s.sched.SetGauge(0, kv.Gauge{Running: 3, Waiting: 1, KVUsage: 0.5, At: s.now})
	d := s.route("")
	var f Fleet
	if r := s.do("GET", "/v1/kvasir/fleet", &f); r.StatusCode != 200 {
		t.Fatal(r.Status)
	}
	if f.Version != "test" || f.Policy != "least_load" || strings.Join(f.Models, " ") != "a m" || len(f.Replicas) != 1 {
		t.Fatalf("%+v", f)
	}
	r := f.Replicas[0]
	if r.Name != "10.0.0.1:8000" || r.State != "up" || r.Version != "0.32.0" || r.BlockSize != 16 || r.Blocks != 100 || len(r.Models) != 2 || r.Models[1].Parent != "m" {
		t.Errorf("%+v", r)
	}
	if len(r.Ranks) != 2 || r.Ranks[0].Engine == nil || r.Ranks[0].Engine.Running != 3 || r.Ranks[1].Engine != nil || r.Ranks[0].Events == nil || r.Ranks[1].Events != nil {
		t.Fatalf("%+v", r.Ranks)
	}
	if h := r.Ranks[1].HeldBlocks; h["gpu"] != 8 || h["host"] != 3 || h["disk"] != 0 || len(h) != 3 {
		t.Errorf("%v", h)
	}
	if k := r.Ranks[d.Target]; k.Requests != 1 || k.Prefill != 100 || k.Decisions != 1 {
		t.Errorf("%+v", k)
	}
}

// Each state of trust is shown with its reason, and since when: a new reason is no
// new state.
func TestTrustIsShown(t *testing.T) {
	s := newStage(t)
	shown := func() Rank {
		t.Helper()
		var f Fleet
		s.do("GET", "/v1/kvasir/fleet", &f)
		return f.Replicas[0].Ranks[0]
	}
	for _, trust := range []kv.Trust{kv.Unknown, kv.Filling, kv.Exact, kv.Stale, kv.Blind, kv.Filling} {
		s.now = s.now.Add(time.Minute)
		since := s.now
		for _, why := range []string{"first of " + trust.String(), "second", "second"} {
			s.sched.SetTrust(0, trust, why, s.now)
			if k := shown(); k.Trust != trust.String() || k.Reason != why || !k.Since.Equal(since) {
				t.Errorf("%v (%s) since %v is shown as %s (%s) since %v", trust, why, since, k.Trust, k.Reason, k.Since)
			}
			s.now = s.now.Add(time.Second)
		}
	}
}

func TestDecisions(t *testing.T) {
	s := newStage(t)
	type list struct{ Decisions []Decision }
	var got list
	s.do("GET", "/v1/kvasir/decisions", &got)
	if got.Decisions == nil || len(got.Decisions) != 0 {
		t.Errorf("without decisions: %+v, want an empty list", got)
	}
	for _, session := range []string{"x", "y", "x", ""} {
		s.route(session)
	}
	for path, want := range map[string]int{"": 4, "?limit=3": 3, "?session=x": 2, "?session=x&limit=1": 1, "?session=": 1, "?session=z": 0, "?limit=1000000": 4} {
		var got list
		s.do("GET", "/v1/kvasir/decisions"+path, &got)
		if len(got.Decisions) != want {
			t.Errorf("%q: %d decisions, want %d", path, len(got.Decisions), want)
		}
	}
	s.do("GET", "/v1/kvasir/decisions?limit=2", &got)
	if d := got.Decisions; d[0].ID < d[1].ID || d[0].Outcome != "open" || d[0].Model != "m" || d[0].Replica != "10.0.0.1:8000" || len(d[0].Candidates) != 2 ||
		d[0].ServedCached != nil || d[0].FirstTokenMS != nil || !d[0].At.Equal(s.now) {
		t.Errorf("%+v", d)
	}
	for _, bad := range []string{"0", "-1", "1000001", "x", "1.5", "99999999999999999999"} {
		var problem struct{ Error string }
		if r := s.do("GET", "/v1/kvasir/decisions?limit="+bad, &problem); r.StatusCode != 400 || !strings.Contains(problem.Error, `limit: "`+bad) || !strings.Contains(problem.Error, "1 to 1000000") {
			t.Errorf("limit %s: %d %q", bad, r.StatusCode, problem.Error)
		}
	}
}

func TestForget(t *testing.T) {
	s := newStage(t)
	var ok struct{ Forgetting string }
	if r := s.do("POST", "/v1/kvasir/forget?replica=10.0.0.1:8000&adapter=a", &ok); r.StatusCode != 202 || ok.Forgetting != "10.0.0.1:8000" {
		t.Errorf("%d %+v", r.StatusCode, ok)
	}
	var problem struct{ Error string }
	for _, q := range []string{"", "?replica=", "?replica=x"} {
		if r := s.do("POST", "/v1/kvasir/forget"+q, &problem); r.StatusCode != 404 || problem.Error == "" {
			t.Errorf("%q: %d %+v", q, r.StatusCode, problem)
		}
	}
	if r := s.do("GET", "/v1/kvasir/forget?replica=10.0.0.1:8000", nil); r.StatusCode != 405 {
		t.Errorf("GET: %d", r.StatusCode)
	}
	strange := httptest.NewRequest("POST", "/v1/kvasir/forget?replica=10.0.0.1:8000", nil)
	strange.Header.Set("Origin", "http://elsewhere") // a page that an operator happens to look at
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, strange)
	if w.Code != 403 {
		t.Errorf("from another site: %d", w.Code)
	}
	if len(s.forgotten) != 1 || s.forgotten[0] != "10.0.0.1:8000/a" {
		t.Errorf("%q", s.forgotten)
	}
}

// Every route answers GET and HEAD, refuses other methods by name, and nothing
// else is there.
func TestRoutes(t *testing.T) {
	s := newStage(t)
	for _, path := range []string{"/", "/health", "/metrics", "/v1/kvasir/fleet", "/v1/kvasir/decisions", "/page/app.js"} {
		for _, m := range []string{"GET", "HEAD"} {
			if r := s.do(m, path, nil); r.StatusCode != 200 {
				t.Errorf("%s %s: %d", m, path, r.StatusCode)
			}
		}
		for _, m := range []string{"POST", "PUT", "DELETE", "PATCH"} {
			if r := s.do(m, path, nil); r.StatusCode != 405 || !strings.Contains(r.Header.Get("Allow"), "GET") {
				t.Errorf("%s %s: %d, Allow %q", m, path, r.StatusCode, r.Header.Get("Allow"))
			}
		}
	}
	for _, path := range []string{"/nothing", "/v1/kvasir", "/v1/kvasir/fleet/", "/v1/models", "/metrics/x", "/healthz"} {
		if r := s.do("GET", path, nil); r.StatusCode != 404 {
			t.Errorf("%s: %d", path, r.StatusCode)
		}
	}
	if w := httptest.NewRecorder(); true {
		Handler(Parts{}).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
		if w.Code != 404 {
			t.Errorf("without metrics: %d", w.Code)
		}
	}
	// A connection sees a HEAD without a body.
	server := httptest.NewServer(s.handler)
	defer server.Close()
	r, err := http.Head(server.URL + "/v1/kvasir/fleet")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if b, _ := io.ReadAll(r.Body); len(b) != 0 || r.ContentLength <= 0 {
		t.Errorf("HEAD: %q, length %d", b, r.ContentLength)
	}
}

// What the policy has learned of each rank is told with what it rests on; times only
// once they are times, and nothing by a policy that learns nothing.
func TestLearned(t *testing.T) {
	now := time.Unix(1000, 0)
	l := learn.Learned{
		Known: true, Output: 9,
		Prefill: learn.Evidence{Ratio: 1.5, Clear: true, Error: .05, Samples: 20, Fleet: 60, Last: now.Add(-90 * time.Second)},
		Decode:  learn.Evidence{Ratio: 1, Samples: 3, Fleet: 4},
	}
	l.PrefillToken, l.Step, l.DecodeStep = 1e-4, .02, .03
	age := 90.
	want := Learned{
		Known: true, PrefillToken: 1e-4, Step: .02, DecodeStep: .03, Output: 9,
		Prefill: Evidence{Ratio: 1.5, Clear: true, Error: .05, Samples: 20, Fleet: 60, Age: &age}, Decode: Evidence{Ratio: 1, Samples: 3, Fleet: 4},
	}
	if got := learned(l, now); !reflect.DeepEqual(*got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	l.Known = false
	if got := learned(l, now); got.PrefillToken != 0 || got.Step != 0 || got.DecodeStep != 0 || got.Prefill.Ratio != 1.5 {
		t.Errorf("%+v: times that aren't known", got)
	}
	s := newStage(t) // least_load
	var f Fleet
	s.do("GET", "/v1/kvasir/fleet", &f)
	if f.Replicas[0].Ranks[0].Learned != nil {
		t.Error("least_load has learned something")
	}
}
