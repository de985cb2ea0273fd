package sim

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kvasir/kv"
	"kvasir/lab/mock"
	"kvasir/receipt"
	"kvasir/sched"
)

// write puts text into a new file, compressed if its name says so.
func write(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	b := []byte(text)
	if strings.HasSuffix(name, ".gz") {
		var z bytes.Buffer
		w := gzip.NewWriter(&z)
		w.Write(b)
		w.Close()
		b = z.Bytes()
	}
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// Rows of one Mooncake tick are spread over it, sessions are inferred, and both
// can be turned off.
func TestLoadMooncake(t *testing.T) {
	var b strings.Builder
	for i := range 9 {
		// three ticks of three rows; block 0 is everyone's, rows 0, 3 and 6 are one
		// conversation that grows by a block
		blocks := []string{"0", fmt.Sprint(100 + i), fmt.Sprint(200 + i)}
		if i%3 == 0 {
			blocks = strings.Split("0,50,51,52,53", ",")[:3+i/3]
		}
		fmt.Fprintf(&b, `{"timestamp": %d, "input_length": %d, "output_length": 5, "hash_ids": [%s]}`+"\n", 3000*(i/3), 512*len(blocks)+1, strings.Join(blocks, ","))
	}
	// 9 different successors make block 0 a shared system prompt.
	for i := range 9 {
		fmt.Fprintf(&b, `{"timestamp": 9000, "input_length": 1025, "output_length": 5, "hash_ids": [0,%d]}`+"\n", 300+i)
	}
	file := write(t, "m.jsonl.gz", b.String())
	w, _, err := Load(Input{File: file, Limit: 9})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []float64{0, 1, 2, 3, 4, 5, 6, 7, 8} {
		if got := w.open[i].at; got != want {
			t.Errorf("row %d arrives at %v s, want %v", i, got, want)
		}
	}
	if a, c, d := w.open[0].conv, w.open[3].conv, w.open[6].conv; a != c || a != d || w.open[1].conv == a || w.open[1].conv == w.open[2].conv {
		t.Errorf("sessions %d %d %d of one conversation, %d and %d of others", a, c, d, w.open[1].conv, w.open[2].conv)
	}
	w, _, err = Load(Input{File: file, Ticks: "keep", Speed: 2, NoReuse: true})
	if err != nil || w.open[2].at != 0 || w.open[0].blocks[0] == w.open[1].blocks[0] {
		t.Errorf("kept ticks: row 2 at %v; first blocks %v and %v; %v", w.open[2].at, w.open[0].blocks, w.open[1].blocks, err)
	}
	for _, in := range []Input{{File: file, Speed: -1}, {File: file, Ticks: "x"}, {File: file, Limit: -1}, {File: file + "x"}} {
		if _, _, err := Load(in); err == nil {
			t.Errorf("Load(%+v) succeeded", in)
		}
	}
}

const twoSessions = `{"session":0,"turns":[{"think":0,"input":1100,"output":5,"blocks":[0,5000]},{"think":1,"input":1700,"output":5,"blocks":[0,5000,5001]}]}
{"session":1,"turns":[{"think":0,"input":1100,"output":5,"blocks":[0,6000]},{"think":2,"input":1700,"output":5,"blocks":[0,6000,6001]}]}
`

func TestLoadSessions(t *testing.T) {
	file := write(t, "s.jsonl.gz", twoSessions)
	starts := write(t, "starts.json", `[{"replicas":2,"users":1,"start":[0.5],"requests":7},{"replicas":4,"users":0,"start":[],"requests":7}]`)
	w, _, err := Load(Input{File: file, Starts: starts, Replicas: 2})
	if err != nil {
		t.Fatal(err)
	}
	c := runArm(t, w, "round_robin", 2, nil)
	if n := len(c.metrics.lives); n != 7 {
		t.Fatalf("%d requests, want 7", n)
	}
	q := c.metrics.byID
	for _, x := range []struct {
		id, after uint64
		pause     float64
	}{{1, 0, 1}, {2, 1, 1}, {3, 2, 2}, {4, 3, 1}} { // the next turn, and the next session after 1 s
		if got := q[x.id].arrival - q[x.after].done; got < x.pause-1e-9 || got > x.pause+1e-9 {
			t.Errorf("request %d comes %.3f s after the end of %d, want %v", x.id, got, x.after, x.pause)
		}
	}
	// Session 0 again: what all share stays shared, the rest is fresh.
	if q[4].Blocks[0] != 0 || q[4].Blocks[1] == q[0].Blocks[1] {
		t.Errorf("the session played again has blocks %v, at first %v", q[4].Blocks, q[0].Blocks)
	}
	for name, in := range map[string]Input{
		"no start times for 3": {File: file, Starts: starts, Replicas: 3},
		"want start times":     {File: file, Starts: starts, Replicas: 4},
		"closed loop needs":    {File: file},
		"starts.json":          {File: file, Starts: write(t, "starts.json", "{"), Replicas: 2},
		"must not be negative": {File: file, Users: -1, Replicas: 2},
	} {
		if _, _, err := Load(in); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: error is %v", name, err)
		}
	}
	if _, err := Run(context.Background(), Config{Workload: w, Policies: []string{"random"}, Replicas: 3, Profile: mock.Profile8B}); err == nil {
		t.Error("start times of 2 replicas were played on 3")
	}
}

func TestLoadRollouts(t *testing.T) {
	const text = `{"steps": 2, "rollouts_per_step": 4, "turns": 3, "in_flight": 3, "input": 2048, "shared_blocks": 1, "own_blocks": 3, "block_size": 512,
		"output": 64, "straggler_final_output": 512, "feedback": 64, "think_s": 0.2, "start_spacing_s": 0.01, "stragglers": [[0],[3]]}`
	w, _, err := Load(Input{File: write(t, "rl_rollouts.json", text)})
	if err != nil {
		t.Fatal(err)
	}
	c := runArm(t, w, "least_load", 2, nil)
	long := 0
	for _, q := range c.metrics.byID {
		if q.Output == 512 {
			long++
		}
	}
	if n := len(c.metrics.lives); n != 24 || long != 2 {
		t.Errorf("%d requests, %d of them stragglers, want 24 and 2", n, long)
	}
	for _, bad := range []string{strings.Replace(text, `"steps": 2`, `"steps": 0`, 1), strings.Replace(text, `[[0],[3]]`, `[[0]]`, 1), strings.Replace(text, `"turns"`, `"tunrs"`, 1)} {
		if _, _, err := Load(Input{File: write(t, "rl_rollouts.json", bad)}); err == nil {
			t.Error("a bad parameter was accepted")
		}
	}
}

// Our own receipts play again, in their own block size.
func TestLoadReceipts(t *testing.T) {
	var b bytes.Buffer
	e := receipt.NewEncoder(receipt.NewBlind(), time.Unix(0, 0), "test")
	b.Write(e.AppendHeader(nil))
	for i := range 20 {
		r := sched.Receipt{At: at(float64(i) / 4), ID: uint64(i), Session: fmt.Sprint(i % 3), Tokens: 70 + i, Output: 4,
			Blocks: kv.Chain{BlockSize: 16, Hashes: []kv.Hash{1, 2, kv.Hash(10 + i%3), kv.Hash(20 + i%3)}}}
		b.Write(e.Append(nil, &r))
	}
	load, told, err := Load(Input{File: write(t, "receipts.jsonl", b.String()+"garbage\nmore\n"), SkipBad: true})
	if err != nil || told.Skipped != 2 || load.size != 16 {
		t.Fatalf("block size %d, %d skipped, %v", load.size, told.Skipped, err)
	}
	if r := runArm(t, load, "marginal", 2, nil).result(); r.Requests != 20 || r.HitRate < .5 {
		t.Errorf("%d requests, hit rate %.2f", r.Requests, r.HitRate)
	}
}

// A bad line is named once, with its file.
func TestLoadNamesTheLine(t *testing.T) {
	file := write(t, "bad.jsonl", `{"timestamp": 0, "input_length": 600, "hash_ids": [1, 2]}`+"\n")
	_, _, err := Load(Input{File: file})
	if err == nil || strings.Count(err.Error(), file) != 1 || !strings.Contains(err.Error(), file+":1: field \"output_length\"") {
		t.Errorf("error %v", err)
	}
}
