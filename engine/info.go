package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"kvasir/kv"
)

// Info is what a replica says about itself, as far as it does. Zero means not told.
type Info struct {
	Kind    string // "vllm", "sglang", "tensorrt-llm"
	Version string
	Models  []kv.Model

	BlockSize int // tokens, as configured; what the events say is stronger
	Blocks    int // of the GPU pool, per rank
	MaxBatch  int // tokens that a step computes at most (SGLang tells)

	// LowFirst says that SGLang was told to serve low priorities first, as vLLM does
	// (--schedule-low-priority-values-first).
	LowFirst bool

	Started float64 // when the process began, unix seconds
	Ranks   []Rank  // load of each rank; as long as the number of ranks, at least 1

	// FirstRank is what the engine calls Ranks[0]: not 0 where one deployment of many
	// ranks is served by several replicas.
	FirstRank int

	Sources []Source
}

// A Rank is the load of one rank as its metrics have it.
type Rank struct {
	kv.Gauge         // unknown if its metrics weren't there
	Asleep   bool    // its weights or its cache are not in the GPU
	Queries  float64 // tokens looked up in the prefix cache since the start
	Hits     float64 // of those, found
}

// maxBody bounds an answer, in bytes. vLLM's metrics are about 70 KB for one rank.
const maxBody = 16 << 20

// errAbsent says that the replica has no such route.
var errAbsent = errors.New("no such route")

// A client asks one replica.
type client struct {
	base    string // without a slash at the end
	key     string
	http    *http.Client
	timeout time.Duration
}

// get returns the body of a GET. errAbsent for 404, 405 and 501.
func (c *client) get(ctx context.Context, path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+path, nil)
	if err != nil {
		return nil, err
	}
	if c.key != "" {
		req.Header.Set("Authorization", "Bearer "+c.key)
	}
	res, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxBody+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("GET %s: %w", path, err)
	case len(body) > maxBody:
		return nil, fmt.Errorf("GET %s: the answer has more than %d bytes", path, maxBody)
	}
	switch res.StatusCode {
	case http.StatusOK:
		return body, nil
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotImplemented:
		return nil, fmt.Errorf("GET %s: %w (%d)", path, errAbsent, res.StatusCode)
	case http.StatusUnauthorized, http.StatusForbidden:
		return nil, fmt.Errorf("GET %s: %d: is the engine's API key configured here?", path, res.StatusCode)
	}
	return nil, fmt.Errorf("GET %s: %d %s", path, res.StatusCode, firstLine(body))
}

func (c *client) getJSON(ctx context.Context, path string, v any) error {
	body, err := c.get(ctx, path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(body, v); err != nil {
		return fmt.Errorf("GET %s: %w in %q", path, err, firstLine(body))
	}
	return nil
}

// firstLine shortens a body for an error.
func firstLine(body []byte) string {
	s, _, _ := strings.Cut(strings.TrimSpace(string(body[:min(len(body), 200)])), "\n")
	return s
}

// A loose field of another type than we expect counts as absent: one odd field must not
// make an engine that serves look down.
type loose[T any] struct{ v T }

func (l *loose[T]) UnmarshalJSON(b []byte) error {
	if json.Unmarshal(b, &l.v) != nil {
		*l = loose[T]{}
	}
	return nil
}

// maxModels bounds the models of a replica that are kept.
const maxModels = 4096

// models reads GET /v1/models: OpenAI's list with root, parent and
// max_model_len as vLLM and SGLang add them.
func (c *client) models(ctx context.Context) (models []kv.Model, owner string, err error) {
	var list struct {
		Data []struct {
			ID      loose[string]  `json:"id"`
			Root    loose[string]  `json:"root"`
			Parent  loose[string]  `json:"parent"`
			MaxLen  loose[float64] `json:"max_model_len"`
			OwnedBy loose[string]  `json:"owned_by"`
		} `json:"data"`
	}
	if err := c.getJSON(ctx, "/v1/models", &list); err != nil {
		return nil, "", err
	}
	for _, d := range list.Data {
		if d.ID.v == "" || len(models) == maxModels {
			continue
		}
		m := kv.Model{ID: d.ID.v, Root: d.Root.v, Parent: d.Parent.v}
		if d.MaxLen.v >= 1 && d.MaxLen.v <= 1<<40 {
			m.MaxLen = int(d.MaxLen.v)
		}
		models = append(models, m)
		owner = d.OwnedBy.v
	}
	for i := range models { // vLLM tells the length of base models only
		if m := &models[i]; m.MaxLen == 0 && m.Parent != "" {
			for _, base := range models {
				if base.ID == m.Parent {
					m.MaxLen = base.MaxLen
				}
			}
		}
	}
	return models, owner, nil
}

// version reads GET /version.
func (c *client) version(ctx context.Context) (string, error) {
	var v struct {
		Version string `json:"version"`
	}
	err := c.getJSON(ctx, "/version", &v)
	return v.Version, err
}

// health asks whether the replica can serve. An engine without the route is
// asked for its models anyway.
func (c *client) health(ctx context.Context) error {
	_, err := c.get(ctx, "/health")
	if errors.Is(err, errAbsent) {
		return nil
	}
	return err
}

// kindOf tells the engine from the owner of its models and from its metrics.
func kindOf(owner string, m *metrics) string {
	switch o := strings.ToLower(owner); {
	case m != nil && m.vllm, o == "vllm":
		return "vllm"
	case m != nil && m.sglang, o == "sglang":
		return "sglang"
	case strings.HasPrefix(o, "tensorrt"), strings.HasPrefix(o, "trt"):
		return "tensorrt-llm"
	}
	return ""
}
