package policy

// A hazard is a rate of returns by age.
type hazard struct {
	events, time [hazardBins]float64
	total        float64
	upTo         [hazardBins + 1]float64 // the integral up to each edge
}

const hazardBins = 19

var hazardEdges = [hazardBins + 1]float64{0, .25, .5, .75, 1, 1.5, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 160, 256}

func (h *hazard) event(age float64) {
	for i := range h.events {
		if age < hazardEdges[i+1] {
			h.events[i]++
			h.total++
			return
		}
	}
}

func (h *hazard) expose(from, to float64) {
	for i := range h.time {
		lo, hi := max(from, hazardEdges[i]), min(to, hazardEdges[i+1])
		if hi > lo {
			h.time[i] += hi - lo
		}
	}
}

// cumulate integrates the rates, and halves the weight of the past when there is
// a lot of it.
func (h *hazard) cumulate() {
	for i := range h.events {
		rate := 0.0
		if h.time[i] > 0 {
			rate = h.events[i] / (h.time[i] + 1) // a second of doubt
		}
		h.upTo[i+1] = h.upTo[i] + rate*(hazardEdges[i+1]-hazardEdges[i])
	}
	if h.total > 20000 {
		h.total /= 2
		for i := range h.events {
			h.events[i] /= 2
			h.time[i] /= 2
		}
	}
}

// sum returns the integral of the rate from 0 to age.
func (h *hazard) sum(age float64) float64 {
	for i := range h.events {
		if lo, hi := hazardEdges[i], hazardEdges[i+1]; age < hi {
			return h.upTo[i] + (h.upTo[i+1]-h.upTo[i])*(age-lo)/(hi-lo)
		}
	}
	return h.upTo[hazardBins]
}
