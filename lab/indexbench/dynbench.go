// Package indexbench measures package index on workloads that others were
// measured on. The functions are plain: the verb `kvasir bench index` and the
// benchmarks of this package run the same code.
package indexbench

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"kvasir/index"
	"kvasir/kv"
)

const (
	blockSize = 16
	prefixes  = 20 // common prefixes, 40 % of each sequence
	seed      = kv.Seed(0x6b76617369722121)
)

// Dynbench is the workload that Dynamo's indexers were measured with: Targets
// targets hold Seqs sequences of Blocks blocks each. The first 40 % of a sequence
// is one of 20 prefixes common to all targets, the rest unique to target and
// sequence. Events carry only blocks that their target doesn't hold yet, one
// event for a sequence, or pieces of EventBlocks blocks.
type Dynbench struct {
	Targets     int
	Seqs        int
	Blocks      int
	EventBlocks int // 0: one event for a sequence
	Queries     int // of each case and length; 0: 4,000
}

// Validate names what is out of range.
func (d Dynbench) Validate() error {
	for _, f := range []struct {
		name     string
		v, lo, m int
	}{
		{"targets", d.Targets, 1, kv.MaxTargets}, {"seqs", d.Seqs, 1, 1 << 20}, {"blocks", d.Blocks, 5, 1 << 20},
		{"event-blocks", d.EventBlocks, 0, 1 << 20}, {"queries", d.Queries, 0, 1 << 20},
	} {
		if f.v < f.lo || f.v > f.m {
			return fmt.Errorf("indexbench: %s %d: want %d to %d", f.name, f.v, f.lo, f.m)
		}
	}
	return nil
}

// A Result is what one run of Dynbench measured.
type Result struct {
	Memberships        int      `json:"memberships"`
	StoreMBlocksPerCPU float64  `json:"store_mblocks_per_cpu_s"` // hashing of tokens included
	RemoveNsPerBlock   float64  `json:"remove_ns_per_block"`
	BytesPerMembership float64  `json:"bytes_per_membership"` // resident memory
	Lookup             []Lookup `json:"lookup"`
	// Beyond the contract of the verb:
	StoreP10        float64 `json:"store_ns_per_block_p10"` // wall time of the quicker events: what a machine does that others don't use
	StoreP50        float64 `json:"store_ns_per_block_p50"`
	Busy            Lookup  `json:"lookup_while_storing"`  // hits, while another goroutine stores and removes without pause
	Clearing        Lookup  `json:"lookup_while_clearing"` // hits, while targets are cleared
	ClearNsPerBlock float64 `json:"clear_ns_per_block"`
	ReuseRSSGrowth  float64 `json:"reuse_rss_growth"` // resident memory after a target was cleared and filled again, to before
	Rows            int     `json:"blocks_distinct"`
}

// A Lookup is the time of Match for one kind of query, its hashes ready.
type Lookup struct {
	Case        string  `json:"case"` // hit, prefix40, miss
	QueryBlocks int     `json:"query_blocks"`
	P50         float64 `json:"p50_us"`
	P99         float64 `json:"p99_us"`
	Allocs      float64 `json:"allocs"`
	Max         float64 `json:"max_us"`
	Matched     int     `json:"targets_matched"`
	Deepest     int     `json:"deepest_blocks"`
}

// rng is splitmix64, as in the original.
type rng uint64

func (r *rng) next() uint64 {
	*r += 0x9e3779b97f4a7c15
	z := uint64(*r)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// appendBlock appends the 16 tokens of one block of content.
func appendBlock(dst []uint32, kind, a, b, i uint64) []uint32 {
	r := rng(kind<<60 ^ a<<40 ^ b<<20 ^ i)
	for range blockSize / 2 {
		x := r.next()
		dst = append(dst, uint32(x)&0x1ffff, uint32(x>>32)&0x1ffff)
	}
	return dst
}

// sequence appends the tokens of sequence s of target t.
func (d Dynbench) sequence(dst []uint32, t, s uint64) []uint32 {
	pre := d.Blocks * 2 / 5
	for i := range d.Blocks {
		if i < pre {
			dst = appendBlock(dst, 1, s%prefixes, 0, uint64(i))
		} else {
			dst = appendBlock(dst, 2, t, s, uint64(i))
		}
	}
	return dst
}

// A feed is the events of one target; its memory is used again for the next.
type feed struct {
	tokens  []uint32
	handles []kv.Handle
	hashes  []kv.Hash
	events  []kv.Event
	blocks  int
}

// fill makes the events of target t. Handles are the engine's own chained hash
// of content, the same in all engines, as with vLLM's default seed.
func (f *feed) fill(d Dynbench, t uint64) {
	f.tokens, f.handles, f.events, f.blocks = f.tokens[:0], f.handles[:0], f.events[:0], 0
	// sized at once: events point into it
	f.tokens = slices.Grow(f.tokens, d.Seqs*d.Blocks*blockSize)
	f.handles = slices.Grow(f.handles, d.Seqs*d.Blocks)
	if d.EventBlocks > 0 {
		f.events = slices.Grow(f.events, d.Seqs*(d.Blocks/d.EventBlocks+1))
	}
	pre := d.Blocks * 2 / 5
	for s := range d.Seqs {
		from := len(f.tokens)
		f.tokens = d.sequence(f.tokens, t, uint64(s))
		tokens := f.tokens[from:]
		h0 := len(f.handles)
		f.hashes = engineSeed.Extend(f.hashes[:0], engineRoot, tokens, blockSize, nil)
		for _, h := range f.hashes {
			f.handles = append(f.handles, kv.Handle(h))
		}
		handles := f.handles[h0:]
		at := 0
		if s >= prefixes {
			at = pre
		}
		for at < d.Blocks {
			end := d.Blocks
			if d.EventBlocks > 0 {
				end = min(at+d.EventBlocks, d.Blocks)
			}
			ev := kv.Event{Kind: kv.Stored, Target: kv.Target(t), BlockSize: blockSize, Root: at == 0,
				Handles: handles[at:end], Tokens: tokens[at*blockSize : end*blockSize]}
			if at > 0 {
				ev.Parent = handles[at-1]
			}
			f.events = append(f.events, ev)
			f.blocks += end - at
			at = end
		}
	}
}

const engineSeed = kv.Seed(0x766c6c6d2d6e6f6e)

var engineRoot = engineSeed.Root(kv.Key{}, blockSize)

// Run measures d once, in this process: run it in a fresh one for the memory.
func (d Dynbench) Run() (Result, error) {
	if err := d.Validate(); err != nil {
		return Result{}, err
	}
	if d.Queries == 0 {
		d.Queries = 4000
	}
	ix := index.New(index.Config{Seed: seed, MaxBytes: 64 << 30})
	var res Result
	f := &feed{}
	f.fill(d, 9999%kv.MaxTargets) // buffers have their size before memory is read
	for i := range f.events {
		ix.Apply(&f.events[i]) // and the index its first tables
	}
	ix.Forget(9999 % kv.MaxTargets)
	ix = index.New(index.Config{Seed: seed, MaxBytes: 64 << 30})
	debug.FreeOSMemory() // nothing that was touched before counts for us
	before := resident()
	var used time.Duration
	pace := make([]float32, 0, d.Targets*(cap(f.events)/8+1)) // of every eighth event
	for t := range d.Targets {
		f.fill(d, uint64(t))
		res.Memberships += f.blocks
		from := cpu()
		for i := range f.events {
			if i%8 != 0 {
				ix.Apply(&f.events[i])
				continue
			}
			at := time.Now()
			ix.Apply(&f.events[i])
			pace = append(pace, float32(time.Since(at).Nanoseconds())/float32(len(f.events[i].Handles)))
		}
		used += cpu() - from
	}
	slices.Sort(pace)
	res.StoreP10, res.StoreP50 = float64(pace[len(pace)/10]), float64(pace[len(pace)/2])
	res.StoreMBlocksPerCPU = float64(res.Memberships) / used.Seconds() / 1e6
	full := resident()
	res.BytesPerMembership = (full - before) / float64(res.Memberships)
	for _, n := range []int{500, 2000} {
		for _, c := range []string{"hit", "prefix40", "miss"} {
			res.Lookup = append(res.Lookup, d.lookup(ix, c, n))
		}
	}
	res.Rows = ix.Stats().Blocks
	res.Busy = d.busy(ix, f)
	res.RemoveNsPerBlock = d.remove(ix)
	res.Clearing = d.clearing(ix)
	res.ClearNsPerBlock, res.ReuseRSSGrowth = d.clear(ix, f)
	return res, nil
}

// queries returns the queries of one case: a stored sequence, one with a new
// suffix after its common prefix, or nothing known, cut or filled up to n blocks.
func (d Dynbench) queries(c string, n int) []kv.Prompt {
	r := rng(7)
	out := make([]kv.Prompt, d.Queries)
	root := seed.Root(kv.Key{}, blockSize)
	var tokens []uint32
	for k := range out {
		t, s := r.next()%uint64(d.Targets), r.next()%uint64(d.Seqs)
		tokens = d.sequence(tokens[:0], t, s)
		from := d.Blocks
		switch c {
		case "prefix40":
			from = d.Blocks * 2 / 5
		case "miss":
			from = 0
		}
		tokens = tokens[:from*blockSize]
		for i := from; i < d.Blocks; i++ {
			tokens = appendBlock(tokens, 3, uint64(k), s, uint64(i))
		}
		for i := d.Blocks; i < n; i++ {
			tokens = appendBlock(tokens, 4, uint64(k), s, uint64(i))
		}
		tokens = tokens[:n*blockSize]
		out[k] = kv.Prompt{Tokens: len(tokens) + 1,
			Chains: []kv.Chain{{BlockSize: blockSize, Hashes: seed.Extend(nil, root, tokens, blockSize, nil)}}}
	}
	return out
}

func (d Dynbench) lookup(ix *index.Index, c string, n int) Lookup {
	qs := d.queries(c, n)
	for i := range min(50, len(qs)) {
		ix.Match(&qs[len(qs)-1-i], make([]kv.Overlap, d.Targets))
	}
	return look(ix, qs, d.Targets, Lookup{Case: c, QueryBlocks: n})
}

// look times Match for every query, once each.
func look(ix *index.Index, qs []kv.Prompt, targets int, res Lookup) Lookup {
	over := make([]kv.Overlap, targets)
	times := make([]time.Duration, len(qs))
	var m0, m1 runtime.MemStats
	runtime.ReadMemStats(&m0)
	for i := range qs {
		from := time.Now()
		ix.Match(&qs[i], over)
		times[i] = time.Since(from)
		matched := 0
		for t := range over {
			if over[t].GPU > 0 {
				matched++
				res.Deepest = max(res.Deepest, int(over[t].GPU)/blockSize)
			}
		}
		res.Matched = max(res.Matched, matched)
	}
	runtime.ReadMemStats(&m1)
	slices.Sort(times)
	us := func(i int) float64 { return float64(times[i].Nanoseconds()) / 1e3 }
	res.P50, res.P99, res.Max = us(len(times)/2), us(len(times)*99/100), us(len(times)-1)
	res.Allocs = float64((m1.Mallocs - m0.Mallocs) / uint64(len(qs)))
	return res
}

// beside runs work again and again on another goroutine while the hit queries
// are timed.
func (d Dynbench) beside(ix *index.Index, c string, work func(round int)) Lookup {
	qs := d.queries("hit", d.Blocks)
	var stop atomic.Bool
	var wg sync.WaitGroup
	started := make(chan struct{})
	wg.Add(1)
	go func() {
		defer wg.Done()
		close(started)
		for n := 0; !stop.Load(); n++ {
			work(n)
		}
	}()
	<-started
	res := look(ix, qs, d.Targets, Lookup{Case: c, QueryBlocks: d.Blocks})
	stop.Store(true)
	wg.Wait()
	return res
}

// busy times lookups while a target that isn't asked for stores sequences and
// loses them again.
func (d Dynbench) busy(ix *index.Index, f *feed) Lookup {
	other := kv.Target(d.Targets % kv.MaxTargets)
	f.fill(d, uint64(other))
	gone := make([]kv.Event, len(f.events))
	for i := range f.events {
		gone[i] = kv.Event{Kind: kv.Removed, Target: other, Handles: f.events[i].Handles}
	}
	res := d.beside(ix, "hit, while storing", func(n int) {
		n %= 2 * len(f.events)
		if n < len(f.events) {
			ix.Apply(&f.events[n])
		} else {
			ix.Apply(&gone[n-len(f.events)])
		}
	})
	ix.Forget(other)
	return res
}

// clearing times lookups while one target after the other is cleared.
func (d Dynbench) clearing(ix *index.Index) Lookup {
	return d.beside(ix, "hit, while clearing", func(n int) {
		if n > 0 && n < d.Targets {
			ix.Apply(&kv.Event{Kind: kv.Cleared, Target: kv.Target(n)})
		}
	})
}

// remove takes the last 100 blocks of every tenth sequence, tail first, with one
// event for a sequence.
func (d Dynbench) remove(ix *index.Index) float64 {
	var used time.Duration
	n := 0
	var tokens []uint32
	var hashes []kv.Hash
	for t := range d.Targets {
		var events []kv.Event
		for s := range d.Seqs / 10 {
			tokens = d.sequence(tokens[:0], uint64(t), uint64(s))
			hashes = engineSeed.Extend(hashes[:0], engineRoot, tokens, blockSize, nil)
			tail := hashes[max(len(hashes)-100, 0):]
			ev := kv.Event{Kind: kv.Removed, Target: kv.Target(t)}
			for i := len(tail) - 1; i >= 0; i-- {
				ev.Handles = append(ev.Handles, kv.Handle(tail[i]))
			}
			n += len(tail)
			events = append(events, ev)
		}
		from := cpu()
		for i := range events {
			ix.Apply(&events[i])
		}
		used += cpu() - from
	}
	return float64(used.Nanoseconds()) / float64(max(n, 1))
}

// clear clears target 0 and fills it again.
func (d Dynbench) clear(ix *index.Index, f *feed) (ns, growth float64) {
	f.fill(d, 0)
	before := resident()
	from := cpu()
	r := ix.Apply(&kv.Event{Kind: kv.Cleared})
	used := cpu() - from
	for i := range f.events {
		ix.Apply(&f.events[i])
	}
	return float64(used.Nanoseconds()) / float64(max(r.Removed, 1)), resident() / before
}

// cpu returns the processor time of this process.
func cpu() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// resident returns the resident memory of this process in bytes (Linux; 0
// elsewhere).
func resident() float64 {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	f := bytes.Fields(b)
	if len(f) < 2 {
		return 0
	}
	n, _ := strconv.ParseFloat(string(f[1]), 64)
	return n * float64(os.Getpagesize())
}
