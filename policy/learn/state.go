package learn

import (
	"encoding/json"
	"fmt"
	"math"
	"time"

	"kvasir/kv"
)

// The state of a Fleet as JSON: small, and a person can read it.
type savedState struct {
	Kind    string        `json:"kind"`
	Version int           `json:"version"`
	Output  [2]float64    `json:"output"`  // sum and count
	Prefill savedFit      `json:"prefill"` // of the fleet
	Decode  savedFit      `json:"decode"`
	Targets []savedTarget `json:"targets"`
}

type savedTarget struct {
	Identity uint64     `json:"identity"`
	Prefill  savedRatio `json:"prefill"`
	Decode   savedRatio `json:"decode"`
	// Of the last samples, unix seconds; states of before December 2026 have none.
	PrefillAt int64 `json:"prefill_at,omitempty"`
	DecodeAt  int64 `json:"decode_at,omitempty"`
}

type savedRatio struct {
	Log     float64 `json:"log"`
	Samples int     `json:"samples"`
	Clear   bool    `json:"clear"`
	Spread  float64 `json:"spread,omitempty"`
}

type savedFit struct {
	Prior        [3]float64    `json:"prior"` // see Fit; s
	Coefficients [3]float64    `json:"coefficients"`
	Samples      int           `json:"samples"`
	A            [3][3]float64 `json:"a"`
	B            [3]float64    `json:"b"`
	Off          savedRatio    `json:"off"`
}

const (
	stateKind    = "kvasir-calibration"
	stateVersion = 1
	maxState     = 4 << 20
)

func (f *fitted) save() savedFit {
	return savedFit{f.fit.prior, f.fit.k, f.fit.n, f.fit.a, f.fit.b, f.off.save()}
}

// load accepts what a fit could have written: finite, positive, within bounds.
func (s *savedFit) load() (fitted, error) {
	if s.Prior == [3]float64{} {
		return fitted{}, nil
	}
	off, err := s.Off.load()
	if err != nil {
		return fitted{}, err
	}
	if s.Samples < 0 || s.Samples > 1<<40 {
		return fitted{}, fmt.Errorf("samples is %d", s.Samples)
	}
	for i, prior := range s.Prior {
		if !(prior >= 1e-18 && prior <= 1e3) {
			return fitted{}, fmt.Errorf("prior %v is not a duration in seconds between 1e-18 and 1000", prior)
		}
		if r := s.Coefficients[i] / prior; !(r >= .99/bound && r <= 1.01*bound) {
			return fitted{}, fmt.Errorf("coefficient %v is not within a factor of %v of its prior %v", s.Coefficients[i], bound, prior)
		}
		if !(s.A[i][i] >= 0 && s.A[i][i] < 1e12) || !(math.Abs(s.B[i]) < 1e12) {
			return fitted{}, fmt.Errorf("the sums are out of range")
		}
		for j := range s.Prior {
			if s.A[i][j] != s.A[j][i] || !(s.A[i][j] >= 0 && s.A[i][j] < 1e12) {
				return fitted{}, fmt.Errorf("the matrix is not symmetric and positive")
			}
		}
	}
	return fitted{Fit{prior: s.Prior, k: s.Coefficients, n: s.Samples, a: s.A, b: s.B}, off}, nil
}

func (r *Ratio) save() savedRatio { return savedRatio{r.log, r.n, r.clear, r.spread} }

// load restores a ratio. One that was still collecting its first samples starts
// again, as those aren't kept.
func (s *savedRatio) load() (Ratio, error) {
	if !(math.Abs(s.Log) <= 20) || s.Samples < 0 || s.Samples > 1<<40 {
		return Ratio{}, fmt.Errorf("log %v of %d samples: must be between -20 and 20", s.Log, s.Samples)
	}
	if !(s.Spread >= 0 && s.Spread <= ratioFar) {
		return Ratio{}, fmt.Errorf("spread is %v: must be between 0 and %v", s.Spread, ratioFar)
	}
	if s.Samples < firstRatios {
		return Ratio{}, nil
	}
	r := Ratio{log: s.Log, n: s.Samples, clear: s.Clear, spread: s.Spread}
	r.tell()
	return r, nil
}

func (t *target) save() savedTarget {
	return savedTarget{t.identity, t.prefill.save(), t.decode.save(), unix(t.prefillAt), unix(t.decodeAt)}
}

func (s *savedTarget) load() (*target, error) {
	prefill, err := s.Prefill.load()
	if err != nil {
		return nil, fmt.Errorf("prefill: %w", err)
	}
	decode, err := s.Decode.load()
	if err != nil {
		return nil, fmt.Errorf("decode: %w", err)
	}
	return &target{identity: s.Identity, prefill: prefill, decode: decode, prefillAt: fromUnix(s.PrefillAt), decodeAt: fromUnix(s.DecodeAt)}, nil
}

// unix and fromUnix keep a time to the second; the zero time is 0.
func unix(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.Unix()
}

func fromUnix(s int64) time.Time {
	if s <= 0 {
		return time.Time{}
	}
	return time.Unix(s, 0)
}

// AppendState appends all that is known as JSON.
func (f *Fleet) AppendState(dst []byte) []byte {
	s := savedState{Kind: stateKind, Version: stateVersion, Output: [2]float64{f.output.sum, f.output.n}, Prefill: f.prefill.save(), Decode: f.decode.save(), Targets: []savedTarget{}}
	for _, list := range [][]*target{f.targets[:], f.parked} {
		for _, t := range list {
			if t != nil {
				s.Targets = append(s.Targets, t.save())
			}
		}
	}
	out, err := json.Marshal(&s)
	if err != nil { // only if a number isn't finite, which solve can't produce
		return dst
	}
	return append(dst, out...)
}

// LoadState replaces what is known. Targets take up theirs when they are next seen, by
// identity. On an error nothing has changed.
func (f *Fleet) LoadState(src []byte) error {
	if len(src) > maxState {
		return fmt.Errorf("learned state of %d bytes: at most %d are accepted", len(src), maxState)
	}
	var s savedState
	if err := json.Unmarshal(src, &s); err != nil {
		return fmt.Errorf("learned state: %w", err)
	}
	if s.Kind != stateKind || s.Version != stateVersion {
		return fmt.Errorf("learned state is %q version %d: must be %q version %d", s.Kind, s.Version, stateKind, stateVersion)
	}
	if len(s.Targets) > 2*kv.MaxTargets {
		return fmt.Errorf("learned state has %d targets: at most %d are accepted", len(s.Targets), 2*kv.MaxTargets)
	}
	if sum, n := s.Output[0], s.Output[1]; !(n >= 0 && n <= meanMemory) || !(sum >= 0 && sum <= n*(1<<30)) {
		return fmt.Errorf("learned state: output %v is not the sum and number of answer lengths", s.Output)
	}
	prefill, err := s.Prefill.load()
	if err != nil {
		return fmt.Errorf("learned state: prefill: %w", err)
	}
	decode, err := s.Decode.load()
	if err != nil {
		return fmt.Errorf("learned state: decode: %w", err)
	}
	parked := make([]*target, 0, len(s.Targets))
	for i := range s.Targets {
		t, err := s.Targets[i].load()
		if err != nil {
			return fmt.Errorf("learned state: target %d (identity %d): %w", i, s.Targets[i].Identity, err)
		}
		parked = append(parked, t)
	}
	f.prefill, f.decode = prefill, decode
	f.refresh()
	f.parked = parked
	f.targets = [kv.MaxTargets]*target{}
	f.output = Mean{s.Output[0], s.Output[1]}
	return nil
}
