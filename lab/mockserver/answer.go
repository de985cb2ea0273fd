package mockserver

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"
)

// generate answers one of the two generating endpoints.
func (s *Server) generate(k kind) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s.requests.Add(1)
		defer s.requests.Add(-1)
		if share(s.cfg.Faults.Refuse) {
			(&apiError{Message: "refused on purpose (fault refuse)", Type: "ServiceUnavailableError", Code: 503}).write(w)
			return
		}
		q, e := s.read(w, r, k)
		if e != nil {
			e.write(w)
			return
		}
		g := &generation{s: s, k: k, q: q, jobs: s.jobs(q, k), created: time.Now().Unix()}
		g.id = [...]string{"chatcmpl-", "cmpl-"}[k] + requestID(r)
		for i, j := range g.jobs {
			if err := s.loop.submit(j); err != nil {
				for _, x := range g.jobs[:i] {
					s.loop.abort(x)
				}
				badRequest("", "%v", err).write(w)
				return
			}
		}
		defer func() {
			for _, j := range g.jobs {
				s.loop.abort(j) // a job that is done is not touched
			}
		}()
		if q.Stream {
			g.stream(w, r)
		} else {
			g.whole(w, r)
		}
	}
}

func requestID(r *http.Request) string {
	if id := r.Header.Get("X-Request-Id"); id != "" {
		return id
	}
	return fmt.Sprintf("%016x", rand.Uint64())
}

// A generation is one request under way.
type generation struct {
	s       *Server
	k       kind
	q       *body
	jobs    []*job
	id      string
	created int64
}

const fingerprint = "vllm-0.32.0-modelled"

type usage struct {
	Prompt     int      `json:"prompt_tokens"`
	Total      int      `json:"total_tokens"`
	Completion int      `json:"completion_tokens"`
	Details    *details `json:"prompt_tokens_details,omitempty"`
}

type details struct {
	Cached  int  `json:"cached_tokens"`
	Created *int `json:"created_cache_tokens,omitempty"`
}

// usage sums up the jobs. vLLM counts the prompt of several choices once, and
// reports the cached tokens of the last.
func (g *generation) usage(completion int) *usage {
	u := &usage{Completion: completion}
	n := len(g.jobs) / len(g.q.prompts)
	for i := 0; i < len(g.jobs); i += n {
		u.Prompt += g.jobs[i].req.Prompt
	}
	u.Total = u.Prompt + completion
	if !g.s.cfg.NoDetails {
		u.Details = &details{Cached: g.jobs[len(g.jobs)-1].cached}
		if g.k == chat {
			zero := 0
			u.Details.Created = &zero
		}
	}
	return u
}

type chatMessage struct {
	Role    string  `json:"role"`
	Content string  `json:"content"`
	Refusal *string `json:"refusal"`
}

type choice struct {
	Index    int          `json:"index"`
	Message  *chatMessage `json:"message,omitempty"`
	Text     *string      `json:"text,omitempty"`
	Logprobs *struct{}    `json:"logprobs"`
	Finish   string       `json:"finish_reason"`
	Stop     *string      `json:"stop_reason"`
	TokenIDs []uint32     `json:"token_ids"`
	Prompt   []uint32     `json:"prompt_token_ids,omitempty"`
}

// whole waits for every job and answers in one piece.
func (g *generation) whole(w http.ResponseWriter, r *http.Request) {
	out := struct {
		ID          string   `json:"id"`
		Object      string   `json:"object"`
		Created     int64    `json:"created"`
		Model       string   `json:"model"`
		Choices     []choice `json:"choices"`
		Fingerprint string   `json:"system_fingerprint"`
		Usage       *usage   `json:"usage"`
	}{ID: g.id, Object: [...]string{"chat.completion", "text_completion"}[g.k], Created: g.created, Model: g.s.cfg.Model, Fingerprint: fingerprint}
	total := 0
	for i, j := range g.jobs {
		for done := false; !done; {
			select {
			case p := <-j.progress:
				if p.failed {
					g.failed().write(w)
					return
				}
				done = p.done
			case <-r.Context().Done():
				return
			}
		}
		ids := j.tokens[j.req.Prompt:]
		total += len(ids)
		text := string(decode(nil, ids))
		c := choice{Index: i, Finish: "length"}
		if g.k == chat {
			c.Message = &chatMessage{Role: "assistant", Content: text}
		} else {
			c.Text = &text
		}
		if g.q.ReturnTokenIDs {
			c.TokenIDs, c.Prompt = ids, j.tokens[:j.req.Prompt]
		}
		out.Choices = append(out.Choices, c)
	}
	out.Usage = g.usage(total)
	g.s.counts.finished.Add(int64(len(g.jobs)))
	writeJSON(w, 200, out)
}

func (g *generation) failed() *apiError {
	return &apiError{Message: "EngineCore encountered an issue. See stack trace (above) for the root cause.", Type: "InternalServerError", Code: 500}
}

// render answers with the tokens of a request, as vLLM does with --enable-scale-out.
func (s *Server) render(k kind) http.HandlerFunc {
	type rendered struct {
		ID        string   `json:"request_id"`
		TokenIDs  []uint32 `json:"token_ids"`
		Features  *int     `json:"features"`
		Model     string   `json:"model"`
		CacheSalt *string  `json:"cache_salt"`
		Priority  int      `json:"priority"`
	}
	return func(w http.ResponseWriter, r *http.Request) {
		q, e := s.read(w, r, k)
		if e != nil {
			e.write(w)
			return
		}
		id := [...]string{"chatcmpl-", "cmpl-"}[k] + requestID(r)
		var list []rendered
		for i, p := range q.prompts {
			x := rendered{ID: id, TokenIDs: p, Model: s.cfg.Model, CacheSalt: q.CacheSalt}
			if len(q.prompts) > 1 {
				x.ID = fmt.Sprintf("%s-%d", id, i)
			}
			list = append(list, x)
		}
		if k == chat {
			writeJSON(w, 200, list[0])
			return
		}
		writeJSON(w, 200, list)
	}
}

func (s *Server) tokenize(w http.ResponseWriter, r *http.Request) {
	q, e := s.readTokenize(w, r)
	if e != nil {
		e.write(w)
		return
	}
	writeJSON(w, 200, struct {
		Count  int      `json:"count"`
		MaxLen int      `json:"max_model_len"`
		Tokens []uint32 `json:"tokens"`
		Strs   []string `json:"token_strs"`
	}{len(q), s.cfg.MaxLen, q, nil})
}
