// Package token turns a request into token ids: exactly the ids that the engine
// will compute, or none. It knows three ways, best first: the ids are in the
// request, they are computed here (local), the engine computes them (remote).
// An answer that can't be had is no error: the request is then routed by load.
package token

import (
	"context"

	"kvasir/kv"
)

// An Endpoint is what kind of request a body is.
type Endpoint uint8

// The endpoints whose requests have prompts.
const (
	Other Endpoint = iota // no prompt that we can read
	Chat                  // POST /v1/chat/completions
	Completions
	Embeddings
	Responses // POST /v1/responses
	Messages  // POST /v1/messages
	Tokenize
)

// A Request is what there is to tokenize.
type Request struct {
	Endpoint Endpoint
	Model    string // as the client wrote it
	Body     []byte // the client's JSON, not changed
	// Authorization is the client's header, for the engine's own endpoints.
	Authorization string
}

// A Prompt is one prompt of a request (completions may have several).
type Prompt struct {
	IDs []uint32
	// Extras returns the content that ids don't show, for blocks of the given
	// size. nil: there is none.
	Extras func(blockSize int) []kv.Extra
}

// A Result has the prompts of a request, or says why not.
type Result struct {
	Prompts []Prompt
	Salt    string // cache_salt of the request
	Source  string // "ids", "local", "render", "tokenize"; "" without prompts
	Why     string // without prompts: why
	Refused bool   // without prompts: because the engine will refuse the request
}

// A Source finds the tokens of a request. It must be safe for concurrent use and
// return soon after ctx ends. Results may be shared: nobody writes to them.
type Source interface {
	Tokens(ctx context.Context, r *Request) Result
}

// SourceFunc makes a Source of a function.
type SourceFunc func(ctx context.Context, r *Request) Result

// Tokens calls f.
func (f SourceFunc) Tokens(ctx context.Context, r *Request) Result { return f(ctx, r) }

// None is the Source that never knows: every request is routed by load.
var None = SourceFunc(func(context.Context, *Request) Result {
	return Result{Why: "tokenization is off"}
})
