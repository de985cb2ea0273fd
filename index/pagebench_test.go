package index

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"syscall"
	"testing"
	"time"

	"kvasir/kv"
)

// pageLoad is what an engine with small pages emits: a system prompt that all
// requests begin with, then for each request one event with all pages of its own
// tokens, and removals of the pages of a request, the last first.
type pageLoad struct {
	size, own int // tokens of a page, pages of a request
	r         *rand.Rand
	system    []kv.Handle
	ev        kv.Event
}

func newPageLoad(size, own, system int) *pageLoad {
	g := &pageLoad{size: size, own: own, r: rand.New(rand.NewPCG(3, 4))}
	for range system {
		g.system = append(g.system, kv.Handle(g.r.Uint64()))
	}
	return g
}

func (g *pageLoad) tokens(n int) (out []uint32) {
	for range n * g.size {
		out = append(out, g.r.Uint32())
	}
	return out
}

// begin stores the system prompt.
func (g *pageLoad) begin(ix *Index, t kv.Target) {
	ix.Apply(&kv.Event{Target: t, BlockSize: int32(g.size), Root: true, Handles: g.system, Tokens: g.tokens(len(g.system))})
}

// request stores a request that branches off the system prompt at any page, and
// returns its names.
func (g *pageLoad) request(ix *Index, t kv.Target) []kv.Handle {
	hs := make([]kv.Handle, g.own)
	for i := range hs {
		hs[i] = kv.Handle(g.r.Uint64())
	}
	g.ev = kv.Event{Target: t, BlockSize: int32(g.size), Parent: g.system[g.r.IntN(len(g.system))], Handles: hs, Tokens: g.tokens(g.own)}
	ix.Apply(&g.ev)
	return hs
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// cpuTime returns the processor time of this process.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkPages stores and removes requests of 1,000 pages over a standing
// population, and reports memory for each 16 tokens of it.
func BenchmarkPages(b *testing.B) {
	for _, c := range []struct{ size, standing int }{{1, 10}, {1, 1000}, {4, 1000}, {8, 1000}} {
		size, standing := c.size, c.standing
		b.Run(fmt.Sprintf("size=%d/held=%dk", size, standing), func(b *testing.B) {
			before := heap()
			ix := New(Config{Seed: testSeed})
			g := newPageLoad(size, 1000, 500)
			g.begin(ix, 0)
			held := make([][]kv.Handle, standing)
			for i := range held {
				held[i] = g.request(ix, 0)
			}
			names := int64(standing * 1000 * 8)
			pages := int64(standing*1000 + 500)
			perChunk := float64(heap()-before-names) / float64(pages) * 16 / float64(size)
			fresh := make([]kv.Event, 64)
			for i := range fresh {
				hs := make([]kv.Handle, 1000)
				for k := range hs {
					hs[k] = kv.Handle(g.r.Uint64())
				}
				fresh[i] = kv.Event{BlockSize: int32(size), Parent: g.system[g.r.IntN(500)], Handles: hs, Tokens: g.tokens(1000)}
			}
			gone := make([]kv.Event, 64)
			for i := range gone {
				gone[i] = kv.Event{Kind: kv.Removed, Handles: make([]kv.Handle, 1000)}
				for k, h := range fresh[i].Handles {
					gone[i].Handles[999-k] = h
				}
			}
			b.ReportAllocs()
			b.ResetTimer()
			from := cpuTime()
			for i := 0; i < b.N; i++ {
				if r := ix.Apply(&fresh[i%64]); r.Stored != 1000 {
					b.Fatal(r)
				}
				if i >= 63 {
					if r := ix.Apply(&gone[(i+1)%64]); r.Removed != 1000 {
						b.Fatal(r)
					}
				}
			}
			b.StopTimer()
			b.ReportMetric(float64((cpuTime()-from).Nanoseconds())/float64(b.N)/2000, "cpu-ns/page")
			b.ReportMetric(perChunk, "B/16tokens")
			runtime.KeepAlive(held)
			runtime.KeepAlive(ix)
		})
	}
}
