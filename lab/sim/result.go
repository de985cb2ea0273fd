package sim

import (
	"math"
	"slices"
)

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

// linear returns the percentile with interpolation at (n-1)*p.
func linear(v []float64, p float64) float64 {
	if len(v) == 0 {
		return 0
	}
	s := slices.Clone(v)
	slices.Sort(s)
	at := float64(len(s)-1) * p
	i := int(at)
	if i+1 >= len(s) {
		return s[len(s)-1]
	}
	return s[i] + (s[i+1]-s[i])*(at-float64(i))
}

// A Result is what came of one policy under one seed. Times are in seconds, rates
// and shares between 0 and 1, as docs/mock.md, "Metrics", defines them.
type Result struct {
	Input    string `json:"input"`
	Policy   string `json:"policy"`
	Replicas int    `json:"replicas"`
	Profile  string `json:"profile"`
	KVTokens int    `json:"kv_tokens"` // per replica
	Seed     uint64 `json:"seed"`
	Requests int    `json:"requests"` // completed
	Partial  bool   `json:"partial,omitempty"`

	HitRate    float64  `json:"hit_rate"` // cached prompt tokens of all prompt tokens
	TTFT       Spread   `json:"ttft_s"`
	TTFTHit    Spread   `json:"ttft_hit_s"`  // of requests with cached tokens
	TTFTMiss   Spread   `json:"ttft_miss_s"` // of the others
	E2E        Spread   `json:"e2e_s"`
	TPOT       Spread   `json:"tpot_s"`               // mean time per output token after the first, by request
	DecodeCV   float64  `json:"decode_cv"`            // in bins of 0.5 s, blocks of 16 tokens
	PrefillCV  float64  `json:"prefill_cv"`           // same, of uncached prompt tokens without a first token
	WorkCV     float64  `json:"work_cv"`              // of busy seconds over replicas
	ContextCV  float64  `json:"context_cv"`           // of the engines' context tokens, at every 4th request
	Stickiness float64  `json:"stickiness"`           // later requests of sessions on the replica of the one before
	Homing     float64  `json:"homing"`               // later requests of sessions on the replica of the first
	Makespan   float64  `json:"makespan_s"`           // last completion - first arrival
	MaxShare   float64  `json:"max_share"`            // of requests, on one replica
	Busy       float64  `json:"busy"`                 // mean busy time over makespan
	OutputRate float64  `json:"output_tok_s"`         // output tokens over makespan, all replicas
	Phantom    float64  `json:"phantom"`              // prompt tokens believed cached there and not found, of all prompt tokens
	Session    Spread   `json:"session_s"`            // first arrival to last completion, by session
	SessionP99 float64  `json:"session_p99_linear_s"` // its 99th percentile, interpolated at (n-1)*0.99 as published benchmarks do
	Failed     int      `json:"failed"`               // requests lost with their engine after their first token
	Rerouted   int      `json:"rerouted"`             // retried elsewhere after their engine died before it
	Refused    int      `json:"refused"`              // tries while no replica could take them
	Shed       int      `json:"shed"`                 // refused by the policy, for good; in no figure above
	LostEvents int      `json:"lost_batches"`         // batches of cache events that never arrived
	Preempted  int      `json:"preemptions"`          // by paged engines
	Share      []int    `json:"share"`                // requests by replica
	Wall       float64  `json:"wall_s"`               // of the simulation itself, if a clock was given
	Choices    *Choices `json:"choices,omitempty"`    // of a receipt log: how often the policy chooses as recorded
	Curves     *Curves  `json:"curves,omitempty"`     // if asked for
}

// Curves are what plots need.
type Curves struct {
	// TTFT has the time to first token at 0, 1, …, 100 %.
	TTFT []float64 `json:"ttft_s"`
	// Load has the decoding blocks (16 tokens) by replica, averaged over equal
	// pieces of the makespan.
	Load [][]float64 `json:"load"`
	Step float64     `json:"load_step_s"`
}

// result computes what is known of the run so far.
func (c *cluster) result() Result {
	m := c.metrics
	var r Result
	var ttft, hits, misses, e2e, tpot []float64
	prompt, hit, output, over := 0, 0, 0, 0
	begin, end := math.Inf(1), 0.0
	for i := range m.lives {
		l := &m.lives[i]
		t := l.first - l.arrival
		ttft = append(ttft, t)
		if l.hit > 0 {
			hits = append(hits, t)
		} else {
			misses = append(misses, t)
		}
		e2e = append(e2e, l.done-l.arrival)
		if l.out > 1 {
			tpot = append(tpot, (l.done-l.first)/float64(l.out-1))
		}
		prompt += int(l.prompt)
		hit += int(l.hit)
		output += int(l.out)
		over += int(l.over)
		begin, end = min(begin, l.arrival), max(end, l.done)
	}
	r.Requests = len(m.lives)
	if r.Requests == 0 {
		return r
	}
	r.Share = slices.Clone(m.share)
	r.HitRate = float64(hit) / float64(prompt)
	r.Phantom = float64(over) / float64(prompt)
	r.TTFT, r.TTFTHit, r.TTFTMiss, r.E2E, r.TPOT = spread(ttft), spread(hits), spread(misses), spread(e2e), spread(tpot)
	r.DecodeCV, r.PrefillCV = m.decodeCV(16), m.prefillCV()
	r.Makespan = end - begin
	busy, total := slices.Clone(c.busyFor), 0.0
	for i, e := range c.engines {
		if e != nil {
			busy[i] += e.Busy()
			r.Preempted += e.Stats().Preemptions
		}
		total += busy[i]
	}
	r.WorkCV, _ = variation(busy)
	if r.Makespan > 0 {
		r.Busy = total / float64(len(busy)) / r.Makespan
		r.OutputRate = float64(output) / r.Makespan
	}
	if m.contextN > 0 {
		r.ContextCV = m.contextCV / float64(m.contextN)
	}
	if m.later > 0 {
		r.Stickiness = float64(m.stayed) / float64(m.later)
		r.Homing = float64(m.homing) / float64(m.later)
	}
	if m.routed > 0 {
		r.MaxShare = float64(slices.Max(m.share)) / float64(m.routed)
	}
	r.Failed, r.Rerouted, r.Refused, r.Shed, r.LostEvents = m.failed, m.rerouted, m.refused, m.shed, m.lost
	sessions := m.sessions()
	r.Session, r.SessionP99 = spread(sessions), linear(sessions, .99)
	if m.curves {
		r.Curves = m.curvesOf(ttft, begin, end)
	}
	return r
}

// sessions returns how long each session took that has ended a request.
func (m *metrics) sessions() []float64 {
	var v []float64
	for id := range m.top { // running numbers: no order of a map
		if c := m.convs[id]; c.ended > 0 {
			v = append(v, c.ended-c.began)
		}
	}
	return v
}

// pieces is how many points a load curve has.
const pieces = 240

func (m *metrics) curvesOf(ttft []float64, begin, end float64) *Curves {
	s := slices.Clone(ttft)
	slices.Sort(s)
	c := &Curves{Step: (end - begin) / pieces}
	for p := range 101 {
		c.TTFT = append(c.TTFT, s[min(len(s)-1, p*len(s)/100)])
	}
	c.Load = make([][]float64, len(m.share))
	for i := range c.Load {
		c.Load[i] = make([]float64, pieces)
	}
	if c.Step <= 0 {
		return c
	}
	for i := range m.lives {
		l := &m.lives[i]
		blocks := math.Ceil(float64(l.prompt+l.out) / 16)
		for k := max(0, int((l.first-begin)/c.Step)); k < pieces; k++ {
			from, to := begin+float64(k)*c.Step, begin+float64(k+1)*c.Step
			if from >= l.done {
				break
			}
			c.Load[l.replica][k] += blocks * max(0, min(to, l.done)-max(from, l.first)) / c.Step
		}
	}
	return c
}
