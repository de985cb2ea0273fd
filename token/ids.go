package token

import (
	"context"
	"errors"

	"github.com/go-json-experiment/json/jsontext"
)

// IDs takes prompts that are token ids as they are and hands everything else to
// next. A request that asks the engine to cut its prompt goes to next as well:
// the ids that it gives are not those that the engine will use.
func IDs(next Source) Source {
	return SourceFunc(func(ctx context.Context, r *Request) Result {
		if r.Endpoint != Completions && r.Endpoint != Embeddings {
			return next.Tokens(ctx, r)
		}
		var prompt, salt, cut jsontext.Value
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
				salt = v
			case "truncate_prompt_tokens":
				cut = v
			}
			return nil
		})
		if err == errNotIDs {
			return next.Tokens(ctx, r)
		}
		if err != nil {
			return Result{Why: "body: " + err.Error()}
		}
		if !isNull(cut) || isNull(prompt) {
			return next.Tokens(ctx, r)
		}
		ps, err := idPrompts(prompt)
		if errors.Is(err, errNotIDs) {
			return next.Tokens(ctx, r)
		}
		if err != nil {
			return Result{Why: err.Error()}
		}
		res := Result{Prompts: ps, Source: "ids"}
		if salt.Kind() == '"' {
			s, err := jsontext.AppendUnquote(nil, salt)
			if err != nil {
				return Result{Why: "cache_salt: " + err.Error()}
			}
			res.Salt = string(s)
		}
		return res
	})
}
