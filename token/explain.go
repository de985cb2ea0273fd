package token

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"kvasir/token/chat"
)

// Explain tokenizes one request with m, without any cache, and returns the text
// that was encoded as well. With an error there are no prompts, and res.Refused
// says whether the engine will refuse the request; else it has to make the tokens.
func (m *Model) Explain(r *Request) (rendered string, res Result, err error) {
	if r.Endpoint != Chat && r.Endpoint != Completions {
		return "", Result{}, errors.New("only chats and completions are made here")
	}
	if res := IDs(None).Tokens(context.Background(), r); len(res.Prompts) > 0 {
		return "", res, nil
	} else if res.Refused {
		return "", res, errors.New(res.Why)
	}
	l := &Local{}
	if res, err = l.make(context.Background(), m, r); err != nil {
		var refused *chat.Refused
		return "", Result{Refused: errors.As(err, &refused), Why: err.Error()}, err
	}
	for _, p := range res.Prompts {
		if m.maxLen > 0 && len(p.IDs) > m.maxLen {
			why := fmt.Errorf("the prompt has %d tokens, the engine takes %d", len(p.IDs), m.maxLen)
			return "", Result{Refused: true, Why: why.Error()}, why
		}
	}
	if r.Endpoint == Chat {
		p, err := m.chat.Chat(r.Body)
		return p.Text, res, err
	}
	var texts []string
	err = fields(r.Body, func(k string, v jsontext.Value) error {
		if k == "prompt" {
			var err error
			texts, err = textPrompts(v)
			return err
		}
		return nil
	})
	return strings.Join(texts, "\n"), res, err
}
