package sim

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"kvasir/kv"
	"kvasir/lab/mock"
	"kvasir/receipt"
	"kvasir/sched"
)

// recordRun plays w and keeps the receipts of the router, as serve would.
func recordRun(t *testing.T, w *Workload, policy string, replicas int) string {
	t.Helper()
	var b []byte
	e := receipt.NewEncoder(receipt.NewBlind(), at(0), "test")
	b = e.AppendHeader(b)
	c := Config{Workload: w, Policies: []string{policy}, Replicas: replicas, Profile: mock.Profile8B, KVTokens: 150_000,
		ended: func(r *sched.Receipt) { b = e.Append(b, r) }}
	if _, err := Run(context.Background(), c); err != nil {
		t.Fatal(err)
	}
	return write(t, "receipts.jsonl", string(b))
}

func playRecorded(t *testing.T, file string, edit func(*Config), policies ...string) Report {
	t.Helper()
	w, told, err := Load(Input{File: file})
	if err != nil || told.Skipped != 0 {
		t.Fatal(told, err)
	}
	c := Config{Workload: w, Policies: policies, Replicas: w.Recorded().Replicas, Profile: mock.Profile8B, KVTokens: 150_000}
	if edit != nil {
		edit(&c)
	}
	rep, err := Run(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	return rep
}

// milliseconds makes arrivals that a log keeps exactly.
func milliseconds(w *Workload) *Workload {
	first := w.open[0].at
	for i := range w.open {
		w.open[i].at = math.Round(1e3*(w.open[i].at-first)) / 1e3
	}
	return w
}

// Where times are the recorded ones, the same policy chooses as recorded, every time:
// on the same engines, with the same dice. Its row and that of the recorded placements
// are one. Other policies choose otherwise.
func TestRecordedChoices(t *testing.T) {
	w, err := Generate("shared_prefix:requests=400,rate=6,prefixes=12", 4)
	if err != nil {
		t.Fatal(err)
	}
	milliseconds(w)
	for _, p := range []string{"auto", "dynamo", "least_load", "round_robin"} {
		file := recordRun(t, w, p, 4)
		rep := playRecorded(t, file, nil, p, "random")
		if r := rep.Recorded; r == nil || r.Replicas != 4 || r.Requests != len(w.open) || r.Missing != 0 || r.Runs != 1 || !slices.Equal(r.Policies, []string{p}) {
			t.Fatalf("%s: %+v", p, rep.Recorded)
		}
		row, own, other := rep.Runs[0], rep.Runs[1], rep.Runs[2]
		if row.Policy != RecordedPolicy || own.Policy != p || other.Policy != "random" {
			t.Fatalf("rows %s, %s, %s", row.Policy, own.Policy, other.Policy)
		}
		if c := own.Choices; c == nil || c.Requests != len(w.open) || c.Same != c.Requests {
			t.Errorf("%s: %+v, want all %d as recorded", p, c, len(w.open))
		}
		if row.TTFT != own.TTFT || row.HitRate != own.HitRate || !slices.Equal(row.Share, own.Share) {
			t.Errorf("%s: the recorded placements give %+v, the policy %+v", p, row, own)
		}
		if math.Abs(row.TTFT.Mean-rep.Recorded.TTFT) > 1e-6 || math.Abs(row.E2E.Mean-rep.Recorded.E2E) > 1e-6 {
			t.Errorf("%s: recorded %g and %g s, played %g and %g s", p, rep.Recorded.TTFT, rep.Recorded.E2E, row.TTFT.Mean, row.E2E.Mean)
		}
		if c := other.Choices; c == nil || c.Same > c.Requests/2 || c.Equal != 0 {
			t.Errorf("random after %s: %+v, want about a quarter as recorded", p, c)
		}
	}
}

// Sessions that wait for their answers come back at the times that they had: their
// log is an open loop, in times rounded to nanoseconds.
func TestRecordedSessions(t *testing.T) {
	w := demoWorkload(t, 4, 24)
	c := playRecorded(t, recordRun(t, w, "auto", 4), nil, "auto").Runs[1].Choices
	if c == nil || c.Requests != w.requests() || c.Same < c.Requests*99/100 {
		t.Errorf("%+v: want at least 99 %% of %d as recorded", c, w.requests())
	}
}

// With other dice what chance decided is told apart from what the policy did.
func TestRecordedTies(t *testing.T) {
	w, err := Generate("shared_prefix:requests=300,rate=6,prefixes=12", 4)
	if err != nil {
		t.Fatal(err)
	}
	file := recordRun(t, milliseconds(w), "least_load", 4)
	c := playRecorded(t, file, func(c *Config) { c.Seeds = []uint64{7} }, "least_load").Runs[1].Choices
	if c == nil || c.Equal == 0 || c.Same == c.Requests || c.Same+c.Equal != c.Requests {
		t.Errorf("%+v: want all choices as recorded or of equal cost, and some of each", c)
	}
	for name, edit := range map[string]func(*Config){
		"another fleet": func(c *Config) { c.Replicas = 3 }, "faults": func(c *Config) { c.Faults.EventDelay = 1 },
	} {
		if rep := playRecorded(t, file, edit, "least_load"); len(rep.Runs) != 1 || rep.Runs[0].Choices != nil {
			t.Errorf("%s: choices are compared: %+v", name, rep.Runs)
		}
	}
}

// A log says what it can't say.
func TestRecordedUnknowns(t *testing.T) {
	e := receipt.NewEncoder(receipt.NewBlind(), at(100), "test")
	b := e.AppendHeader(nil)
	add := func(id uint64, edit func(*sched.Receipt)) {
		r := &sched.Receipt{ID: id, At: at(100 + float64(id)), Policy: "auto", Session: "s", Tokens: 40, Output: 2, Target: 2, NumAll: 3, NumKept: 1,
			Outcome: sched.Completed, FirstToken: time.Second, Took: 3 * time.Second, Blocks: kv.Chain{BlockSize: 16, Hashes: []kv.Hash{1, 2}}}
		r.Candidates[0].Target = 2
		edit(r)
		b = e.Append(b, r)
	}
	served := func(n int) func(*sched.Receipt) {
		return func(r *sched.Receipt) { r.Served, r.ServedPrompt, r.ServedCached = true, 40, n }
	}
	add(2, served(16)) // the cache was filled before
	add(3, served(32))
	add(4, func(r *sched.Receipt) { r.Outcome = sched.Failed })
	add(6, func(r *sched.Receipt) { r.Tokens, r.Blocks = 0, kv.Chain{} })
	add(7, func(r *sched.Receipt) { served(0)(r); r.Tokens, r.Blocks = 0, kv.Chain{} })
	add(9, func(r *sched.Receipt) { r.Outcome, r.FirstToken, r.Target = sched.Cancelled, 0, 5 })
	e = receipt.NewEncoder(receipt.NewBlind(), at(50), "test")
	old := e.AppendHeader(nil)
	r := sched.Receipt{ID: 1, At: at(60), Policy: "dynamo", Session: "s", Tokens: 40, Target: 2, Took: time.Second, Blocks: kv.Chain{BlockSize: 16, Hashes: []kv.Hash{1, 2}}}
	old = e.Append(old, &r)
	file := write(t, "r.jsonl", string(b))
	w, _, err := Load(Input{File: file, More: []string{write(t, "old.jsonl.gz", string(old))}})
	if err != nil {
		t.Fatal(err)
	}
	got := *w.Recorded()
	want := Recorded{Policies: []string{"auto", "dynamo"}, Replicas: 3, Runs: 2, Requests: 5, TTFT: 1, E2E: 2.6,
		Missing: 3, Failed: 1, Unknown: 1, NoBlocks: 1, Cancelled: 1, Early: 16. / 48, targets: []int{2, 5}}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	var times []string
	for _, a := range w.open {
		times = append(times, fmt.Sprintf("%g:%d", a.at, a.conv))
	}
	if got := strings.Join(times, " "); got != "0:0 42:1 43:1 47:1 49:1" {
		t.Errorf("arrivals and sessions %s: want those of both runs in order of time, apart", got)
	}
	if w.open[0].blocks[0] == w.open[1].blocks[0] {
		t.Error("blocks of two runs have the same name")
	}
	if _, _, err := Load(Input{File: file, More: []string{write(t, "x.jsonl", `{"t":1,"input":2,"output":3,"blocks":[]}`)}}); err == nil || !strings.Contains(err.Error(), "no receipt log but cell") {
		t.Errorf("a cell beside a log: %v", err)
	}
}
