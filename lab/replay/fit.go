package replay

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"kvasir/lab/mock"
)

// A Fit is a profile learned from a live engine, with how well it explains what was
// measured.
type Fit struct {
	Profile mock.Profile `json:"profile"`
	// Overhead is what a request costs beside the engine's steps: network,
	// tokenizer, scheduling. Seconds.
	Overhead float64  `json:"overhead_s"`
	Points   []Point  `json:"points"`
	Notes    []string `json:"notes,omitempty"`
}

// A Point is one measurement of the series. A step is the time between tokens while
// Requests decode with Context tokens in all, the median of its rounds; otherwise it
// is the time to first token of a prompt, the lower quartile: what comes in between
// only ever makes it later.
type Point struct {
	Step     bool    `json:"step"`
	Requests int     `json:"requests,omitempty"` // decoding
	Context  float64 `json:"context,omitempty"`  // tokens, all of them together
	Uncached int     `json:"uncached,omitempty"` // prompt tokens
	Cached   int     `json:"cached,omitempty"`
	Rounds   int     `json:"rounds"`
	Measured float64 `json:"measured_s"`
	Fitted   float64 `json:"fitted_s"`
}

// A FitPlan says what may be asked of the engine. Budget and MaxSeqs can't be seen
// from outside: they are the engine's settings.
type FitPlan struct {
	MaxInput int // longest prompt, tokens
	Width    int // most requests at a time
	Rounds   int // of each point
	Base     mock.Profile
}

// DefaultFitPlan suits engines that take 16,000 tokens; it computes about 1.1 million
// prompt tokens, a minute on a large model.
func DefaultFitPlan() FitPlan {
	return FitPlan{MaxInput: 12_000, Width: 48, Rounds: 3, Base: mock.Profile8B}
}

// Validate names the first field that is out of range.
func (p *FitPlan) Validate() error {
	if p.MaxInput < 512 || p.MaxInput > 1<<20 {
		return fmt.Errorf("max-input: %d, want 512 to %d tokens to fit a profile", p.MaxInput, 1<<20)
	}
	if p.Width < 4 || p.Width > 1024 {
		return fmt.Errorf("width: %d, want 4 to 1024 requests at a time", p.Width)
	}
	if p.Rounds < 1 || p.Rounds > 100 {
		return fmt.Errorf("rounds: %d, want 1 to 100", p.Rounds)
	}
	if p.Base.Budget < 1 {
		return fmt.Errorf("budget: %d, want at least 1 token per step", p.Base.Budget)
	}
	return nil
}

// FitProfile measures the engine at cfg.URL with a series of prompts of its own and
// fits the constants of package mock to it. The engine should be idle otherwise.
// progress may be nil.
func FitProfile(ctx context.Context, cfg Config, plan FitPlan, progress func(done, total int)) (*Fit, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	c, err := newClient(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer c.http.CloseIdleConnections()
	c.start = time.Now()
	return fit(ctx, plan, cfg.Writer.BlockTokens, func(ctx context.Context, list []prompt) []Sample {
		out := make([]Sample, len(list))
		done := make(chan struct{})
		due := time.Since(c.start)
		for i, p := range list {
			go func() {
				out[i] = c.play(ctx, p, due)
				done <- struct{}{}
			}()
		}
		for range list {
			<-done
		}
		return out
	}, progress)
}

// A probe plays prompts at the same time and returns what came, in their order.
type probe func(ctx context.Context, list []prompt) []Sample

// A trial is one point to be measured.
type trial struct {
	n, input, output int  // n requests of that size at a time
	cached           int  // blocks that were asked for before
	step             bool // look at the gaps, else at the first token
}

// series is the design: step lengths over width and context, first tokens over
// uncached and cached tokens. per is the tokens per block.
func (p *FitPlan) series(per int) []trial {
	var list []trial
	for _, n := range []int{1, max(2, p.Width/3), p.Width} {
		for _, in := range []int{32, p.MaxInput / 8, p.MaxInput / 3} {
			list = append(list, trial{n: n, input: in, output: 48, step: true})
		}
	}
	for _, f := range []float64{.02, .05, .1, .2, .35, .5, .75, 1} {
		list = append(list, trial{n: 1, input: max(int(f*float64(p.MaxInput)), 16), output: 1})
	}
	for _, f := range []float64{.4, .7, .9} {
		for _, u := range []float64{.05, .1, .3} {
			b := max(int(f*float64(p.MaxInput))/per, 1)
			if in := b*per + int(u*float64(p.MaxInput)); in <= p.MaxInput {
				list = append(list, trial{n: 1, input: in, output: 1, cached: b})
			}
		}
	}
	return list
}

func fit(ctx context.Context, plan FitPlan, per int, ask probe, progress func(done, total int)) (*Fit, error) {
	if err := plan.Validate(); err != nil {
		return nil, err
	}
	f := &Fit{Profile: plan.Base}
	f.Profile.Name = "fitted"
	list := plan.series(per)
	own, block := uint64(1)<<40, uint64(1)<<40 // numbers that no trace has: prompts of our own
	// The first requests of an engine pay for what is made once: they don't count.
	for range 2 {
		own++
		ask(ctx, []prompt{{input: 64, output: 8, own: own}})
	}
	for i, t := range list {
		blocks := make([]uint64, t.cached)
		for k := range blocks {
			block++
			blocks[k] = block
		}
		if t.cached > 0 { // bring them into the cache
			own++
			ask(ctx, []prompt{{blocks: blocks, input: t.cached*per + 1, output: 1, own: own}})
		}
		var got []Point
		base := own
		rounds := plan.Rounds
		if !t.step {
			rounds = 2*rounds - 1 // cheap, and one event each
		}
		for range rounds {
			if !t.step {
				base = own // a first token is measured with a fresh prompt; a step's prompts may be cached
			}
			batch := make([]prompt, t.n)
			for k := range batch {
				batch[k] = prompt{blocks: blocks, input: t.input, output: t.output, own: base + uint64(k) + 1}
			}
			own = max(own, base+uint64(t.n))
			samples := ask(ctx, batch)
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			for _, s := range samples {
				if s.Err != "" {
					return nil, fmt.Errorf("fitting with %d prompts of %d tokens: %s", t.n, t.input, s.Err)
				}
				if s.Prompt <= 0 || s.Output <= 0 {
					return nil, fmt.Errorf("the endpoint reports %d prompt and %d output tokens: without usage (stream_options.include_usage) no profile can be fitted", s.Prompt, s.Output)
				}
			}
			if x, ok := observe(&t, samples); ok {
				got = append(got, x)
			}
		}
		if len(got) == 0 {
			f.Notes = append(f.Notes, fmt.Sprintf("%d requests of %d tokens never decoded all at the same time (fewer sequences or blocks than that?): left out", t.n, t.input))
		} else {
			f.Points = append(f.Points, typical(got))
		}
		if progress != nil {
			progress(i+1, len(list))
		}
	}
	return f, f.solve()
}

// typical returns the point with the median measurement of steps, with the lower
// quartile of first tokens.
func typical(got []Point) Point {
	slices.SortFunc(got, func(a, b Point) int { return cmp.Compare(a.Measured, b.Measured) })
	i := (len(got) - 1) / 2
	if !got[0].Step {
		i = (len(got) - 1) / 4
	}
	x := got[i]
	x.Rounds = len(got)
	return x
}

// observe turns the samples of one round into a point.
func observe(t *trial, list []Sample) (Point, bool) {
	s := &list[0]
	if !t.step {
		return Point{Uncached: s.Prompt - s.Cached, Cached: s.Cached, Measured: s.TTFT.Seconds()}, s.Prompt > s.Cached
	}
	// Only while all of them decode is their number known.
	from, to := time.Duration(0), time.Duration(math.MaxInt64)
	for i := range list {
		end := list[i].TTFT
		for _, g := range list[i].Gaps {
			end += g
		}
		from, to = max(from, list[i].TTFT), min(to, end)
	}
	var steps []float64
	context := 0.0
	for i := range list {
		s := &list[i]
		var at []float64
		now, before := s.TTFT, 0
		for k := 0; ; k++ {
			if now >= from && now <= to {
				at = append(at, now.Seconds())
			} else if now < from {
				before++
			}
			if k == len(s.Gaps) {
				break
			}
			now += s.Gaps[k]
		}
		if len(at) < 8 {
			return Point{}, false
		}
		chunk := float64(s.Output) / float64(len(s.Gaps)+1) // tokens per event of the stream
		steps = append(steps, slope(at)/chunk)
		context += float64(s.Prompt) + chunk*(float64(before)+float64(len(at))/2)
	}
	slices.Sort(steps)
	return Point{Step: true, Requests: len(list), Context: context, Measured: steps[len(steps)/2]}, true
}

// slope is the median pace of a growing sequence, over pairs half of it apart: one
// late event moves nothing.
func slope(at []float64) float64 {
	h := len(at) / 2
	d := make([]float64, 0, len(at)-h)
	for i := range len(at) - h {
		d = append(d, (at[i+h]-at[i])/float64(h))
	}
	slices.Sort(d)
	return d[len(d)/2]
}

// few is the error of a fit with too little to go by.
func (f *Fit) few() error {
	return fmt.Errorf("too few measurements to fit a profile (%s): lower width, or raise max-input", strings.Join(f.Notes, "; "))
}

// solve fits the constants: first those of a step from the gaps between tokens, then
// those of a prompt from the first tokens, with the step's known.
//
//	step     c0 + cd*n + ckv*context
//	prefill  overhead + ceil(u/budget)*c0 + cp*u + ca*u*(cached + u/2)
func (f *Fit) solve() error {
	p := &f.Profile
	var steps, firsts [][]float64
	var gap, first []float64
	for _, x := range f.Points {
		if x.Step {
			steps, gap = append(steps, []float64{1, float64(x.Requests), x.Context}), append(gap, x.Measured)
		}
	}
	if len(steps) < 4 {
		return f.few()
	}
	k := leastSquares(steps, gap)
	p.C0, p.CD, p.CKV = k[0], k[1], k[2]
	for _, x := range f.Points {
		if !x.Step {
			u := float64(x.Uncached)
			firsts = append(firsts, []float64{1, u, u * (float64(x.Cached) + u/2)})
			first = append(first, x.Measured-math.Ceil(u/float64(p.Budget))*p.C0)
		}
	}
	if len(firsts) < 4 {
		return f.few()
	}
	k = leastSquares(firsts, first)
	f.Overhead, p.CP, p.CA = k[0], k[1], k[2]
	for i := range f.Points {
		x := &f.Points[i]
		if x.Step {
			x.Fitted = p.C0 + p.CD*float64(x.Requests) + p.CKV*x.Context
		} else {
			x.Fitted = f.Overhead + p.Prefill(x.Uncached, x.Cached, 0, 0)
		}
	}
	return nil
}

// Residual is the mean distance between fitted and measured times, as a share of
// the measured ones.
func (f *Fit) Residual() float64 {
	sum := 0.0
	for _, x := range f.Points {
		sum += math.Abs(x.Fitted/x.Measured - 1)
	}
	return sum / float64(max(len(f.Points), 1))
}

// Write prints the profile and its residuals.
func (f *Fit) Write(w io.Writer) {
	p := &f.Profile
	fmt.Fprintf(w, "step:    c0 %.3g ms + cd %.3g µs per decoding request + ckv %.3g ns per token of their context\n", 1e3*p.C0, 1e6*p.CD, 1e9*p.CKV)
	fmt.Fprintf(w, "prompt:  cp %.3g µs per uncached token (%.0f tokens/s) + ca %.3g ns per pair of token and context\n", 1e6*p.CP, 1/p.CP, 1e9*p.CA)
	fmt.Fprintf(w, "beside:  %.1f ms per request (network, tokenizer); budget %d tokens per step is as given\n\n", 1e3*f.Overhead, p.Budget)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "what\trequests\tcontext\tuncached\tcached\tmeasured ms\tfitted ms\toff by\t")
	for _, x := range f.Points {
		what := "first token"
		if x.Step {
			what = "step"
		}
		fmt.Fprintf(t, "%s\t%d\t%.0f\t%d\t%d\t%.2f\t%.2f\t%+.1f %%\t\n", what, x.Requests, x.Context, x.Uncached, x.Cached, 1e3*x.Measured, 1e3*x.Fitted, 100*(x.Fitted/x.Measured-1))
	}
	t.Flush()
	fmt.Fprintf(w, "mean distance %.1f %%\n", 100*f.Residual())
	if f.Residual() > .1 {
		fmt.Fprintln(w, "note: this is a poor fit. Was the engine idle otherwise? Is its budget of tokens per step the one given?")
	}
	for _, n := range f.Notes {
		fmt.Fprintln(w, "note:", n)
	}
}
