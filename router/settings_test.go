package router

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"kvasir/config"
	"kvasir/engine"
	"kvasir/kv"
	"kvasir/receipt"
	"kvasir/sched"
	"kvasir/web"
)

// newRouter builds a router that isn't started, over an engine that isn't there.
func newRouter(t *testing.T, edit func(*config.Config)) *Router {
	t.Helper()
	cfg := config.Defaults()
	cfg.Engines = []config.Engine{config.NewEngine("http://a:1")}
	edit(&cfg)
	r, err := New(cfg, slog.New(slog.DiscardHandler), "test")
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Listen and Admin are where we listen: here, where somebody else does.
func TestListenersAreWhereTheySay(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	at := taken.Addr().String()
	for want, edit := range map[string]func(*config.Config){
		"listen: ": func(c *config.Config) { c.Listen, c.Admin = at, "127.0.0.1:0" },
		"admin: ":  func(c *config.Config) { c.Listen, c.Admin = "127.0.0.1:0", at },
	} {
		r := newRouter(t, edit)
		if err := r.Start(context.Background()); err == nil || !strings.HasPrefix(err.Error(), want) || !strings.Contains(err.Error(), at) {
			t.Errorf("%v, want %s and %s", err, want, at)
		}
	}
	for _, admin := range []string{"off", "127.0.0.1:0"} {
		r, stop := startRouter(t, func(c *config.Config) { c.Admin = admin }, scripted(t, func(http.ResponseWriter, *http.Request) {}))
		for _, url := range []string{r.URL(), r.AdminURL()} {
			if url == "" {
				continue
			}
			if resp, err := http.Get(url + "/health"); err != nil || resp.StatusCode != 200 {
				t.Errorf("admin %s: %s: %v, %v", admin, url, resp, err)
			}
		}
		if (r.AdminURL() == "") != (admin == "off") {
			t.Errorf("admin %s: at %q", admin, r.AdminURL())
		}
		stop()
	}
}

// Requests go to the engine at URL, to each of as many Ranks as it is said to have.
func TestEnginesAndRanksAreAsConfigured(t *testing.T) {
	var mu sync.Mutex
	got := map[string][]string{} // by engine, the ranks of its requests
	name := func(n string) string {
		return scripted(t, func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			got[n] = append(got[n], r.Header.Get("X-Data-Parallel-Rank"))
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, wholeBody)
		})
	}
	a, b := name("a"), name("b")
	for _, c := range []struct {
		url   string
		ranks int
		want  string
	}{{a, 0, "map[a:[  ]]"}, {b, 0, "map[b:[  ]]"}, {b, 3, "map[b:[0 1 2]]"}} {
		clear(got)
		r, stop := startRouter(t, func(to *config.Config) {
			to.Policy.Name = "round_robin"
			to.Engines[0].URL, to.Engines[0].Ranks = c.url, c.ranks
		}, a)
		if n := len(r.table.Snapshot().Replicas[0].Targets); n != max(1, c.ranks) {
			t.Errorf("ranks %d: the fleet has %d", c.ranks, n)
		}
		for range 3 {
			resp, err := http.Post(r.URL()+"/v1/completions", "application/json", strings.NewReader(`{"model":"m","prompt":"x"}`))
			if err != nil {
				t.Fatal(err)
			}
			io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
		stop()
		for _, ranks := range got {
			slices.Sort(ranks)
		}
		if s := fmt.Sprint(got); s != c.want {
			t.Errorf("%s with %d ranks: requests at %s, want %s", c.url, c.ranks, s, c.want)
		}
	}
}

// What an engine held before we came is known by its Replay service, what comes then by
// its Events, and nothing with both off.
func TestEventsAndReplayAreWhereTheySay(t *testing.T) {
	for _, c := range []struct {
		name           string
		events, replay bool
		trust          string
	}{{"off", false, false, "blind"}, {"events", true, false, "filling"}, {"replay", true, true, "exact"}} {
		f := newFleet(t, 1, nil) // it fills the engine's cache
		f.ask(words(64, 1), "")
		f.settled(4)
		e := f.engines[0]
		var key config.Engine
		g := newFleet(t, 0, func(to *config.Config) {
			key = config.NewEngine(e.URL())
			key.Events = "off"
			if c.events {
				key.Events = e.EventsEndpoint()
			}
			if c.replay {
				key.Replay = e.ReplayEndpoint()
			}
			to.Engines = []config.Engine{key}
		})
		rank := func() web.Rank { return g.fleet().Replicas[0].Ranks[0] }
		n := 0
		g.until(func() bool { // the first batches may come before we listen
			n++
			g.ask(words(64, 1000*n), "")
			k := rank()
			return k.Trust == c.trust && (!c.events || k.HeldBlocks["gpu"] > 0)
		})
		if a := g.ask(words(64, 1), ""); (a.predicted > 0) != c.replay || a.cached == 0 {
			t.Errorf("%s: %+v; what was there before: known %v", c.name, a, c.replay)
		}
		if k := rank(); (k.HeldBlocks["gpu"] > 0) != c.events {
			t.Errorf("%s: %+v", c.name, k)
		}
	}
}

// tokenizerOf makes the tokenizer files of a model, with a chat template.
func tokenizerOf(t *testing.T, template string) (dir string) {
	t.Helper()
	tokenizer, err := os.ReadFile("../token/bpe/testdata/small/gemma.json")
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	for name, text := range map[string]string{"tokenizer.json": string(tokenizer), "config.json": "{}", "tokenizer_config.json": "{}", "chat_template.jinja": template} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// latest returns the latest decision.
func (f *testFleet) latest() web.Decision {
	f.t.Helper()
	var d struct{ Decisions []web.Decision }
	f.get("/v1/kvasir/decisions?limit=1", &d)
	if len(d.Decisions) == 0 {
		f.t.Fatal("no decision")
	}
	return d.Decisions[0]
}

// Tokens are made here, by the engines or not at all, as Mode says.
func TestTokensByMode(t *testing.T) {
	dir := tokenizerOf(t, "")
	for mode, want := range map[string]string{"auto": "local", "remote": "render", "off": ""} {
		f := newFleet(t, 1, func(c *config.Config) {
			c.Tokens.Mode, c.Tokens.Files.Dirs, c.Tokens.Local.Verify = mode, map[string]string{"modelled-8b": dir}, 0
		})
		if mode == "auto" {
			f.router.library.Wait() // the files are found beside the requests
		}
		f.ask("hello", "")
		if got := f.latest(); got.Source != want || (got.Tokens > 0) != (mode != "off") {
			t.Errorf("%s: tokens from %q (%s), want %q", mode, got.Source, got.Why, want)
		}
		if s := f.router.remote.Stats(); (s.Asked > 0) != (mode == "remote") {
			t.Errorf("%s: the engine was asked %d times", mode, s.Asked)
		}
	}
}

// The settings of local and remote tokens and of templates reach who obeys them.
func TestTokensByTheirSettings(t *testing.T) {
	dir := tokenizerOf(t, "{{ messages[0].content }}{{ more }}")
	for _, keeps := range []int64{0, 64 << 20} {
		made := map[string]int{}
		for _, more := range []string{"", " and more than that"} {
			f := newFleet(t, 1, func(c *config.Config) {
				c.Tokens.Files.Dirs, c.Tokens.Template.Kwargs = map[string]string{"modelled-8b": dir}, map[string]any{"more": more}
				c.Tokens.Local.Verify, c.Tokens.Local.CacheBytes = 0, keeps
			})
			f.router.library.Wait()
			resp, err := http.Post(f.router.URL()+"/v1/chat/completions", "application/json", strings.NewReader(`{"model":"modelled-8b","messages":[{"role":"user","content":"`+words(2000, 1)+`"}],"max_tokens":1}`))
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			d := f.latest()
			if made[more] = d.Tokens; d.Source != "local" {
				t.Errorf("tokens from %q: %s", d.Source, d.Why)
			}
			if s := f.router.localStats().Prefix; (s.Bytes > 0) != (keeps > 0) {
				t.Errorf("%+v in %d bytes", s, keeps)
			}
		}
		if made[""] == 0 || made[" and more than that"] <= made[""] {
			t.Errorf("%v tokens: the template's arguments have no effect", made)
		}
		f := newFleet(t, 1, func(c *config.Config) { c.Tokens.Mode, c.Tokens.Remote.CacheBytes = "remote", keeps })
		for range 2 {
			f.ask("hello", "")
		}
		if s := f.router.remote.Stats(); (s.Asked == 2) != (keeps == 0) {
			t.Errorf("%d questions where %d bytes are for answers", s.Asked, keeps)
		}
	}
}

// The settings of the front door reach both its halves: who answers, and who lets in.
func TestFrontDoorByItsSettings(t *testing.T) {
	for _, explain := range []bool{false, true} {
		for per, want := range map[int]int{0: 200, 1: 429} {
			f := newFleet(t, 1, func(c *config.Config) { c.Proxy.Explain, c.Proxy.MaxConnsPerAddress = explain, per })
			kept, err := net.Dial("tcp", strings.TrimPrefix(f.router.URL(), "http://"))
			if err != nil {
				t.Fatal(err)
			}
			io.WriteString(kept, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 38\r\n\r\n"+`{"model":"modelled-8b","prompt":"hey"}`)
			resp, err := http.ReadResponse(bufio.NewReader(kept), nil) // it has its place now
			if err != nil {
				t.Fatal(err)
			}
			if (resp.Header.Get("X-Kvasir-Replica") != "") != explain {
				t.Errorf("explain %v: %v", explain, resp.Header)
			}
			if resp, err = http.Get(f.router.URL() + "/health"); err != nil || resp.StatusCode != want {
				t.Errorf("%d connections an address: %v, %v; want %d", per, resp, err, want)
			}
			kept.Close()
		}
	}
}

// A tripper is an engine without sockets.
type tripper func(*http.Request) string

func (f tripper) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(f(r))), Request: r}, nil
}

// An engine is asked for its health every Poll, for its load every PollMetrics, which
// left alone is what the policy needs.
func TestEnginesAreAskedEveryPoll(t *testing.T) {
	for _, c := range []struct {
		poll, metrics time.Duration
		policy        string
		health, load  int // in a minute
	}{
		{2 * time.Second, 0, "auto", 30, 12}, {10 * time.Second, 0, "auto", 6, 12}, {2 * time.Second, time.Second, "auto", 30, 60},
		{2 * time.Second, 0, "weighted", 30, 600}, {2 * time.Second, 20 * time.Second, "weighted", 30, 3},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRouter(t, func(to *config.Config) {
				to.Poll, to.PollMetrics, to.Policy.Name, to.Engines[0].Events = c.poll, c.metrics, c.policy, "off"
			})
			var mu sync.Mutex
			asked := map[string]int{}
			cfg := r.engineConfig(r.cfg.Engines[0], r.followers[0].row())
			cfg.Jitter = func() float64 { return 0.5 }
			cfg.HTTP = &http.Client{Transport: tripper(func(r *http.Request) string {
				mu.Lock()
				defer mu.Unlock()
				asked[r.URL.Path]++
				return map[string]string{"/v1/models": `{"data":[{"id":"m","owned_by":"vllm"}]}`}[r.URL.Path]
			})}
			replica, err := engine.New(cfg, engine.Hooks{Target: r.followers[0].target, Apply: r.followers[0].apply})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute-time.Millisecond)
			defer cancel()
			replica.Run(ctx)
			if h, m := asked["/health"], asked["/metrics"]; h != c.health || m < c.load-1 || m > c.load+1 { // at the start, too
				t.Errorf("%+v: health was asked %d times, metrics %d", c, h, m)
			}
		})
	}
}

// The index reads events as the engine's Copies, HostBlocks and DiskBlocks say, within
// IndexBytes.
func TestIndexByItsSettings(t *testing.T) {
	store := func(tier kv.Tier, from, n int) func(f *follower) {
		return func(f *follower) {
			ev := &kv.Event{Kind: kv.Stored, Target: f.target(0), Tier: tier, BlockSize: 16, Root: true, Tokens: make([]uint32, 16*n)}
			for i := range n {
				ev.Handles, ev.Tokens[16*i] = append(ev.Handles, kv.Handle(from+i)), uint32(from+i)
			}
			f.apply(ev)
		}
	}
	remove := func(f *follower) {
		f.apply(&kv.Event{Kind: kv.Removed, Target: f.target(0), Handles: []kv.Handle{1}})
	}
	twice := []func(*follower){store(kv.GPU, 1, 1), store(kv.GPU, 1, 1), remove}
	var many []func(*follower)
	for i := range 100 {
		many = append(many, store(kv.GPU, 1000*i, 1000))
	}
	for _, c := range []struct {
		name   string
		edit   func(*config.Config)
		events []func(*follower)
		want   [kv.NumTiers]int64
	}{
		{"copies, as it is", func(*config.Config) {}, twice, [kv.NumTiers]int64{1}},
		{"copies, refcount", func(c *config.Config) { c.Engines[0].Copies = "refcount" }, twice, [kv.NumTiers]int64{1}},
		{"copies, first-remove", func(c *config.Config) { c.Engines[0].Copies = "first-remove" }, twice, [kv.NumTiers]int64{}},
		{"host, as it is", func(*config.Config) {}, []func(*follower){store(kv.Host, 1, 9)}, [kv.NumTiers]int64{kv.Host: 9}},
		{"host_blocks", func(c *config.Config) { c.Engines[0].HostBlocks = 5 }, []func(*follower){store(kv.Host, 1, 9)}, [kv.NumTiers]int64{kv.Host: 5}},
		{"disk, as it is", func(*config.Config) {}, []func(*follower){store(kv.Disk, 1, 9)}, [kv.NumTiers]int64{kv.Disk: 9}},
		{"disk_blocks", func(c *config.Config) { c.Engines[0].DiskBlocks = 6 }, []func(*follower){store(kv.Disk, 1, 9)}, [kv.NumTiers]int64{kv.Disk: 6}},
		{"bytes, as it is", func(*config.Config) {}, many, [kv.NumTiers]int64{100_000}},
	} {
		r := newRouter(t, c.edit)
		for _, do := range c.events {
			do(r.followers[0])
		}
		if got := r.blocks(r.followers[0].target(0)); got != c.want {
			t.Errorf("%s: %v blocks held, want %v", c.name, got, c.want)
		}
	}
	r := newRouter(t, func(c *config.Config) { c.IndexBytes = 1 << 20 })
	for _, do := range many {
		do(r.followers[0])
	}
	if s := r.index.Stats(); s.Bytes > 1<<20 || s.Evicted == 0 || s.Blocks == 0 {
		t.Errorf("index_bytes 1Mi: %+v", s)
	}
}

// The index is written to IndexSnapshot every IndexSnapshotEvery, if there is such a file.
func TestIndexIsKeptEvery(t *testing.T) {
	for _, c := range []struct {
		file  bool
		every time.Duration
		want  int // in an hour
	}{{true, config.Defaults().IndexSnapshotEvery, 12}, {true, time.Minute, 60}, {true, 0, 0}, {false, time.Minute, 0}} {
		synctest.Test(t, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "index")
			r := newRouter(t, func(to *config.Config) {
				if to.IndexSnapshotEvery = c.every; c.file {
					to.IndexSnapshot = file
				}
			})
			log := &logbook{}
			r.log = slog.New(slog.NewTextHandler(log, nil))
			ctx, cancel := context.WithTimeout(context.Background(), time.Hour+time.Second)
			defer cancel()
			r.keepIndexEvery(ctx)
			if n := strings.Count(log.String(), "kept what the index believes"); n != c.want {
				t.Errorf("%+v: written %d times", c, n)
			}
			if _, err := os.Stat(file); (err == nil) != (c.want > 0) {
				t.Errorf("%+v: %v", c, err)
			}
		})
	}
}

// The file of receipts is rotated at ReceiptsFileBytes, and ReceiptsFileKeep old ones stay.
func TestReceiptsFileIsRotated(t *testing.T) {
	for _, c := range []struct {
		bytes int64 // 0: as it is
		keep  int
		want  int // rotated files
	}{{0, 0, 0}, {1 << 20, 0, 8}, {1 << 20, 2, 2}} {
		name := filepath.Join(t.TempDir(), "r.jsonl")
		r := newRouter(t, func(to *config.Config) {
			to.ReceiptsFile = name
			if c.bytes > 0 {
				to.ReceiptsFileBytes = c.bytes
			}
			if c.keep > 0 {
				to.ReceiptsFileKeep = c.keep
			}
		})
		if err := r.openReceipts(); err != nil {
			t.Fatal(err)
		}
		x := sched.Receipt{Tokens: 16 << 16}
		x.Blocks.BlockSize, x.Blocks.Hashes = 16, make([]kv.Hash, 1<<16)
		for id := range uint64(20) { // of more than half a MiB each
			x.ID = id + 1
			r.ended(&x)
		}
		r.receipts.Close()
		if all, err := receipt.Rotated(name); err != nil || len(all) != c.want {
			t.Errorf("%+v: %d old files, %v", c, len(all), err)
		}
	}
}

// As many decisions are shown as Receipts says.
func TestReceiptsAreKept(t *testing.T) {
	for n, want := range map[int]int{0: 0, 2: 2, 100: 3} {
		f := newFleet(t, 1, func(c *config.Config) { c.Receipts = n })
		for range 3 {
			f.ask("hello", "")
		}
		var d struct{ Decisions []web.Decision }
		f.get("/v1/kvasir/decisions", &d)
		if len(d.Decisions) != want {
			t.Errorf("receipts %d: %d decisions, want %d", n, len(d.Decisions), want)
		}
	}
}

// Leave serves on for DrainGrace, or until nobody wants to wait any more.
func TestLeaveTakesDrainGrace(t *testing.T) {
	for _, grace := range []time.Duration{0, config.Defaults().DrainGrace, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			r := newRouter(t, func(c *config.Config) { c.DrainGrace = grace })
			start := time.Now()
			r.Leave(context.Background())
			if took := time.Since(start); took != grace {
				t.Errorf("left after %v, want %v", took, grace)
			}
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			start = time.Now()
			r.Leave(ctx)
			if took, want := time.Since(start), min(grace, time.Second); took != want {
				t.Errorf("left after %v when told not to wait, want %v", took, want)
			}
		})
	}
}
