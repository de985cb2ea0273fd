package mockserver

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
)

// readTokenize reads either form of /tokenize: a prompt or messages.
func (s *Server) readTokenize(w http.ResponseWriter, r *http.Request) ([]uint32, *apiError) {
	b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		return nil, badRequest("", "reading the body: %v", err)
	}
	var form struct {
		Prompt   *string         `json:"prompt"`
		Messages json.RawMessage `json:"messages"`
	}
	if err := json.Unmarshal(b, &form); err != nil {
		return nil, badRequest("", "JSON: %v", err)
	}
	if form.Messages == nil {
		if form.Prompt == nil {
			return nil, badRequest("prompt", "either prompt or messages is needed")
		}
		return encode([]uint32{}, *form.Prompt), nil
	}
	r.Body = io.NopCloser(bytes.NewReader(b))
	q, e := s.read(w, r, chat)
	if e != nil {
		return nil, e
	}
	return q.prompts[0], nil
}

func (s *Server) detokenize(w http.ResponseWriter, r *http.Request) {
	var q struct {
		Tokens []uint32 `json:"tokens"`
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(&q); err != nil {
		badRequest("tokens", "JSON: %v", err).write(w)
		return
	}
	writeJSON(w, 200, map[string]string{"prompt": string(decode(nil, q.Tokens))})
}
