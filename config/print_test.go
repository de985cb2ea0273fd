package config

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"kvasir/policy"
	"kvasir/setting"
)

// reread returns what a file of text says.
func reread(t *testing.T, text []byte) Config {
	t.Helper()
	c, err := load(t, string(text))
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	c.places = places{}
	return c
}

// What is printed is read as the same again, as YAML and as JSON, printed likewise,
// and has no value left to something else.
func TestRoundTrip(t *testing.T) {
	for _, text := range []string{
		"",
		"policy: {name: dynamo, dynamo: {preset: agentic}}\n",
		"policy: {name: dynamo, dynamo: {overlap_score_weight: 0, router_temperature: 1e-9}}\n",
		"policy: {name: llmd_precise, marginal: {coefficients: {prefill_token: 50e-6, attention: 1.6e-9, step: .01, decode_step: .01, decode_request: 20e-6, decode_token: 27e-9}}}\n",
		"policy: {name: round_robin}\nadmin: off\ndrain: 1h30m\npoll_metrics: 1s\nproxy: {pass: [/a, \"/b: c\"]}\nreceipts: 0\nindex_bytes: 4GiB\n",
		"state: 'a # b'\nindex_snapshot: \"yes\"\ntokens: {mode: remote, files: {dirs: {m: /x, \"n: 1\": '5'}}, template: {zone: Europe/Berlin, default_kwargs: {a: 1, b: [x, 2.5], c: {d: null}}}}\n",
	} {
		c := reread(t, []byte(engines+text)).Resolved()
		y, err := c.YAML()
		if err != nil {
			t.Fatal(err)
		}
		j, err := json.MarshalIndent(c, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		for _, form := range [][]byte{y, j} {
			back := reread(t, form)
			if again, _ := back.Resolved().YAML(); string(again) != string(y) {
				t.Errorf("%q: printed again\n%s, want\n%s", text, again, y)
			}
			back.Tokens.Template.Kwargs, c.Tokens.Template.Kwargs = nil, nil // numbers of them change their Go types
			if len(c.Proxy.Pass)+len(back.Proxy.Pass) == 0 {
				back.Proxy.Pass = c.Proxy.Pass
			}
			if len(c.Tokens.Files.Dirs)+len(back.Tokens.Files.Dirs) == 0 {
				back.Tokens.Files.Dirs = nil
			}
			if len(back.Tokens.Files.Repos) == 0 {
				back.Tokens.Files.Repos = nil
			}
			if !reflect.DeepEqual(back, c) {
				t.Errorf("%q: read again\n%+v, want\n%+v", text, back, c)
			}
		}
		keys := func(b []byte) (out []string) {
			for _, s := range setting.List(new(Config)) {
				k := s.Path[strings.LastIndex(s.Path, ".")+1:]
				if strings.Contains(string(b), k+":") || strings.Contains(string(b), `"`+k+`":`) {
					out = append(out, s.Path)
				}
			}
			return out
		}
		if a, b := keys(y), keys(j); !reflect.DeepEqual(a, b) {
			t.Errorf("keys of the YAML %q, of the JSON %q", a, b)
		}
	}
}

// Resolved says what is in force, and changes no decision.
func TestResolved(t *testing.T) {
	t.Setenv("HF_HOME", "/hf")
	for _, v := range []string{"HF_ENDPOINT", "HF_TOKEN_PATH", "HF_HUB_CACHE"} {
		t.Setenv(v, "")
	}
	c := Defaults()
	r := c.Resolved()
	if r.Policy.Name != "marginal" || !r.Policy.HotPrefix.Enabled || r.PollMetrics != 5*time.Second {
		t.Errorf("auto is %s, hot_prefix %v, polled every %v", r.Policy.Name, r.Policy.HotPrefix.Enabled, r.PollMetrics)
	}
	if f := r.Tokens.Files; f.Endpoint != "https://huggingface.co" || f.Cache != "/hf/hub" || f.TokenFile != "/hf/token" {
		t.Errorf("%+v", f)
	}
	if policy.Needs(r.Policy) != policy.Needs(c.Policy) {
		t.Error("auto and what it stands for need different things")
	}
	t.Setenv("HF_ENDPOINT", "https://u:hunter2@hub")
	if f := c.Resolved().Tokens.Files; strings.Contains(f.Endpoint, "hunter2") {
		t.Errorf("shows the password in %s", f.Endpoint)
	}
	c.Policy.Name, c.Policy.Dynamo.Preset = "dynamo", "load-aware"
	if r = c.Resolved(); r.Policy.Dynamo.Preset != "" || r.Policy.Dynamo.OverlapCredit != 0 || policy.Needs(r.Policy) != policy.Needs(c.Policy) {
		t.Errorf("the preset is %+v", r.Policy.Dynamo)
	}
	if twice := r.Resolved(); !reflect.DeepEqual(twice, r) {
		t.Errorf("%+v, then %+v", r, twice)
	}
}

// TestMetricsEvery: engines are asked for their load often only by policies that
// decide by it.
func TestMetricsEvery(t *testing.T) {
	for _, c := range []struct {
		policy string
		key    time.Duration
		want   time.Duration
	}{
		{"auto", 0, 5 * time.Second}, {"dynamo", 0, 5 * time.Second}, {"llmd_precise", 0, 100 * time.Millisecond},
		{"llmd_precise", time.Second, time.Second}, {"auto", time.Minute, time.Minute},
	} {
		cfg := Defaults()
		cfg.Policy.Name, cfg.PollMetrics = c.policy, c.key
		if got := cfg.MetricsEvery(); got != c.want {
			t.Errorf("%s, poll_metrics %v: every %v, want %v", c.policy, c.key, got, c.want)
		}
	}
}

// A file that is too long isn't read.
func TestLongFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "long.yaml")
	if err := os.WriteFile(name, make([]byte, maxFile+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(name); err == nil || !strings.Contains(err.Error(), "more than 4194304 bytes") {
		t.Errorf("%v", err)
	}
}
