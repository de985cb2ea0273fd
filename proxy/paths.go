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
	"/v1/messages/render":         {Render, true, token.Other, false},
	"/v1/responses/render":        {Render, true, token.Other, false},
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
	"/v1/audio/speech":            {Passed, true, token.Other, true},
	"/v1/images/generations":      {Passed, true, token.Other, true},
	"/v1/images/edits":            {Passed, true, token.Other, true},
	"/tokenize":                   {Tokenize, true, token.Other, false},
	"/detokenize":                 {Tokenize, true, token.Other, false},
	"/v1/models":                  {endpoint: Models},
	"/health":                     {endpoint: Health},
	"/ready":                      {endpoint: Health},
	"/ping":                       {endpoint: Health},
}

// admin are names of segments by which engines are administered (vLLM, SGLang): whoever
// reaches one loads adapters, stops the engine or empties its cache. No request reaches
// them through here, whatever Pass says.
var admin = map[string]bool{
	"load_lora_adapter": true, "unload_lora_adapter": true, "sleep": true, "wake_up": true, "is_sleeping": true,
	"reset_prefix_cache": true, "reset_mm_cache": true, "reset_encoder_cache": true, "flush_cache": true,
	"collective_rpc": true, "pause": true, "resume": true, "is_paused": true, "scale_elastic_ep": true,
	"start_profile": true, "stop_profile": true, "server_info": true, "get_server_info": true, "abort_request": true,
	"update_weights": true, "init_weight_transfer_engine": true, "update_weights_from_disk": true,
	"update_weights_from_tensor": true, "update_weights_from_distributed": true, "init_weights_update_group": true,
	"get_weights_by_name": true, "release_memory_occupation": true, "resume_memory_occupation": true,
	"set_internal_state": true, "configure_logging": true, "metrics": true, "docs": true, "openapi.json": true,
}

// lookup says what a path is. ok is false for those that nobody serves: all but the listed
// ones and those below Pass.
func (p *Proxy) lookup(path string) (rt route, ok bool) {
	if rt, ok := routes[path]; ok {
		return rt, true
	}
	if !plainPath(path) {
		return route{endpoint: Unknown}, false
	}
	if strings.HasPrefix(path, "/v1/models/") {
		return route{endpoint: Models}, true
	}
	if id, ok := strings.CutPrefix(path, storedPath); ok {
		id = strings.TrimSuffix(strings.TrimSuffix(id, "/cancel"), "/input_items")
		return route{endpoint: Passed}, id != "" && !strings.Contains(id, "/")
	}
	for _, pre := range p.cfg.Pass {
		if path == pre || strings.HasPrefix(path, strings.TrimSuffix(pre, "/")+"/") {
			return route{endpoint: Passed}, true
		}
	}
	return route{endpoint: Unknown}, false
}

// plainPath reports whether every server on the way will see the same path, and none an
// engine's administration. What is left to unescape after net/http has done so once is
// for somebody else's second time.
func plainPath(path string) bool {
	if strings.ContainsAny(path, ";\\%") || strings.Contains(path, "//") {
		return false
	}
	for seg := range strings.SplitSeq(path, "/") {
		if seg == "." || seg == ".." || admin[strings.ToLower(seg)] {
			return false
		}
	}
	return true
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
