package index

import (
	"math/bits"
	"sync"
	"sync/atomic"

	"kvasir/index/table"
	"kvasir/kv"
)

// A target is what the index keeps for one kv.Target.
type target struct {
	// busy is held over an engine's event, Forget and SetTarget, which may let
	// go of Index.mu in between; it is taken before Index.mu.
	busy sync.Mutex

	id     kv.Target
	cfg    TargetConfig
	lanes  []*lane // dense and sliding, in order of creation
	pred   *lane   // dispatched, not yet reported
	events int     // of the engine
	view   atomic.Pointer[laneView]
	work   *work // of the engine's event under way
	small  *work // for short events

	expires bool // cfg limits a tier by events

	orphans     orphanList
	orphanUnits int
}

// laneView is what readers see of a target's lanes; immutable.
type laneView struct {
	dense   []uint16
	sliding []uint16
	pred    uint16 // noLane if none
}

const noLane = 0xffff

type laneKind uint8

const (
	laneUnused laneKind = iota // or of a target that is being forgotten
	laneDense
	laneSliding
	lanePredicted
)

// A lane is one cache group of a target.
type lane struct {
	id     uint16
	kind   laneKind
	t      *target
	group  uint16
	window int32
	bs     int32 // block size: of the GPU tier (dense), of the last event (sliding)
	page   int32 // page size where pages are collected into chunks, otherwise 0

	groups []uint64 // groups of rows where the lane may hold blocks, a bitmap
	count  [kv.NumTiers]int64
	tail   slot // last stored, where the next store usually continues

	names   table.Table // of blocks that only this lane has named, see naming.go
	aliases int         // blocks with a name that isn't in a table

	slid   map[kv.Handle]*[kv.NumTiers]int32
	pages  *pages
	limits [kv.NumTiers]*aging
}

// laneInfo packs what readers need of a lane: kind, target, window and block
// size. plain lanes are all that their target has, apart from predictions.
type laneInfo uint64

func packLane(l *lane, plain bool) laneInfo {
	v := uint64(l.kind) | uint64(l.t.id)<<2
	if plain {
		v |= 1 << 12
	}
	return laneInfo(v | uint64(uint32(min(l.bs, maxBlockSize)))<<13 | uint64(uint32(l.window))<<32)
}

func (v laneInfo) kind() laneKind { return laneKind(v & 3) }
func (v laneInfo) target() int    { return int(v >> 2 & 1023) }
func (v laneInfo) plain() bool    { return v>>12&1 == 1 }
func (v laneInfo) bs() int32      { return int32(v >> 13 & (1<<18 - 1)) }
func (v laneInfo) window() int32  { return int32(v >> 32) }

// target returns the state of t.
func (ix *Index) target(t kv.Target) *target { return &ix.targets[t] }

// set says how the events of t are read.
func (t *target) set(c TargetConfig) {
	t.cfg, t.expires = c, false
	for _, lim := range c.Tiers {
		t.expires = t.expires || lim.Events > 0
	}
}

func (t *target) lane(group uint16) *lane {
	for _, l := range t.lanes {
		if l.group == group {
			return l
		}
	}
	return nil
}

// primary returns the first dense lane, whose names the others share.
func (t *target) primary() *lane {
	for _, l := range t.lanes {
		if l.kind == laneDense {
			return l
		}
	}
	return nil
}

// addLane returns a new lane of t, or nil at a bound.
func (ix *Index) addLane(t *target, kind laneKind, group uint16) *lane {
	if kind != lanePredicted && len(t.lanes) >= maxGroups {
		return nil
	}
	n := len(ix.freeLanes)
	if n == 0 {
		return nil
	}
	l := &lane{id: ix.freeLanes[n-1], kind: kind, t: t, group: group}
	ix.freeLanes = ix.freeLanes[:n-1]
	l.names.Init(&ix.tables, false)
	ix.lanes[l.id] = l
	if kind == lanePredicted {
		t.pred = l
	} else {
		t.lanes = append(t.lanes, l)
		l.limit()
	}
	ix.showLanes(t)
	return l
}

// showLanes publishes what readers see of t's lanes. A lane that isn't plain is
// announced as such before any block has it (U10): a walk that meets it looks closer.
func (ix *Index) showLanes(t *target) {
	v := &laneView{pred: noLane}
	plain := len(t.lanes) == 1 && t.lanes[0].kind == laneDense
	for _, l := range t.lanes {
		if l.kind == laneDense {
			v.dense = append(v.dense, l.id)
		} else {
			v.sliding = append(v.sliding, l.id)
		}
	}
	if t.pred != nil {
		v.pred = t.pred.id
		ix.showLane(t.pred, false)
	}
	t.view.Store(v)
	for _, l := range t.lanes {
		ix.showLane(l, plain)
	}
}

func (ix *Index) showLane(l *lane, plain bool) {
	w := &ix.special[l.id/64]
	bit := uint64(1) << (l.id % 64)
	if plain {
		w.And(^bit)
	} else {
		w.Or(bit)
	}
	ix.info[l.id].Store(uint64(packLane(l, plain)))
}

// near notes that l holds blocks of row r (U9).
func (l *lane) near(r uint32) {
	g := int(r / groupRows)
	for g/64 >= len(l.groups) {
		l.groups = append(l.groups, 0)
	}
	l.groups[g/64] |= 1 << (g % 64)
}

// eachGroup calls f for every group of rows that l may hold blocks in; f may let
// go of the lock.
func (l *lane) eachGroup(f func(group uint32)) {
	for i := 0; i < len(l.groups); i++ {
		for w := l.groups[i]; w != 0; w &= w - 1 {
			f(uint32(i*64 + bits.TrailingZeros64(w)))
		}
	}
}

// freeLane takes back a lane that no block and no reader has any more.
func (ix *Index) freeLane(id uint16) { ix.freeLanes = append(ix.freeLanes, id) }

// planesOf returns the planes of tier t.
func planesOf(t kv.Tier) uint8 {
	switch t {
	case kv.GPU:
		return inGPU
	case kv.Host:
		return inHost | inHostChunk
	}
	return inDisk | inDiskChunk
}

// planeOf returns the plane in which a block of tier t is held: the inside of a
// chunk, or anything else.
func planeOf(t kv.Tier, inside bool) uint8 {
	p := inGPU << t
	if inside && t != kv.GPU {
		p <<= 2
	}
	return p
}

// recount adds to l's counts what changes when its planes of n blocks go from
// old to now (U8).
func (l *lane) recount(old, now uint8, n int) {
	for t := kv.GPU; t < kv.NumTiers; t++ {
		p := planesOf(t)
		switch had, has := old&p != 0, now&p != 0; {
		case has && !had:
			l.count[t] += int64(n)
		case had && !has:
			l.count[t] -= int64(n)
		}
	}
}
