package router

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"kvasir/config"
	"kvasir/lab/mockserver"
)

// A logbook is a log to look things up in.
type logbook struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logbook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logbook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l *logbook) has(s string) bool { return strings.Contains(l.String(), s) }

// A warmFleet is engines whose routers come and go.
type warmFleet struct {
	*testFleet
	file string
	log  *logbook
	stop func()
}

func newWarmFleet(t *testing.T, engines int) *warmFleet {
	t.Helper()
	f := &warmFleet{testFleet: &testFleet{t: t}, file: filepath.Join(t.TempDir(), "index"), stop: func() {}}
	for range engines {
		f.engines = append(f.engines, startEngine(t, mockserver.Defaults()))
	}
	t.Cleanup(func() { f.stop() })
	return f
}

// start starts a router over the engines in the given order, and waits until they are up.
func (f *warmFleet) start(order ...int) {
	f.t.Helper()
	cfg := config.Defaults()
	cfg.Listen, cfg.Admin, cfg.Poll = "127.0.0.1:0", "127.0.0.1:0", 50*time.Millisecond
	cfg.IndexSnapshot = f.file
	for _, n := range order {
		cfg.Engines = append(cfg.Engines, config.NewEngine(f.engines[n].URL()))
	}
	f.log = &logbook{}
	r, err := New(cfg, slog.New(slog.NewTextHandler(f.log, nil)), "test")
	if err != nil {
		f.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	if err := r.Start(ctx); err != nil {
		f.t.Fatal(err)
	}
	f.router = r
	f.stop = sync.OnceFunc(func() { cancel(); r.Close() })
	if err := r.Ready(ctx, len(order), 30*time.Second); err != nil {
		f.t.Fatal(err)
	}
}

// exact waits until all targets are.
func (f *warmFleet) exact() {
	f.until(func() bool {
		for _, r := range f.fleet().Replicas {
			if r.Ranks[0].Trust != "exact" {
				return false
			}
		}
		return true
	})
}

// fill gives each of n conversations 10 blocks, and returns who has it.
func (f *warmFleet) fill(n int) (has []string) {
	for i := range n {
		a := f.ask(words(160, 1000*i), "")
		has = append(has, a.replica)
		f.settled(int64(10 * (i + 1)))
	}
	return has
}

// The first requests after a restart go where the blocks are; the numbers of the
// targets may be others than before.
func TestWarmRestart(t *testing.T) {
	f := newWarmFleet(t, 3)
	f.start(0, 1, 2)
	f.exact()
	has := f.fill(6)
	f.stop()
	f.start(2, 0, 1)
	f.exact()
	f.settled(60)
	for i, want := range has {
		a := f.ask(words(320, 1000*i), "")
		if a.predicted != 160 || a.cached != 160 || a.replica != want {
			t.Errorf("conversation %d: %+v, want 160 tokens of %s", i, a, want)
		}
	}
	for _, r := range f.fleet().Replicas {
		if k := r.Ranks[0]; k.HeldBlocks["gpu"] > 0 && !strings.HasSuffix(k.Reason, "continued from a snapshot") || k.Drift.Over != 0 {
			t.Errorf("%s: %+v", r.Name, k)
		}
	}
	f.settled(120)
	f.stop()
	f.start(0, 1) // one less: its blocks are nobody's
	f.exact()
	var want int64
	for _, n := range []int{0, 1} {
		for _, name := range has {
			if strings.HasSuffix(f.engines[n].URL(), name) {
				want += 20
			}
		}
	}
	f.settled(want)
}

// An engine that has restarted while the router was away: nothing of it is
// believed, everything of the other one.
func TestWarmRestartOfBoth(t *testing.T) {
	f := newWarmFleet(t, 2)
	f.start(0, 1)
	f.exact()
	has := f.fill(8)
	f.stop()
	addr := strings.TrimPrefix(f.engines[1].URL(), "http://")
	f.engines[1].Close()
	cfg := mockserver.Defaults()
	cfg.Listen = addr
	f.engines[1] = startEngine(t, cfg)
	f.start(0, 1)
	f.exact()
	for _, r := range f.fleet().Replicas {
		var want int64
		for _, name := range has {
			if name == r.Name && name != addr {
				want += 10
			}
		}
		if got := r.Ranks[0].HeldBlocks["gpu"]; got != want {
			t.Errorf("%s: %d blocks believed, want %d", r.Name, got, want)
		}
	}
	for i := range has {
		if a := f.ask(words(160, 1000*i), ""); a.predicted > a.cached {
			t.Errorf("conversation %d: %+v", i, a)
		}
	}
}

// A snapshot while requests run, and a router that is killed afterwards: the engine
// fills in what came later.
func TestWarmRestartAfterKill(t *testing.T) {
	f := newWarmFleet(t, 2)
	f.start(0, 1)
	f.exact()
	f.fill(3)
	done := make(chan bool)
	go func() {
		defer close(done)
		for range 5 {
			f.router.keepIndex()
		}
	}()
	for i := range 6 {
		f.ask(words(160, 1000*i), "")
	}
	<-done
	var text string
	f.get("/metrics", &text)
	if !strings.Contains(text, "kvasir_index_snapshot_timestamp_seconds ") || !strings.Contains(text, "kvasir_index_snapshot_failed_total 0\n") {
		t.Error("the metrics don't say that a snapshot was written")
	}
	old, err := os.ReadFile(f.file)
	if err != nil {
		t.Fatal(err)
	}
	f.ask(words(160, 9000), "")
	f.settled(70)
	f.stop()
	if err := os.WriteFile(f.file, old, 0o600); err != nil {
		t.Fatal(err)
	}
	f.start(0, 1)
	f.exact()
	f.settled(70)
	for _, i := range []int{0, 3, 5, 9} {
		if a := f.ask(words(160, 1000*i), ""); a.predicted != a.cached || a.cached != 144 {
			t.Errorf("conversation %d: %+v", i, a)
		}
	}
}

// A file that can't be used costs what is in it, and a line in the log.
func TestSnapshotOfNoUse(t *testing.T) {
	f := newWarmFleet(t, 1)
	f.start(0)
	f.exact()
	f.fill(2)
	f.stop()
	good, err := os.ReadFile(f.file)
	if err != nil {
		t.Fatal(err)
	}
	if info, _ := os.Stat(f.file); info.Mode().Perm() != 0o600 {
		t.Errorf("%v: others can read the seed", info.Mode())
	}
	flip := func(at int) []byte {
		b := bytes.Clone(good)
		b[at] ^= 0x20
		return b
	}
	text := bytes.IndexByte(good, '{')
	for _, c := range []struct {
		name string
		file []byte
		want string
	}{
		{"empty", nil, "not a snapshot of a router"},
		{"rubbish", []byte("rubbish rubbish rubbish rubbish"), "not a snapshot of a router"},
		{"of an index alone", good[bytes.Index(good, []byte("kvasirix")):], "not a snapshot of a router"},
		{"cut in the text", good[:text+10], "ends after 10 of"},
		{"text changed", flip(text + 30), "checksum"},
		{"a length out of bounds", flip(text - 5), "want at most"},
		{"no index", good[:bytes.Index(good, []byte("kvasirix"))], "not a snapshot of an index"},
		{"cut in the index", good[:len(good)-9], "index: load"},
		{"index changed", flip(len(good) - 40), "index: load"},
		{"another version", sealed(t, good, `"version":1,`, `"version":7,`), "version 7"},
		{"another seed", sealed(t, good, `"seed":"`, `"seed":"1`), "seed"},
		{"no ranks", sealed(t, good, `"ranks":[{`, `"x":[{`), "want 1 to"},
		{"a rank too many", sealed(t, good, `"engine_ranks":[`, `"ranks":[9],"engine_ranks":[`), "rank 9"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := os.WriteFile(f.file, c.file, 0o600); err != nil {
				t.Fatal(err)
			}
			f.start(0)
			defer f.stop()
			if !f.log.has("the index starts empty") || !f.log.has(c.want) {
				t.Errorf("the log says\n%s", &f.log.b)
			}
			if f.log.has("continued from") {
				t.Error("it was used")
			}
			if a := f.ask("hello", ""); a.code != 200 {
				t.Errorf("%d", a.code)
			}
		})
	}
	f.file = filepath.Join(f.file, "not", "a", "directory")
	f.start(0)
	f.stop()
	if !f.log.has("can't be kept") {
		t.Errorf("the log says\n%s", &f.log.b)
	}
}

// sealed replaces something in the text of a snapshot, with a good checksum.
func sealed(t *testing.T, file []byte, from, to string) []byte {
	t.Helper()
	n := len(warmMagic) + 8
	size := int(file[8]) | int(file[9])<<8 | int(file[10])<<16
	text := strings.Replace(string(file[n:n+size]), from, to, 1)
	if text == string(file[n:n+size]) {
		t.Fatalf("no %s in %s", from, text)
	}
	var b bytes.Buffer
	b.WriteString(warmMagic)
	writeText(&b, []byte(text))
	b.Write(file[n+size:])
	return b.Bytes()
}

// FuzzWarm: whatever the text is, reading it is an error or not, and what is read
// is within bounds.
func FuzzWarm(f *testing.F) {
	f.Add([]byte(`{"version":1,"seed":"7","engines":[{"url":"http://a:1","ranks":[{"target":0,"blocks":[1,0,0]}],"streams":[{"source":{"Rank":0},"ranks":[0],"engine_ranks":[0],"at":{"Next":3,"Time":1}}]}]}`))
	f.Add([]byte(`{"version":1,"engines":[{"ranks":[],"block_size":-1}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var b bytes.Buffer
		b.WriteString(warmMagic)
		writeText(&b, text)
		h, err := readWarm(&b)
		if err != nil {
			return
		}
		for _, e := range h.Engines {
			for _, k := range e.Marks {
				for _, n := range k.Ranks {
					_ = e.Ranks[n]
				}
			}
		}
		cfg := config.Defaults()
		for i := range 3 {
			cfg.Engines = append(cfg.Engines, config.NewEngine(fmt.Sprintf("http://e%d:80", i)))
		}
		r, err := New(cfg, slog.New(slog.DiscardHandler), "test")
		if err != nil {
			t.Fatal(err)
		}
		seen := map[any]bool{}
		for _, to := range r.renumber(&h) {
			if seen[to] || to >= 1024 {
				t.Fatalf("target %d twice, or too large", to)
			}
			seen[to] = true
		}
	})
}
