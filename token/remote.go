package token

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"

	"kvasir/kv"
)

// RemoteConfig says how the engines are asked to tokenize. Start from
// setting.Defaults.
type RemoteConfig struct {
	// Timeout of one question: a request waits that long at most before it is routed
	// without its tokens.
	Timeout time.Duration `yaml:"timeout" default:"2s" range:"1ms..1m"`
	// Concurrency is how many questions may be on their way at once, over all
	// engines. A request that finds none free within Timeout is routed by load.
	Concurrency int `yaml:"concurrency" default:"64" range:"1..10000"`
	// CacheBytes bounds the memory for answers kept by content. 0 keeps none.
	CacheBytes int64 `yaml:"cache_bytes" default:"64Mi" range:"0..1Ti" unit:"bytes"`
	// Retry is how long an engine without the endpoint is not asked again.
	Retry time.Duration `yaml:"retry" default:"1m" range:"1s..24h"`
}

// Remote asks the engines themselves: their render endpoints, which are exact
// (vLLM: /v1/chat/completions/render and siblings, with --enable-scale-out), and
// where those are absent /tokenize, for requests that it renders exactly.
type Remote struct {
	cfg     RemoteConfig
	client  *http.Client
	engines func(model string) []string // base URLs that are up
	now     func() time.Time
	seed    kv.Seed

	slots  chan struct{}
	turn   atomic.Uint64
	flight singleflight.Group
	cache  *answers

	mu     sync.Mutex
	absent map[string]time.Time // guarded by mu; URL of an endpoint that is not there -> ask again at

	asked, failed atomic.Uint64
}

// NewRemote returns a Remote that asks one of engines(model), in turn. seed is
// that of the index's chains: images enter them by digests.
func NewRemote(cfg RemoteConfig, client *http.Client, seed kv.Seed, engines func(model string) []string, now func() time.Time) *Remote {
	return &Remote{
		cfg: cfg, client: client, engines: engines, now: now, seed: seed,
		slots: make(chan struct{}, cfg.Concurrency), absent: map[string]time.Time{},
		cache: newAnswers(cfg.CacheBytes),
	}
}

// RemoteStats counts what a Remote did.
type RemoteStats struct {
	Asked, Failed, Hits, Misses uint64
	CacheBytes                  int64
}

// Stats returns the counts so far.
func (r *Remote) Stats() RemoteStats {
	h, m, b := r.cache.stats()
	return RemoteStats{Asked: r.asked.Load(), Failed: r.failed.Load(), Hits: h, Misses: m, CacheBytes: b}
}

var renderPath = map[Endpoint]string{
	Chat:        "/v1/chat/completions/render",
	Completions: "/v1/completions/render",
	Responses:   "/v1/responses/render",
	Messages:    "/v1/messages/render",
}

// Tokens asks an engine, unless the same content was asked before.
func (r *Remote) Tokens(ctx context.Context, q *Request) Result {
	path, ok := renderPath[q.Endpoint]
	if !ok {
		return Result{Why: "the engines have no render endpoint for this path"}
	}
	key := contentKey(q)
	if res, ok := r.cache.get(key); ok {
		return res
	}
	ch := r.flight.DoChan(string(key[:]), func() (_ any, err error) {
		defer fence(&err)
		// Not ctx: others may be waiting for the same answer.
		c, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.cfg.Timeout)
		defer cancel()
		return r.ask(c, q, path)
	})
	select {
	case <-ctx.Done():
		return Result{Why: "render: " + context.Cause(ctx).Error()}
	case a := <-ch:
		if a.Err != nil {
			r.failed.Add(1)
			var refused *refusedError
			return Result{Why: a.Err.Error(), Refused: errors.As(a.Err, &refused)}
		}
		res := a.Val.(Result)
		r.cache.put(key, res)
		return res
	}
}

// contentKey covers all that the tokens depend on: the body has the model's name.
func contentKey(q *Request) [32]byte {
	h := sha256.New()
	fmt.Fprintf(h, "%d %d %s ", q.Endpoint, len(q.Model), q.Model)
	h.Write(q.Body)
	var k [32]byte
	h.Sum(k[:0])
	return k
}

// ask puts q to the engines that are up, one after the other, until one answers.
func (r *Remote) ask(ctx context.Context, q *Request, path string) (Result, error) {
	select {
	case r.slots <- struct{}{}:
		defer func() { <-r.slots }()
	case <-ctx.Done():
		return Result{}, errors.New("render: too many questions at once")
	}
	urls := r.engines(q.Model)
	if len(urls) == 0 {
		return Result{}, fmt.Errorf("render: no engine for model %q is up", q.Model)
	}
	start := int(r.turn.Add(1))
	var last error
	for i := range urls {
		if ctx.Err() != nil {
			break
		}
		base := urls[(start+i)%len(urls)]
		res, err := r.askOne(ctx, q, base, path)
		if err == nil {
			return res, nil
		}
		last = err
		var refused *refusedError
		if errors.As(err, &refused) {
			break // the engine will refuse the request itself, in the same words
		}
	}
	if last == nil {
		last = ctx.Err()
	}
	return Result{}, last
}

func (r *Remote) askOne(ctx context.Context, q *Request, base, path string) (Result, error) {
	if !r.isAbsent(base + path) {
		body, code, err := r.post(ctx, base+path, q.Body, q.Authorization)
		switch {
		case err != nil:
			return Result{}, fmt.Errorf("render: %w", err)
		case code == http.StatusOK:
			return readRender(body, r.seed)
		case code == http.StatusNotFound || code == http.StatusForbidden || code == http.StatusMethodNotAllowed || code == http.StatusNotImplemented:
			if mentionsModel(body) {
				return Result{}, &refusedError{path, code}
			}
			r.setAbsent(base + path)
		case code >= 400 && code < 500 && code != http.StatusRequestTimeout && code != http.StatusTooManyRequests:
			return Result{}, &refusedError{path, code}
		default:
			return Result{}, fmt.Errorf("render: %s answered %d", base+path, code)
		}
	}
	ask, err := tokenizeBody(q)
	if err != nil {
		return Result{}, fmt.Errorf("render is absent on %s, and /tokenize is not exact here: %w", base, err)
	}
	body, code, err := r.post(ctx, base+"/tokenize", ask.body, q.Authorization)
	if err != nil {
		return Result{}, fmt.Errorf("tokenize: %w", err)
	}
	if code != http.StatusOK {
		return Result{}, fmt.Errorf("tokenize: %s answered %d", base, code)
	}
	var t struct {
		Tokens []uint32 `json:"tokens"`
	}
	if err := json.Unmarshal(body, &t); err != nil {
		return Result{}, fmt.Errorf("tokenize: %s: %w", base, err)
	}
	return Result{Prompts: []Prompt{{IDs: t.Tokens}}, Salt: ask.salt, Source: "tokenize"}, nil
}

// refusedError says that the engine will refuse the request with this code.
type refusedError struct {
	path string
	code int
}

func (e *refusedError) Error() string {
	return fmt.Sprintf("%s answered %d: the engine will refuse the request", e.path, e.code)
}

// mentionsModel tells vLLM's 404 for an unknown model from that for an unknown path.
func mentionsModel(body []byte) bool {
	return bytes.Contains(body, []byte(`"error"`)) && bytes.Contains(body, []byte("does not exist"))
}

func (r *Remote) isAbsent(url string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	until, ok := r.absent[url]
	if ok && r.now().After(until) {
		delete(r.absent, url)
		return false
	}
	return ok
}

func (r *Remote) setAbsent(url string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.absent) > 4096 { // engines come and go: a bound is enough
		clear(r.absent)
	}
	r.absent[url] = r.now().Add(r.cfg.Retry)
}

// maxAnswer bounds an engine's answer: 4 M tokens and the rest.
const maxAnswer = 48 << 20

func (r *Remote) post(ctx context.Context, url string, body []byte, auth string) ([]byte, int, error) {
	r.asked.Add(1)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return nil, 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	if auth != "" {
		req.Header.Set("Authorization", auth)
	}
	resp, err := r.client.Do(req)
	if err != nil {
		return nil, 0, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return nil, 0, err
	}
	if len(b) > maxAnswer {
		return nil, 0, fmt.Errorf("%s: answer of more than %d bytes", url, maxAnswer)
	}
	return b, resp.StatusCode, nil
}

// rendered is what vLLM 0.32's render endpoints answer, as far as we need it.
type rendered struct {
	TokenIDs  []uint32  `json:"token_ids"`
	Features  *features `json:"features"`
	CacheSalt *string   `json:"cache_salt"`
}

type features struct {
	Hashes       map[string][]string      `json:"mm_hashes"`
	Placeholders map[string][]placeholder `json:"mm_placeholders"`
}

type placeholder struct {
	Offset int `json:"offset"`
	Length int `json:"length"`
}

// readRender reads an answer of a render endpoint: one object, or a list of them.
func readRender(body []byte, seed kv.Seed) (Result, error) {
	var list []rendered
	if t := bytes.TrimLeft(body, " \t\r\n"); len(t) > 0 && t[0] == '[' {
		if err := json.Unmarshal(body, &list); err != nil {
			return Result{}, fmt.Errorf("render: %w", err)
		}
	} else {
		list = make([]rendered, 1)
		if err := json.Unmarshal(body, &list[0]); err != nil {
			return Result{}, fmt.Errorf("render: %w", err)
		}
	}
	if len(list) == 0 {
		return Result{}, errors.New("render: an empty list")
	}
	res := Result{Source: "render"}
	for i := range list {
		if len(list[i].TokenIDs) == 0 {
			return Result{}, errors.New("render: the answer has no token_ids")
		}
		p := Prompt{IDs: list[i].TokenIDs}
		if f := list[i].Features; f != nil {
			ms, err := f.spans(len(p.IDs))
			if err != nil {
				return Result{}, err
			}
			if len(ms) > 0 {
				p.Extras = func(blockSize int) []kv.Extra { return ms.extras(seed, blockSize) }
			}
		}
		res.Prompts = append(res.Prompts, p)
		if s := list[i].CacheSalt; s != nil {
			res.Salt = *s
		}
	}
	return res, nil
}

// A span is a run of placeholder tokens that stands for content of its own.
type span struct {
	offset, length int
	id             string
}

type spans []span

func (f *features) spans(tokens int) (spans, error) {
	var out spans
	for kind, hs := range f.Hashes {
		ps := f.Placeholders[kind]
		if len(ps) != len(hs) {
			return nil, fmt.Errorf("render: %d hashes but %d placeholders of kind %q", len(hs), len(ps), kind)
		}
		for i, h := range hs {
			if o, n := ps[i].Offset, ps[i].Length; o < 0 || n <= 0 || o > tokens || n > tokens-o {
				return nil, fmt.Errorf("render: placeholder at %d of length %d in a prompt of %d tokens", o, n, tokens)
			}
			out = append(out, span{ps[i].Offset, ps[i].Length, h})
		}
	}
	sortSpans(out)
	return out, nil
}

// extras returns what each block of the given size has beside its tokens. vLLM
// keys a block by each item that begins in it or reaches into it, with the
// item's offset from the block's start.
func (ms spans) extras(seed kv.Seed, blockSize int) []kv.Extra {
	var out []kv.Extra
	for _, m := range ms {
		for b := m.offset / blockSize; b*blockSize < m.offset+m.length; b++ {
			out = append(out, kv.Extra{Block: b, Digest: seed.Extra(m.id, m.offset-b*blockSize)})
		}
	}
	sortExtras(out)
	return out
}
