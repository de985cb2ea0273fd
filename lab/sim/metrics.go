package sim

import (
	"math"

	"kvasir/lab/mock"
)

// metrics collects what docs/mock.md, "Metrics", defines. Memory is a few
// numbers per request, and one per replica and half second.
type metrics struct {
	lives []life
	share []int // by replica: requests

	convs                 map[int32]conv
	later, stayed, homing int // later requests of sessions; those on the last one's replica; on the first one's

	failed, rerouted, refused, shed int
	lost                            int   // batches of events
	top                             int32 // sessions have numbers below it

	contextCV float64 // sum over samples
	contextN  int
	routed    int

	curves bool
	byID   map[uint64]*request // for tests: nil unless asked for
}

// A conv is a session on its way.
type conv struct {
	replica, home int     // of the latest and the first request
	began, ended  float64 // first arrival, latest completion
}

// A life is what came of one completed request.
type life struct {
	arrival, first, done   float64
	prompt, out, hit, over int32 // tokens; over: believed cached and not found
	replica                int32
}

func newMetrics(replicas int) *metrics {
	return &metrics{share: make([]int, replicas), convs: map[int32]conv{}}
}

// grow makes room for n replicas.
func (m *metrics) grow(n int) {
	for len(m.share) < n {
		m.share = append(m.share, 0)
	}
}

// requests returns how many requests have ended well.
func (m *metrics) requests() int { return len(m.lives) }

// placed notes a decision, in order of time.
func (m *metrics) placed(q *request, replica int) {
	m.routed++
	m.share[replica]++
	v, seen := m.convs[q.conv]
	if seen {
		m.later++
		if v.replica == replica {
			m.stayed++
		}
		if v.home == replica {
			m.homing++
		}
	} else {
		v.home, v.began = replica, q.arrival
	}
	v.replica = replica
	m.convs[q.conv] = v
	m.top = max(m.top, q.conv+1)
}

// add notes a completed request.
func (m *metrics) add(q *request) {
	m.lives = append(m.lives, life{q.arrival, q.first, q.done, int32(q.Prompt), int32(q.Output), int32(q.hit),
		int32(max(0, q.believed-q.hit)), int32(q.replica)})
	v := m.convs[q.conv]
	v.ended = q.done
	m.convs[q.conv] = v
	if m.byID != nil {
		m.byID[q.ID] = q
	}
}

// sampleContext is taken at every fourth routed request: the variation of the
// engines' context tokens over replicas.
func (m *metrics) sampleContext(engines []*mock.Engine) {
	sum, sq, n := 0.0, 0.0, 0.0
	for _, e := range engines {
		if e == nil {
			continue
		}
		k := float64(e.Context())
		sum += k
		sq += k * k
		n++
	}
	if sum == 0 {
		return
	}
	mean := sum / n
	m.contextCV += math.Sqrt(math.Max(0, sq/n-mean*mean)) / mean
	m.contextN++
}

// bin is the width of the bins of the coefficients of variation, in seconds.
const bin = 0.5

// binCV is CV0.5 of docs/mock.md, "Metrics": span tells from when to when a
// request weighs on its replica, weight how much at time t; in each bin the
// coefficient of variation over all replicas, idle ones included; averaged over
// the bins that aren't empty.
func (m *metrics) binCV(span func(l *life) (from, to float64), weight func(l *life, t float64) float64) float64 {
	last := -1
	for i := range m.lives {
		_, to := span(&m.lives[i])
		last = max(last, int(math.Floor((to-1e-9)/bin)))
	}
	n := len(m.share)
	sums := make([]float64, (last+1)*n)
	for i := range m.lives {
		l := &m.lives[i]
		from, to := span(l)
		for k := int(math.Floor(from / bin)); k <= int(math.Floor((to-1e-9)/bin)); k++ {
			sums[k*n+int(l.replica)] += weight(l, (float64(k)+.5)*bin)
		}
	}
	total, bins := 0.0, 0
	for k := range last + 1 {
		if cv, ok := variation(sums[k*n : (k+1)*n]); ok {
			total += cv
			bins++
		}
	}
	if bins == 0 {
		return 0
	}
	return total / float64(bins)
}

// decodeCV is CV0.5 in blocks of blockSize tokens: a request weighs from its
// first token to its end, by prompt and what it has generated.
func (m *metrics) decodeCV(blockSize float64) float64 {
	return m.binCV(func(l *life) (float64, float64) { return l.first, l.done }, func(l *life, t float64) float64 {
		f := 1.0
		if l.done > l.first {
			f = min(1, max(0, (t-l.first)/(l.done-l.first)))
		}
		return math.Ceil((float64(l.prompt) + f*float64(l.out)) / blockSize)
	})
}

// prefillCV is the same for prefill: a request weighs from its arrival to its
// first token, by the prompt tokens that were not cached.
func (m *metrics) prefillCV() float64 {
	return m.binCV(func(l *life) (float64, float64) { return l.arrival, l.first },
		func(l *life, _ float64) float64 { return float64(l.prompt - l.hit) })
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
