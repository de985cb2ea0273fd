package engine

import "sync/atomic"

// rankRange maps the ranks that engines speak of to ours, 0 to n-1. They differ
// where one deployment of many ranks is served by several replicas (vLLM's
// external and hybrid load balancing): labels, batches and ports then count
// globally.
type rankRange struct{ v atomic.Uint64 }

func (r *rankRange) set(first, n int) { r.v.Store(uint64(first)<<32 | uint64(n)) }

func (r *rankRange) get() (first, n int) {
	v := r.v.Load()
	return int(v >> 32), int(v & 0xffffffff)
}

// index returns our number of an engine's rank, -1 if it is none of ours. A
// replica with one rank means that one whatever it says.
func (r *rankRange) index(rank int) int {
	first, n := r.get()
	switch {
	case n == 1:
		return 0
	case rank >= first && rank < first+n:
		return rank - first
	case rank >= 0 && rank < n:
		return rank
	}
	return -1
}
