package engine

import (
	"context"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"kvasir/kv"
)

// start runs a Replica on the world's engine at 10.0.0.1:8000 until the test ends.
func start(t *testing.T, w *world, cfg Config) (*Replica, *router) {
	t.Helper()
	r, rt, stop := run(t, w, cfg)
	t.Cleanup(stop)
	return r, rt
}

// run is start with a stop of its own.
func run(t *testing.T, w *world, cfg Config) (*Replica, *router, func()) {
	t.Helper()
	rt := newRouter()
	r, stop := runFrom(t, w, cfg, kept{rt: rt})
	return r, rt, stop
}

// runFrom goes on from what another Replica and its router knew.
func runFrom(t *testing.T, w *world, cfg Config, k kept) (*Replica, func()) {
	t.Helper()
	cfg.URL = "http://10.0.0.1:8000"
	cfg.HTTP = &http.Client{Transport: w}
	cfg.Dial = w.dial
	cfg.Jitter = func() float64 { return 0.5 }
	r, err := New(cfg, k.rt.hooks())
	if err != nil {
		t.Fatal(err)
	}
	r.Resume(k.marks, k.models)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.Run(ctx)
	}()
	return r, func() {
		cancel()
		<-done
	}
}

func settle(d time.Duration) {
	time.Sleep(d) // virtual
	synctest.Wait()
}

// TestFollow: the whole way, from discovery to the index, with replay: attach
// late, live events, a break of the connection, a restart.
func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		e := w.engine(t, "10.0.0.1", 0, true)
		defer func() { e.stop() }()
		w.http["10.0.0.1:8000"] = e
		e.store(1, 2, 3)
		r, rt := start(t, w, Config{})
		settle(3 * time.Second)
		rt.want(t, 0, kv.Exact, map[kv.Handle]int{1: 1, 2: 1, 3: 1})
		if rt.up != 1 || rt.info.Kind != "vllm" || rt.info.Version != "0.32.0" || rt.info.BlockSize != 1 || rt.info.Blocks != 48 ||
			len(rt.info.Ranks) != 1 || rt.info.Ranks[0].Running != 3 || rt.info.Models[0].MaxLen != 1024 || rt.info.Sources[0].Replay != "tcp://10.0.0.1:6557" {
			t.Errorf("up %d, info %+v", rt.up, rt.info)
		}

		e.store(4)
		e.remove(2)
		settle(time.Second)
		rt.want(t, 0, kv.Exact, e.held)

		w.cut("10.0.0.1:5557")
		e.store(5) // nobody listens
		e.remove(1)
		settle(10 * time.Second)
		rt.want(t, 0, kv.Exact, e.held)

		e.stop()
		settle(time.Second)
		if rt.trust[0] != kv.Stale {
			t.Errorf("trust %v while the connection is down", rt.trust[0])
		}
		e.start(t)
		e.store(9, 10, 11, 12, 13, 14, 15, 16, 17) // further than the old process came
		settle(10 * time.Second)
		rt.want(t, 0, kv.Exact, e.held)
		if s := r.Stats(); len(s) != 1 || s[0].Seq.Restarts != 1 || s[0].Trust != kv.Exact {
			t.Errorf("%+v", s)
		}

		r.Refill(0, "a test says so")
		settle(time.Second)
		rt.want(t, 0, kv.Exact, e.held)
		if s := r.Stats(); s[0].Seq.Forgets != 2 {
			t.Errorf("%+v", s)
		}
	})
}

// TestNoReplay: vLLM's default. A break costs trust, a restart shows.
func TestNoReplay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		e := w.engine(t, "10.0.0.1", 0, false)
		defer func() { e.stop() }()
		w.http["10.0.0.1:8000"] = e
		_, rt := start(t, w, Config{})
		settle(3 * time.Second)
		e.store(1, 2, 3)
		settle(time.Second)
		rt.want(t, 0, kv.Exact, e.held)

		w.cut("10.0.0.1:5557") // nothing is lost, and after the next batch and a look at the metrics that is known
		settle(10 * time.Second)
		e.store(4)
		settle(10 * time.Second)
		rt.want(t, 0, kv.Exact, e.held)

		w.cut("10.0.0.1:5557")
		e.remove(1)
		settle(10 * time.Second)
		e.store(5)
		settle(10 * time.Second)
		rt.want(t, 0, kv.Filling, map[kv.Handle]int{5: 1}) // a batch was lost: nothing from before it is believed

		e.stop()
		settle(40 * time.Second)
		if rt.trust[0] != kv.Blind {
			t.Errorf("trust %v after 40 s without a connection", rt.trust[0])
		}
		e.start(t)
		settle(10 * time.Second)
		e.store(6)
		settle(time.Second)
		rt.want(t, 0, kv.Exact, e.held)
	})
}

// TestDownAtStart: a replica that is not there is asked for ever, and its coming
// and going is noticed.
func TestDownAtStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		_, rt := start(t, w, Config{})
		settle(time.Hour)
		if rt.up != 0 || rt.down != 1 || rt.err == nil {
			t.Fatalf("up %d, down %d, error %v", rt.up, rt.down, rt.err)
		}
		e := w.engine(t, "10.0.0.1", 0, true)
		defer func() { e.stop() }()
		w.mu.Lock()
		w.http["10.0.0.1:8000"] = e
		w.mu.Unlock()
		e.store(1)
		settle(10 * time.Second)
		rt.want(t, 0, kv.Exact, e.held)
		if rt.up != 1 || rt.down != 1 {
			t.Errorf("up %d, down %d", rt.up, rt.down)
		}
		w.mu.Lock()
		delete(w.http, "10.0.0.1:8000")
		w.mu.Unlock()
		settle(10 * time.Second)
		if rt.down != 2 {
			t.Errorf("down %d", rt.down)
		}
	})
}

// ranks is an engine of several ranks with one HTTP server.
type ranksOf struct {
	ranks   []*fakeEngine
	mu      sync.Mutex
	sources string // guarded by mu
}

// tell changes what the engine says of its sources.
func (r *ranksOf) tell(sources string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sources = sources
}

func (r *ranksOf) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if req.URL.Path == "/kv_event_sources" {
		r.mu.Lock()
		defer r.mu.Unlock()
		w.Write([]byte(r.sources))
		return
	}
	r.ranks[0].ServeHTTP(w, req)
}

// TestRanks: F67, F68. Each rank has a publisher and a target of its own; what a
// batch says about its rank is stronger than the port; ranks that are gone are
// forgotten.
func TestRanks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		zero, one := w.engine(t, "10.0.0.1", 0, true), w.engine(t, "10.0.0.1", 1, true)
		defer zero.stop()
		defer one.stop()
		all := &ranksOf{ranks: []*fakeEngine{zero, one}, sources: `{"0":{"endpoint":"tcp://*:5557","replay_endpoint":"tcp://*:6557"},
			"1":{"endpoint":"tcp://*:5558","replay_endpoint":"tcp://*:6558"}}`}
		w.http["10.0.0.1:8000"] = all
		r, rt := start(t, w, Config{})
		settle(3 * time.Second)
		zero.store(1, 2)
		one.store(3)
		settle(time.Second)
		rt.want(t, 0, kv.Exact, zero.held)
		rt.want(t, 1, kv.Exact, one.held)
		if len(rt.info.Ranks) != 2 {
			t.Errorf("%+v", rt.info)
		}

		one.call(5) // nobody's
		one.store(6)
		one.call(1)
		settle(time.Second)
		rt.want(t, 1, kv.Filling, map[kv.Handle]int{3: 1})

		all.tell(`{"0":{"endpoint":"tcp://*:5557","replay_endpoint":"tcp://*:6557"}}`)
		r.Poll()
		settle(time.Second)
		rt.want(t, 0, kv.Exact, zero.held)
		if len(rt.held[1]) != 0 || len(r.Stats()) != 1 {
			t.Errorf("rank 1 is gone, and %v is believed; %+v", rt.held[1], r.Stats())
		}

		zero.stop()
		zero.call(7) // other ports: what was known is forgotten, whatever the new process says
		zero.start(t)
		zero.call(0)
		zero.store(9)
		all.tell(`{"0":{"endpoint":"tcp://*:5564","replay_endpoint":"tcp://*:6564"}}`)
		r.Poll()
		settle(time.Second)
		rt.want(t, 0, kv.Exact, map[kv.Handle]int{9: 1})

		all.tell(`{"0":{"publisher":"null","endpoint":"tcp://*:5557"}}`) // restarted without events
		r.Poll()
		settle(time.Second)
		rt.want(t, 0, kv.Blind, nil)

		all.tell(`{"0":{"endpoint":"tcp://*:5564","replay_endpoint":"tcp://*:6564"}}`)
		r.Poll()
		settle(time.Second)
		rt.want(t, 0, kv.Exact, zero.held)
	})
}

// TestGlobalRanks: a replica of an external load balancer has one rank, which
// calls itself 3 everywhere.
func TestGlobalRanks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		e := w.engine(t, "10.0.0.1", 3, true)
		defer e.stop()
		w.http["10.0.0.1:8000"] = e
		_, rt := start(t, w, Config{})
		settle(3 * time.Second)
		e.store(1, 2)
		settle(time.Second)
		rt.want(t, 0, kv.Exact, e.held)
		if i := rt.info; len(i.Ranks) != 1 || i.FirstRank != 3 || i.Ranks[0].Running != 3 {
			t.Errorf("%+v", i)
		}
		var r rankRange
		r.set(4, 4)
		for rank, want := range map[int]int{4: 0, 7: 3, 8: -1, 1: 1, -1: -1} {
			if got := r.index(rank); got != want {
				t.Errorf("rank %d of 4 to 7: %d, want %d", rank, got, want)
			}
		}
	})
}

// TestPortsLie: what a batch says about its rank is stronger than the port.
func TestPortsLie(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		zero, one := w.engine(t, "10.0.0.1", 0, true), w.engine(t, "10.0.0.1", 1, true)
		defer zero.stop()
		defer one.stop()
		w.http["10.0.0.1:8000"] = &ranksOf{ranks: []*fakeEngine{zero}, sources: `{"1":{"endpoint":"tcp://*:5557","replay_endpoint":"tcp://*:6557"},
			"0":{"endpoint":"tcp://*:5558","replay_endpoint":"tcp://*:6558"}}`}
		_, rt := start(t, w, Config{})
		settle(3 * time.Second)
		zero.store(1, 2)
		one.store(3)
		settle(time.Second)
		rt.want(t, 0, kv.Exact, zero.held)
		rt.want(t, 1, kv.Exact, one.held)
		one.stop()
		settle(time.Second)
		rt.want(t, 0, kv.Exact, zero.held)
		rt.want(t, 1, kv.Stale, one.held)
		one.start(t)
		settle(10 * time.Second)
		rt.want(t, 0, kv.Exact, zero.held)
		rt.want(t, 1, kv.Exact, nil)
	})
}

// TestEventsOff: nothing to follow, and everybody is told why.
func TestEventsOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		e := w.engine(t, "10.0.0.1", 0, false)
		defer e.stop()
		w.http["10.0.0.1:8000"] = e
		_, rt := start(t, w, Config{Events: EventsOff, Ranks: 2})
		settle(3 * time.Second)
		e.store(1)
		settle(time.Minute)
		rt.want(t, 0, kv.Blind, nil)
		rt.want(t, 1, kv.Blind, nil)
		if rt.up != 1 || rt.why[0] == "" {
			t.Errorf("up %d, why %q", rt.up, rt.why[0])
		}
	})
}

// TestSleep: the cache of an engine that sleeps is gone before it says so.
func TestSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		e := w.engine(t, "10.0.0.1", 0, true)
		defer e.stop()
		w.http["10.0.0.1:8000"] = e
		_, rt := start(t, w, Config{})
		settle(3 * time.Second)
		e.store(1, 2)
		settle(time.Second)
		rt.want(t, 0, kv.Exact, e.held)
		e.mu.Lock()
		e.asleep = true
		e.mu.Unlock()
		settle(10 * time.Second)
		rt.want(t, 0, kv.Filling, nil)
	})
}

// TestUnreachable: the reason for being blind says what is wrong.
func TestUnreachable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		e := w.engine(t, "10.0.0.1", 0, false)
		w.http["10.0.0.1:8000"] = e
		e.stop()
		_, rt := start(t, w, Config{})
		settle(time.Minute)
		rt.want(t, 0, kv.Blind, nil)
		if !strings.Contains(rt.why[0], "10.0.0.1:5557") || !strings.Contains(rt.why[0], "have to listen") {
			t.Error(rt.why[0])
		}
	})
}

// TestSourceMissing: a rank whose metrics are there and whose events are not.
func TestSourceMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		e := w.engine(t, "10.0.0.1", 0, true)
		defer e.stop()
		all := &ranksOf{ranks: []*fakeEngine{e}, sources: `{"0":{"endpoint":"tcp://*:5557"},"1":{"endpoint":"tcp://*:5558"}}`}
		w.http["10.0.0.1:8000"] = all
		r, rt := start(t, w, Config{Ranks: 2})
		settle(3 * time.Second)
		all.tell(`{"0":{"endpoint":"tcp://*:5557"}}`)
		r.Poll()
		settle(time.Second)
		if rt.trust[1] != kv.Blind || !strings.Contains(rt.why[1], "doesn't say where") {
			t.Errorf("%v (%s)", rt.trust[1], rt.why[1])
		}
		all.tell(`{"0":{"endpoint":"ipc://@"}}`) // nothing that can be dialled
		r.Poll()
		settle(time.Second)
		if rt.trust[0] != kv.Blind || !strings.Contains(rt.why[0], "ipc://@") {
			t.Errorf("%v (%s)", rt.trust[0], rt.why[0])
		}
	})
}

// TestMuteReplay: the replay service never answers. Live events go on, and when
// it answers at last, everything is known.
func TestMuteReplay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		e := w.engine(t, "10.0.0.1", 0, true)
		defer e.stop()
		w.http["10.0.0.1:8000"] = e
		e.mute = true
		e.store(1)
		_, rt := start(t, w, Config{})
		settle(time.Second)
		e.store(2)
		settle(7 * time.Second)
		rt.want(t, 0, kv.Filling, map[kv.Handle]int{2: 1})
		e.mu.Lock()
		e.mute = false
		e.mu.Unlock()
		settle(2 * time.Minute)
		rt.want(t, 0, kv.Exact, e.held)
	})
}

// TestConfig: bad configurations name the field and the value.
func TestConfig(t *testing.T) {
	for want, cfg := range map[string]Config{
		`URL "ftp://x"`:        {URL: "ftp://x"},
		`URL ""`:               {},
		"Ranks -1":             {URL: "http://h:1", Ranks: -1},
		`Events: endpoint "x"`: {URL: "http://h:1", Events: "x"},
		`"tcp://*:5557"`:       {URL: "http://h:1", Events: "tcp://*:5557"},
		`Replay "tcp://h:1"`:   {URL: "http://h:1", Replay: "tcp://h:1"},
		"Poll is -1s":          {URL: "http://h:1", Poll: -time.Second},
	} {
		if _, err := New(cfg, newRouter().hooks()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %s", cfg, err, want)
		}
	}
	if _, err := New(Config{URL: "http://h:1"}, Hooks{}); err == nil {
		t.Error("no hooks passed")
	}
}

// TestChurn: F79. Replicas come and go; nothing of them stays.
func TestChurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		e := w.engine(t, "10.0.0.1", 0, true)
		defer e.stop()
		w.http["10.0.0.1:8000"] = e
		e.store(1)
		before := 0
		for n := range 200 {
			_, rt, stop := run(t, w, Config{})
			settle(time.Second)
			rt.want(t, 0, kv.Exact, e.held)
			stop()
			synctest.Wait()
			if n == 0 {
				before = runtime.NumGoroutine()
			}
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if after := runtime.NumGoroutine(); after > before+5 { // the runtime has some of its own
			t.Errorf("%d goroutines after the first, %d after 200", before, after)
		}
	})
}

// TestGaugesOfTheirOwn: load figures come as often as MetricsPoll says, whatever
// the pace of the rest, and stop while the engine is down.
func TestGaugesOfTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		e := w.engine(t, "10.0.0.1", 0, true)
		defer e.stop()
		w.http["10.0.0.1:8000"] = e
		_, rt := start(t, w, Config{Poll: 2 * time.Second, MetricsPoll: 100 * time.Millisecond})
		settle(time.Second + 50*time.Millisecond)
		e.mu.Lock()
		e.running = 7
		e.mu.Unlock()
		settle(100 * time.Millisecond)
		rt.mu.Lock()
		got := rt.info.Ranks[0]
		rt.mu.Unlock()
		if got.Running != 7 {
			t.Errorf("%d requests running, want 7", got.Running)
		}
		if age := time.Since(got.At); age > 100*time.Millisecond {
			t.Errorf("the figures are %v old, want those of the latest look at /metrics", age)
		}
		settle(4 * time.Second)
		asked := func(path string) int {
			e.mu.Lock()
			defer e.mu.Unlock()
			return e.asked[path]
		}
		if m, all := asked("/metrics"), asked("/v1/models"); m != 2+51 || all != 2+2 { // everything at the start and when the stream connected
			t.Errorf("metrics asked %d times, models %d; want 53 and 4", m, all)
		}
		w.mu.Lock()
		delete(w.http, "10.0.0.1:8000")
		w.mu.Unlock()
		settle(4 * time.Second)
		was := asked("/metrics")
		settle(4 * time.Second)
		if now := asked("/metrics"); now != was {
			t.Errorf("metrics asked %d times of an engine that is down", now-was)
		}
	})
}
