package mockserver

import (
	"encoding/json"
	"fmt"
	"net/http"
)

type delta struct {
	Role    string  `json:"role,omitempty"`
	Content *string `json:"content,omitempty"`
}

type streamChoice struct {
	Index    int       `json:"index"`
	Delta    *delta    `json:"delta,omitempty"`
	Text     *string   `json:"text,omitempty"`
	Logprobs *struct{} `json:"logprobs"`
	Finish   *string   `json:"finish_reason"`
	TokenIDs []uint32  `json:"token_ids,omitempty"`
}

type chunk struct {
	ID          string         `json:"id"`
	Object      string         `json:"object"`
	Created     int64          `json:"created"`
	Model       string         `json:"model"`
	Choices     []streamChoice `json:"choices"`
	Usage       *usage         `json:"usage,omitempty"`
	Fingerprint string         `json:"system_fingerprint,omitempty"`
}

// A turn is one piece of one job.
type turn struct {
	i int
	p piece
}

// stream answers chunk by chunk: headers at once, tokens as the model makes
// them, usage at the end if the client asked for it, [DONE].
func (g *generation) stream(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	w.WriteHeader(200)
	out := http.NewResponseController(w)
	send := func(v any) bool {
		b, err := json.Marshal(v)
		if err != nil {
			return false
		}
		_, err = fmt.Fprintf(w, "data: %s\n\n", b)
		return err == nil && out.Flush() == nil
	}
	turns, stop := g.merge(r)
	defer stop()
	sent := make([]int, len(g.jobs))
	total, left := 0, len(g.jobs)
	started := make([]bool, len(g.jobs))
	out.Flush()
	for left > 0 {
		var t turn
		select {
		case t = <-turns:
		case <-r.Context().Done():
			return
		}
		if t.p.failed {
			send(map[string]*apiError{"error": g.failed()})
			break
		}
		if !started[t.i] && g.k == chat {
			started[t.i] = true
			empty := ""
			if !send(g.chunk(streamChoice{Index: t.i, Delta: &delta{Role: "assistant", Content: &empty}}, total)) {
				return
			}
		}
		j := g.jobs[t.i]
		for range t.p.tokens {
			at := j.req.Prompt + sent[t.i]
			sent[t.i]++
			total++
			if !send(g.chunk(g.token(t.i, j.tokens[at:at+1], t.p.done && sent[t.i] == j.req.Output), total)) {
				return
			}
		}
		if t.p.first && share(g.s.cfg.Faults.Hang) {
			<-r.Context().Done()
			return
		}
		if t.p.done {
			if sent[t.i] < j.req.Output { // completed without a piece for its last tokens
				return
			}
			left--
		}
	}
	if left == 0 {
		g.s.counts.finished.Add(int64(len(g.jobs)))
		if so := g.q.StreamOptions; so != nil && so.IncludeUsage {
			c := g.chunk(streamChoice{}, total)
			c.Choices, c.Usage, c.Fingerprint = []streamChoice{}, g.usage(total), fingerprint
			send(c)
		}
	}
	fmt.Fprint(w, "data: [DONE]\n\n")
}

func (g *generation) chunk(c streamChoice, total int) chunk {
	out := chunk{
		ID: g.id, Object: [...]string{"chat.completion.chunk", "text_completion"}[g.k], Created: g.created,
		Model: g.s.cfg.Model, Choices: []streamChoice{c},
	}
	if so := g.q.StreamOptions; so != nil && so.ContinuousUsage {
		out.Usage = g.usage(total)
		out.Usage.Details = nil
	}
	return out
}

func (g *generation) token(i int, ids []uint32, last bool) streamChoice {
	text := string(decode(nil, ids))
	c := streamChoice{Index: i}
	if g.k == chat {
		c.Delta = &delta{Content: &text}
	} else {
		c.Text = &text
	}
	if g.q.ReturnTokenIDs {
		c.TokenIDs = ids
	}
	if last {
		f := "length"
		c.Finish = &f
	}
	return c
}

// merge joins the jobs' pieces into one channel, until stop.
func (g *generation) merge(r *http.Request) (<-chan turn, func()) {
	out, quit := make(chan turn), make(chan struct{})
	for i, j := range g.jobs {
		go func() {
			for {
				select {
				case p := <-j.progress:
					select {
					case out <- turn{i, p}:
					case <-quit:
						return
					}
					if p.done || p.failed {
						return
					}
				case <-quit:
					return
				}
			}
		}()
	}
	return out, func() { close(quit) }
}
