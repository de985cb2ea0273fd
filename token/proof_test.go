package token

import (
	"context"
	"testing"
	"testing/synctest"
)

// A model's first requests are compared with the engine's render, then one in so
// many, beside the request and not on its way.
func TestFirstRequestsAreCompared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tok := small(t)
		asked := 0
		next := SourceFunc(func(_ context.Context, r *Request) Result {
			asked++
			return Result{Prompts: []Prompt{{IDs: tok.EncodeString(nil, "hello", true)}}, Source: "render"}
		})
		l := NewLocal(LocalConfig{Verify: 100, CacheBytes: 256 << 20}, next, nil)
		l.Set("m", NewModel(tok, nil, "", 0))
		body := []byte(`{"prompt":"hello"}`)
		for range 250 {
			if res := l.Tokens(context.Background(), &Request{Endpoint: Completions, Model: "m", Body: body}); res.Source != "local" {
				t.Fatalf("%+v, want them made here", res)
			}
			synctest.Wait()
		}
		if want := firstChecks + 2; asked != want || l.Stats().Models["m"].Compared != uint64(want) {
			t.Errorf("%d questions, %+v; want %d", asked, l.Stats().Models["m"], want)
		}
	})
}

// A handful of mismatches demotes whatever came long before, and few in between
// many equal ones don't.
func TestProofWindow(t *testing.T) {
	var p proof
	for i := range 1000 {
		if down, _ := p.add(i%40 != 0); down { // 2 in any 64
			t.Fatalf("demoted after %d comparisons with one mismatch in 40", i+1)
		}
	}
	for i := range 200 {
		if down, _ := p.add(i%10 != 0); down { // 3 within 64
			return
		}
	}
	t.Error("one mismatch in 10 did not demote")
}
