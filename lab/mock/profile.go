package mock

import (
	"fmt"
	"math"
)

// A Profile is one engine's speed and size. All times in seconds.
type Profile struct {
	Name     string
	C0       float64 // per step
	CP       float64 // per prompt token computed
	CA       float64 // per prompt token computed and token of context before it
	CKV      float64 // per token of context of the decoding sequences, per step
	CD       float64 // per decoding sequence, per step
	CH       float64 // per token loaded from the host tier
	Budget   int     // tokens per step (vLLM: max_num_batched_tokens)
	MaxSeqs  int     // sequences at a time (vLLM: max_num_seqs)
	KVTokens int     // tokens that the block pool holds
}

// The reference's profiles (docs/mock.md, "Engine constants"), and one for demos.
var (
	// Profile70B stands for Llama-3-70B in FP8 on 4 H100 with tensor parallelism:
	// 20,000 prompt tokens/s, 327,680 bytes of KV per token over 12 TB/s, loaded
	// from the host over four PCIe links of 50 GB/s.
	Profile70B = Profile{Name: "70b", C0: 10e-3, CP: 50e-6, CA: 1.6e-9, CKV: 27e-9, CD: 20e-6, CH: 1.6e-6,
		Budget: 8192, MaxSeqs: 256, KVTokens: 600_000}
	// Profile8B stands for Llama-3-8B in bf16 on one H100: 40,000 prompt
	// tokens/s, 131,072 bytes of KV per token over 3 TB/s, 50 GB/s from the host.
	Profile8B = Profile{Name: "8b", C0: 6e-3, CP: 25e-6, CA: 1.3e-9, CKV: 44e-9, CD: 15e-6, CH: 2.6e-6,
		Budget: 8192, MaxSeqs: 256, KVTokens: 400_000}
	// ProfileDemo is no real engine: quick steps and a cache that holds a few
	// short sessions, so that a demo shows in seconds what takes minutes.
	ProfileDemo = Profile{Name: "demo", C0: 5e-3, CP: 120e-6, CA: 4e-9, CKV: 100e-9, CD: 50e-6, CH: 6e-6,
		Budget: 2048, MaxSeqs: 64, KVTokens: 24_576}
)

// Profiles lists the profiles that have a name, in the order of their size.
var Profiles = []Profile{Profile70B, Profile8B, ProfileDemo}

// ProfileByName returns the profile called name, or an error that lists the names.
func ProfileByName(name string) (Profile, error) {
	var known []string
	for _, p := range Profiles {
		if p.Name == name {
			return p, nil
		}
		known = append(known, p.Name)
	}
	return Profile{}, fmt.Errorf("profile %q is unknown: use one of %q", name, known)
}

// Faster returns p with every time divided by factor, which must be positive.
func (p Profile) Faster(factor float64) Profile {
	p.C0 /= factor
	p.CP /= factor
	p.CA /= factor
	p.CKV /= factor
	p.CD /= factor
	p.CH /= factor
	return p
}

// Prefill returns the seconds that computing uncached prompt tokens takes behind
// hit cached ones, while n sequences with kv tokens of context decode beside it
// (docs/mock.md, "Engine constants").
func (p Profile) Prefill(uncached, hit, kv, n int) float64 {
	u := float64(uncached)
	steps := math.Ceil(u / float64(p.Budget))
	// Each product is rounded on its own: a machine that fuses multiply and add
	// would leave the reference's trajectory.
	linear := float64(u * p.CP)
	attention := float64(float64(p.CA*u) * (float64(hit) + u/2))
	step := float64(p.C0+float64(p.CKV*float64(kv))) + float64(p.CD*float64(n))
	return float64(linear+attention) + float64(steps*step)
}

func (p Profile) validate() error {
	for _, f := range []struct {
		name string
		v    float64
	}{{"C0", p.C0}, {"CP", p.CP}, {"CA", p.CA}, {"CKV", p.CKV}, {"CD", p.CD}, {"CH", p.CH}} {
		if !(f.v >= 0) || math.IsInf(f.v, 0) {
			return fmt.Errorf("profile %q: %s is %v, must be a finite number of seconds >= 0", p.Name, f.name, f.v)
		}
	}
	if !(p.C0+p.CP > 0) {
		return fmt.Errorf("profile %q: C0 and CP are both 0, so time would stand still: set C0 > 0", p.Name)
	}
	if p.Budget < 1 || p.MaxSeqs < 1 {
		return fmt.Errorf("profile %q: Budget is %d and MaxSeqs is %d, both must be at least 1", p.Name, p.Budget, p.MaxSeqs)
	}
	if p.Budget <= p.MaxSeqs {
		return fmt.Errorf("profile %q: Budget is %d, must exceed MaxSeqs (%d), or prompts starve behind decodes", p.Name, p.Budget, p.MaxSeqs)
	}
	return nil
}
