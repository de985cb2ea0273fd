package token

import (
	"errors"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"
)

// A question is a body for /tokenize.
type question struct {
	body []byte
	salt string
}

// What /tokenize knows of each endpoint's fields (vLLM 0.32). A field that is in
// neither list does not touch the prompt.
var (
	chatKnown = []string{"model", "messages", "tools", "add_generation_prompt", "continue_final_message",
		"add_special_tokens", "chat_template", "chat_template_kwargs", "mm_processor_kwargs"}
	// chatLost change the prompt, but /tokenize does not know them.
	chatLost = []string{"documents", "reasoning_effort", "truncate_prompt_tokens", "media_io_kwargs"}
)

// tokenizeBody turns a request into a body for /tokenize, if that renders it
// exactly as the request's own endpoint would.
func tokenizeBody(q *Request) (question, error) {
	switch q.Endpoint {
	case Chat:
		return chatQuestion(q)
	case Completions:
		return completionQuestion(q)
	}
	return question{}, errors.New("it knows chat and completions only")
}

func chatQuestion(q *Request) (question, error) {
	keep := map[string]jsontext.Value{}
	var out question
	err := fields(q.Body, func(k string, v jsontext.Value) error {
		switch {
		case has(chatLost, k) && !isNull(v):
			return fmt.Errorf("the request has %q, which it does not know", k)
		case k == "tool_choice" && v.Kind() == '{':
			return errors.New("the request names a tool in tool_choice, which it does not know")
		case has(chatKnown, k) && !isNull(v):
			keep[k] = v
		case k == "cache_salt":
			return unquote(v, &out.salt)
		}
		return nil
	})
	if err != nil {
		return question{}, err
	}
	out.body = object(chatKnown, keep)
	return out, nil
}

func completionQuestion(q *Request) (question, error) {
	keep := map[string]jsontext.Value{}
	var out question
	err := fields(q.Body, func(k string, v jsontext.Value) error {
		switch k {
		case "prompt":
			if v.Kind() != '"' {
				return errors.New("it takes one text, not a list")
			}
			keep[k] = v
		case "model", "add_special_tokens":
			if !isNull(v) {
				keep[k] = v
			}
		case "truncate_prompt_tokens", "suffix", "prompt_embeds":
			if !isNull(v) {
				return fmt.Errorf("the request has %q, which it does not know", k)
			}
		case "cache_salt":
			return unquote(v, &out.salt)
		}
		return nil
	})
	if err != nil {
		return question{}, err
	}
	out.body = object([]string{"model", "prompt", "add_special_tokens"}, keep)
	return out, nil
}

func has(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

func unquote(v jsontext.Value, to *string) (err error) {
	defer fence(&err)
	*to = ""
	if v.Kind() != '"' {
		return nil
	}
	b, err := jsontext.AppendUnquote(nil, v)
	*to = string(b)
	return err
}

// object writes the members of keep as a JSON object, in the order of names.
func object(names []string, keep map[string]jsontext.Value) []byte {
	b := []byte{'{'}
	for _, n := range names {
		v, ok := keep[n]
		if !ok {
			continue
		}
		if len(b) > 1 {
			b = append(b, ',')
		}
		b, _ = jsontext.AppendQuote(b, n)
		b = append(b, ':')
		b = append(b, v...)
	}
	return append(b, '}')
}
