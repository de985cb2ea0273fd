//go:build invariants

package sched

import (
	"fmt"
	"sync"

	"kvasir/kv"
	"kvasir/ledger"
)

// An audit keeps the books a second time, simply, and compares: what is booked in
// the ledger is what open decisions have booked, and each predicted block belongs to
// an open decision or to a prediction that has not ended. With the tag invariants only.
type audit struct {
	mu   sync.Mutex
	open map[uint64]promise // by decision
	owed map[kv.Target]int  // blocks predicted to the index and not taken back
	ops  int                // calls of check
	busy int                // between s.mu and the index: predictions that are on their way
}

// A promise is what an open decision has booked and predicted.
type promise struct {
	target  kv.Target
	booking ledger.ID
	booked  bool // still; Forget and Tick take it away
	hashes  int
}

// booked notes that d is in the ledger; caller holds s.mu. Its blocks are on their way.
func (a *audit) booked(d *Decision) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.open == nil {
		a.open, a.owed = map[uint64]promise{}, map[kv.Target]int{}
	}
	a.open[d.id] = promise{target: d.Target, booking: d.booking, booked: true}
	a.busy++
}

// predicted notes that the index has been told d's blocks.
func (a *audit) predicted(d *Decision, n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.open[d.id]
	p.hashes = n
	a.open[d.id] = p
	a.owed[d.Target] += n
	a.busy--
}

// leaving notes that somebody goes from s.mu to the index, to take blocks back; caller holds s.mu.
func (a *audit) leaving() {
	a.mu.Lock()
	a.busy++
	a.mu.Unlock()
}

// unpredicted notes that the index has been told to forget n blocks.
func (a *audit) unpredicted(t kv.Target, n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.busy--; a.busy < 0 {
		panic("sched: a prediction ends that nobody has announced")
	}
	if a.owed[t] -= n; a.owed[t] < 0 {
		panic(fmt.Sprintf("sched: target %d: %d more predicted blocks taken back than given", t, -a.owed[t]))
	}
}

// ended notes that d is out of the ledger; caller holds s.mu.
func (a *audit) ended(d *Decision) {
	a.mu.Lock()
	delete(a.open, d.id)
	a.mu.Unlock()
}

// dropped notes bookings that the ledger has given up; caller holds s.mu.
func (a *audit) dropped(gone func(t kv.Target, id ledger.ID) bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for id, p := range a.open {
		if p.booked && gone(p.target, p.booking) {
			p.booked = false
			a.open[id] = p
		}
	}
}

// check panics if the books don't agree; caller holds s.mu. It costs as much as there are
// open decisions, so after the first thousands only every 97th call looks.
func (s *Scheduler) check() {
	a := &s.audit
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ops++; a.ops > 4096 && a.ops%97 != 0 {
		return
	}
	booked, promised := 0, map[kv.Target]int{}
	for _, p := range a.open {
		if p.booked {
			booked++
		}
		promised[p.target] += p.hashes
	}
	if n := s.ledger.Requests(); n != booked {
		panic(fmt.Sprintf("sched: the ledger has %d requests, open decisions have booked %d", n, booked))
	}
	if a.busy > 0 {
		return // blocks are on their way: nobody can say now
	}
	for _, x := range s.predicted.q[s.predicted.head:] {
		promised[x.target] += len(x.hashes)
	}
	for t, n := range a.owed {
		if n != promised[t] {
			panic(fmt.Sprintf("sched: target %d: %d blocks are predicted to the index, decisions and predictions have %d", t, n, promised[t]))
		}
	}
}
