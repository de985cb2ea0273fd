package receipt

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"kvasir/kv"
	"kvasir/sched"
)

var (
	t0  = time.Unix(1_700_000_000, 0)
	key = [48]byte{1, 2, 3}
)

func encoder() *Encoder { return NewEncoder(newBlind(&key), t0, "test") }

// sample is a receipt with every field set.
func sample(id uint64) *sched.Receipt {
	r := &sched.Receipt{
		ID: id, At: t0.Add(1234567891 * time.Nanosecond), Model: "m", Policy: "auto", Branch: "hot", Tokens: 70, Source: "local", Bytes: 300,
		Why: "secret words of the prompt", Session: "user=alice@example.com", Tenant: "sk-very-secret", Request: "req-1",
		MaxOutput: 9, Expected: 7, NextTurn: 1500 * time.Millisecond, Priority: -2,
		Target: 3, Replica: "a:8000", Rank: 1, Overlap: kv.Overlap{GPU: 32, Host: 16, Predicted: 4}, Trust: kv.Exact, Cost: .25, NumKept: 2, NumAll: 5,
		Outcome: sched.Completed, FirstToken: 100 * time.Millisecond, Took: time.Second, Output: 6, Served: true, ServedPrompt: 71, ServedCached: 48,
		Blocks: kv.Chain{BlockSize: 16, Hashes: []kv.Hash{11, 22, 33, 44}},
	}
	r.Candidates[0] = sched.Candidate{Target: 3, Replica: "a:8000", Overlap: r.Overlap, Trust: kv.Exact, Load: kv.Load{Requests: 2, Prefill: 30, DecodeBlocks: 4}, Cost: .25}
	r.Candidates[1] = sched.Candidate{Target: 1, Replica: "b:8000", Trust: kv.Stale, Cost: math.Inf(1)}
	return r
}

// What is written is what is read, and every field of a line is written.
func TestRoundTrip(t *testing.T) {
	e := encoder()
	text := e.AppendHeader(nil)
	_, h, err := Parse(text)
	if err != nil || h == nil || !h.Start.Equal(t0) || h.Version != 1 || h.Run == "" || h.Program != "test" {
		t.Fatalf("header %+v, %v", h, err)
	}
	e.Append(nil, sample(8)) // its memory is used again
	got, h, err := Parse(e.Append(nil, sample(9)))
	if err != nil || h != nil {
		t.Fatal(h, err)
	}
	prompt, cached, cost := 71, 48, .25
	b := newBlind(&key)
	want := Line{
		At: 1.234567891, ID: 9, Request: "req-1", Model: "m", Session: b.name('s', "user=alice@example.com"), Tenant: b.name('t', "sk-very-secret"),
		Policy: "auto", Branch: "hot", Tokens: 70, Source: "local", Bytes: 300, MaxOutput: 9, Expected: 7, NextTurn: 1.5, Priority: -2,
		Replica: "a:8000", Rank: 1, Target: 3, Predicted: 48, Considered: 5,
		Candidates: []Candidate{
			{Replica: "a:8000", Target: 3, GPU: 32, Host: 16, Dispatched: 4, Trust: "exact", Requests: 2, Prefill: 30, DecodeBlocks: 4, Cost: &cost},
			{Replica: "b:8000", Target: 1, Trust: "stale"},
		},
		Outcome: "completed", First: .1, Took: 1, Output: 6, ServedPrompt: &prompt, ServedCached: &cached,
		BlockSize: 16, Blocks: Blocks{b.block(11), b.block(22), b.block(33), b.block(44)},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("read\n%+v, want\n%+v", got, want)
	}
	v := reflect.ValueOf(want)
	for i := range v.NumField() {
		if v.Field(i).IsZero() {
			t.Errorf("%s is not in the sample", v.Type().Field(i).Name)
		}
	}
}

// The writer's lines are those of encoding/json.
func TestWriterIsJSON(t *testing.T) {
	strange := sample(1)
	strange.Model, strange.Branch, strange.Policy, strange.Cost, strange.Tokens = "a\"<ü>\\\n", "", "", 1e-9, 0
	strange.Candidates[0].Cost, strange.Served, strange.NumKept = 1e-9, false, 1
	for i, r := range []*sched.Receipt{sample(9), strange, {}} {
		e := encoder()
		got := e.Append(nil, r)
		want, err := json.Marshal(&e.line)
		if err != nil || string(got) != string(want)+"\n" {
			t.Errorf("%d: %v\n%s\nwant\n%s", i, err, got, want)
		}
	}
}

// Names are one-way, differ from run to run, and keep kinds apart; what a client
// wrote where an id belongs is an id, or a name.
func TestNothingIsInTheClear(t *testing.T) {
	r := sample(1)
	r.Request = "alice@example.com"
	line := string(encoder().Append(nil, r))
	for _, secret := range []string{"alice", "example.com", "sk-very", "secret"} {
		if strings.Contains(line, secret) {
			t.Errorf("%q stands in %s", secret, line)
		}
	}
	a, b := NewBlind(), NewBlind()
	if again, block := a.name('s', "x"), a.block(7); again != a.name('s', "x") || block != a.block(7) {
		t.Error("equal things have different names")
	}
	if a.name('s', "x") == b.name('s', "x") || a.block(7) == b.block(7) {
		t.Error("two runs have the same names")
	}
	if a.name('s', "x") == a.name('t', "x") || a.block(7) == a.block(8) || a.block(7) == 7 {
		t.Error("different things have the same name")
	}
	for id, same := range map[string]bool{"": true, "req-1_A.b:c/d+e=": true, "a b": false, "ä": false, strings.Repeat("x", 129): false} {
		if got := encoder().request(id); (got == id) != same || len(got) > maxID {
			t.Errorf("id %q is written as %q", id, got)
		}
	}
}

// Of a very long prompt the start is kept, and the line is read again.
func TestLongPromptIsCut(t *testing.T) {
	r := sample(1)
	r.Tokens, r.MaxOutput = 20*MaxBlocks, math.MaxInt
	r.Blocks.Hashes = make([]kv.Hash, MaxBlocks+5)
	x, _, err := Parse(encoder().Append(nil, r))
	if err != nil || len(x.Blocks) != MaxBlocks {
		t.Errorf("%d blocks, %v; want %d", len(x.Blocks), err, MaxBlocks)
	}
}

// lines reads a file: header first, whole lines only.
func lines(t *testing.T, name string) (ids []uint64) {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.HasSuffix(b, []byte("\n")) {
		t.Errorf("%s ends in half a line", name)
	}
	for i, text := range bytes.Split(bytes.TrimSuffix(b, []byte("\n")), []byte("\n")) {
		x, h, err := Parse(text)
		if err != nil || (h != nil) != (i == 0) {
			t.Fatalf("%s:%d: %v", name, i+1, err)
		}
		if h == nil {
			ids = append(ids, x.ID)
		}
	}
	return ids
}

func newLog(t *testing.T, c Config) (*Log, *bytes.Buffer) {
	t.Helper()
	var told bytes.Buffer
	l, err := Open(c, encoder(), slog.New(slog.NewTextHandler(&told, nil)))
	if err != nil {
		t.Fatal(err)
	}
	return l, &told
}

// A receipt is in the file a second later, or at the end, in order.
func TestLogWrites(t *testing.T) {
	name := filepath.Join(t.TempDir(), "r.jsonl")
	synctest.Test(t, func(t *testing.T) {
		l, _ := newLog(t, Config{name, 1 << 20, 2})
		ctx, end := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() { l.Run(ctx); close(done) }()
		l.Add(sample(1))
		synctest.Wait()
		if got := lines(t, name); len(got) != 0 {
			t.Errorf("%v written at once: a write for each receipt", got)
		}
		time.Sleep(flushEvery + time.Millisecond)
		synctest.Wait()
		if got := lines(t, name); !slices.Equal(got, []uint64{1}) {
			t.Errorf("%v after a second, want receipt 1", got)
		}
		for id := range uint64(wakeAt) {
			l.Add(sample(2 + id))
		}
		synctest.Wait()
		if got := lines(t, name); len(got) != 1+wakeAt {
			t.Errorf("%d written, want %d: many don't wait", len(got), 1+wakeAt)
		}
		l.Add(sample(5000))
		end()
		<-done
		l.Add(sample(5001))
		l.Close()
		got := lines(t, name)
		if len(got) != 3+wakeAt || !slices.IsSorted(got) || got[len(got)-1] != 5001 {
			t.Errorf("%d written, the last is %d", len(got), got[len(got)-1])
		}
		if s := l.Stats(); s != (Stats{Written: uint64(len(got)), Files: 1}) {
			t.Errorf("%+v", s)
		}
		if info, _ := os.Stat(name); info.Mode().Perm() != 0o600 {
			t.Errorf("mode %v", info.Mode())
		}
	})
}

// What is full is renamed, old files go, others' files stay, and a log that was
// there at the start is kept.
func TestRotation(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "r.jsonl")
	for file, text := range map[string]string{"r.jsonl": "older", "r-20200101T000000.000Z.jsonl.gz": "oldest", "r-notes.jsonl": "mine", "s-20200101T000000.000Z.jsonl": "mine"} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	l, _ := newLog(t, Config{name, 4000, 3})
	if all, _ := Rotated(name); len(all) != 2 {
		t.Fatalf("%v: want the oldest and what was there", all)
	}
	l.file.now = func() time.Time { return t0 } // a clock that has been set back, and stands
	for id := range uint64(30) {
		l.Add(sample(id + 1))
		l.flush()
	}
	l.Close()
	all, err := Rotated(name)
	if err != nil || len(all) != 3 {
		t.Fatalf("%v, %v: want 3 rotated files", all, err)
	}
	var ids []uint64
	for _, f := range append(all, name) {
		if info, _ := os.Stat(f); info.Size() > 4000 {
			t.Errorf("%s has %d bytes, want at most 4000", f, info.Size())
		}
		ids = append(ids, lines(t, f)...)
	}
	for i := range ids {
		if ids[i] != 30-uint64(len(ids)-1-i) {
			t.Fatalf("receipts %v: want the latest without a hole", ids)
		}
	}
	for _, f := range []string{"r-notes.jsonl", "s-20200101T000000.000Z.jsonl"} {
		if b, _ := os.ReadFile(filepath.Join(dir, f)); string(b) != "mine" {
			t.Errorf("%s is gone", f)
		}
	}
	if s := l.Stats(); s.Written != 30 || s.Failed != 0 {
		t.Errorf("%+v", s)
	}
}

// A disk that is too slow costs receipts, not memory and not time; they are counted.
func TestSlowDiskDrops(t *testing.T) {
	l, _ := newLog(t, Config{filepath.Join(t.TempDir(), "r.jsonl"), 1 << 30, 1})
	r := sample(1)
	r.Tokens = 16 << 16
	r.Blocks.Hashes = make([]kv.Hash, 1<<16)
	n := 0
	for ; n < 10000 && l.Stats().Slow == 0; n++ {
		l.Add(r)
	}
	if l.bytes > maxQueue || l.bytes < maxQueue-size(r) {
		t.Errorf("%d bytes wait, want at most %d and nearly", l.bytes, maxQueue)
	}
	l.flush()
	if s := l.Stats(); s.Written != uint64(n-1) || s.Slow != 1 || l.bytes != 0 {
		t.Errorf("%+v after %d, %d bytes; want all but one written and nothing waiting", s, n, l.bytes)
	}
	l.Add(r) // there is room again
	l.Close()
	if s := l.Stats(); s.Written != uint64(n) || s.Slow != 1 {
		t.Errorf("%+v", s)
	}
}

// A disk that takes nothing costs receipts and a line in the log a minute; when it
// takes some again, the log goes on.
func TestFullDisk(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "logs")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "r.jsonl")
	synctest.Test(t, func(t *testing.T) {
		l, told := newLog(t, Config{name, 1 << 20, 2})
		l.Add(sample(1))
		l.flush()
		// The next write fails, as one to a full disk does.
		l.file.f.Close()
		for id := range uint64(3) {
			l.Add(sample(2 + id))
			l.flush()
			if id == 0 {
				os.Rename(dir, dir+".gone") // nor can a new one be made
			}
		}
		if s := l.Stats(); s.Written != 1 || s.Failed != 3 {
			t.Errorf("%+v, want 1 written and 3 lost", s)
		}
		if n := strings.Count(told.String(), "receipts are lost"); n != 1 {
			t.Errorf("%d lines in the log, want 1: %s", n, told)
		}
		time.Sleep(complainEvery)
		l.Add(sample(5))
		l.flush()
		if !strings.Contains(told.String(), "lost=3") {
			t.Errorf("the log doesn't tell of the lost ones: %s", told)
		}
		os.Rename(dir+".gone", dir)
		l.Add(sample(6))
		l.Close()
		if s := l.Stats(); s.Written != 2 || s.Failed != 4 {
			t.Errorf("%+v, want 2 written and 4 lost", s)
		}
		all, _ := Rotated(name)
		if len(all) != 1 || !slices.Equal(lines(t, all[0]), []uint64{1}) || !slices.Equal(lines(t, name), []uint64{6}) {
			t.Errorf("%v", all)
		}
	})
}

// A halfDisk takes half of what is written and is full then.
type halfDisk struct{ disk }

func (d halfDisk) Write(p []byte) (int, error) {
	n, _ := d.disk.Write(p[:len(p)/2])
	return n, syscall.ENOSPC
}

// Half a line, as a full disk leaves it, is taken back.
func TestHalfALine(t *testing.T) {
	name := filepath.Join(t.TempDir(), "r.jsonl")
	l, _ := newLog(t, Config{name, 1 << 20, 2})
	l.Add(sample(1))
	l.flush()
	whole := l.file.f
	l.file.f = halfDisk{whole}
	l.Add(sample(2))
	l.flush()
	l.file.f = whole
	l.Add(sample(3))
	l.Close()
	if got := lines(t, name); !slices.Equal(got, []uint64{1, 3}) {
		t.Errorf("%v, want 1 and 3", got)
	}
	if s := l.Stats(); s != (Stats{Written: 2, Failed: 1, Files: 1}) {
		t.Errorf("%+v", s)
	}
}

// Who moves the file away finds the log go on in a new one.
func TestMovedFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "r.jsonl")
	l, _ := newLog(t, Config{name, 1 << 20, 2})
	for id, how := range []func(){func() {}, func() { os.Rename(name, name+".1") }, func() {
		os.Rename(name, name+".2")
		os.WriteFile(name, nil, 0o600) // as logrotate's create does
	}} {
		how()
		l.Add(sample(uint64(id) + 1))
		l.flush()
	}
	l.Close()
	// What another router has begun there is left alone.
	a, _ := newLog(t, Config{name + ".b", 1 << 20, 2})
	b, _ := newLog(t, Config{name + ".b", 1 << 20, 2})
	for id := range uint64(3) {
		a.Add(sample(id))
		b.Add(sample(10 + id))
		a.flush()
		b.flush()
	}
	if all, _ := Rotated(name + ".b"); len(all) != 1 || len(lines(t, all[0])) != 3 || len(lines(t, name+".b")) != 3 {
		t.Errorf("two routers with one file: %v", all)
	}
	for i, f := range []string{name + ".1", name + ".2", name} {
		if got := lines(t, f); !slices.Equal(got, []uint64{uint64(i) + 1}) {
			t.Errorf("%s: %v, want %d", f, got, i+1)
		}
	}
}

// A path that can't be written is told at once.
func TestUnwritable(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{filepath.Join(dir, "no", "such", "r.jsonl"), dir} {
		if err := Check(name); err == nil {
			t.Errorf("%s: Check finds nothing", name)
		}
		if _, err := Open(Config{name, 1 << 20, 1}, encoder(), slog.New(slog.DiscardHandler)); err == nil {
			t.Errorf("%s: opened", name)
		}
	}
	name := filepath.Join(dir, "r.jsonl")
	if err := Check(name); err != nil {
		t.Errorf("%s: %v", name, err)
	}
	if list, _ := os.ReadDir(dir); len(list) != 0 {
		t.Errorf("Check left %v", list)
	}
}
