package token

import (
	"cmp"
	"container/list"
	"slices"
	"sync"

	"kvasir/kv"
)

// answers keeps results by content, the least recently used go first. Its size
// is bounded in bytes of token ids.
type answers struct {
	mu           sync.Mutex
	max, size    int64
	order        list.List // of *answer, most recent first
	by           map[[32]byte]*list.Element
	hits, misses uint64
}

type answer struct {
	key  [32]byte
	res  Result
	size int64
}

func newAnswers(maxBytes int64) *answers {
	return &answers{max: maxBytes, by: map[[32]byte]*list.Element{}}
}

func (a *answers) get(key [32]byte) (Result, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	e, ok := a.by[key]
	if !ok {
		a.misses++
		return Result{}, false
	}
	a.hits++
	a.order.MoveToFront(e)
	return e.Value.(*answer).res, true
}

// overhead is about what an entry costs beside its ids.
const overhead = 256

func (a *answers) put(key [32]byte, res Result) {
	x := &answer{key: key, res: res, size: overhead}
	for _, p := range res.Prompts {
		x.size += int64(4*cap(p.IDs)) + 64
	}
	if x.size > a.max/8 { // one answer never turns out all others
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, ok := a.by[key]; ok {
		return
	}
	a.by[key] = a.order.PushFront(x)
	a.size += x.size
	for a.size > a.max {
		old := a.order.Remove(a.order.Back()).(*answer)
		delete(a.by, old.key)
		a.size -= old.size
	}
}

func (a *answers) stats() (hits, misses uint64, bytes int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.hits, a.misses, a.size
}

func sortSpans(s spans) {
	slices.SortFunc(s, func(a, b span) int { return cmp.Compare(a.offset, b.offset) })
}

func sortExtras(x []kv.Extra) {
	slices.SortStableFunc(x, func(a, b kv.Extra) int { return cmp.Compare(a.Block, b.Block) })
}
