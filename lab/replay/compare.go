package replay

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"text/tabwriter"
	"time"
)

// A Comparison is the same workload on two endpoints.
type Comparison struct {
	Version int       `json:"version"` // 1
	URLs    [2]string `json:"urls"`
	Rounds  int       `json:"rounds"` // complete ones
	// A and B have the samples of all rounds.
	A *Report `json:"a"`
	B *Report `json:"b"`
	// MeanTTFT has the mean time to first token of A and B, by round: whether the
	// difference is more than the spread.
	MeanTTFT [][2]float64 `json:"mean_ttft_s"`
}

// Compare plays w on a.URL and on b.URL, one after the other, rounds times. Every
// turn has a salt of its own, so that no prompt is found in a cache because of an
// earlier turn, also if both endpoints lead to the same engines; every second round
// begins with the other endpoint. a and b should differ in their URL and Key only. If
// ctx ends before, what is known so far is returned beside ctx's error.
func Compare(ctx context.Context, a, b Config, w Workload, rounds int, progress Progress) (*Comparison, error) {
	if rounds < 1 || rounds > 1000 {
		return nil, fmt.Errorf("rounds: %d, want 1 to 1000", rounds)
	}
	out := &Comparison{Version: 1, URLs: [2]string{a.URL, b.URL}}
	cfg := [2]Config{a, b}
	var samples [2][]Sample
	var wall [2]time.Duration
	var left [2]int
	var names [2]string
	var err error
	done := 0
	for round := 0; round < rounds && err == nil; round++ {
		var mean [2]float64
		for turn := range 2 {
			side := (round + turn) % 2
			c := cfg[side]
			c.Writer.Salt += uint64(2*round+turn) * 0x9e3779b97f4a7c15
			var rep *Report
			rep, err = Run(ctx, c, w, func(_, total int, s *Sample) {
				if done++; progress != nil {
					progress(done, 2*rounds*total, s)
				}
			})
			if rep == nil {
				return nil, fmt.Errorf("%s: %w", c.URL, err)
			}
			samples[side] = append(samples[side], rep.Samples...)
			wall[side] += time.Duration(rep.Wall * float64(time.Second))
			left[side] += rep.Left
			names[side], mean[side] = rep.Model, rep.TTFT.Mean
			if err != nil {
				break
			}
		}
		if err == nil {
			out.Rounds++
			out.MeanTTFT = append(out.MeanTTFT, mean)
		}
	}
	out.A, out.B = newReport(names[0], samples[0], wall[0]), newReport(names[1], samples[1], wall[1])
	out.A.Left, out.B.Left = left[0], left[1]
	return out, err
}

// Write prints both reports side by side, with the change from A to B.
func (c *Comparison) Write(w io.Writer) {
	a, b := c.A, c.B
	fmt.Fprintf(w, "A: %s, %d requests to %s in %.1f s\nB: %s, %d requests to %s in %.1f s\n", c.URLs[0], a.Requests, a.Model, a.Wall, c.URLs[1], b.Requests, b.Model, b.Wall)
	for i, r := range []*Report{a, b} {
		if r.Failed > 0 {
			fmt.Fprintf(w, "%c: %d requests FAILED: %q\n", 'A'+i, r.Failed, r.Errors)
		}
		if !r.Reported && r.Requests > r.Failed {
			fmt.Fprintf(w, "%c: cached tokens were not reported (vLLM: --enable-prompt-tokens-details)\n", 'A'+i)
		}
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "\tA\tB\tchange\t")
	if a.Reported && b.Reported {
		fmt.Fprintf(t, "hit rate, %%\t%.1f\t%.1f\t%+.1f points\t\n", 100*a.HitRate, 100*b.HitRate, 100*(b.HitRate-a.HitRate))
	}
	for _, x := range []struct {
		name string
		a, b Spread
	}{{"TTFT", a.TTFT, b.TTFT}, {"ITL", a.ITL, b.ITL}, {"E2E", a.E2E, b.E2E}} {
		for _, y := range []struct {
			name string
			get  func(s *Spread) float64
		}{{"mean", func(s *Spread) float64 { return s.Mean }}, {"p50", func(s *Spread) float64 { return s.P50 }},
			{"p95", func(s *Spread) float64 { return s.P95 }}, {"p99", func(s *Spread) float64 { return s.P99 }}} {
			fmt.Fprintf(t, "%s %s, ms\t%s\t%s\t%s\t\n", x.name, y.name, milli(&x.a, y.get), milli(&x.b, y.get), relative(y.get(&x.a), y.get(&x.b)))
		}
	}
	rate := func(r *Report) float64 { return float64(r.OutputTokens) / max(r.Wall, 1e-9) }
	fmt.Fprintf(t, "output tokens/s\t%.1f\t%.1f\t%s\t\n", rate(a), rate(b), relative(rate(a), rate(b)))
	if a.Balance > 0 || b.Balance > 0 {
		fmt.Fprintf(t, "fullest replica, times its share\t%s\t%s\t\t\n", known(a.Balance), known(b.Balance))
	}
	t.Flush()
	if n := len(c.MeanTTFT); n > 1 {
		better := 0
		var change []float64
		for _, m := range c.MeanTTFT {
			if m[1] < m[0] {
				better++
			}
			if m[0] > 0 {
				change = append(change, 100*(m[1]/m[0]-1))
			}
		}
		if len(change) > 0 {
			fmt.Fprintf(w, "by round: mean TTFT lower on B in %d of %d rounds; its change from %+.1f to %+.1f %%\n", better, n, slices.Min(change), slices.Max(change))
		}
	} else if n == 1 {
		fmt.Fprintln(w, "one round only: --rounds 3 shows whether the difference is more than noise")
	}
}

func milli(s *Spread, get func(s *Spread) float64) string {
	if s.N == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f", 1e3*get(s))
}

func known(f float64) string {
	if f == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", f)
}

func relative(a, b float64) string {
	if a <= 0 || b <= 0 || math.IsInf(b/a, 0) {
		return ""
	}
	return fmt.Sprintf("%+.1f %%", 100*(b/a-1))
}
