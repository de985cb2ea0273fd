package token

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/go-json-experiment/json/jsontext"

	"kvasir/token/bpe"
	"kvasir/token/chat"
)

// LocalConfig says how tokens are made in process. Start from setting.Defaults.
type LocalConfig struct {
	// CacheBytes bounds the memory for the ids of texts' beginnings. 0 keeps none.
	CacheBytes int64 `yaml:"cache_bytes" default:"256Mi" range:"0..1Ti" unit:"bytes"`
	// Verify compares a model's first 8 requests and then one in so many, token by
	// token, with the engine's render. 0: none.
	Verify int `yaml:"verify" default:"200" range:"0..1Gi" unit:"requests"`
}

// A Model is what tokenizes one model's requests in process.
type Model struct {
	tok    *bpe.Tokenizer
	chat   *chat.Renderer
	noChat string   // why chats are not rendered here
	before []uint32 // what the tokenizer puts before a text with special tokens
	after  []uint32 // and after
	maxLen int
	space  uint64 // in the prefix cache: one for each tokenizer, so that models with equal files share pieces
	made   atomic.Uint64
	proof  proof
}

// firstChecks is how many of a model's first requests are compared whatever the
// sample: what is wrong from the start shows at once.
const firstChecks = 8

// due says whether the next request is one to compare.
func (m *Model) due(every uint64) bool {
	n := m.made.Add(1)
	return n <= firstChecks || n%every == 0
}

// NewModel joins a tokenizer and a renderer. renderer may be nil: then noChat says
// why chats go to the engine. maxLen is the engine's --max-model-len, 0 if unknown.
func NewModel(tok *bpe.Tokenizer, renderer *chat.Renderer, noChat string, maxLen int) *Model {
	m := &Model{tok: tok, chat: renderer, noChat: noChat, maxLen: maxLen, space: spaceOf(tok)}
	// The post-processor's tokens, found by an example.
	with, without := tok.EncodeString(nil, "a", true), tok.EncodeString(nil, "a", false)
	for i := 0; i+len(without) <= len(with); i++ {
		if equalIDs(with[i:i+len(without)], without) {
			m.before, m.after = with[:i:i], with[i+len(without):]
			break
		}
	}
	return m
}

// Tokenizer returns the model's tokenizer.
func (m *Model) Tokenizer() *bpe.Tokenizer { return m.tok }

// Renderer returns what renders the model's chats, or nil: see NoChat.
func (m *Model) Renderer() *chat.Renderer { return m.chat }

// NoChat says why chats are not rendered here, "" if they are.
func (m *Model) NoChat() string { return m.noChat }

func equalIDs(a, b []uint32) bool {
	for i := range a {
		if i >= len(b) || a[i] != b[i] {
			return false
		}
	}
	return len(a) == len(b)
}

// Local makes tokens in process for the models that it knows, and hands every
// other request to next: models without files, templates in code that it doesn't
// have, images, and models whose tokens have been proven wrong until they are
// proven right again.
type Local struct {
	cfg    LocalConfig
	next   Source
	prefix *prefixes      // nil: none
	report func(Mismatch) // nil: nobody
	panics atomic.Uint64
	asking chan struct{} // one comparison at a time
	slots  chan struct{} // has room for as many long texts as may be worked on at a time

	mu     sync.RWMutex
	models map[string]*Model // guarded by mu
}

// NewLocal returns a Local without models. report is told each mismatch.
func NewLocal(cfg LocalConfig, next Source, report func(Mismatch)) *Local {
	l := &Local{cfg: cfg, next: next, report: report, models: map[string]*Model{}, asking: make(chan struct{}, 1), slots: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2))}
	if cfg.CacheBytes > 0 {
		l.prefix = newPrefixes(cfg.CacheBytes)
	}
	return l
}

// Set makes m the one that tokenizes for name; nil takes it away.
func (l *Local) Set(name string, m *Model) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if m == nil {
		delete(l.models, name)
		return
	}
	l.models[name] = m
}

func (l *Local) model(name string) *Model {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.models[name]
}

// Tokens implements Source.
func (l *Local) Tokens(ctx context.Context, r *Request) Result {
	m := l.model(r.Model)
	if m == nil || r.Endpoint != Chat && r.Endpoint != Completions {
		return l.next.Tokens(ctx, r)
	}
	if m.proof.demoted() {
		res := l.next.Tokens(ctx, r)
		l.compare(m, r, res) // the way back: by being right while nobody depends on it
		return res
	}
	res, err := l.safely(ctx, m, r)
	var refused *chat.Refused
	switch {
	case err == nil:
		if l.cfg.Verify > 0 && m.due(uint64(l.cfg.Verify)) {
			l.verify(ctx, m, r, res)
		}
		return res
	case errors.As(err, &refused):
		return Result{Why: "the engine will refuse the request: " + refused.Reason, Refused: true}
	case errors.As(err, new(*tooLong)) || ctx.Err() != nil: // the engine would need longer
		return Result{Why: err.Error()}
	}
	res = l.next.Tokens(ctx, r)
	if len(res.Prompts) == 0 {
		res.Why = err.Error() + "; " + res.Why
	}
	return res
}

// safely is make, for which a bug of ours is a reason to ask the engine and not to
// fail the request.
func (l *Local) safely(ctx context.Context, m *Model, r *Request) (res Result, err error) {
	defer func() {
		if p := recover(); p != nil {
			l.panics.Add(1)
			res, err = Result{}, fmt.Errorf("a bug in Kvasir, please report it with the model's name: %v", p)
		}
	}()
	if len(r.Body) > longBody {
		select {
		case l.slots <- struct{}{}:
			defer func() { <-l.slots }()
		case <-ctx.Done():
			return Result{}, errors.New("other long texts were before it, and it isn't waited for any longer")
		}
	}
	return l.make(ctx, m, r)
}

// longBody is what a body must have, in bytes, to wait for one of few places: so that long
// texts leave a core to the short ones.
const longBody = 256 << 10

// A tooLong is a text that can't be a prompt of the model's, or takes too long to find out.
type tooLong struct{ why string }

func (e *tooLong) Error() string { return e.why }

// maxTokenBytes is more bytes than a token stands for in any text that people send: on
// average it is three to five.
const maxTokenBytes = 32

// fits returns an error for a text that is far longer than the model's longest prompt.
func (m *Model) fits(bytes int) error {
	if m.maxLen > 0 && bytes > longBody && bytes/maxTokenBytes > m.maxLen {
		return &tooLong{fmt.Sprintf("a text of %d bytes is no prompt for a model of %d tokens", bytes, m.maxLen)}
	}
	return nil
}

// make tokenizes r in process.
func (l *Local) make(ctx context.Context, m *Model, r *Request) (Result, error) {
	if r.Endpoint == Completions {
		return l.completion(ctx, m, r.Body)
	}
	if m.chat == nil {
		return Result{}, errors.New(m.noChat)
	}
	buf := texts.Get().(*chat.Buffer)
	defer texts.Put(buf)
	p, err := m.chat.ChatIn(buf, r.Body)
	if err != nil {
		return Result{}, err
	}
	size := len(p.Text)
	for i := range p.Parts {
		size += len(p.Parts[i].Text)
	}
	if err := m.fits(size); err != nil {
		return Result{}, err
	}
	var ids []uint32
	switch {
	case p.Parts == nil:
		ids, err = l.encode(ctx, m, p.Text, p.AddSpecialTokens)
	case l.prefix == nil:
		ids, err = p.Encode(nil, m.tok)
	default:
		ids, err = l.prefix.encodeParts(ctx, nil, m.tok, m.space, p.Parts)
	}
	if err != nil {
		return Result{}, err
	}
	if ids, err = l.truncate(m, p.Truncate, ids); err != nil {
		return Result{}, err
	}
	if len(ids) == 0 {
		return Result{}, errEmpty
	}
	return Result{Prompts: []Prompt{{IDs: ids}}, Salt: p.Salt, Source: "local"}, nil
}

// texts keeps the memory of rendered prompts; ids are all that is left of one.
var texts = sync.Pool{New: func() any { return new(chat.Buffer) }}

// encode appends nothing that the tokenizer would not: special tokens before and
// after only where they are asked for.
func (l *Local) encode(ctx context.Context, m *Model, text string, addSpecial bool) (ids []uint32, err error) {
	if addSpecial {
		ids = m.before[:len(m.before):len(m.before)]
	}
	if l.prefix != nil {
		// The text is only read.
		ids, err = l.prefix.encodeWhile(ctx, ids, m.tok, m.space, unsafe.Slice(unsafe.StringData(text), len(text)), len(m.after))
		if errors.Is(err, errStretch) {
			err = &tooLong{err.Error()}
		}
		if err != nil {
			return nil, err
		}
	} else {
		ids = m.tok.EncodeString(ids, text, false)
	}
	if addSpecial {
		ids = append(ids, m.after...)
	}
	return ids, nil
}

func (l *Local) truncate(m *Model, t chat.Truncation, ids []uint32) ([]uint32, error) {
	if !t.Set {
		return ids, nil
	}
	if m.maxLen == 0 {
		return nil, errors.New("truncate_prompt_tokens, and the engine did not tell its longest prompt")
	}
	return t.Apply(ids, m.maxLen)
}

// completion reads a prompt of text, or a list of them, as vLLM's
// /v1/completions does: special tokens are added unless add_special_tokens is false.
func (l *Local) completion(ctx context.Context, m *Model, body []byte) (Result, error) {
	var texts []string
	res := Result{Source: "local"}
	special := true
	err := fields(body, func(k string, v jsontext.Value) error {
		switch k {
		case "prompt":
			var err error
			texts, err = textPrompts(v)
			return err
		case "add_special_tokens":
			special = v.Kind() == 't'
			if !special && v.Kind() != 'f' { // pydantic also takes "no", 1, ...
				return errors.New("add_special_tokens is not true or false")
			}
		case "cache_salt":
			return readSalt(v, &res.Salt)
		case "truncate_prompt_tokens", "prompt_embeds", "suffix", "truncation_side":
			if !isNull(v) {
				return fmt.Errorf("%q changes the prompt in a way that only the engine knows", k)
			}
		}
		return nil
	})
	if err != nil {
		return Result{}, err
	}
	if len(texts) == 0 {
		return Result{}, errors.New("the request has no prompt of text")
	}
	for _, t := range texts {
		if err := m.fits(len(t)); err != nil {
			return Result{}, err
		}
		ids, err := l.encode(ctx, m, t, special)
		if err != nil {
			return Result{}, err
		}
		if len(ids) == 0 {
			return Result{}, errEmpty
		}
		res.Prompts = append(res.Prompts, Prompt{IDs: ids})
	}
	return res, nil
}

// errEmpty is vLLM's answer to a prompt without tokens, whatever made it empty.
var errEmpty = &chat.Refused{Stage: "render", Reason: "a prompt without tokens"}

var errNotText = errors.New("the prompt is neither a text nor a list of texts")

func textPrompts(v jsontext.Value) ([]string, error) {
	var one string
	switch v.Kind() {
	case '"':
		if err := unquoteExact(v, &one); err != nil {
			return nil, err
		}
		return []string{one}, nil
	case '[':
	default:
		return nil, errNotText
	}
	var out []string
	err := elements(v, func(e jsontext.Value) error {
		if e.Kind() != '"' {
			return errNotText
		}
		if err := unquoteExact(e, &one); err != nil {
			return err
		}
		out = append(out, one)
		return nil
	})
	return out, err
}

// LocalStats says what a Local has done.
type LocalStats struct {
	Prefix PrefixStats
	Panics uint64 // bugs of ours that were met; those requests went to the engine
	Models map[string]ModelStats
}

// ModelStats is the state of one model's proof.
type ModelStats struct {
	Compared, Mismatched uint64
	Demoted              bool
	NoChat               string
}

// Stats returns the state of the cache and of every model.
func (l *Local) Stats() LocalStats {
	out := LocalStats{Models: map[string]ModelStats{}, Panics: l.panics.Load()}
	if l.prefix != nil {
		out.Prefix = l.prefix.snapshot()
	}
	l.mu.RLock()
	defer l.mu.RUnlock()
	for name, m := range l.models {
		s := m.proof.snapshot()
		s.NoChat = m.noChat
		out.Models[name] = s
	}
	return out
}

// textHash names a text in a log without showing it.
func textHash(b []byte) string {
	h := fnv.New64a()
	h.Write(b)
	return fmt.Sprintf("%016x", h.Sum64())
}
