package mockserver

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"

	"kvasir/kv"
)

// A kind is one of the two endpoints that generate.
type kind uint8

const (
	chat kind = iota
	completions
)

// maxBody bounds a request's body.
const maxBody = 64 << 20

// A body is what we read of a request. Unknown fields are accepted, as in vLLM.
type body struct {
	Model         *string         `json:"model"`
	Messages      []message       `json:"messages"`
	Prompt        json.RawMessage `json:"prompt"`
	Tools         json.RawMessage `json:"tools"`
	MaxTokens     *int            `json:"max_tokens"`
	MaxCompletion *int            `json:"max_completion_tokens"`
	N             *int            `json:"n"`
	Stream        bool            `json:"stream"`
	StreamOptions *struct {
		IncludeUsage    bool `json:"include_usage"`
		ContinuousUsage bool `json:"continuous_usage_stats"`
	} `json:"stream_options"`
	CacheSalt           *string `json:"cache_salt"`
	SessionID           *string `json:"session_id"`
	ReturnTokenIDs      bool    `json:"return_token_ids"`
	AddGenerationPrompt *bool   `json:"add_generation_prompt"`

	prompts [][]uint32 // filled by read
}

type message struct {
	Role      string          `json:"role"`
	Content   json.RawMessage `json:"content"`
	ToolCalls json.RawMessage `json:"tool_calls"`

	text, calls string // filled by read
}

// read parses a request and turns it into tokens.
func (s *Server) read(w http.ResponseWriter, r *http.Request, k kind) (*body, *apiError) {
	b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		return nil, badRequest("", "reading the body: %v", err)
	}
	var q body
	if err := json.Unmarshal(b, &q); err != nil {
		return nil, &apiError{Message: "1 validation error:\n  {'type': 'json_invalid', 'msg': " + err.Error() + "}", Type: "Bad Request", Code: 400}
	}
	if q.Model != nil && *q.Model != s.cfg.Model {
		return nil, s.unknownModel(*q.Model)
	}
	if q.StreamOptions != nil && !q.Stream {
		return nil, badRequest("stream_options", "Stream options can only be defined when `stream=True`.")
	}
	if q.N != nil && *q.N < 1 {
		return nil, badRequest("n", "n must be at least 1, got %d.", *q.N)
	}
	var e *apiError
	if k == chat {
		e = q.readChat()
	} else {
		e = q.readPrompt()
	}
	if e != nil {
		return nil, e
	}
	for _, p := range q.prompts {
		if len(p) > s.cfg.MaxLen {
			return nil, badRequest("input_tokens", "This model's maximum context length is %d tokens. However, your prompt contains %d input tokens, which exceeds this limit even without any output tokens. Please reduce the length of the input prompt. (parameter=input_tokens, value=%d)", s.cfg.MaxLen, len(p), len(p))
		}
	}
	if m := q.limit(); m != nil && *m > s.cfg.MaxLen {
		return nil, badRequest("max_tokens", "max_tokens=%d cannot be greater than max_model_len=%d.", *m, s.cfg.MaxLen)
	} else if m != nil && *m < 1 {
		return nil, badRequest("max_tokens", "max_tokens must be at least 1, got %d.", *m)
	}
	return &q, nil
}

// limit returns the number of output tokens that the client set, or nil.
func (q *body) limit() *int {
	if q.MaxCompletion != nil {
		return q.MaxCompletion
	}
	return q.MaxTokens
}

func (q *body) readChat() *apiError {
	if len(q.Messages) == 0 {
		return badRequest("messages", "messages must hold at least one message.")
	}
	for i := range q.Messages {
		m := &q.Messages[i]
		text, e := contentText(m.Content)
		if e != nil {
			return e
		}
		m.text = text
		if len(m.ToolCalls) > 0 && !bytes.Equal(m.ToolCalls, []byte("null")) {
			m.calls = string(m.ToolCalls)
		}
	}
	tools := ""
	if len(q.Tools) > 0 && !bytes.Equal(q.Tools, []byte("null")) {
		tools = string(q.Tools)
	}
	gen := q.AddGenerationPrompt == nil || *q.AddGenerationPrompt
	q.prompts = [][]uint32{encode(nil, render(q.Messages, tools, gen))}
	return nil
}

// contentText returns a message's text: a string, parts with texts, or null.
func contentText(raw json.RawMessage) (string, *apiError) {
	if len(raw) == 0 || raw[0] == 'n' {
		return "", nil
	}
	var one string
	if json.Unmarshal(raw, &one) == nil {
		return one, nil
	}
	var parts []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	if err := json.Unmarshal(raw, &parts); err != nil {
		return "", badRequest("messages", "content must be a string or a list of parts.")
	}
	var texts []string
	for _, p := range parts {
		if p.Type != "text" {
			return "", badRequest("", "This model does not support %s input.", p.Type)
		}
		texts = append(texts, p.Text)
	}
	return strings.Join(texts, "\n"), nil
}

// readPrompt reads "text", ["text", …], [1, 2] or [[1, 2], …].
func (q *body) readPrompt() *apiError {
	var text string
	var texts []string
	var ids []uint32
	var idLists [][]uint32
	switch {
	case len(q.Prompt) == 0 || q.Prompt[0] == 'n':
		return badRequest("", "Either prompt or prompt_embeds must be provided and non-empty.")
	case json.Unmarshal(q.Prompt, &text) == nil:
		texts = []string{text}
	case json.Unmarshal(q.Prompt, &ids) == nil:
		if len(ids) > 0 {
			idLists = [][]uint32{ids}
		}
	case json.Unmarshal(q.Prompt, &texts) == nil:
	case json.Unmarshal(q.Prompt, &idLists) == nil:
	default:
		return badRequest("prompt", "prompt must be a string, a list of strings, a list of token ids or a list of those.")
	}
	for _, t := range texts {
		q.prompts = append(q.prompts, encode(nil, t))
	}
	q.prompts = append(q.prompts, idLists...)
	if len(q.prompts) == 0 {
		return badRequest("", "You must pass at least one prompt")
	}
	for _, p := range q.prompts {
		if len(p) == 0 {
			return badRequest("prompt", "The decoder prompt cannot be empty")
		}
	}
	return nil
}

// defaultOutput is what vLLM's completions generate without max_tokens. For chat
// we take a length of our own: there is no end-of-sequence token to wait for.
const defaultOutput, defaultChatOutput = 16, 128

// jobs makes one job for each prompt and choice.
func (s *Server) jobs(q *body, k kind) []*job {
	n := 1
	if q.N != nil {
		n = *q.N
	}
	var out []*job
	for _, prompt := range q.prompts {
		for choice := range n {
			out = append(out, s.job(q, k, prompt, choice))
		}
	}
	return out
}

func (s *Server) job(q *body, k kind, prompt []uint32, choice int) *job {
	output := defaultOutput
	if k == chat {
		output = defaultChatOutput
	}
	if m := q.limit(); m != nil {
		output = *m
	}
	output = max(min(output, s.cfg.MaxLen-len(prompt)), 1)
	j := &job{progress: make(chan piece, output+4), tokens: make([]uint32, 0, len(prompt)+output)}
	j.tokens = append(j.tokens, prompt...)
	seed := uint64(choice + 1)
	for _, t := range prompt {
		seed = (seed ^ uint64(t)) * 1099511628211
	}
	for i := range output {
		j.tokens = append(j.tokens, outputToken(seed, i))
	}
	if q.CacheSalt != nil {
		j.salt = *q.CacheSalt
	}
	if q.SessionID != nil {
		j.session = *q.SessionID
	}
	j.req.Prompt, j.req.Output = len(prompt), output
	j.req.Blocks = s.blocks(j.tokens, j.salt)
	return j
}

func (s *Server) blocks(tokens []uint32, salt string) []kv.Hash {
	s.hashing <- struct{}{}
	defer func() { <-s.hashing }()
	return s.hash.blocks(make([]kv.Hash, 0, len(tokens)/s.cfg.BlockSize), tokens, s.cfg.BlockSize, salt)
}
