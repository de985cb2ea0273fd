package replay

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"text/tabwriter"
	"time"
)

// A Report says what a run was like. Its JSON form is stable: fields are added,
// never changed. Times are in seconds.
type Report struct {
	Version  int      `json:"version"` // 1
	Model    string   `json:"model"`
	Requests int      `json:"requests"` // that ended, well or not
	Failed   int      `json:"failed"`
	Errors   []string `json:"errors,omitempty"` // the first few, each once
	Left     int      `json:"left_out"`         // too long, or behind a turn that failed
	Wall     float64  `json:"wall_s"`

	PromptTokens int     `json:"prompt_tokens"`
	CachedTokens int     `json:"cached_tokens"`
	OutputTokens int     `json:"output_tokens"`
	HitRate      float64 `json:"hit_rate"` // cached of prompt tokens, where reported
	Reported     bool    `json:"cached_reported"`

	TTFT     Spread `json:"ttft_s"`
	TTFTHit  Spread `json:"ttft_hit_s"`  // requests with at least half of the prompt cached
	TTFTMiss Spread `json:"ttft_miss_s"` // all others
	ITL      Spread `json:"itl_s"`
	E2E      Spread `json:"e2e_s"`
	Late     Spread `json:"late_s"` // how much later than due requests were sent

	Replicas []ReplicaShare `json:"replicas,omitempty"`
	// MaxShare is the share of prompt tokens that the most loaded replica got,
	// times their number: 1 is an even spread.
	Balance  float64 `json:"balance,omitempty"`
	Decision Spread  `json:"decision_s"`
	// Predictions compares what the router foretold with what engines served.
	Predictions *Predictions `json:"predictions,omitempty"`

	Samples []Sample `json:"-"`
}

// A ReplicaShare is what one replica got.
type ReplicaShare struct {
	Name     string `json:"name"`
	Requests int    `json:"requests"`
	Prompt   int    `json:"prompt_tokens"`
}

// Predictions compares predicted with served cached tokens, request by request.
type Predictions struct {
	Requests int `json:"requests"`
	Exact    int `json:"exact"`
	Over     int `json:"over_tokens"`
	Under    int `json:"under_tokens"`
}

// A Spread summarises a distribution, by nearest rank.
type Spread struct {
	N    int     `json:"n"`
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P95  float64 `json:"p95"`
	P99  float64 `json:"p99"`
	Max  float64 `json:"max"`
}

func spread(d []time.Duration) Spread {
	if len(d) == 0 {
		return Spread{}
	}
	slices.Sort(d)
	at := func(q float64) float64 {
		return d[min(max(int(math.Ceil(q*float64(len(d))))-1, 0), len(d)-1)].Seconds()
	}
	var sum time.Duration
	for _, x := range d {
		sum += x
	}
	return Spread{N: len(d), Mean: sum.Seconds() / float64(len(d)), P50: at(.5), P95: at(.95), P99: at(.99), Max: at(1)}
}

func newReport(model string, samples []Sample, wall time.Duration) *Report {
	r := &Report{Version: 1, Model: model, Requests: len(samples), Wall: wall.Seconds(), Samples: samples}
	var ttft, hit, miss, itl, e2e, late, decision []time.Duration
	shares := map[string]*ReplicaShare{}
	var pred Predictions
	for i := range samples {
		s := &samples[i]
		if s.Err != "" {
			r.Failed++
			if len(r.Errors) < 5 && !slices.Contains(r.Errors, s.Err) {
				r.Errors = append(r.Errors, s.Err)
			}
			continue
		}
		r.PromptTokens += s.Prompt
		r.CachedTokens += s.Cached
		r.OutputTokens += s.Output
		r.Reported = r.Reported || s.Details
		ttft, e2e, late = append(ttft, s.TTFT), append(e2e, s.E2E), append(late, s.Late)
		itl = append(itl, s.Gaps...)
		if s.Details && 2*s.Cached >= s.Prompt {
			hit = append(hit, s.TTFT)
		} else {
			miss = append(miss, s.TTFT)
		}
		if s.Decision > 0 {
			decision = append(decision, s.Decision)
		}
		if s.Replica != "" {
			x := shares[s.Replica]
			if x == nil {
				x = &ReplicaShare{Name: s.Replica}
				shares[s.Replica] = x
			}
			x.Requests++
			x.Prompt += s.Prompt
		}
		if s.Predicted >= 0 && s.Details {
			pred.add(s.Predicted, s.Cached)
		}
	}
	r.TTFT, r.TTFTHit, r.TTFTMiss, r.ITL, r.E2E, r.Late, r.Decision =
		spread(ttft), spread(hit), spread(miss), spread(itl), spread(e2e), spread(late), spread(decision)
	if r.PromptTokens > 0 {
		r.HitRate = float64(r.CachedTokens) / float64(r.PromptTokens)
	}
	for _, x := range shares {
		r.Replicas = append(r.Replicas, *x)
	}
	slices.SortFunc(r.Replicas, func(a, b ReplicaShare) int { return cmp.Compare(a.Name, b.Name) })
	for _, x := range r.Replicas {
		if r.PromptTokens > 0 {
			r.Balance = max(r.Balance, float64(x.Prompt)*float64(len(r.Replicas))/float64(r.PromptTokens))
		}
	}
	if pred.Requests > 0 {
		r.Predictions = &pred
	}
	return r
}

func (p *Predictions) add(predicted, served int) {
	p.Requests++
	switch {
	case predicted == served:
		p.Exact++
	case predicted > served:
		p.Over += predicted - served
	default:
		p.Under += served - predicted
	}
}

// Write prints the report as a table for people.
func (r *Report) Write(w io.Writer) {
	fmt.Fprintf(w, "%d requests to %s in %.1f s", r.Requests, r.Model, r.Wall)
	if r.Failed > 0 {
		fmt.Fprintf(w, ", %d FAILED", r.Failed)
	}
	if r.Left > 0 {
		fmt.Fprintf(w, ", %d left out (too long, or behind a turn that failed)", r.Left)
	}
	fmt.Fprintln(w)
	for _, e := range r.Errors {
		fmt.Fprintf(w, "  error: %s\n", e)
	}
	if r.Reported {
		fmt.Fprintf(w, "hit rate %.1f %% (%d of %d prompt tokens from cache), %d output tokens\n", 100*r.HitRate, r.CachedTokens, r.PromptTokens, r.OutputTokens)
	} else {
		fmt.Fprintf(w, "cached tokens were not reported (vLLM: --enable-prompt-tokens-details); %d prompt, %d output tokens\n", r.PromptTokens, r.OutputTokens)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "ms\tmean\tp50\tp95\tp99\tmax\t")
	for _, x := range []struct {
		name string
		s    Spread
	}{{"TTFT", r.TTFT}, {"  hits", r.TTFTHit}, {"  misses", r.TTFTMiss}, {"ITL", r.ITL}, {"E2E", r.E2E}} {
		if x.s.N > 0 {
			fmt.Fprintf(t, "%s\t%.1f\t%.1f\t%.1f\t%.1f\t%.1f\t\n", x.name, 1e3*x.s.Mean, 1e3*x.s.P50, 1e3*x.s.P95, 1e3*x.s.P99, 1e3*x.s.Max)
		}
	}
	t.Flush()
	if len(r.Replicas) > 0 {
		fmt.Fprintf(w, "prompt tokens by replica (the fullest has %.2f times its share):", r.Balance)
		for _, x := range r.Replicas {
			fmt.Fprintf(w, " %s %d", x.Name, x.Prompt)
		}
		fmt.Fprintln(w)
	}
	if p := r.Predictions; p != nil {
		fmt.Fprintf(w, "predictions: %d of %d exact; %d tokens predicted too many, %d too few\n", p.Exact, p.Requests, p.Over, p.Under)
	}
	if r.Late.P99 > 0.05 {
		fmt.Fprintf(w, "note: this client fell behind (p99 %.0f ms late): play slower, or from a faster machine\n", 1e3*r.Late.P99)
	}
}
