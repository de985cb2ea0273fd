package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"

	"kvasir/lab/mock"
)

// profileOf reads a profile: a name or a file, and changes of its constants.
func profileOf(text string) (mock.Profile, error) {
	base, changes, changed := text, "", false
	if _, err := os.Stat(text); err != nil { // a file's name may have a colon
		base, changes, changed = strings.Cut(text, ":")
	}
	p, err := mock.ProfileByName(base)
	if err != nil {
		raw, missing := os.ReadFile(base)
		if missing != nil {
			if strings.ContainsAny(base, "/.") {
				return p, missing
			}
			return p, fmt.Errorf("%w, or the name of a file that `kvasir replay --fit-profile --json` wrote", err)
		}
		if p, err = readProfile(raw); err != nil {
			return p, fmt.Errorf("%s: %w", base, err)
		}
	}
	if !changed {
		return p, nil
	}
	p.Name = text
	for _, c := range strings.Split(changes, ",") {
		if err := change(&p, c); err != nil {
			return p, fmt.Errorf("profile %q: %w", text, err)
		}
	}
	return p, nil
}

// readProfile reads what --fit-profile prints, or the profile in it alone.
func readProfile(raw []byte) (mock.Profile, error) {
	var fit struct {
		Profile *mock.Profile `json:"profile"`
	}
	if err := json.Unmarshal(raw, &fit); err != nil {
		return mock.Profile{}, fmt.Errorf("no JSON of a profile: %w", err)
	}
	if fit.Profile == nil {
		fit.Profile = new(mock.Profile)
		if err := json.Unmarshal(raw, fit.Profile); err != nil {
			return mock.Profile{}, fmt.Errorf("no profile: %w", err)
		}
	}
	p := *fit.Profile
	if p.C0+p.CP == 0 || p.KVTokens == 0 {
		return p, fmt.Errorf("no profile: want {\"profile\": {\"C0\": seconds per step, \"CP\": seconds per prompt token, …, \"KVTokens\": tokens}}, as `kvasir replay --fit-profile --json` writes it")
	}
	return p, nil
}

// change applies one "constant=value".
func change(p *mock.Profile, text string) error {
	key, value, _ := strings.Cut(text, "=")
	v, err := strconv.ParseFloat(value, 64)
	if err != nil || !(v >= 0 && v <= 1e9) {
		return fmt.Errorf("%q: want CONSTANT=NUMBER, the number between 0 and 1e9", text)
	}
	seconds := map[string]*float64{"c0": &p.C0, "cp": &p.CP, "ca": &p.CA, "ckv": &p.CKV, "cd": &p.CD, "ch": &p.CH}
	counts := map[string]*int{"budget": &p.Budget, "max_seqs": &p.MaxSeqs, "kv_tokens": &p.KVTokens}
	switch k := strings.ToLower(key); {
	case seconds[k] != nil:
		*seconds[k] = v
	case counts[k] != nil:
		*counts[k] = int(v)
	default:
		return fmt.Errorf("it has no constant %q: there are c0 (s per step), cp (s per prompt token), ca (s per prompt token and token before it), ckv (s per context token and step), "+
			"cd (s per decoding request and step), ch (s per token from the host tier), budget (tokens per step), max_seqs, kv_tokens", key)
	}
	return nil
}
