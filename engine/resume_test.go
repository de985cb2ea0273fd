package engine

import (
	"encoding/json"
	"maps"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"kvasir/kv"
)

// A kept is what a router keeps over a restart.
type kept struct {
	rt    *router
	marks []StreamMark

	models []kv.Model
}

// keep writes a snapshot, the marks through JSON, as they are in a file.
func keep(r *Replica, rt *router) kept {
	marks, release := r.Hold()
	defer release()
	k := kept{rt: newRouter()}
	b, err := json.Marshal(marks)
	if err == nil {
		err = json.Unmarshal(b, &k.marks)
	}
	if err != nil {
		panic(err)
	}
	rt.mu.Lock()
	defer rt.mu.Unlock()
	for _, m := range k.marks {
		for _, rank := range m.Ranks {
			k.rt.held[kv.Target(rank)] = maps.Clone(rt.held[kv.Target(rank)])
		}
	}
	return k
}

func (k kept) copy() kept {
	out := kept{marks: k.marks, rt: newRouter()}
	for t, held := range k.rt.held {
		out.rt.held[t] = maps.Clone(held)
	}
	return out
}

// TestWarmRestart: the router restarts while the engine does this or that.
func TestWarmRestart(t *testing.T) {
	type world2 struct {
		*world
		e *fakeEngine
	}
	for _, c := range []struct {
		name   string
		replay bool
		away   func(t *testing.T, w *world2) // what happens while the router is away
		early  kv.Trust                      // before the stream has said anything
		back   func(t *testing.T, w *world2) // and after it is back
		trust  kv.Trust
		why    string
		empty  bool // what was loaded must be gone; else what the engine holds must be known
	}{
		{name: "nothing missed", replay: true, trust: kv.Exact, why: "continued from a snapshot"},
		{name: "events missed", replay: true, away: func(t *testing.T, w *world2) {
			w.e.remove(1)
			w.e.store(4, 5)
		}, trust: kv.Exact, why: "continued from a snapshot"},
		{name: "a block stored again", replay: true, away: func(t *testing.T, w *world2) {
			w.e.store(1)
			w.e.remove(1)
			w.e.remove(1)
		}, trust: kv.Exact, why: "continued from a snapshot"},
		{name: "engine restarted", replay: true, away: func(t *testing.T, w *world2) {
			w.e.stop()
			time.Sleep(3 * time.Second)
			w.e.start(t)
		}, trust: kv.Exact, empty: true},
		{name: "engine restarted and came further", replay: true, away: func(t *testing.T, w *world2) {
			w.e.stop()
			time.Sleep(3 * time.Second)
			w.e.start(t)
			w.e.store(11, 12, 13, 14, 15, 16, 17)
		}, trust: kv.Exact, why: "replayed from the engine's start"},
		{name: "replay too short", replay: true, away: func(t *testing.T, w *world2) {
			w.e.remove(1)
			w.e.store(4, 5)
			w.e.mu.Lock()
			w.e.first, w.e.buffer = 5, w.e.buffer[5:]
			w.e.mu.Unlock()
		}, trust: kv.Filling, why: "replay buffer begins at 5", empty: true},
		{name: "replay mute", replay: true, away: func(t *testing.T, w *world2) { w.e.mute = true },
			trust: kv.Unknown, why: "replay", empty: true},
		{name: "engine gone", replay: true, away: func(t *testing.T, w *world2) { w.e.stop() },
			trust: kv.Blind, why: "connection down", empty: true},
		{name: "engine and its server gone", replay: true, away: func(t *testing.T, w *world2) {
			w.e.stop()
			delete(w.http, "10.0.0.1:8000")
		}, trust: kv.Unknown, why: "has not shown", empty: true},
		{name: "events elsewhere", replay: true, away: func(t *testing.T, w *world2) {
			w.e.stop()
			w.e.call(2)
			time.Sleep(3 * time.Second)
			w.e.start(t)
			w.http["10.0.0.1:8000"] = &ranksOf{ranks: []*fakeEngine{w.e}, sources: `{"0":{"endpoint":"tcp://*:5559","replay_endpoint":"tcp://*:6559"}}`}
		}, trust: kv.Exact, empty: true},
		{name: "no events any more", replay: true, away: func(t *testing.T, w *world2) {
			w.http["10.0.0.1:8000"] = &ranksOf{ranks: []*fakeEngine{w.e}, sources: `{"0":{"publisher":"null","endpoint":"tcp://*:5557"}}`}
		}, trust: kv.Blind, why: "publishes no KV events", empty: true},

		{name: "no replay, idle", trust: kv.Filling, why: "not confirmed"},
		{name: "no replay, nothing missed", back: func(t *testing.T, w *world2) { w.e.store(4) }, trust: kv.Exact, why: "continued from a snapshot"},
		{name: "no replay, events missed", away: func(t *testing.T, w *world2) { w.e.remove(1) },
			back: func(t *testing.T, w *world2) { w.e.store(4) }, trust: kv.Filling, why: "replay_endpoint", empty: true},
		{name: "no replay, engine restarted", away: func(t *testing.T, w *world2) {
			w.e.stop()
			time.Sleep(3 * time.Second)
			w.e.start(t)
			w.e.store(11, 12, 13)
		}, trust: kv.Unknown, why: "engine restarted", empty: true},
	} {
		for _, killed := range []bool{false, true} {
			name := c.name
			if killed {
				name += ", killed"
			}
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := &world2{world: newWorld()}
					w.e = w.engine(t, "10.0.0.1", 0, c.replay)
					defer func() { w.e.stop() }()
					w.http["10.0.0.1:8000"] = w.e
					r, rt, stop := run(t, w.world, Config{})
					settle(3 * time.Second)
					w.e.store(1, 2, 3)
					settle(10 * time.Second)
					rt.want(t, 0, kv.Exact, w.e.held)
					k := keep(r, rt)
					if killed {
						stop()
					} else {
						stop()
						k = keep(r, rt)
					}
					settle(time.Second)
					if c.away != nil {
						c.away(t, w)
					}
					settle(time.Second)
					rt = k.rt
					_, stop = runFrom(t, w.world, Config{}, k)
					defer stop()
					settle(time.Second)
					if c.back != nil {
						rt.want(t, 0, kv.Filling, map[kv.Handle]int{1: 1, 2: 1, 3: 1})
						c.back(t, w)
					}
					settle(50 * time.Second)
					switch {
					case c.trust == kv.Exact || !c.empty:
						rt.want(t, 0, c.trust, w.e.held)
					case rt.trust[0] != c.trust || rt.held[0][1] > 0 || rt.held[0][2] > 0:
						t.Errorf("%v (%s), %v is believed", rt.trust[0], rt.why[0], rt.held[0])
					}
					if !strings.Contains(rt.why[0], c.why) {
						t.Errorf("%v because %q, want %q", rt.trust[0], rt.why[0], c.why)
					}
				})
			})
		}
	}
}

// TestHold: while streams are held, nothing is applied, and afterwards everything is.
func TestHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		e := w.engine(t, "10.0.0.1", 0, true)
		defer e.stop()
		w.http["10.0.0.1:8000"] = e
		r, rt := start(t, w, Config{})
		settle(3 * time.Second)
		e.store(1, 2)
		settle(time.Second)
		before := maps.Clone(e.held)
		marks, release := r.Hold()
		if len(marks) != 1 || marks[0].Seq.Next != 2 || len(marks[0].Ranks) != 1 {
			t.Errorf("%+v", marks)
		}
		e.store(3, 4)
		e.remove(1)
		for range 1000 { // a mutex that is waited for keeps virtual time from going on
			runtime.Gosched()
		}
		rt.want(t, 0, kv.Exact, before)
		release()
		release()
		settle(time.Second)
		rt.want(t, 0, kv.Exact, e.held)
	})
}

// TestWarmRestartRanks: each rank stands for itself; one that the engine has no
// more is forgotten.
func TestWarmRestartRanks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		zero, one := w.engine(t, "10.0.0.1", 0, true), w.engine(t, "10.0.0.1", 1, true)
		defer zero.stop()
		defer one.stop()
		all := &ranksOf{ranks: []*fakeEngine{zero, one}, sources: `{"0":{"endpoint":"tcp://*:5557","replay_endpoint":"tcp://*:6557"},
			"1":{"endpoint":"tcp://*:5558","replay_endpoint":"tcp://*:6558"}}`}
		w.http["10.0.0.1:8000"] = all
		r, rt, stop := run(t, w, Config{})
		settle(3 * time.Second)
		zero.store(1, 2)
		one.store(3)
		settle(time.Second)
		k := keep(r, rt)
		stop()
		again := k.copy()

		one.stop()
		zero.store(4)
		settle(3 * time.Second)
		one.start(t)
		one.store(5, 6)
		_, stop = runFrom(t, w, Config{}, k)
		settle(3 * time.Second)
		k.rt.want(t, 0, kv.Exact, zero.held)
		k.rt.want(t, 1, kv.Exact, one.held)
		if !strings.Contains(k.rt.why[0], "continued") || strings.Contains(k.rt.why[1], "continued") {
			t.Errorf("%q, %q", k.rt.why[0], k.rt.why[1])
		}
		stop()

		all.tell(`{"0":{"endpoint":"tcp://*:5557","replay_endpoint":"tcp://*:6557"}}`)
		_, stop = runFrom(t, w, Config{}, again)
		defer stop()
		settle(3 * time.Second)
		again.rt.want(t, 0, kv.Exact, zero.held)
		if len(again.rt.held[1]) != 0 {
			t.Errorf("a rank that is gone: %v", again.rt.held[1])
		}
	})
}
