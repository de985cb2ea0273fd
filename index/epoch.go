package index

import "sync/atomic"

// Readers take no lock. What a reader may still be looking at when the writer
// lets it go (rows, details, holder sets, lanes) is retired, and used again only
// when every reader that could have seen it has left (U6). Two generations of readers
// are told apart, as in sleepable RCU (McKenney, "Sleepable Read-Copy Update",
// 2006): the writer opens a new generation when the one before the current has
// no readers left, and frees what was retired in that one.
type epochs struct {
	now    atomic.Uint64
	active [2][epochShards]counter
	before []retired // retired in the generation before the current
	during []retired // retired in the current one
}

// epochShards spreads the counters so that readers on several cores don't share
// a cache line.
const epochShards = 8

type counter struct {
	n atomic.Int64
	_ [56]byte
}

// A retired thing is kind<<32 | number.
type retired uint64

const (
	retiredRow retired = iota << 32
	retiredDetail
	retiredSet
	retiredLane
)

// enter registers a reader; leave needs what it returns.
func (e *epochs) enter(shard uint32) *counter {
	for {
		g := e.now.Load() & 1
		c := &e.active[g][shard%epochShards]
		c.n.Add(1)
		if e.now.Load()&1 == g {
			return c
		}
		c.n.Add(-1)
	}
}

func (c *counter) leave() { c.n.Add(-1) }

// retire hands over something that no new reader can find.
func (e *epochs) retire(kind retired, number uint32) {
	e.during = append(e.during, kind|retired(number))
}

// advance opens a new generation if it can, and hands what is safe to reuse to
// free.
func (e *epochs) advance(free func(kind retired, number uint32)) {
	now := e.now.Load()
	for i := range e.active[(now+1)&1] {
		if e.active[(now+1)&1][i].n.Load() != 0 {
			return
		}
	}
	for _, r := range e.before {
		free(r&^(1<<32-1), uint32(r))
	}
	e.before, e.during = e.during, e.before[:0]
	if cap(e.during) > 1<<16 && len(e.before) < 1<<10 {
		e.during = nil // a large clear is over
	}
	e.now.Store(now + 1)
}

func (e *epochs) pending() int { return len(e.before) + len(e.during) }
