package policy

import (
	"cmp"
	"slices"

	"kvasir/kv"
)

// A ring places virtual nodes of every target it has seen on a circle of 64-bit
// hashes. Targets that aren't candidates for a request are stepped over, so the
// ring is rebuilt only when a target is new or forgotten, and keys of a target
// that is away for a while spread over all others and come back with it.
type ring struct {
	nodes  int // per target
	points []point
	known  [kv.MaxTargets]uint64 // identity by target, 0: not on the ring
	seat   seats
}

type point struct {
	at     uint64
	target kv.Target
}

// seats finds candidates by target, without clearing between requests.
type seats struct {
	round uint32
	rows  [kv.MaxTargets]struct {
		round uint32
		index int32
	}
}

func (s *seats) set(cands []Candidate) {
	if s.round++; s.round == 0 {
		s.rows = [kv.MaxTargets]struct {
			round uint32
			index int32
		}{}
		s.round = 1
	}
	for i := range cands {
		r := &s.rows[cands[i].Target]
		r.round, r.index = s.round, int32(i)
	}
}

// of returns the index of t among the candidates, -1 if it isn't one.
func (s *seats) of(t kv.Target) int {
	if r := &s.rows[t]; r.round == s.round {
		return int(r.index)
	}
	return -1
}

// identity is c's, and never 0.
func identity(c *Candidate) uint64 {
	if c.Identity != 0 {
		return c.Identity
	}
	return uint64(c.Target) + 1
}

// prepare adds what is new and sets the seats.
func (r *ring) prepare(cands []Candidate) {
	r.seat.set(cands)
	grown := false
	for i := range cands {
		t, id := cands[i].Target, identity(&cands[i])
		if r.known[t] == id {
			continue
		}
		if r.known[t] != 0 {
			r.remove(t)
		}
		r.known[t] = id
		for v := range r.nodes {
			r.points = append(r.points, point{h64(id*1000003 + uint64(v)), t})
		}
		grown = true
	}
	if grown {
		slices.SortFunc(r.points, func(a, b point) int {
			if c := cmp.Compare(a.at, b.at); c != 0 {
				return c
			}
			return cmp.Compare(r.known[a.target], r.known[b.target])
		})
	}
}

func (r *ring) remove(t kv.Target) {
	r.points = slices.DeleteFunc(r.points, func(p point) bool { return p.target == t })
	r.known[t] = 0
}

// start returns the index of the first point at or after at, wrapping.
func (r *ring) start(at uint64) int {
	i, _ := slices.BinarySearchFunc(r.points, at, func(p point, at uint64) int { return cmp.Compare(p.at, at) })
	if i == len(r.points) {
		return 0
	}
	return i
}
