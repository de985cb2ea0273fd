package router

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"kvasir/config"
	"kvasir/engine"
	"kvasir/fleet"
	"kvasir/web"
)

// Which of two priorities an engine serves first: as it is known to do, else not guessed.
func TestPriorities(t *testing.T) {
	for _, c := range []struct {
		info engine.Info
		want fleet.Order
	}{
		{engine.Info{Kind: "vllm"}, fleet.LowFirst},
		{engine.Info{Kind: "sglang"}, fleet.HighFirst},
		{engine.Info{Kind: "sglang", LowFirst: true}, fleet.LowFirst},
		{engine.Info{Kind: "tensorrt-llm"}, fleet.NoOrder},
		{engine.Info{}, fleet.NoOrder},
	} {
		if got := priorities(&c.info); got != c.want {
			t.Errorf("%+v: %d, want %d", c.info, got, c.want)
		}
	}
}

// In front of real followers: engines that say that they are vLLM's kind, a policy
// that reads text, and what the client said, as the decisions tell it.
func TestRequestReachesTheDecision(t *testing.T) {
	f := newFleet(t, 1, func(c *config.Config) { c.Policy.Name = "sglang_cache_aware" })
	req, _ := http.NewRequest("POST", f.router.URL()+"/v1/completions", strings.NewReader(`{"model":"modelled-8b","prompt":"a b c","max_tokens":4,"priority":5,"nvext":{"agent_hints":{"osl":3}}}`))
	req.Header.Set("X-Kvasir-Deadline", "1m")
	req.Header.Set("X-Kvasir-Tenant", "acme")
	req.Header.Set("X-Kvasir-Next-Turn", "2s")
	for range 2 {
		resp, err := http.DefaultClient.Do(req.Clone(t.Context()))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		req.Body, _ = req.GetBody()
	}
	var got struct{ Decisions []web.Decision }
	f.get("/v1/kvasir/decisions", &got)
	if len(got.Decisions) != 2 {
		t.Fatalf("%d decisions", len(got.Decisions))
	}
	d := got.Decisions[0]
	if d.Priority != -5 || d.Tenant != "acme" || d.DeadlineMS == nil || *d.DeadlineMS <= 0 || *d.DeadlineMS > 60_000 || d.NextTurnMS == nil || *d.NextTurnMS != 2000 || d.MaxOutput != 4 || d.Expected != 3 || d.Branch != "match" {
		b, _ := json.Marshal(d)
		t.Errorf("%s", b)
	}
}
