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

	hazard [2]hazard // by state
	base   time.Time
	began  bool
	swept  float64 // s, until when leaves have been brought up to date
	next   int     // the leaf to go on with
	learnt float64 // s, when the hazards were last integrated

	due [kv.MaxTargets]*due // who is expected where
}

type leaf struct {
	hash   kv.Hash
	tag    uint32 // generation, so that a late end finds only its own request
	live   bool
	idle   bool // the answer has ended
	home   kv.Target
	class  uint8   // of the cost of moving
	since  float64 // s, when the state began
	seen   float64 // s, until when exposure is counted
	due    float64 // s, when the client said it would return; 0: it didn't
	next   float64 // s, from the end of the answer, as the client said
	chance chances // as added to its home's due
}

const (
	maxLeaves  = 1 << 16
	leafSlots  = maxLeaves * 2
	forgetLeaf = 250 // s after the answer ended
	renew      = 5.  // s in which all leaves are brought up to date, a few with each placement
)

func newReturns() *returns {
	return &returns{slots: make([]int32, leafSlots)}
}

func (r *returns) seconds(now time.Time) float64 {
	if !r.began {
		r.began, r.base = true, now
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

// credit adds a leaf's chances to what its home expects, or takes them off.
func (r *returns) credit(f *leaf, n int64) {
	d := r.due[f.home]
	if d == nil {
		d = new(due)
		r.due[f.home] = d
	}
	d.add(&f.chance, f.class, n)
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
	*f = leaf{hash: h, tag: f.tag, live: true, home: home, class: classOf(move), since: at, seen: at, next: next.Seconds()}
	r.slots[r.slot(h)] = i + 1
	r.used++
	r.foresee(f, at)
	r.sweep(at)
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

// sweep brings chances up to date and lets go of who won't return: of as many
// leaves as it takes to go round in renew seconds.
func (r *returns) sweep(at float64) {
	if at-r.learnt >= renew {
		r.learnt = at
		for i := range r.hazard {
			r.hazard[i].cumulate()
		}
	}
	for range int(math.Ceil(min(1, (at-r.swept)/renew) * float64(len(r.leaves)))) {
		if r.next >= len(r.leaves) {
			r.next = 0
		}
		f := &r.leaves[r.next]
		r.next++
		if !f.live {
			continue
		}
		r.expose(f, at)
		// An answer that never ends is an owner that forgot to say so.
		if age := at - f.since; f.idle && age > forgetLeaf || age > 8*forgetLeaf {
			r.drop(r.next - 1)
			continue
		}
		r.credit(f, -1)
		r.foresee(f, at)
	}
	r.swept = max(r.swept, at)
}

// expose counts the time that a leaf has spent without a return.
func (r *returns) expose(f *leaf, at float64) {
	r.hazard[f.state()].expose(f.seen-f.since, at-f.since)
	f.seen = max(f.seen, at)
}

// foresee computes a leaf's chances and adds them to what its home expects.
func (r *returns) foresee(f *leaf, at float64) {
	if wait := f.due - at; f.due > 0 && wait > -2 {
		f.chance = chances{}
		for j := range f.chance {
			if wait < intervalEdges[j+1] {
				f.chance[j] = believed
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
			f.chance[j] = int32((before-after)*certain + .5)
			before = after
		}
	}
	r.credit(f, 1)
}

// believed is the chance of a return that the client has announced: it is wrong at
// times.
const believed = certain * 9 / 10
