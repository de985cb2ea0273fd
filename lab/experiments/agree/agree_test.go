package main

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"kvasir/lab/mock"
	"kvasir/lab/trace"
)

// testdata/tool450.jsonl.gz is the start of the generated cell tool.
var tool = options{cell: "testdata/tool450.jsonl.gz", speed: 1.1, limit: 450, slow: 4, replicas: 4, kv: 150_000, late: 3 * time.Millisecond, gauges: 5 * time.Second}

// spreadOf returns the mean TTFTs and hit rates of n late runs of tool.
func spreadOf(t *testing.T, o options, n int) (ttft, hit []float64) {
	t.Helper()
	p := mock.Profile70B.Faster(1 / o.slow)
	p.KVTokens = o.kv
	list, err := load(o)
	if err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(n) {
		r, err := simulate(t.Context(), o, p, list, seed+1)
		if err != nil {
			t.Fatal(err)
		}
		ttft, hit = append(ttft, r.TTFT.Mean), append(hit, r.HitRate)
	}
	return ttft, hit
}

// A run in real time under dynamo (1.789 s, hit rate .534) had seemed 17 % off, because
// the simulated runs beside it differed in ties only: 2.049 to 2.226 s.
func TestDynamoInRealTime1789(t *testing.T) {
	o := tool
	o.policy = "dynamo"
	ttft, hit := spreadOf(t, o, 12)
	if lo, hi := slices.Min(ttft), slices.Max(ttft); lo > 1.789 || hi < 1.789 {
		t.Errorf("12 late runs have a mean TTFT of %.3f to %.3f s, which leaves out 1.789 s", lo, hi)
	}
	for _, x := range []struct {
		name string
		c    comparison
	}{{"TTFT", comparison{ttft, []float64{1.789}}}, {"hit rate", comparison{hit, []float64{.534}}}} {
		if err := x.c.judge(); err != nil {
			t.Errorf("%s: %v", x.name, err)
		}
	}
	// and yet twice that time would not pass
	if (&comparison{ttft, []float64{2 * 1.789}}).judge() == nil {
		t.Error("a mean TTFT of 3.578 s is not told apart")
	}
}

// Under a policy that reads the engines' own figures it matters that the real router
// reads them every 5 s: llmd_precise took 3.85 and 4.07 s, hit rate .635 and .602;
// the simulator, with figures that are never old, 2.1 to 2.8 s.
func TestLlmdInRealTime396(t *testing.T) {
	o := tool
	o.policy = "llmd_precise"
	ttft, hit := spreadOf(t, o, 12)
	for _, x := range []struct {
		name string
		c    comparison
	}{{"TTFT", comparison{ttft, []float64{3.85, 4.07}}}, {"hit rate", comparison{hit, []float64{.635, .602}}}} {
		if err := x.c.judge(); err != nil {
			t.Errorf("%s: %v", x.name, err)
		}
	}
}

func TestLateRequests(t *testing.T) {
	list := requests{}
	for i := range 1000 {
		list = append(list, trace.Request{ID: int64(i), At: float64(i) / 1000, Input: 513, Output: 1, Blocks: []uint64{7}})
	}
	got := list.late(.003, rand.New(rand.NewPCG(1, 1)))
	seen, sum, swaps := map[int64]bool{}, 0.0, 0
	for i, q := range got {
		if i > 0 && q.At < got[i-1].At {
			t.Fatalf("request %d at %g comes after one at %g", q.ID, q.At, got[i-1].At)
		}
		if i > 0 && q.ID < got[i-1].ID {
			swaps++
		}
		late := q.At - list[q.ID].At
		if late < 0 || seen[q.ID] {
			t.Fatalf("request %d: %g s late, seen before: %v", q.ID, late, seen[q.ID])
		}
		seen[q.ID] = true
		sum += late
	}
	if m := sum / 1000; m < .0027 || m > .0033 {
		t.Errorf("requests are %.4f s late on average, want about .003", m)
	}
	if swaps < 100 {
		t.Errorf("%d neighbours, 1 ms apart, changed places under 3 ms of lateness", swaps)
	}
	if list[1].At != .001 {
		t.Error("late has changed its receiver")
	}

	var buf bytes.Buffer
	if err := got[:2].write(&buf); err != nil {
		t.Fatal(err)
	}
	r, err := trace.NewReader(&buf, "written", trace.Options{})
	if err != nil {
		t.Fatal(err)
	}
	back, err := r.NextRequest()
	if err != nil || back.ID != got[0].ID || back.At != got[0].At || back.Input != 513 || !slices.Equal(back.Blocks, got[0].Blocks) {
		t.Errorf("written and read back: %+v, %v; want %+v", back, err, got[0])
	}
}

func TestJudge(t *testing.T) {
	for _, x := range []struct {
		name       string
		sims, real []float64
		ok         bool
	}{
		{"calm, 9 % off", []float64{1, 1.001, .999}, []float64{1.09}, true},
		{"calm, 11 % off", []float64{1, 1.001, .999}, []float64{1.11}, false},
		{"calm, 11 % below", []float64{1, 1.001, .999}, []float64{.89}, false},
		{"wild, 17 % off in one run", []float64{.8, 1, 1.2, .9, 1.1}, []float64{.83}, true},
		{"wild, 17 % off in nine", []float64{.8, 1, 1.2, .9, 1.1, .8, 1, 1.2, .9, 1.1, .8, 1, 1.2, .9, 1.1}, []float64{.83, .83, .83, .83, .83, .83, .83, .83, .83}, false},
	} {
		c := comparison{x.sims, x.real}
		if err := c.judge(); (err == nil) != x.ok {
			t.Errorf("%s: %v (difference %.3f, standard error %.3f)", x.name, err, c.diff(), c.doubt())
		}
	}
}
