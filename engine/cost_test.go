package engine

import (
	"context"
	"encoding/binary"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"kvasir/kv"
	"kvasir/zmtp"
)

// TestCost: what following one more rank costs, HTTP left out. One publisher
// serves all of them on a network of pipes; its share is measured with them.
func TestCost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 300
		w := newWorld()
		pub, err := zmtp.NewPub(zmtp.PubConfig{Config: zmtp.Config{Listen: w.listen}})
		if err != nil {
			t.Fatal(err)
		}
		defer pub.Close()
		if _, err := pub.Bind("tcp://10.0.0.1:5557"); err != nil {
			t.Fatal(err)
		}
		web := answers{"/health": "", "/v1/models": `{"data":[{"id":"m"}]}`}
		ctx, cancel := context.WithCancel(context.Background())
		var running sync.WaitGroup
		defer running.Wait()
		defer cancel()
		var applied atomic.Int64
		goroutines, memory := runtime.NumGoroutine(), inUse()
		for range n {
			r, err := New(Config{URL: "http://10.0.0.1:8000", Events: "tcp://10.0.0.1:5557", HTTP: &http.Client{Transport: web},
				Dial: w.dial, Poll: time.Hour}, Hooks{
				Target: func(int) kv.Target { return 0 },
				Apply:  func(*kv.Event) { applied.Add(1) },
			})
			if err != nil {
				t.Fatal(err)
			}
			running.Go(func() { r.Run(ctx) })
		}
		settle(time.Second)
		for i := range uint64(50) {
			pub.Send([]byte("kv"), binary.BigEndian.AppendUint64(nil, i), payload(1e9+float64(i), 0, true, i+1))
		}
		settle(time.Second)
		if got := applied.Load(); got != 50*n {
			t.Fatalf("%d of %d events were applied", got, 50*n)
		}
		perRank := float64(inUse()-memory) / n / 1024
		threads := float64(runtime.NumGoroutine()-goroutines) / n
		t.Logf("%.1f KB and %.1f goroutines for a rank, its replica and its peer's half of the connection", perRank, threads)
		// zmtp has two on each side, one polls, one applies.
		if threads > 6.1 {
			t.Errorf("%.1f goroutines", threads)
		}
		if perRank > 100 {
			t.Errorf("%.1f KB", perRank)
		}
	})
}

// inUse is heap and stacks after a collection.
func inUse() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}
