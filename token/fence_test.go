package token

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// A panic behind the fence is a reason why there are no tokens, in whichever goroutine.
func TestFence(t *testing.T) {
	const want = "a bug in Kvasir or its JSON library, please report it: no"
	r := NewRemote(RemoteConfig{Timeout: time.Minute, Concurrency: 1}, nil, 0, func(string) []string { panic("no") }, time.Now)
	res := r.Tokens(context.Background(), &Request{Endpoint: Chat, Body: []byte("{}")})
	if res.Why != want || r.Stats().Failed != 1 {
		t.Errorf("Remote: %+v, %+v", res, r.Stats())
	}
	if len(r.slots) != 0 {
		t.Error("the panic has kept a slot of those for questions")
	}
	for name, f := range map[string]func() error{
		"fields":       func() error { return fields([]byte(`{"a": 1}`), func(string, jsontext.Value) error { panic("no") }) },
		"elements":     func() error { return elements([]byte(`[1]`), func(jsontext.Value) error { panic("no") }) },
		"readValue":    func() error { _, err := readValue(nil, nil); return err },
		"unquoteExact": func() error { return unquoteExact(jsontext.Value(`"a"`), nil) },
		"unquote":      func() error { return unquote(jsontext.Value(`"a"`), nil) },
	} {
		if err := f(); err == nil || !strings.HasPrefix(err.Error(), want[:40]) {
			t.Errorf("%s: %v", name, err)
		}
	}
	var err error
	func() { defer fence(&err); err = errors.ErrUnsupported }()
	if err != errors.ErrUnsupported {
		t.Errorf("without a panic the error has become %v", err)
	}
}
