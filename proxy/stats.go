package proxy

import (
	"sync/atomic"
	"time"

	"kvasir/sched"
)

// StatusClientGone is what a request is counted under whose client left before it
// had an answer; nginx's number.
const StatusClientGone = 499

// codes are the status codes that are counted by themselves; the last place is for all others.
var codes = [...]int{200, 201, 204, 301, 302, 304, 307, 308, 400, 401, 403, 404, 405, 409, 413, 415, 422, 429, StatusClientGone, 500, 501, 502, 503, 504, 0}

const numOutcomes = int(sched.Failed) + 1

// counters count without locks.
type counters struct {
	requests [numEndpoints][len(codes)][numOutcomes]atomic.Uint64
	retries  [numReasons]atomic.Uint64
	failures [numReasons]atomic.Uint64

	contradicted atomic.Uint64
	panics       atomic.Uint64

	first    histogram
	overhead histogram
	tokens   histogram
	decision histogram
}

func (s *counters) done(e Endpoint, code int, o sched.Outcome) {
	i := 0
	for i < len(codes)-1 && codes[i] != code {
		i++
	}
	s.requests[e][i][o].Add(1)
}

func (s *counters) retried(why Reason) { s.retries[why].Add(1) }
func (s *counters) failed(why Reason)  { s.failures[why].Add(1) }

// buckets are the upper bounds of histograms, in seconds.
var buckets = [...]float64{
	5e-6, 10e-6, 25e-6, 50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 50e-3, 100e-3, 250e-3, 500e-3,
	1, 2.5, 5, 10, 30, 60, 120, 300,
}

// A histogram counts durations by bucket.
type histogram struct {
	counts [len(buckets) + 1]atomic.Uint64
	nanos  atomic.Int64
}

func (h *histogram) observe(d time.Duration) {
	s, i := d.Seconds(), 0
	for i < len(buckets) && s > buckets[i] {
		i++
	}
	h.counts[i].Add(1)
	h.nanos.Add(int64(d))
}

// A Histogram is a histogram as it was read: Counts[i] durations were at most
// Bounds[i] seconds and more than the bound before; the last count has no bound.
type Histogram struct {
	Bounds []float64
	Counts []uint64
	Sum    float64 // seconds
}

func (h *histogram) snapshot() Histogram {
	out := Histogram{Bounds: buckets[:], Counts: make([]uint64, len(h.counts)), Sum: time.Duration(h.nanos.Load()).Seconds()}
	for i := range h.counts {
		out.Counts[i] = h.counts[i].Load()
	}
	return out
}

// Requests counts the requests of one kind that have ended.
type Requests struct {
	Endpoint Endpoint
	Code     int           // that the client got; 499 if it left before; 0 stands for all rare ones
	Outcome  sched.Outcome // of the last engine; Open if none had it
	N        uint64
}

// Stats is what has happened since the start.
type Stats struct {
	Requests []Requests // those that occurred
	Retries  map[Reason]uint64
	Failures map[Reason]uint64 // of engines, retried or not
	Open     int               // requests now

	// Contradicted is how many requests got their answer although the source of
	// tokens had said that the engine would refuse them: it is stricter than the
	// engine, and those are routed by load for nothing.
	Contradicted uint64

	// Avoided is how many targets get no requests at present because theirs fail. Panics
	// is how many requests went to one of those, or to one whose health checks fail, as
	// there was no better one.
	Avoided int
	Panics  uint64

	FirstToken Histogram // from the arrival of a request to its first content
	Overhead   Histogram // from the arrival of a request to its dispatch, tokens included
	Tokens     Histogram // of that, the wait for token ids
	Decision   Histogram // of that, the decision: match, pick and book
}

// Stats reads the counters, one by one.
func (p *Proxy) Stats() Stats {
	s := &p.stats
	out := Stats{
		Retries: map[Reason]uint64{}, Failures: map[Reason]uint64{}, Open: p.door.count(), Contradicted: s.contradicted.Load(),
		Avoided: int(p.breakers.out.Load()), Panics: s.panics.Load(),
		FirstToken: s.first.snapshot(), Overhead: s.overhead.snapshot(), Tokens: s.tokens.snapshot(), Decision: s.decision.snapshot(),
	}
	for e := range s.requests {
		for c := range s.requests[e] {
			for o := range s.requests[e][c] {
				if n := s.requests[e][c][o].Load(); n > 0 {
					out.Requests = append(out.Requests, Requests{Endpoint(e), codes[c], sched.Outcome(o), n})
				}
			}
		}
	}
	for r := None + 1; r < numReasons; r++ {
		if n := s.retries[r].Load(); n > 0 {
			out.Retries[r] = n
		}
		if n := s.failures[r].Load(); n > 0 {
			out.Failures[r] = n
		}
	}
	return out
}
