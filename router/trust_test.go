package router

import (
	"net/http"
	"strings"
	"testing"

	"kvasir/config"
	"kvasir/web"
)

// The reason of the trust follows what happens; since when is that of the state.
func TestTrustReasons(t *testing.T) {
	f := newFleet(t, 1, func(c *config.Config) {
		c.Engines = append(c.Engines, config.NewEngine("http://127.0.0.1:9")) // nobody is there
	})
	rank := func(n int) web.Rank { return f.fleet().Replicas[n].Ranks[0] }
	if k := rank(1); k.Trust != "unknown" || k.Reason != "the engine has not answered yet" || k.Since.IsZero() {
		t.Errorf("of an engine that is not there: %+v", k)
	}
	f.until(func() bool { return rank(0).Trust == "exact" })
	first := rank(0)
	if first.Reason != "the engine has not published anything yet" {
		t.Errorf("before the first event: %s", first.Reason)
	}
	f.ask(words(64, 1), "")
	f.settled(4)
	if k := rank(0); k.Trust != "exact" || k.Reason != "followed since the engine's start" || !k.Since.Equal(first.Since) {
		t.Errorf("after it: %s (%s) since %v, before %v", k.Trust, k.Reason, k.Since, first.Since)
	}
	resp, err := http.Post(f.router.AdminURL()+"/v1/kvasir/forget?replica="+f.fleet().Replicas[0].Name, "", nil)
	if err != nil || resp.StatusCode != 202 {
		t.Fatalf("forget: %v %v", resp, err)
	}
	resp.Body.Close()
	f.until(func() bool {
		return rank(0).Reason == "replayed from the engine's start, followed since" && rank(0).Trust == "exact"
	})
	f.settled(4)
	f.engines[0].Close()
	f.until(func() bool { return rank(0).Trust == "stale" })
	if k := rank(0); !strings.Contains(k.Reason, "connection down") || !k.Since.After(first.Since) {
		t.Errorf("without a connection: %+v", k)
	}
}
