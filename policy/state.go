package policy

import (
	"encoding/json"
	"fmt"
	"math"

	"kvasir/kv"
)

// The state of a calibration as JSON: small, and a person can read it.
type savedState struct {
	Kind    string        `json:"kind"`
	Version int           `json:"version"`
	Output  [2]float64    `json:"output"`  // sum and count
	Prefill savedFit      `json:"prefill"` // of the fleet
	Decode  savedFit      `json:"decode"`
	Targets []savedEngine `json:"targets"`
}

type savedEngine struct {
	Identity uint64    `json:"identity"`
	Prefill  savedSkew `json:"prefill"`
	Decode   savedSkew `json:"decode"`
}

type savedSkew struct {
	Log     float64 `json:"log"`
	Samples int     `json:"samples"`
	Clear   bool    `json:"clear"`
}

type savedFit struct {
	Prior        [3]float64    `json:"prior"` // s; see Coefficients
	Coefficients [3]float64    `json:"coefficients"`
	Samples      int           `json:"samples"`
	A            [3][3]float64 `json:"a"`
	B            [3]float64    `json:"b"`
	Off          savedSkew     `json:"off"`
}

const (
	stateKind    = "kvasir-calibration"
	stateVersion = 1
	maxState     = 4 << 20
)

func (f *fitted) save() savedFit { return savedFit{f.prior, f.k, f.n, f.a, f.b, f.off.save()} }

// load accepts what a fit could have written: finite, positive, within bounds.
func (s *savedFit) load() (fitted, error) {
	if s.Prior == [3]float64{} {
		return fitted{}, nil
	}
	f := fitted{fit: fit{prior: s.Prior, k: s.Coefficients, n: s.Samples, a: s.A, b: s.B}}
	var err error
	if f.off, err = s.Off.load(); err != nil {
		return fitted{}, err
	}
	if s.Samples < 0 || s.Samples > 1<<40 {
		return fitted{}, fmt.Errorf("samples is %d", s.Samples)
	}
	for i := range f.prior {
		if !(f.prior[i] >= 1e-18 && f.prior[i] <= 1e3) {
			return fitted{}, fmt.Errorf("prior %v is not a duration in seconds between 1e-18 and 1000", f.prior[i])
		}
		if r := f.k[i] / f.prior[i]; !(r >= .99/bound && r <= 1.01*bound) {
			return fitted{}, fmt.Errorf("coefficient %v is not within a factor of %v of its prior %v", f.k[i], bound, f.prior[i])
		}
		if !(f.a[i][i] >= 0 && f.a[i][i] < 1e12) || !(math.Abs(f.b[i]) < 1e12) {
			return fitted{}, fmt.Errorf("the sums are out of range")
		}
		for j := range f.prior {
			if f.a[i][j] != f.a[j][i] || !(f.a[i][j] >= 0 && f.a[i][j] < 1e12) {
				return fitted{}, fmt.Errorf("the matrix is not symmetric and positive")
			}
		}
	}
	return f, nil
}

func (s *skew) save() savedSkew { return savedSkew{s.log, s.n, s.clear} }

// load restores a skew. One that was still collecting its first samples starts
// again, as those aren't kept.
func (s *savedSkew) load() (skew, error) {
	if !(math.Abs(s.Log) <= 20) || s.Samples < 0 || s.Samples > 1<<40 {
		return skew{}, fmt.Errorf("log %v of %d samples: must be between -20 and 20", s.Log, s.Samples)
	}
	if s.Samples < firstSkews {
		return skew{}, nil
	}
	k := skew{log: s.Log, n: s.Samples, clear: s.Clear}
	k.tell()
	return k, nil
}

func (e *engine) save() savedEngine {
	return savedEngine{e.identity, e.prefill.save(), e.decode.save()}
}

func (s *savedEngine) load() (*engine, error) {
	prefill, err := s.Prefill.load()
	if err != nil {
		return nil, fmt.Errorf("prefill: %w", err)
	}
	decode, err := s.Decode.load()
	if err != nil {
		return nil, fmt.Errorf("decode: %w", err)
	}
	return &engine{identity: s.Identity, prefill: prefill, decode: decode}, nil
}

func (c *calibration) appendState(dst []byte) []byte {
	s := savedState{Kind: stateKind, Version: stateVersion, Output: [2]float64{c.output.sum, c.output.n}, Prefill: c.prefill.save(), Decode: c.decode.save(), Targets: []savedEngine{}}
	for _, list := range [][]*engine{c.targets[:], c.parked} {
		for _, e := range list {
			if e != nil {
				s.Targets = append(s.Targets, e.save())
			}
		}
	}
	out, err := json.Marshal(&s)
	if err != nil { // only if a number isn't finite, which solve can't produce
		return dst
	}
	return append(dst, out...)
}

// loadState replaces what is known. Targets take up theirs when they are next
// placed on, by identity.
func (c *calibration) loadState(src []byte) error {
	if len(src) > maxState {
		return fmt.Errorf("calibration state of %d bytes: at most %d are accepted", len(src), maxState)
	}
	var s savedState
	if err := json.Unmarshal(src, &s); err != nil {
		return fmt.Errorf("calibration state: %w", err)
	}
	if s.Kind != stateKind || s.Version != stateVersion {
		return fmt.Errorf("calibration state is %q version %d: must be %q version %d", s.Kind, s.Version, stateKind, stateVersion)
	}
	if len(s.Targets) > 2*kv.MaxTargets {
		return fmt.Errorf("calibration state has %d targets: at most %d are accepted", len(s.Targets), 2*kv.MaxTargets)
	}
	if sum, n := s.Output[0], s.Output[1]; !(n >= 0 && n <= meanMemory) || !(sum >= 0 && sum <= n*(1<<30)) {
		return fmt.Errorf("calibration state: output %v is not the sum and number of answer lengths", s.Output)
	}
	prefill, err := s.Prefill.load()
	if err != nil {
		return fmt.Errorf("calibration state: prefill: %w", err)
	}
	decode, err := s.Decode.load()
	if err != nil {
		return fmt.Errorf("calibration state: decode: %w", err)
	}
	parked := make([]*engine, 0, len(s.Targets))
	for i := range s.Targets {
		e, err := s.Targets[i].load()
		if err != nil {
			return fmt.Errorf("calibration state: target %d (identity %d): %w", i, s.Targets[i].Identity, err)
		}
		parked = append(parked, e)
	}
	c.prefill, c.decode = prefill, decode
	c.refresh()
	c.parked = parked
	c.targets = [kv.MaxTargets]*engine{}
	c.output = mean{s.Output[0], s.Output[1]}
	return nil
}
