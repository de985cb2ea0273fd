package engine

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"kvasir/kv"
)

// start runs a Replica on the world's engine at 10.0.0.1:8000 until the test ends.
func start(t *testing.T, w *world, cfg Config) (*Replica, *router) {
	t.Helper()
	rt := newRouter()
	cfg.URL = "http://10.0.0.1:8000"
	cfg.HTTP = &http.Client{Transport: w}
	cfg.Dial = w.dial
	cfg.Jitter = func() float64 { return 0.5 }
	r, err := New(cfg, rt.hooks())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return r, rt
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
		if rt.trust[0] != kv.Stale {
			t.Errorf("a batch was lost, and trust is %v (%s)", rt.trust[0], rt.why[0])
		}

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
