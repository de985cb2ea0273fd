package token

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A text that can be no prompt costs no work and no question to an engine; one that nobody
// waits for any more stops; and long ones take turns, while short ones go past them.
func TestLongTextsAreBounded(t *testing.T) {
	asked := 0
	next := SourceFunc(func(context.Context, *Request) Result { asked++; return Result{Why: "next"} })
	l := NewLocal(unverified(), next, nil)
	m := templateModel(t) // 1000 tokens
	l.Set("m", m)
	large := templateModel(t)
	large.maxLen = 1 << 30
	l.Set("large", large)
	ask := func(ctx context.Context, model string, ep Endpoint, text string) Result {
		body := `{"prompt":"` + text + `"}`
		if ep == Chat {
			body = `{"messages":[{"role":"user","content":"` + text + `"}]}`
		}
		return l.Tokens(ctx, &Request{Endpoint: ep, Model: model, Body: []byte(body)})
	}
	words := strings.Repeat("word ", 100_000)
	for _, ep := range []Endpoint{Chat, Completions} {
		if r := ask(context.Background(), "m", ep, words); len(r.Prompts) > 0 || !strings.Contains(r.Why, "is no prompt for a model of 1000 tokens") || r.Refused {
			t.Errorf("500 kB for 1000 tokens: %d prompts, %q", len(r.Prompts), r.Why)
		}
		if r := ask(context.Background(), "large", ep, words); len(r.Prompts) != 1 {
			t.Errorf("500 kB for a large model: %q", r.Why)
		}
		gone, cancel := context.WithCancel(context.Background())
		cancel()
		if r := ask(gone, "large", ep, strings.Repeat("other ", 100_000)); len(r.Prompts) > 0 || !strings.Contains(r.Why, "canceled") && !strings.Contains(r.Why, "waited for") {
			t.Errorf("nobody waits: %d prompts, %q", len(r.Prompts), r.Why)
		}
	}
	if asked > 0 {
		t.Errorf("engines were asked %d times", asked)
	}
	synctest.Test(t, func(t *testing.T) {
		l := NewLocal(unverified(), next, nil)
		l.Set("large", large)
		for range cap(l.slots) { // all at work
			l.slots <- struct{}{}
		}
		ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
		defer cancel()
		q := &Request{Endpoint: Completions, Model: "large", Body: []byte(`{"prompt":"` + words + `"}`)}
		start := time.Now()
		if r := l.Tokens(ctx, q); len(r.Prompts) > 0 || time.Since(start) != 500*time.Millisecond {
			t.Errorf("%d prompts after %v; want none, at the end of the wait: %q", len(r.Prompts), time.Since(start), r.Why)
		}
		q.Body = []byte(`{"prompt":"short"}`)
		if r := l.Tokens(context.Background(), q); len(r.Prompts) != 1 {
			t.Errorf("a short text: %q", r.Why)
		}
	})
}

// A stretch without a safe place to cut can't be left before its end: a long one isn't
// begun where somebody waits.
func TestLongStretchIsNotBegun(t *testing.T) {
	p := newPrefixes(1 << 20)
	for n, want := range map[int]bool{maxStretch: true, maxStretch + 1: false, 4 * maxStretch: false} {
		ids, err := p.encodeWhile(context.Background(), nil, &hopeless{}, 1, make([]byte, n), 0)
		if (err == nil) != want || (len(ids) == 1) != want {
			t.Errorf("%d bytes: %d ids, %v", n, len(ids), err)
		}
	}
	if ids := p.encode(nil, &hopeless{}, 1, make([]byte, 4*maxStretch), 0); len(ids) != 1 {
		t.Errorf("where nobody waits: %d ids", len(ids))
	}
}
