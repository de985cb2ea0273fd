package token

import (
	"context"
	"errors"

	"github.com/go-json-experiment/json/jsontext"

	"kvasir/token/chat"
)

// IDs takes prompts that are token ids as they are and hands everything else to
// next. A request that asks the engine to cut its prompt goes to next as well:
// the ids that it gives are not those that the engine will use.
func IDs(next Source) Source {
	return SourceFunc(func(ctx context.Context, r *Request) Result {
		if r.Endpoint != Completions && r.Endpoint != Embeddings {
			return next.Tokens(ctx, r)
		}
		var prompt, cut jsontext.Value
		res := Result{Source: "ids"}
		odd := false
		name := "prompt"
		if r.Endpoint == Embeddings {
			name = "input"
		}
		err := fields(r.Body, func(k string, v jsontext.Value) error {
			switch k {
			case name:
				if prompt = v; v.Kind() == '"' {
					return errNotIDs // and no need to read on
				}
			case "cache_salt":
				return readSalt(v, &res.Salt)
			case "add_special_tokens":
				odd = v.Kind() != 't' && v.Kind() != 'f'
			case "truncate_prompt_tokens":
				cut = v
			}
			return nil
		})
		if err == errNotIDs {
			return next.Tokens(ctx, r)
		}
		var refused *chat.Refused
		if errors.As(err, &refused) {
			return Result{Why: err.Error(), Refused: true}
		}
		if err != nil {
			return Result{Why: "body: " + err.Error()}
		}
		if odd || !isNull(cut) || isNull(prompt) {
			return next.Tokens(ctx, r)
		}
		res.Prompts, err = idPrompts(prompt)
		if errors.Is(err, errNotIDs) {
			return next.Tokens(ctx, r)
		}
		if err != nil {
			return Result{Why: err.Error()}
		}
		for i := range res.Prompts {
			if len(res.Prompts[i].IDs) == 0 {
				return Result{Why: errEmpty.Error(), Refused: true}
			}
		}
		return res
	})
}

// readSalt reads cache_salt, which vLLM refuses when it is empty or no text.
func readSalt(v jsontext.Value, to *string) error {
	if isNull(v) {
		*to = ""
		return nil
	}
	if v.Kind() != '"' || len(v) == 2 {
		return &chat.Refused{Stage: "request", Reason: "cache_salt is not a text of 1 to 1024 characters"}
	}
	return unquote(v, to)
}
