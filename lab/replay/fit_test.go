package replay

import (
	"bytes"
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"kvasir/kv"
	"kvasir/lab/mock"
)

// A virtual is a modelled engine in virtual time behind a noisy network.
type virtual struct {
	t     *testing.T
	e     *mock.Engine
	now   time.Duration
	next  uint64
	rnd   *rand.Rand
	delay time.Duration // of each request
	noise time.Duration // mean of what comes on top of each event
	hitch float64       // share of events that come 30 ms late
}

func newVirtual(t *testing.T, p mock.Profile) *virtual {
	e, err := mock.New(mock.Config{Profile: p, BlockSize: 16, Stream: true})
	if err != nil {
		t.Fatal(err)
	}
	return &virtual{t: t, e: e, rnd: rand.New(rand.NewPCG(1, 2))}
}

const fitBlock = 64

// ask plays prompts as the client would: equal blocks and equal owners give equal
// hashes.
func (v *virtual) ask(_ context.Context, list []prompt) []Sample {
	out := make([]Sample, len(list))
	at := make([][]time.Duration, len(list))
	byID := map[uint64]int{}
	start := v.now
	for i, p := range list {
		v.next++
		r := &mock.Request{ID: v.next, Prompt: p.input, Output: p.output}
		h := uint64(0)
		for b := range p.input / 16 {
			id := p.own
			if k := b * 16 / fitBlock; k < len(p.blocks) {
				id = p.blocks[k]
			}
			h = (h ^ id ^ uint64(b)<<20) * 0x9e3779b97f4a7c15
			r.Blocks = append(r.Blocks, kv.Hash(h))
		}
		byID[r.ID] = i
		if err := v.e.Submit(r, v.now); err != nil {
			v.t.Fatal(err)
		}
	}
	var o mock.Outcome
	for left := len(list); left > 0; {
		next, busy := v.e.Next()
		if !busy {
			v.t.Fatal("the engine is idle with requests left")
		}
		v.now = next
		v.e.Advance(next, &o)
		for _, p := range o.Progress {
			i := byID[p.ID]
			s := &out[i]
			if p.First {
				s.Cached = p.Cached
			}
			if p.Tokens > 0 {
				late := time.Duration(v.rnd.ExpFloat64() * float64(v.noise))
				if v.rnd.Float64() < v.hitch {
					late += 30 * time.Millisecond
				}
				at[i] = append(at[i], v.now-start+v.delay+late)
			}
			if p.Done {
				left--
			}
		}
	}
	for i := range out {
		for k := 1; k < len(at[i]); k++ { // a stream keeps its order
			at[i][k] = max(at[i][k], at[i][k-1])
		}
		s := &out[i]
		s.Prompt, s.Output, s.TTFT = list[i].input, list[i].output, at[i][0]
		for k := 1; k < len(at[i]); k++ {
			s.Gaps = append(s.Gaps, at[i][k]-at[i][k-1])
		}
	}
	return out
}

// A profile is recovered within 10 % from a noisy engine, and all but exactly from a
// quiet one.
func TestFitRecoversKnownProfiles(t *testing.T) {
	odd := mock.Profile{Name: "odd", C0: 21e-3, CP: 180e-6, CA: 9e-9, CKV: 140e-9, CD: 110e-6, Budget: 2048, MaxSeqs: 128, KVTokens: 500_000}
	for _, p := range []mock.Profile{mock.Profile70B, mock.Profile8B, odd} {
		for _, c := range []struct {
			name          string
			delay, noise  time.Duration
			hitch, within float64
			rounds        int
		}{
			{"quiet", 0, 0, 0, .005, 1},
			{"noisy", 4 * time.Millisecond, 300 * time.Microsecond, .02, .10, 5},
		} {
			v := newVirtual(t, p)
			v.delay, v.noise, v.hitch = c.delay, c.noise, c.hitch
			plan := DefaultFitPlan()
			plan.Base.Budget, plan.Rounds = p.Budget, c.rounds
			f, err := fit(t.Context(), plan, fitBlock, v.ask, nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, x := range []struct {
				name      string
				got, want float64
			}{{"c0", f.Profile.C0, p.C0}, {"cp", f.Profile.CP, p.CP}, {"ca", f.Profile.CA, p.CA}, {"ckv", f.Profile.CKV, p.CKV}, {"cd", f.Profile.CD, p.CD}} {
				if !(math.Abs(x.got/x.want-1) <= c.within) {
					t.Errorf("%s, %s: %s is %.4g, want %.4g within %.1f %%", p.Name, c.name, x.name, x.got, x.want, 100*c.within)
				}
			}
			if r := f.Residual(); r > c.within/2 {
				t.Errorf("%s, %s: mean residual %.2f %%", p.Name, c.name, 100*r)
			}
		}
	}
}

// An engine that decodes fewer requests at a time than the series asks for is fitted
// from the rest, and the report says so.
func TestFitSaysWhatItLeftOut(t *testing.T) {
	p := mock.Profile8B
	p.MaxSeqs = 20
	v := newVirtual(t, p)
	f, err := fit(t.Context(), DefaultFitPlan(), fitBlock, v.ask, nil)
	if err != nil {
		t.Fatal(err)
	}
	if math.Abs(f.Profile.CKV/p.CKV-1) > .05 || math.Abs(f.Profile.CD/p.CD-1) > .05 {
		t.Errorf("ckv %.4g cd %.4g, want %.4g and %.4g", f.Profile.CKV, f.Profile.CD, p.CKV, p.CD)
	}
	var out bytes.Buffer
	f.Write(&out)
	if len(f.Notes) != 3 || !strings.Contains(out.String(), "48 requests of 4000 tokens never decoded all at the same time") {
		t.Errorf("notes %q", f.Notes)
	}
}

// The wrong budget shows in the residuals.
func TestFitSeesAWrongBudget(t *testing.T) {
	p := mock.Profile8B
	p.Budget, p.MaxSeqs, p.C0 = 512, 64, 25e-3
	v := newVirtual(t, p)
	plan := DefaultFitPlan()
	wrong, err := fit(t.Context(), plan, fitBlock, v.ask, nil)
	if err != nil {
		t.Fatal(err)
	}
	plan.Base.Budget = 512
	right, err := fit(t.Context(), plan, fitBlock, newVirtual(t, p).ask, nil)
	if err != nil {
		t.Fatal(err)
	}
	if right.Residual() > .001 || wrong.Residual() < 10*right.Residual() {
		t.Errorf("residuals: %.4f with the right budget, %.4f with the wrong one", right.Residual(), wrong.Residual())
	}
}

// A request that fails ends the fit with its message; nothing is made up.
func TestFitStopsAtAFailure(t *testing.T) {
	v := newVirtual(t, mock.Profile8B)
	n := 0
	_, err := fit(t.Context(), DefaultFitPlan(), fitBlock, func(ctx context.Context, list []prompt) []Sample {
		out := v.ask(ctx, list)
		if n++; n == 9 {
			out[0].Err = "status 400: too long"
		}
		return out
	}, nil)
	if err == nil || !strings.Contains(err.Error(), "status 400: too long") {
		t.Errorf("error %v", err)
	}
	ctx, stop := context.WithCancel(t.Context())
	if _, err := fit(ctx, DefaultFitPlan(), fitBlock, func(ctx context.Context, list []prompt) []Sample { stop(); return v.ask(ctx, list) }, nil); err != context.Canceled {
		t.Errorf("error %v, want canceled", err)
	}
}

func TestLeastSquares(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	var x [][]float64
	var y []float64
	for i := range 40 {
		row := []float64{1, float64(i % 7), 1e6 * rnd.Float64()}
		x = append(x, row)
		v := 2 + .5*row[1] + 3e-6*row[2]
		if i%10 == 3 {
			v *= 4 // disturbed
		}
		y = append(y, v)
	}
	k := leastSquares(x, y)
	for j, want := range []float64{2, .5, 3e-6} {
		if math.Abs(k[j]/want-1) > .01 {
			t.Errorf("k[%d] = %.4g, want %.4g: one in ten is far off and must not count", j, k[j], want)
		}
	}
	// What would come out negative is 0, and the rest is fitted without it.
	k = leastSquares([][]float64{{1, 1}, {1, 2}, {1, 3}, {1, 4}}, []float64{4, 3.9, 3.8, 3.7})
	if k[1] != 0 || k[0] < 3.7 || k[0] > 4 {
		t.Errorf("k = %v, want a constant alone", k)
	}
	// A column that says nothing gets nothing.
	if k = leastSquares([][]float64{{1, 0}, {1, 0}}, []float64{2, 2}); !slices.Equal(k, []float64{2, 0}) {
		t.Errorf("k = %v, want 2 and 0", k)
	}
}

// Over real sockets every point comes back, and the figures mean something; how near
// they are is up to the machine.
func TestFitProfileOverSockets(t *testing.T) {
	cfg := Defaults()
	cfg.URL, cfg.Shape, cfg.Writer.BlockTokens, cfg.IDRange = engine(t).URL(), IDs, fitBlock, [2]uint32{0, 8000}
	plan := DefaultFitPlan()
	plan.MaxInput, plan.Width, plan.Rounds = 1024, 4, 1
	last, all := 0, 0
	f, err := FitProfile(t.Context(), cfg, plan, func(done, total int) { last, all = done, total })
	// Requests that should decode together don't on a machine that has no time for us.
	for try := 0; try < 5 && err != nil && strings.Contains(err.Error(), "too few measurements"); try++ {
		cfg.Writer.Salt++
		f, err = FitProfile(t.Context(), cfg, plan, func(done, total int) { last, all = done, total })
	}
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Points)+len(f.Notes) != all || last != all || all < 20 {
		t.Errorf("%d points and %d notes of %d", len(f.Points), len(f.Notes), all)
	}
	for _, x := range f.Points {
		if !(x.Measured > 0 && x.Fitted >= 0) || !x.Step && x.Uncached <= 0 {
			t.Errorf("point %+v", x)
		}
	}
	if f.Profile.C0 < 0 || f.Profile.CP < 0 || f.Profile.CA < 0 || f.Profile.CKV < 0 || f.Profile.CD < 0 {
		t.Errorf("a negative constant in %+v", f.Profile)
	}
}

// What an endpoint leaves out, or says of itself, can't make a profile of nonsense.
func TestFitRefusesNonsense(t *testing.T) {
	for _, c := range []struct {
		name string
		bend func(s *Sample)
		want string
	}{
		{"no usage", func(s *Sample) { s.Prompt, s.Output = 0, 0 }, "without usage"},
		{"negative", func(s *Sample) { s.Output = -5 }, "without usage"},
		{"all cached", func(s *Sample) { s.Cached = s.Prompt }, "too few measurements"},
		{"one event", func(s *Sample) { s.Gaps = nil }, "never decoded all at the same time"},
	} {
		v := newVirtual(t, mock.Profile8B)
		_, err := fit(t.Context(), DefaultFitPlan(), fitBlock, func(ctx context.Context, list []prompt) []Sample {
			out := v.ask(ctx, list)
			for i := range out {
				c.bend(&out[i])
			}
			return out
		}, nil)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", c.name, err, c.want)
		}
	}
	plan := DefaultFitPlan()
	plan.Base.Budget = 0
	if _, err := fit(t.Context(), plan, fitBlock, nil, nil); err == nil || !strings.Contains(err.Error(), "budget: 0") {
		t.Errorf("budget 0: %v", err)
	}
}
