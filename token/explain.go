package token

import (
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// Explain tokenizes one request with m, without any cache, and returns the text
// that was encoded as well. The error is what would send the request to the engine.
func (m *Model) Explain(r *Request) (rendered string, res Result, err error) {
	l := &Local{}
	if res, err = l.make(m, r); err != nil {
		return "", res, err
	}
	if r.Endpoint == Chat {
		p, err := m.chat.Chat(r.Body)
		if err != nil {
			return "", res, err
		}
		return p.Text, res, nil
	}
	var texts []string
	err = fields(r.Body, func(k string, v jsontext.Value) error {
		if k == "prompt" {
			texts, err = textPrompts(v)
			return err
		}
		return nil
	})
	return strings.Join(texts, "\n"), res, err
}
