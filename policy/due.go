package policy

import (
	"math"

	"kvasir/kv"
)

const (
	intervals = 6
	moveStep  = .05 // s, the lowest class of the cost of moving; each next one doubles
	classes   = 12
	certain   = 1 << 24 // a chance of 1
)

// Bounds of the intervals in which a return may fall, in seconds from now.
var intervalEdges = [intervals + 1]float64{0, .5, 1, 2, 4, 8, 16}

// middles are where in its interval a return is taken to fall.
var middles = [intervals]float64{.25, .75, 1.5, 3, 6, 12}

// moving is what a session of the class loses, in seconds, by going elsewhere.
func moving(class uint8) float64 { return math.Ldexp(moveStep, int(class)) }

// classOf is the class of a cost of moving, rounded down.
func classOf(move float64) uint8 {
	if move <= moveStep {
		return 0
	}
	return uint8(min(math.Ilogb(move/moveStep), classes-1))
}

// chances says how likely a session returns in each interval, in units of
// 1/certain: whole numbers, so that sums of them are exact in any order.
type chances [intervals]int32

// A due sums up the sessions that are expected back at one target, such that
// what a delay costs them all is known without going through them. With a backlog
// of b seconds (docs/cost.md, "steer"):
//
//	delay(b) = sum over sessions and intervals: chance * min(b - middle, moving), where b > middle
//	         = sum over intervals: (b - middle)*stay + moveStep*gone
//
// stay is the chance of those whom moving would cost more than to wait so long,
// gone that of the others, each times its cost. Both are kept for every class that
// can be the first of those who stay.
type due struct {
	expected int64
	sums     [intervals][classes + 1]struct{ stay, gone int64 }
}

// add counts a session of the class n times, once or -1 times.
func (d *due) add(c *chances, class uint8, n int64) {
	for j, a := range c {
		if a == 0 {
			continue
		}
		x := n * int64(a)
		d.expected += x
		s := &d.sums[j]
		for k := range s {
			if k <= int(class) {
				s[k].stay += x
			} else {
				s[k].gone += x << class
			}
		}
	}
}

// cost returns D(backlog), in seconds.
func (d *due) cost(backlog float64) float64 {
	sum := 0.0
	for j := range d.sums {
		wait := backlog - middles[j]
		if wait <= 0 {
			break
		}
		s := &d.sums[j][firstToStay(wait)]
		sum += wait*float64(s.stay) + moveStep*float64(s.gone)
	}
	return sum / certain
}

// firstToStay is the first class whose cost of moving is above wait > 0 seconds;
// classes if there is none. At equality either neighbour gives the same sums.
func firstToStay(wait float64) int {
	exponent := int(math.Float64bits(wait/moveStep)>>52) - 1022 // 2^exponent is the least power above
	return max(0, min(exponent, classes))
}

// costOf returns D(backlog) of a single session.
func (c *chances) costOf(class uint8, backlog float64) float64 {
	sum, most := 0.0, moving(class)
	for j, a := range c {
		wait := backlog - middles[j]
		if wait <= 0 {
			break
		}
		sum += float64(a) * min(wait, most)
	}
	return sum / certain
}

// burden returns what b more seconds of work, from a backlog of from to one of to,
// would cost those who are expected back at t, in seconds, and how many are. own,
// the session that asks, is left out (-1: none).
func (r *returns) burden(t kv.Target, own int, from, to float64) (cost, expected float64) {
	d := r.due[t]
	if d == nil || d.expected == 0 {
		return 0, 0
	}
	n := d.expected
	if to > middles[0] {
		cost = d.cost(to) - d.cost(from)
	}
	if own >= 0 && r.leaves[own].home == t {
		f := &r.leaves[own]
		cost -= f.chance.costOf(f.class, to) - f.chance.costOf(f.class, from)
		for _, a := range f.chance {
			n -= int64(a)
		}
	}
	return max(0, cost), float64(n) / certain
}
