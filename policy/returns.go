package policy

import (
	"math"
	"time"

	"kvasir/kv"
)

// A returns foresees which sessions come back to a target, and when.
//
// A session is known by its leaf: the deepest full block of its last prompt. A
// later request that contains the block continues the session, and the leaf moves
// with it; no session id is needed. How likely a session returns at what age is
// learned fleet-wide, as a hazard: returns per second of exposure, one table for
// ages since the answer ended and one for ages since dispatch of those still being
// answered. A client that says when it will be back is believed instead.
type returns struct {
	leaves []leaf
	free   []int32
	slots  []int32 // leaf + 1 by hash, open addressing; 0: empty
	used   int

	hazard        [2]hazard // by state
	base, rebuilt time.Time
	began         bool

	// Expected returns to each target by cost of moving and by interval.
	due [kv.MaxTargets]*dueTable
}

type leaf struct {
	hash   kv.Hash
	tag    uint32 // generation, so that a late end finds only its own request
	live   bool
	idle   bool // the answer has ended
	home   kv.Target
	class  uint8              // of the cost of moving
	since  float64            // s, when the state began
	seen   float64            // s, until when exposure is counted
	due    float64            // s, when the client said it would return; 0: it didn't
	next   float64            // s, from the end of the answer, as the client said
	chance [intervals]float32 // as added to due
}

const (
	maxLeaves  = 1 << 16
	leafSlots  = maxLeaves * 2
	intervals  = 6
	moveStep   = .05 // s, the lowest class of the cost of moving; each next one doubles
	classes    = 12
	forgetLeaf = 250 // s after the answer ended
	rebuild    = 5 * time.Second
)

// Bounds of the intervals in which a return may fall, in seconds from now.
var intervalEdges = [intervals + 1]float64{0, .5, 1, 2, 4, 8, 16}

type dueTable [classes][intervals]float64

func newReturns() *returns {
	return &returns{slots: make([]int32, leafSlots)}
}

func (r *returns) seconds(now time.Time) float64 {
	if !r.began {
		r.began, r.base, r.rebuilt = true, now, now
	}
	return now.Sub(r.base).Seconds()
}

// find returns the session that a prompt continues, -1 if none: the deepest block
// that is a leaf.
func (r *returns) find(hashes []kv.Hash) int {
	if r.used == 0 {
		return -1
	}
	for i := len(hashes) - 1; i >= 0; i-- {
		if s := r.slot(hashes[i]); r.slots[s] != 0 {
			return int(r.slots[s] - 1)
		}
	}
	return -1
}

// slot returns where h is, or where it would go.
func (r *returns) slot(h kv.Hash) int {
	i := int(h64(uint64(h)) % leafSlots)
	for r.slots[i] != 0 && r.leaves[r.slots[i]-1].hash != h {
		if i++; i == leafSlots {
			i = 0
		}
	}
	return i
}

// drop forgets a leaf.
func (r *returns) drop(l int) {
	f := &r.leaves[l]
	r.credit(f, -1)
	f.live = false
	f.tag++
	i := r.slot(f.hash)
	r.slots[i] = 0
	r.used--
	r.free = append(r.free, int32(l))
	// Close the gap.
	for j := (i + 1) % leafSlots; r.slots[j] != 0; j = (j + 1) % leafSlots {
		home := int(h64(uint64(r.leaves[r.slots[j]-1].hash)) % leafSlots)
		if (j-home+leafSlots)%leafSlots >= (j-i+leafSlots)%leafSlots {
			r.slots[i], r.slots[j] = r.slots[j], 0
			i = j
		}
	}
}

// credit adds a leaf's chances to its home's table, or takes them off.
func (r *returns) credit(f *leaf, sign float64) {
	t := r.due[f.home]
	if t == nil {
		t = new(dueTable)
		r.due[f.home] = t
	}
	for j, a := range f.chance {
		t[f.class][j] += sign * float64(a)
	}
}

// placed notes that a request was placed: it continues session l (-1: none), its
// prompt ends in the block h, and computing it anywhere else would take move
// seconds. It returns a tag for ended, 0 if there was no room.
func (r *returns) placed(now time.Time, l int, h kv.Hash, home kv.Target, move float64, next time.Duration) uint64 {
	at := r.seconds(now)
	if l >= 0 {
		f := &r.leaves[l]
		r.expose(f, at)
		r.hazard[f.state()].event(at - f.since)
		r.drop(l)
	}
	if s := r.slot(h); r.slots[s] != 0 {
		r.drop(int(r.slots[s] - 1))
	}
	var i int32
	switch n := len(r.free); {
	case n > 0:
		i = r.free[n-1]
		r.free = r.free[:n-1]
	case len(r.leaves) < maxLeaves:
		i = int32(len(r.leaves))
		r.leaves = append(r.leaves, leaf{tag: 1})
	default:
		return 0
	}
	f := &r.leaves[i]
	class := 0
	if move > moveStep {
		class = min(int(math.Log2(move/moveStep)), classes-1)
	}
	*f = leaf{hash: h, tag: f.tag, live: true, home: home, class: uint8(class), since: at, seen: at, next: next.Seconds()}
	r.slots[r.slot(h)] = i + 1
	r.used++
	r.foresee(f, at)
	if now.Sub(r.rebuilt) >= rebuild {
		r.rebuild(now)
	}
	return uint64(f.tag)<<32 | uint64(i) + 1
}

func (f *leaf) state() int {
	if f.idle {
		return 1
	}
	return 0
}

// ended notes that the answer to a request has ended.
func (r *returns) ended(now time.Time, tag uint64) {
	i := int64(uint32(tag)) - 1
	if i < 0 || i >= int64(len(r.leaves)) {
		return
	}
	f := &r.leaves[i]
	if !f.live || f.idle || f.tag != uint32(tag>>32) {
		return
	}
	at := r.seconds(now)
	r.expose(f, at)
	f.idle, f.since, f.seen = true, at, at
	if f.next > 0 {
		f.due = at + f.next
	}
	r.credit(f, -1)
	r.foresee(f, at)
}

func (r *returns) forget(t kv.Target) {
	for i := range r.leaves {
		if r.leaves[i].live && r.leaves[i].home == t {
			r.drop(i)
		}
	}
	r.due[t] = nil
}

// rebuild brings all chances up to date and lets go of who won't return.
func (r *returns) rebuild(now time.Time) {
	at := r.seconds(now)
	r.rebuilt = now
	for i := range r.hazard {
		r.hazard[i].cumulate()
	}
	for _, t := range r.due {
		if t != nil {
			*t = dueTable{} // also of rounding errors
		}
	}
	for i := range r.leaves {
		f := &r.leaves[i]
		if !f.live {
			continue
		}
		r.expose(f, at)
		f.chance = [intervals]float32{}
		// An answer that never ends is an owner that forgot to say so.
		if age := at - f.since; f.idle && age > forgetLeaf || age > 8*forgetLeaf {
			r.drop(i)
			continue
		}
		r.foresee(f, at)
	}
}

// expose counts the time that a leaf has spent without a return.
func (r *returns) expose(f *leaf, at float64) {
	r.hazard[f.state()].expose(f.seen-f.since, at-f.since)
	f.seen = max(f.seen, at)
}

// foresee computes a leaf's chances and adds them to its home's.
func (r *returns) foresee(f *leaf, at float64) {
	if wait := f.due - at; f.due > 0 && wait > -2 {
		f.chance = [intervals]float32{}
		for j := range f.chance {
			if wait < intervalEdges[j+1] {
				f.chance[j] = .9 // clients are wrong at times
				break
			}
		}
	} else {
		h := &r.hazard[f.state()]
		age := at - f.since
		from := h.sum(age)
		before := 1.0
		for j := range f.chance {
			after := math.Exp(from - h.sum(age+intervalEdges[j+1]))
			f.chance[j] = float32(before - after)
			before = after
		}
	}
	r.credit(f, 1)
}

// burden returns what a further b seconds of waiting at t would cost those who
// are expected back there, in seconds, and how many are. own is left out.
func (r *returns) burden(t kv.Target, own int, from, to float64) (cost, expected float64) {
	d := r.due[t]
	if d == nil {
		return 0, 0
	}
	var mine *leaf
	if own >= 0 && r.leaves[own].home == t {
		mine = &r.leaves[own]
	}
	move := moveStep
	for c := range d {
		for j, a := range d[c] {
			if mine != nil && int(mine.class) == c {
				a -= float64(mine.chance[j])
			}
			if a <= 0 {
				continue
			}
			expected += a
			x := (intervalEdges[j] + intervalEdges[j+1]) / 2
			if to > x {
				// A returner never loses more than moving away costs.
				cost += a * (min(to-x, move) - min(max(from-x, 0), move))
			}
		}
		move *= 2
	}
	return cost, expected
}
