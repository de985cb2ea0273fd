package index

import (
	"math/bits"
	"runtime"
	"sync"
	"sync/atomic"

	"kvasir/index/table"
	"kvasir/kv"
)

// An Index is safe for concurrent use. Events of one target must be applied in
// their order, by one goroutine at a time; dispatches may come from any.
type Index struct {
	cfg    Config
	secret uint64

	// readers use these without a lock
	rows    rows
	heads   table.Table // first block of a row -> row
	sets    sets
	epochs  epochs
	info    [maxLanes]atomic.Uint64      // laneInfo
	special [maxLanes / 64]atomic.Uint64 // lanes that aren't plain
	targets [kv.MaxTargets]target        // view only
	pool    sync.Pool

	works sync.Pool
	queue atomic.Int32 // who waits for mu

	mu          sync.Mutex   // over everything below, and all writes
	tables      table.Memory // memory of names
	headTables  table.Memory // memory of heads, which readers find closer together
	common      table.Table  // name that several lanes use -> slot
	byAlias     map[laneHandle]slot
	aliasOf     map[laneSlot]kv.Handle
	copies      map[uint64]int32 // beyond the first, by copyKey
	lanes       [maxLanes]*lane
	freeLanes   []uint16
	orphans     orphanList
	orphanUnits int
	orphanAge   uint64
	waiting     map[laneHandle][]*orphan // by parent
	orphaned    map[laneHandle][]*orphan // by block
	slidNames   int
	pageMemory  int64
	blocks      int // distinct blocks held by anyone
	hand        uint32
	retiredRows int
	detached    int    // rows whose parent is in no row
	gens        uint32 // rows ever used
	evictions   uint64
	totals      Totals

	away      int // events that have let go of mu half done
	unchecked int // see verify

	ahead int // lookups of names that are under way at once
}

// New returns an empty index; it panics if c is invalid (see Config.Validate).
func New(c Config) *Index {
	if err := c.Validate(); err != nil {
		panic(err)
	}
	ix := &Index{
		cfg: c.withDefaults(), ahead: maxAhead,
		secret:  uint64(c.Seed.Root(kv.Key{Salt: "names of blocks"}, 0)),
		byAlias: map[laneHandle]slot{}, aliasOf: map[laneSlot]kv.Handle{}, copies: map[uint64]int32{},
		waiting: map[laneHandle][]*orphan{}, orphaned: map[laneHandle][]*orphan{},
	}
	ix.rows.init()
	ix.heads.Init(&ix.headTables, true)
	ix.common.Init(&ix.tables, false)
	ix.sets.init()
	for l := maxLanes - 1; l >= 0; l-- {
		ix.freeLanes = append(ix.freeLanes, uint16(l))
	}
	for t := range ix.targets {
		ix.targets[t].id = kv.Target(t)
		ix.targets[t].set(ix.cfg.Target)
	}
	var shards atomic.Uint32
	ix.works.New = func() any { return &work{} }
	ix.pool.New = func() any { return &scratch{shard: shards.Add(1)} }
	return ix
}

// SetTarget says how to read the events of t from now on. Its TierLimits apply
// to blocks that are stored from now on.
func (ix *Index) SetTarget(id kv.Target, c TargetConfig) {
	if id >= kv.MaxTargets {
		return
	}
	t := ix.target(id)
	t.busy.Lock()
	defer t.busy.Unlock()
	ix.lock()
	defer ix.mu.Unlock()
	t.set(c)
	for _, l := range t.lanes {
		l.limit()
	}
	if invariants {
		ix.verify(0)
	}
}

// Apply takes one event in. It keeps nothing of ev.
func (ix *Index) Apply(ev *kv.Event) (r Result) {
	if ev.Target >= kv.MaxTargets || ev.Tier >= kv.NumTiers || ev.Kind > kv.Cleared || ev.Source > kv.Dispatch {
		return ix.refuse(ev)
	}
	t := ix.target(ev.Target)
	if ev.Source == kv.Dispatch {
		return ix.dispatch(t, ev)
	}
	t.busy.Lock()
	defer t.busy.Unlock()
	w := ix.workOf(t, len(ev.Handles))
	w.tag(ix, ev.Handles)
	ix.expect(t, ev.Group, w.tags)
	w.twice = ev.Kind == kv.Stored && ev.Attention == kv.Dense && w.duplicate(ev)
	ix.lock()
	defer ix.mu.Unlock()
	t.work = w
	t.events++
	if t.expires {
		ix.expire(t, &r)
	}
	switch ev.Kind {
	case kv.Stored:
		ix.stored(t, ev, &r)
	case kv.Removed:
		ix.removed(t, ev, &r)
	case kv.Cleared:
		ix.cleared(t, ev, &r)
	}
	ix.tidy()
	ix.totals.add(&r)
	t.work = nil
	if w != t.small {
		ix.works.Put(w)
	} else if cap(w.tags) > 4*maxAhead {
		t.small = nil // an orphan that joined was long
	}
	if invariants {
		ix.verify(len(ev.Handles))
	}
	return r
}

// refuse counts an event that makes no sense.
func (ix *Index) refuse(ev *kv.Event) (r Result) {
	n := len(ev.Handles)
	if ev.Source == kv.Dispatch {
		n = len(ev.Hashes)
	}
	r.skip(BadTarget, n)
	ix.lock()
	defer ix.mu.Unlock()
	ix.totals.add(&r)
	return r
}

// workOf returns scratch memory for an event of n handles: a little that t has for
// itself, or as much as it takes. busy is held.
func (ix *Index) workOf(t *target, n int) *work {
	if n > maxAhead {
		return ix.works.Get().(*work)
	}
	if t.small == nil {
		t.small = &work{}
	}
	return t.small
}

// expect prefetches what an event is about to need first, while it waits for its
// turn. busy is held.
func (ix *Index) expect(t *target, group uint16, tags []uint32) {
	l := t.lane(group)
	if l == nil {
		return
	}
	ix.ask(l, tags[:min(len(tags), maxAhead)])
	if r := l.tail.row(); r != 0 {
		if s, m := ix.rows.peek(r); s != nil {
			prefetchRow(m.row, m.rowOwn, &s.handle[l.tail%slabSlots], &s.hash[l.tail%slabSlots])
		}
	}
}

// ask prefetches where the names with these tags are, or will be.
func (ix *Index) ask(l *lane, tags []uint32) {
	l.names.Prefetch(tags)
	ix.common.Prefetch(tags)
}

// lock takes mu, and lets a long event know that somebody waits.
func (ix *Index) lock() {
	if ix.mu.TryLock() {
		return
	}
	ix.queue.Add(1)
	ix.mu.Lock()
	ix.queue.Add(-1)
}

// yield lets those go ahead who wait for mu, and says whether it did.
func (ix *Index) yield() bool {
	if ix.queue.Load() == 0 {
		return false
	}
	ix.away++
	ix.mu.Unlock()
	runtime.Gosched()
	ix.lock()
	ix.away--
	return true
}

func (r *Result) skip(why Reason, blocks int) {
	r.Reason = why
	r.Skipped += int32(blocks)
}

// tidy takes back what readers have left.
func (ix *Index) tidy() {
	if ix.epochs.pending() > 0 {
		ix.epochs.advance(ix.reuse)
	}
}

// first returns the lowest lane of set id, which isn't 0.
func (s *sets) first(id uint32) uint16 {
	if id < firstInterned {
		return uint16(id >> planes)
	}
	h := s.get(id)
	return h.lo*64 + uint16(bits.TrailingZeros64(h.words[0]))
}
