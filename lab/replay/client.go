package replay

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// A Sample is one request as it was felt.
type Sample struct {
	Due     time.Duration // since the start of the run: when it should have been sent
	Late    time.Duration // how much later it was sent
	TTFT    time.Duration // from Due to the first content
	E2E     time.Duration // from Due to the end
	Gaps    []time.Duration
	Prompt  int // tokens, as the endpoint reported; 0: not reported
	Cached  int // of those, from the cache
	Output  int // tokens
	Details bool
	Replica string // who served it, where a router says so
	// Predicted is how many prompt tokens the router expected to be cached, -1
	// where it doesn't say.
	Predicted int
	Decision  time.Duration // what the router needed to decide, where it says so
	Session   string
	Err       string // "" if the answer was complete
}

// client sends requests and reads streams.
type client struct {
	cfg   Config
	base  string // URL up to and with /v1
	http  *http.Client
	model string
	start time.Time
}

func newClient(ctx context.Context, cfg Config) (*client, error) {
	base := strings.TrimSuffix(strings.TrimRight(cfg.URL, "/"), "/v1") + "/v1"
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConns, t.MaxIdleConnsPerHost, t.Proxy, t.DisableCompression = 0, 4096, nil, true
	t.IdleConnTimeout = 4 * time.Second // uvicorn closes idle connections after 5 s
	c := &client{cfg: cfg, base: base, http: &http.Client{Transport: t}, model: cfg.Model}
	if c.model == "" {
		m, err := c.firstModel(ctx)
		if err != nil {
			return nil, err
		}
		c.model = m
	}
	return c, nil
}

func (c *client) firstModel(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := c.request(ctx, http.MethodGet, "/models", nil)
	if err != nil {
		return "", err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return "", fmt.Errorf("asking for the models: %w", err)
	}
	defer resp.Body.Close()
	var list struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, 16<<20)).Decode(&list); err != nil || len(list.Data) == 0 {
		return "", fmt.Errorf("%s/models answered %s and named no model (%v): give --model", c.base, resp.Status, err)
	}
	return list.Data[0].ID, nil
}

func (c *client) request(ctx context.Context, method, path string, body []byte) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.cfg.Key != "" {
		req.Header.Set("Authorization", "Bearer "+c.cfg.Key)
	}
	return req, nil
}

// A prompt is one request before it is written.
type prompt struct {
	blocks  []uint64
	input   int
	output  int
	own     uint64 // number of the request, for what it shares with nobody
	session string
	next    time.Duration // until the session goes on after the answer; 0: not told
}

type streamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

type requestBody struct {
	Model    string        `json:"model"`
	Messages []chatMessage `json:"messages,omitempty"`
	Prompt   any           `json:"prompt,omitempty"`
	Max      int           `json:"max_tokens"`
	Ignore   bool          `json:"ignore_eos"`
	Stream   bool          `json:"stream"`
	Options  streamOptions `json:"stream_options"`
}

type chatMessage struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// body writes p as a request.
func (c *client) body(p prompt) (path string, body []byte) {
	out := requestBody{Model: c.model, Max: p.output, Ignore: true, Stream: true, Options: streamOptions{true}}
	path = "/completions"
	switch c.cfg.Shape {
	case IDs:
		out.Prompt = c.cfg.Writer.AppendTokens(nil, p.blocks, p.input, p.own, c.cfg.IDRange[0], c.cfg.IDRange[1])
	case Text:
		out.Prompt = string(c.cfg.Writer.AppendText(nil, p.blocks, p.input, p.own))
	default:
		path = "/chat/completions"
		out.Messages = []chatMessage{{"user", string(c.cfg.Writer.AppendText(nil, p.blocks, p.input, p.own))}}
	}
	body, err := json.Marshal(out)
	if err != nil {
		panic(err) // strings and numbers only
	}
	return path, body
}

// play sends p, which was due at due, and returns what came.
func (c *client) play(ctx context.Context, p prompt, due time.Duration) Sample {
	path, body := c.body(p)
	s := Sample{Due: due, Late: max(time.Since(c.start)-due, 0), Predicted: -1, Session: p.session}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	if err := c.stream(ctx, path, body, p, &s); err != nil {
		s.Err = err.Error()
	}
	s.E2E = time.Since(c.start) - due
	return s
}

func (c *client) stream(ctx context.Context, path string, body []byte, p prompt, s *Sample) error {
	req, err := c.request(ctx, http.MethodPost, path, body)
	if err != nil {
		return err
	}
	if p.session != "" {
		req.Header.Set("X-Session-Id", p.session)
	}
	if p.next > 0 {
		req.Header.Set("X-Kvasir-Next-Turn", strconv.FormatFloat(min(p.next, 24*time.Hour).Seconds(), 'g', -1, 64))
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	s.readHeaders(resp.Header)
	if resp.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(io.LimitReader(resp.Body, 4096))
		return fmt.Errorf("status %d: %s", resp.StatusCode, reason(b))
	}
	return c.events(resp.Body, s)
}

// reason is what an error's body says: the message of OpenAI's form, FastAPI's
// detail, or the beginning of whatever came.
func reason(body []byte) string {
	var e struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
		Message string `json:"message"`
		Detail  string `json:"detail"`
	}
	if json.Unmarshal(body, &e) == nil {
		if m := cmp.Or(e.Error.Message, e.Message, e.Detail); m != "" {
			return m
		}
	}
	return string(bytes.TrimSpace(body[:min(len(body), 500)]))
}

func (s *Sample) readHeaders(h http.Header) {
	s.Replica = h.Get("X-Kvasir-Replica")
	if v := h.Get("X-Kvasir-Cached-Tokens"); v != "" {
		var total int
		if _, err := fmt.Sscanf(v, "%d/%d", &s.Predicted, &total); err != nil {
			s.Predicted = -1
		}
	}
	var us float64
	if _, err := fmt.Sscanf(h.Get("X-Kvasir-Decision-Us"), "%g", &us); err == nil {
		s.Decision = time.Duration(us * 1e3)
	}
}

type event struct {
	Choices []struct {
		Text  string `json:"text"`
		Delta struct {
			Content   string `json:"content"`
			Reasoning string `json:"reasoning"`
		} `json:"delta"`
	} `json:"choices"`
	Usage *struct {
		Prompt  int `json:"prompt_tokens"`
		Output  int `json:"completion_tokens"`
		Details *struct {
			Cached int `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	} `json:"usage"`
	Error *struct {
		Message string `json:"message"`
	} `json:"error"`
}

// events reads a stream to its [DONE].
func (c *client) events(r io.Reader, s *Sample) error {
	sc := bufio.NewScanner(r)
	sc.Buffer(make([]byte, 0, 64<<10), 16<<20)
	var last time.Duration
	for sc.Scan() {
		data, ok := bytes.CutPrefix(sc.Bytes(), []byte("data:"))
		if !ok {
			continue
		}
		data = bytes.TrimSpace(data)
		if string(data) == "[DONE]" {
			if s.TTFT == 0 {
				return errors.New("the stream ended without content")
			}
			return nil
		}
		var e event
		if err := json.Unmarshal(data, &e); err != nil {
			return fmt.Errorf("stream: %w", err)
		}
		if e.Error != nil {
			return fmt.Errorf("error event: %s", e.Error.Message)
		}
		if e.Usage != nil {
			s.Prompt, s.Output = e.Usage.Prompt, e.Usage.Output
			if d := e.Usage.Details; d != nil {
				s.Cached, s.Details = d.Cached, true
			}
		}
		if len(e.Choices) == 0 || e.Choices[0].Text+e.Choices[0].Delta.Content+e.Choices[0].Delta.Reasoning == "" {
			continue
		}
		now := time.Since(c.start)
		if s.TTFT == 0 {
			s.TTFT = now - s.Due
		} else {
			s.Gaps = append(s.Gaps, now-last)
		}
		last = now
	}
	if err := sc.Err(); err != nil {
		return fmt.Errorf("stream: %w", err)
	}
	return errors.New("the stream broke off before [DONE]")
}

// scaled fits a recorded prompt to the writer's block size and the limits; false
// if it is too long to be played.
func (c *client) scaled(blocks []uint64, input, output, recorded int) (prompt, bool) {
	per := c.cfg.Writer.BlockTokens
	p := prompt{blocks: blocks, input: input, output: max(output, 1)}
	if per != recorded {
		p.input = max(input*per/recorded, len(blocks)*per, 1)
	}
	if c.cfg.MaxOutput > 0 {
		p.output = min(p.output, c.cfg.MaxOutput)
	}
	return p, c.cfg.MaxInput == 0 || p.input <= c.cfg.MaxInput
}
