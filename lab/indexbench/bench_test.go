package indexbench

import (
	"slices"
	"testing"
	"time"

	"kvasir/index"
	"kvasir/kv"
)

var small = Dynbench{Targets: 16, Seqs: 20, Blocks: 2000, Queries: 8}

func filled(b *testing.B) (*index.Index, *feed) {
	ix, f := index.New(index.Config{Seed: seed}), &feed{}
	for t := range small.Targets {
		f.fill(small, uint64(t))
		for i := range f.events {
			ix.Apply(&f.events[i])
		}
	}
	b.ReportAllocs()
	b.ResetTimer()
	return ix, f
}

// BenchmarkMatch is a lookup with warm caches: 8 queries in turn.
func BenchmarkMatch(b *testing.B) {
	for _, c := range []string{"hit", "prefix40", "miss"} {
		b.Run(c, func(b *testing.B) {
			ix, _ := filled(b)
			qs := small.queries(c, small.Blocks)
			over := make([]kv.Overlap, small.Targets)
			b.ResetTimer()
			for i := range b.N {
				ix.Match(&qs[i%len(qs)], over)
			}
		})
	}
}

// BenchmarkStoreRemove stores and removes the 1,200 unshared blocks of a
// sequence; the time is for a block of both.
func BenchmarkStoreRemove(b *testing.B) {
	ix, f := filled(b)
	store := f.events[0]
	at := small.Blocks * 2 / 5
	remove := kv.Event{Kind: kv.Removed, Target: store.Target}
	for i := small.Blocks - 1; i >= at; i-- {
		remove.Handles = append(remove.Handles, store.Handles[i])
	}
	store.Parent, store.Root, store.Handles, store.Tokens = store.Handles[at-1], false, store.Handles[at:], store.Tokens[at*blockSize:]
	b.ResetTimer()
	var removes, stores []time.Duration
	from := cpu()
	for range b.N {
		t0 := time.Now()
		ix.Apply(&remove)
		t1 := time.Now()
		ix.Apply(&store)
		removes, stores = append(removes, t1.Sub(t0)), append(stores, time.Since(t1))
	}
	b.ReportMetric(float64((cpu()-from).Nanoseconds())/float64(b.N)/float64(len(store.Handles)), "cpu-ns/block")
	// the undisturbed ones, on a machine that others use too
	slices.Sort(removes)
	slices.Sort(stores)
	b.ReportMetric(float64(removes[b.N/10].Nanoseconds())/float64(len(store.Handles)), "p10-remove-ns/block")
	b.ReportMetric(float64(stores[b.N/10].Nanoseconds())/float64(len(store.Handles)), "p10-store-ns/block")
}

// BenchmarkStoreOne stores the unshared blocks of a sequence one by one, as an
// engine announces what it decodes; the time is for an event of one block.
func BenchmarkStoreOne(b *testing.B) {
	ix, f := filled(b)
	all, at := f.events[0], small.Blocks*2/5
	remove := kv.Event{Kind: kv.Removed, Target: all.Target, Handles: slices.Clone(all.Handles[at:])}
	slices.Reverse(remove.Handles)
	var one []kv.Event
	for i := at; i < small.Blocks; i++ {
		ev := all
		ev.Root, ev.Parent, ev.Handles, ev.Tokens = false, all.Handles[i-1], all.Handles[i:i+1], all.Tokens[i*blockSize:(i+1)*blockSize]
		one = append(one, ev)
	}
	b.ResetTimer()
	var stores []time.Duration
	for range b.N {
		ix.Apply(&remove)
		from := time.Now()
		for i := range one {
			ix.Apply(&one[i])
		}
		stores = append(stores, time.Since(from))
	}
	slices.Sort(stores) // the undisturbed ones, on a machine that others use too
	b.ReportMetric(float64(stores[b.N/10].Nanoseconds())/float64(len(one)), "p10-ns/event")
}

// BenchmarkDispatch is the life of 1,200 blocks in a fleet: predicted when their
// request is dispatched, stored when the engine says so, removed; and the same
// prediction taken back.
func BenchmarkDispatch(b *testing.B) {
	ix, f := filled(b)
	all, at := f.events[0], small.Blocks*2/5
	remove := kv.Event{Kind: kv.Removed, Target: all.Target, Handles: slices.Clone(all.Handles[at:])}
	slices.Reverse(remove.Handles)
	store := all
	store.Root, store.Parent, store.Handles, store.Tokens = false, all.Handles[at-1], all.Handles[at:], all.Tokens[at*blockSize:]
	hashes := seed.Extend(nil, seed.Root(kv.Key{}, blockSize), all.Tokens, blockSize, nil)
	predict := kv.Event{Source: kv.Dispatch, Target: all.Target, Hashes: hashes}
	unpredict := predict
	unpredict.Kind = kv.Removed
	b.ResetTimer()
	var times [4][]time.Duration
	for range b.N {
		for i, ev := range []*kv.Event{&remove, &predict, &unpredict, &predict, &store} {
			from := time.Now()
			ix.Apply(ev)
			if i < 3 {
				times[i] = append(times[i], time.Since(from))
			} else if i == 4 {
				times[3] = append(times[3], time.Since(from))
			}
		}
	}
	for i, what := range []string{"", "predict", "unpredict", "store"} {
		if i > 0 {
			slices.Sort(times[i])
			b.ReportMetric(float64(times[i][b.N/10].Nanoseconds())/1e3, "p10-"+what+"-us")
		}
	}
}
