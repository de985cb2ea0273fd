package engine

import (
	"encoding/binary"
	"flag"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"kvasir/kv"
)

var (
	faultSeeds = flag.Uint64("seeds", 100, "how many seeds TestFaults runs")
	faultSeed  = flag.Int64("seed", -1, "run this seed of TestFaults only")
)

// TestFaults plays random faults against the whole client: ZMTP, ring, sequence
// machine, decoder and supervisor, in virtual time, with a map as index. (Package
// seq plays many more seeds and sorts of faults against the machine alone.) After
// quiet, what is believed of a target marked exact is what the engine holds; an
// engine that can replay everything is exact, unless a frame was garbled.
func TestFaults(t *testing.T) {
	ends := map[kv.Trust]int{}
	one := func(seed uint64) {
		ok := t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { ends[playFaults(t, seed)]++ })
		})
		if !ok {
			t.Fatalf("seed %d failed: put it into testdata/seeds", seed)
		}
	}
	if *faultSeed >= 0 {
		one(uint64(*faultSeed))
		return
	}
	kept, err := os.ReadFile("testdata/seeds")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(kept)) {
		if line, _, _ = strings.Cut(line, "#"); strings.TrimSpace(line) != "" {
			seed, err := strconv.ParseUint(strings.TrimSpace(line), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			one(seed)
		}
	}
	n := *faultSeeds
	if testing.Short() {
		n = min(n, 20)
	}
	for seed := range n {
		one(seed)
	}
	t.Logf("trust after quiet: %v", ends)
	if n >= 100 && (ends[kv.Exact] < 30 || ends[kv.Filling] < 5) {
		t.Errorf("the worlds are too uniform: %v", ends)
	}
}

func playFaults(t *testing.T, seed uint64) kv.Trust {
	rng := rand.New(rand.NewPCG(seed, 1))
	chance := func(p float64) bool { return rng.Float64() < p }
	w := newWorld()
	replay := rng.IntN(3) > 0
	limit := []int{1 << 30, 1 << 30, 5}[rng.IntN(3)]
	lose, twice, garble := 0.1*float64(rng.IntN(2)), 0.1*float64(rng.IntN(2)), 0.02*float64(rng.IntN(2))
	e := w.engine(t, "10.0.0.1", 0, replay)
	w.http["10.0.0.1:8000"] = e
	running, quiet, garbled := true, false, false
	publish := func() {
		if !running {
			return
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		h := kv.Handle(1 + rng.IntN(15))
		store := e.held[h] == 0 || chance(0.4)
		if store {
			e.held[h]++
		} else if e.held[h]--; e.held[h] == 0 {
			delete(e.held, h)
		}
		n := e.first + uint64(len(e.buffer))
		b := payload(float64(time.Now().UnixNano())/1e9+float64(n)*1e-6, 0, store, uint64(h))
		e.buffer = append(e.buffer, b)
		if len(e.buffer) > limit {
			e.buffer, e.first = e.buffer[1:], e.first+1
		}
		send := func(n uint64, b []byte) {
			e.pub.Send([]byte("kv"), binary.BigEndian.AppendUint64(nil, n), b)
		}
		switch {
		case quiet:
			send(n, b)
		case chance(lose):
		case chance(garble):
			garbled = true
			send(n, b[:len(b)/2])
		default:
			send(n, b)
			if chance(twice) {
				send(n, b)
			}
			if chance(twice) && len(e.buffer) > 2 {
				send(n-1, e.buffer[len(e.buffer)-2])
			}
		}
	}
	cfg := Config{RingMessages: 50 + rng.IntN(5000)}
	r, rt, stop := run(t, w, cfg)
	defer func() { stop() }()
	var kept kept
	unblock := func() {
		rt.mu.Lock()
		defer rt.mu.Unlock()
		if rt.block != nil {
			close(rt.block)
			rt.block = nil
		}
	}
	for range 120 {
		switch rng.IntN(32) {
		case 0:
			w.cut("10.0.0.1:5557")
		case 1:
			w.cut("10.0.0.1:6557")
		case 2:
			if running {
				e.stop()
				running = false
			}
		case 3:
			if !running {
				time.Sleep(3 * time.Second) // a process takes longer to start
				e.start(t)
				running = true
				for range rng.IntN(30) {
					publish()
				}
			}
		case 4:
			e.mu.Lock()
			e.mute = !e.mute
			e.mu.Unlock()
		case 5:
			r.Refill(0, "a test says so")
		case 6:
			rt.mu.Lock()
			if rt.block == nil {
				rt.block = make(chan struct{})
			}
			rt.mu.Unlock()
		case 7:
			unblock()
		case 8:
			w.mu.Lock()
			if w.http["10.0.0.1:8000"] != nil {
				delete(w.http, "10.0.0.1:8000")
			} else {
				w.http["10.0.0.1:8000"] = e
			}
			w.mu.Unlock()
		case 9:
			for range 300 {
				publish()
			}
		case 10:
			unblock()
			kept = keep(r, rt)
		case 11:
			unblock()
			at := kept
			stop()
			if at.rt == nil || chance(0.7) { // else it was killed, and the last snapshot is what there is
				at = keep(r, rt)
			}
			settle(time.Duration(rng.Int64N(int64(20 * time.Second))))
			publish()
			kept = at.copy()
			rt = at.rt
			r, stop = runFrom(t, w, cfg, at)
		default:
			publish()
		}
		settle(time.Duration(rng.Int64N(int64([]time.Duration{time.Millisecond, time.Second, 8 * time.Second}[rng.IntN(3)]))))
	}
	quiet = true
	unblock()
	if !running {
		e.start(t)
		running = true
	}
	defer e.stop()
	e.mu.Lock()
	e.mute = false
	e.mu.Unlock()
	w.mu.Lock()
	w.http["10.0.0.1:8000"] = e
	w.mu.Unlock()
	settle(time.Minute)
	publish()
	settle(10 * time.Minute)
	rt.mu.Lock()
	trust, why := rt.trust[0], rt.why[0]
	rt.mu.Unlock()
	switch {
	case trust == kv.Exact:
		rt.want(t, 0, kv.Exact, e.held)
	case replay && limit > 1000 && !garbled:
		t.Errorf("%v (%s), although everything can be replayed", trust, why)
	case why == "" || trust == kv.Blind:
		t.Errorf("%v (%s)", trust, why)
	}
	if t.Failed() {
		t.Logf("replay %v, buffer %d, garbled %v, %+v", replay, limit, garbled, r.Stats())
	}
	return trust
}
