package proxy

import (
	"net/http"
	"strings"

	"kvasir/token"
)

// An Endpoint is a kind of path, for counters and for the dialect of errors.
type Endpoint uint8

// The endpoints.
const (
	Chat Endpoint = iota
	Completions
	Embeddings
	Responses
	Messages
	Tokenize
	Render // any path that ends in /render
	Models
	Health
	Passed  // anything else that is passed to an engine
	Unknown // what is answered 404
	numEndpoints
)

var endpointNames = [numEndpoints]string{
	"chat", "completions", "embeddings", "responses", "messages", "tokenize", "render", "models", "health", "passed", "unknown",
}

func (e Endpoint) String() string { return endpointNames[e] }

// A route says what happens to a path.
type route struct {
	endpoint Endpoint
	post     bool           // only POST makes sense
	kind     token.Endpoint // how its prompt is read; Other: not at all
	generate bool           // runs the model: its answer is watched, and a failure before its first content is retried
}

var routes = map[string]route{
	"/v1/chat/completions": {Chat, true, token.Chat, true},
	"/v1/completions":      {Completions, true, token.Completions, true},
	"/v1/embeddings":       {Embeddings, true, token.Embeddings, true},
	"/v1/responses":        {Responses, true, token.Responses, true},
	"/v1/messages":         {Messages, true, token.Messages, true},

	"/v1/messages/count_tokens":   {Messages, true, token.Other, false},
	"/v1/chat/completions/render": {Render, true, token.Other, false},
	"/v1/completions/render":      {Render, true, token.Other, false},
	"/v1/chat/completions/batch":  {Passed, true, token.Other, true},
	"/v1/rerank":                  {Passed, true, token.Other, true},
	"/v1/score":                   {Passed, true, token.Other, true},
	"/v2/rerank":                  {Passed, true, token.Other, true},
	"/rerank":                     {Passed, true, token.Other, true},
	"/score":                      {Passed, true, token.Other, true},
	"/pooling":                    {Passed, true, token.Other, true},
	"/classify":                   {Passed, true, token.Other, true},
	"/inference/v1/generate":      {Passed, true, token.Other, true},
	"/v1/audio/transcriptions":    {Passed, true, token.Other, true},
	"/v1/audio/translations":      {Passed, true, token.Other, true},
	"/tokenize":                   {Tokenize, true, token.Other, false},
	"/detokenize":                 {Tokenize, true, token.Other, false},
	"/v1/models":                  {endpoint: Models},
	"/health":                     {endpoint: Health},
	"/ready":                      {endpoint: Health},
	"/ping":                       {endpoint: Health},
}

// lookup says what a path is. ok is false for those that nobody serves.
func (p *Proxy) lookup(path string) (rt route, ok bool) {
	if rt, ok := routes[path]; ok {
		return rt, true
	}
	if dotted(path) { // an engine behind another proxy would see a different path
		return route{endpoint: Unknown}, false
	}
	if strings.HasPrefix(path, "/v1/models/") {
		return route{endpoint: Models}, true
	}
	pass := strings.HasPrefix(path, "/v1/") || strings.HasPrefix(path, "/v2/") || strings.HasPrefix(path, "/inference/")
	for _, pre := range p.cfg.Pass {
		pass = pass || strings.HasPrefix(path, pre)
	}
	if !pass {
		return route{endpoint: Unknown}, false
	}
	if strings.HasSuffix(path, "/render") {
		return route{endpoint: Render}, true
	}
	return route{endpoint: Passed}, true
}

// dotted reports whether a path has segments that a server may resolve.
func dotted(path string) bool {
	for seg := range strings.SplitSeq(path, "/") {
		if seg == "." || seg == ".." {
			return true
		}
	}
	return false
}

// allowed reports whether method makes sense for rt, else which do.
func (rt route) allowed(method string) (allow string, ok bool) {
	switch {
	case rt.endpoint == Models || rt.endpoint == Health:
		return "GET, HEAD", method == http.MethodGet || method == http.MethodHead
	case method == http.MethodConnect || method == http.MethodTrace:
		return "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS", false
	case rt.post: // OPTIONS is how browsers ask first; engines answer that
		return "POST, OPTIONS", method == http.MethodPost || method == http.MethodOptions
	}
	return "", true
}
