package router

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"kvasir/config"
)

// A session's key reaches the policy over HTTP: under the policies that go by it, equal
// keys meet the same replica whatever the prompt and however much it owes, and
// different ones are spread. Without a key they are not kept together.
func TestSessionReachesThePolicy(t *testing.T) {
	for _, c := range []struct {
		policy string
		keys   []string // where the key is: of a header, or of the body
	}{
		{"session", []string{"X-Session-Id", "session_id", "prompt_cache_key", "user"}},
		{"hrw", []string{"X-Session-Id"}},
		{"chwbl", []string{"X-Session-Id"}},
	} {
		t.Run(c.policy, func(t *testing.T) {
			f := newFleet(t, 3, func(cfg *config.Config) { cfg.Policy.Name = c.policy })
			for _, field := range c.keys {
				used := map[string]bool{}
				for k := range 16 {
					key := fmt.Sprintf("%s-%d", field, k)
					home := f.askAs(field, key, words(20, 100*k))
					if at := f.askAs(field, key, words(30, 100*k+50)); at != home {
						t.Errorf("%s: %s went to %s, then to %s", field, key, home, at)
					}
					used[home] = true
				}
				if len(used) < 2 {
					t.Errorf("%s: sixteen keys went to %v alone", field, used)
				}
			}
		})
	}
}

// askAs asks with a session key in the header or the field of the body called where,
// and returns the replica that has answered.
func (f *testFleet) askAs(where, key, prompt string) string {
	f.t.Helper()
	body, header := "", ""
	if strings.HasPrefix(where, "X-") {
		header = key
	} else {
		body = fmt.Sprintf(`%q:%q,`, where, key)
	}
	body = fmt.Sprintf(`{%s"model":"modelled-8b","prompt":%q,"max_tokens":2}`, body, prompt)
	req, err := http.NewRequest("POST", f.router.URL()+"/v1/completions", strings.NewReader(body))
	if err != nil {
		f.t.Fatal(err)
	}
	if header != "" {
		req.Header.Set(where, header)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		f.t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 200 {
		f.t.Fatalf("%s %s: status %d, %v: %s", where, key, resp.StatusCode, err, answer)
	}
	return resp.Header.Get("X-Kvasir-Replica")
}
