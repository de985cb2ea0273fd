package sim

import (
	"math"
	"slices"

	"kvasir/model"
)

// metrics collects what experiments.md, section 3, defines. Memory is a few
// numbers per request, and one per replica and half second.
type metrics struct {
	replicas             int
	ttft, e2e, tpot      []float64 // s
	ttftHit, ttftMiss    []float64
	prompt, hit          int // tokens
	output               int
	phantom              int // tokens believed cached on the chosen replica and not found
	share                []int
	firstArrival, last   float64
	began                bool
	convs                map[int32]conv
	later, stayed, first int
	rollouts             []float64 // last completion - first arrival, by finished session
	lives                []life
	contextCV            float64
	contextN             int
	byID                 map[uint64]*request // for tests: nil unless asked for
}

// A conv is where a session's latest request went.
type conv struct {
	replica, firstReplica int
	start                 float64
}

// A life is what the load curve needs of one request.
type life struct {
	first, done float64
	prompt, out int32
	replica     int32
}

func newMetrics(replicas int) *metrics {
	return &metrics{replicas: replicas, share: make([]int, replicas), convs: map[int32]conv{}}
}

// placed notes a decision, in order of arrival.
func (m *metrics) placed(q *request, replica int, now float64) {
	if !m.began || now < m.firstArrival {
		m.firstArrival, m.began = now, true
	}
	m.share[replica]++
	v, seen := m.convs[q.conv]
	if seen {
		m.later++
		if v.replica == replica {
			m.stayed++
		}
		if v.firstReplica == replica {
			m.first++
		}
	} else {
		v.firstReplica, v.start = replica, now
	}
	v.replica = replica
	m.convs[q.conv] = v
}

// add notes a completed request.
func (m *metrics) add(q *request) {
	ttft := q.first - q.arrival
	m.ttft = append(m.ttft, ttft)
	if q.hit > 0 {
		m.ttftHit = append(m.ttftHit, ttft)
	} else {
		m.ttftMiss = append(m.ttftMiss, ttft)
	}
	m.e2e = append(m.e2e, q.done-q.arrival)
	if q.Output > 1 {
		m.tpot = append(m.tpot, (q.done-q.first)/float64(q.Output-1))
	}
	m.prompt += q.Prompt
	m.hit += q.hit
	m.phantom += max(0, q.believed-q.hit)
	m.output += q.Output
	m.last = math.Max(m.last, q.done)
	if m.byID != nil {
		m.byID[q.ID] = q
	}
	m.lives = append(m.lives, life{q.first, q.done, int32(q.Prompt), int32(q.Output), int32(q.replica)})
}

// sampleContext is taken at every fourth routed request.
func (m *metrics) sampleContext(engines []*model.Engine) {
	sum, sq := 0.0, 0.0
	for _, e := range engines {
		k := float64(e.Context())
		sum += k
		sq += k * k
	}
	if sum == 0 {
		return
	}
	n := float64(len(engines))
	mean := sum / n
	m.contextCV += math.Sqrt(math.Max(0, sq/n-mean*mean)) / mean
	m.contextN++
}

// decodeCV is CV0.5: in bins of half a second, the coefficient of variation over
// replicas of the blocks of decoding requests, averaged over non-empty bins.
func (m *metrics) decodeCV(blockSize int) float64 {
	const bin = 0.5
	sums := map[int][]float64{} // by bin
	for _, l := range m.lives {
		lo, hi := int(math.Floor(l.first/bin)), int(math.Floor((l.done-1e-9)/bin))
		for k := lo; k <= hi; k++ {
			f := 1.0
			if l.done > l.first {
				f = min(1, max(0, ((float64(k)+.5)*bin-l.first)/(l.done-l.first)))
			}
			row := sums[k]
			if row == nil {
				row = make([]float64, m.replicas)
				sums[k] = row
			}
			row[l.replica] += math.Ceil((float64(l.prompt) + f*float64(l.out)) / float64(blockSize))
		}
	}
	// In order of time: sums of floats must not depend on the order of a map.
	keys := make([]int, 0, len(sums))
	for k := range sums {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	total, n := 0.0, 0
	for _, k := range keys {
		if cv, ok := variation(sums[k]); ok {
			total += cv
			n++
		}
	}
	if n == 0 {
		return 0
	}
	return total / float64(n)
}

// variation returns population standard deviation over mean.
func variation(v []float64) (float64, bool) {
	sum := 0.0
	for _, x := range v {
		sum += x
	}
	if sum == 0 {
		return 0, false
	}
	mean := sum / float64(len(v))
	sq := 0.0
	for _, x := range v {
		sq += (x - mean) * (x - mean)
	}
	return math.Sqrt(sq/float64(len(v))) / mean, true
}

// A Spread is a distribution in numbers. Percentiles are sorted[min(n-1, floor(p*n))].
type Spread struct {
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P95  float64 `json:"p95"`
	P99  float64 `json:"p99"`
}

func spread(v []float64) Spread {
	if len(v) == 0 {
		return Spread{}
	}
	s := slices.Clone(v)
	slices.Sort(s)
	sum := 0.0
	for _, x := range v {
		sum += x
	}
	at := func(p float64) float64 { return s[min(len(s)-1, int(math.Floor(p*float64(len(s)))))] }
	return Spread{sum / float64(len(v)), at(.5), at(.95), at(.99)}
}
