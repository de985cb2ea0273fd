package index

import (
	"slices"

	"kvasir/index/table"
	"kvasir/kv"
)

// maxAhead is how many lookups of names are under way at once: as many as a word
// has bits.
const maxAhead = table.Batch

// A work is the scratch memory of one engine's event.
type work struct {
	tags   []uint32 // of the handles of the event, or of the orphan that joins
	hashes []kv.Hash
	taken  uint64             // names of the batch under way that may be in the lane's table
	spots  [table.Batch]uint8 // where the others would go in their buckets, or table.NoSpot
	twice  bool               // a handle occurs twice, or is its own parent
	seen   handleSet
	tagged tagSet
}

// tag computes the tags of hs. Memory for unusually long events isn't kept.
func (w *work) tag(ix *Index, hs []kv.Handle) {
	if cap(w.tags) > 1<<16 && len(hs) <= 1<<14 {
		*w = work{}
	}
	w.tags = slices.Grow(w.tags[:0], len(hs))
	for _, h := range hs {
		w.tags = append(w.tags, ix.keyOf(h))
	}
}

// duplicate says that a handle occurs twice in ev, or is its own parent. Tags
// decide; only where two are equal, handles are compared.
func (w *work) duplicate(ev *kv.Event) bool {
	if len(ev.Handles) == 1 {
		return !ev.Root && ev.Handles[0] == ev.Parent
	}
	if len(ev.Handles) > 8 {
		if !w.tagged.twice(w.tags) {
			return !ev.Root && slices.Contains(ev.Handles, ev.Parent)
		}
	}
	return hasDuplicate(ev, &w.seen)
}
