package policy

import "math"

// lowest returns the candidate with the lowest Cost. Costs within eps of the
// lowest are tied; a tie is broken by one draw of intn over the tied ones in
// order, and without a tie nothing is drawn.
func lowest(cands []Candidate, eps float64, intn func(int) int) int {
	best := math.Inf(1)
	for i := range cands {
		best = min(best, cands[i].Cost)
	}
	n, first := 0, 0
	for i := range cands {
		if cands[i].Cost <= best+eps {
			if n == 0 {
				first = i
			}
			n++
		}
	}
	if n <= 1 {
		return first
	}
	k := intn(n)
	for i := first; ; i++ {
		if cands[i].Cost <= best+eps {
			if k == 0 {
				return i
			}
			k--
		}
	}
}

// softmax draws a candidate with probability proportional to
// exp(-(cost-min)/((max-min)*temperature)); uniformly if all cost the same. One
// draw of intn. (Dynamo, lib/kv-router/src/scheduling/selector.)
func softmax(cands []Candidate, temperature float64, intn func(int) int) int {
	lo, hi := math.Inf(1), math.Inf(-1)
	for i := range cands {
		lo, hi = min(lo, cands[i].Cost), max(hi, cands[i].Cost)
	}
	if !(hi > lo) {
		return intn(len(cands))
	}
	scale := 1.0
	if math.IsInf(hi-lo, 0) { // the range overflows: shrink first
		scale = max(math.Abs(hi), math.Abs(lo))
		if math.IsInf(scale, 0) {
			return lowest(cands, 0, intn)
		}
	}
	width := (hi/scale - lo/scale) * temperature
	weight := func(i int) float64 {
		return math.Exp(-(cands[i].Cost/scale - lo/scale) / width)
	}
	sum := 0.0
	for i := range cands {
		sum += weight(i)
	}
	u := uniform(intn) * sum
	for i := range cands {
		if u -= weight(i); u < 0 {
			return i
		}
	}
	return lowest(cands, 0, intn) // rounding
}

// uniform returns a number in [0, 1) from one draw.
func uniform(intn func(int) int) float64 {
	return float64(intn(1<<53)) / (1 << 53)
}
