package eventbench

import (
	"context"
	"strings"
	"sync"
	"testing"

	"kvasir/index"
	"kvasir/kv"
)

// TestRun: every block of the workload arrives, in every dialect, and is
// understood; what is resident at the end is what the workload left.
func TestRun(t *testing.T) {
	for _, dialect := range Dialects {
		c := Config{Dialect: dialect, Blocks: 20, EventBlocks: 7, Sequences: 30, Resident: 10, Targets: 2}
		var mu sync.Mutex
		var held [2]map[kv.Handle]int
		tokens := 0
		res, err := Run(t.Context(), c, 1, func(e *kv.Event) {
			mu.Lock()
			defer mu.Unlock()
			if held[e.Target] == nil {
				held[e.Target] = map[kv.Handle]int{}
			}
			tokens += len(e.Tokens)
			for _, h := range e.Handles {
				if e.Kind == kv.Stored {
					held[e.Target][h]++
				} else if held[e.Target][h]--; held[e.Target][h] == 0 {
					delete(held[e.Target], h)
				}
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		if want := 2 * (30 + 20) * 20; res.Blocks != want {
			t.Errorf("%s: %d blocks, want %d", dialect, res.Blocks, want)
		}
		if tokens != 2*30*20*16 || len(held[0]) != 10*20 || len(held[1]) != 10*20 {
			t.Errorf("%s: %d tokens, %d and %d blocks held", dialect, tokens, len(held[0]), len(held[1]))
		}
	}
}

func TestValidate(t *testing.T) {
	for want, c := range map[string]Config{"dialect": {Dialect: "x"}, "blocks -1": {Blocks: -1}, "event-blocks 9": {Blocks: 8, EventBlocks: 9}} {
		if _, err := Run(context.Background(), c, 0, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// BenchmarkEvents: from the wire to nobody, and to the index.
func BenchmarkEvents(b *testing.B) {
	for _, dialect := range Dialects {
		for _, per := range []int{1, 16, 256} {
			for _, to := range []string{"nobody", "index"} {
				b.Run(dialect+"/"+map[int]string{1: "1", 16: "16", 256: "256"}[per]+"/"+to, func(b *testing.B) {
					for b.Loop() {
						ix := index.New(index.Config{})
						apply := func(e *kv.Event) { ix.Apply(e) }
						if to == "nobody" {
							apply = func(*kv.Event) {}
						}
						res, err := Run(b.Context(), Config{Dialect: dialect, EventBlocks: per, Sequences: 1000}, 1, apply)
						if err != nil {
							b.Fatal(err)
						}
						b.ReportMetric(res.CPUPerBlock*1000, "cpu-ns/block")
						b.ReportMetric(res.AllocsPerEvent, "allocs/event")
						b.ReportMetric(0, "ns/op")
					}
				})
			}
		}
	}
}
