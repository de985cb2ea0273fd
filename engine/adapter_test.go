package engine

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"kvasir/kv"
)

// TestAdapterGone: F33. An adapter that is unloaded, or loaded from elsewhere under
// its name, takes its blocks along, also those that a replay brings back. The
// base model's return where there is a replay.
func TestAdapterGone(t *testing.T) {
	for _, c := range []struct {
		name   string
		replay bool
		after  []string
		held   map[kv.Handle]int
		trust  kv.Trust
	}{
		{"unloaded", true, []string{"b=/b"}, map[kv.Handle]int{1: 1, 3: 1}, kv.Exact},
		{"from elsewhere", true, []string{"a=/other", "b=/b"}, map[kv.Handle]int{1: 1, 3: 1}, kv.Exact},
		{"both", true, nil, map[kv.Handle]int{1: 1}, kv.Exact},
		{"without replay", false, []string{"b=/b"}, nil, kv.Filling},
		{"one more", true, []string{"a=/a", "b=/b", "c=/c"}, map[kv.Handle]int{1: 1, 2: 1, 3: 1}, kv.Exact},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				e := w.engine(t, "10.0.0.1", 0, c.replay)
				defer e.stop()
				e.loras = []string{"a=/a", "b=/b"}
				w.http["10.0.0.1:8000"] = e
				r, rt := start(t, w, Config{})
				settle(3 * time.Second)
				e.store(1)
				e.storeLora("a", 2)
				e.storeLora("b", 3)
				settle(time.Second)
				rt.want(t, 0, kv.Exact, map[kv.Handle]int{1: 1, 2: 1, 3: 1})
				e.mu.Lock()
				e.loras = c.after
				e.mu.Unlock()
				settle(5 * time.Second)
				rt.want(t, 0, c.trust, c.held)
				if c.trust == kv.Filling && !strings.Contains(rt.why[0], `adapter "a"`) {
					t.Error(rt.why[0])
				}
				r.Refill(0, "a test says so")
				settle(5 * time.Second)
				rt.want(t, 0, c.trust, c.held)
				e.storeLora("a", 9) // of the new one
				settle(time.Second)
				if rt.held[0][9] != 1 {
					t.Errorf("%v", rt.held[0])
				}
				if n := r.Stats()[0].Seq.Restarts; n != 0 {
					t.Errorf("%d restarts", n)
				}
			})
		})
	}
}

// TestForget: somebody says that the cache isn't what the engine says.
func TestForget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		e := w.engine(t, "10.0.0.1", 0, true)
		defer e.stop()
		e.loras = []string{"a=/a"}
		w.http["10.0.0.1:8000"] = e
		r, rt := start(t, w, Config{})
		settle(3 * time.Second)
		e.store(1)
		e.storeLora("a", 2)
		settle(time.Second)
		r.Forget("", "a test says so")
		settle(time.Second)
		rt.want(t, 0, kv.Exact, map[kv.Handle]int{1: 1, 2: 1})
		if n := r.Stats()[0].Seq.Forgets; n != 1 {
			t.Errorf("%d times forgotten", n)
		}
		r.Forget("a", "")
		settle(time.Second)
		rt.want(t, 0, kv.Exact, map[kv.Handle]int{1: 1})
	})
}

// TestAdapterGoneMeanwhile: likewise while the router is away.
func TestAdapterGoneMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		e := w.engine(t, "10.0.0.1", 0, true)
		defer e.stop()
		e.loras = []string{"a=/a"}
		w.http["10.0.0.1:8000"] = e
		r, rt, stop := run(t, w, Config{})
		settle(3 * time.Second)
		e.store(1)
		e.storeLora("a", 2)
		settle(time.Second)
		k := keep(r, rt)
		k.models = r.Info().Models
		stop()
		e.loras = []string{"a=/other"}
		settle(time.Second)
		_, stop = runFrom(t, w, Config{}, k)
		defer stop()
		settle(5 * time.Second)
		k.rt.want(t, 0, kv.Exact, map[kv.Handle]int{1: 1})
	})
}

// TestManyAdaptersGone: what is remembered is bounded, on the safe side.
func TestManyAdaptersGone(t *testing.T) {
	var g tombs
	for n := range 3 * maxGone {
		g.add(fmt.Sprint(n), float64(n))
	}
	if len(g.until) > maxGone {
		t.Errorf("%d", len(g.until))
	}
	stored := func(name string, at float64) bool {
		return g.buried(&kv.Event{Key: kv.Key{LoRA: name}}, at)
	}
	if !stored("5", 5) || !stored("3000", 3000) || stored("3000", 3001) || stored("", 5) || stored("x", 3*maxGone) {
		t.Errorf("%+v", g.all)
	}
}
