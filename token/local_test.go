package token

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"kvasir/token/bpe"
	"kvasir/token/chat"
)

// A pairs encoder makes an id of each two bytes and may be cut before a space. A
// wrong cut shifts every pair behind it.
type pairs struct{ encoded int }

func (e *pairs) Encode(dst []uint32, text []byte, _ bool) []uint32 {
	e.encoded += len(text)
	for len(text) > 0 {
		n := 1
		if len(text) > 1 && text[1] != ' ' {
			n = 2
		}
		id := uint32(text[0]) << 8
		if n == 2 {
			id |= uint32(text[1])
		}
		dst, text = append(dst, id), text[n:]
	}
	return dst
}

func (e *pairs) CutBefore(text []byte, at int) int {
	for at > 0 && text[at-1] != ' ' {
		at--
	}
	if at > 0 {
		return at - 1 // before the space
	}
	return 0
}

func randomText(rnd *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = "abcdefg   "[rnd.IntN(10)]
	}
	return b
}

// Texts that share random beginnings come out as if each were encoded whole,
// whatever is in the cache, also under eviction.
func TestPrefixesEqualFullEncode(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 1))
	for _, limit := range []int64{256 << 10, 64 << 20} {
		p := newPrefixes(limit)
		var known [][]byte
		for i := range 200 {
			text := randomText(rnd, rnd.IntN(20_000))
			if i%3 == 0 { // no place to cut for long
				text = append(bytes.Repeat([]byte("x"), rnd.IntN(9000)), text...)
			}
			if len(known) > 0 {
				old := known[rnd.IntN(len(known))]
				text = append(slices.Clone(old[:rnd.IntN(len(old)+1)]), text...)
			}
			known = append(known, text)
			want := new(pairs).Encode(nil, text, false)
			if got := p.encode(nil, new(pairs), 7, text, 0); !slices.Equal(got, want) {
				t.Fatalf("text %d of %d bytes: %d ids, want %d", i, len(text), len(got), len(want))
			}
			if n := p.snapshot().Bytes; n > limit {
				t.Fatalf("%d bytes, limit %d", n, limit)
			}
		}
		if s := p.snapshot(); s.Hits == 0 || (limit < 1<<20) != (s.Evicted > 0) {
			t.Errorf("limit %d: %+v", limit, s)
		}
	}
}

// The next turn of a conversation costs its new text and at most a piece or two.
func TestPrefixesCostWhatIsNew(t *testing.T) {
	rnd := rand.New(rand.NewPCG(2, 2))
	p := newPrefixes(1 << 24)
	text := randomText(rnd, 400_000)
	p.encode(nil, new(pairs), 1, text, 0)
	e := new(pairs)
	p.encode(nil, e, 1, append(text, randomText(rnd, 2000)...), 0)
	if e.encoded > 2000+2*pieceSize {
		t.Errorf("%d bytes were encoded for 2,000 new ones", e.encoded)
	}
	other := new(pairs)
	p.encode(nil, other, 2, text, 0)
	if other.encoded < len(text) {
		t.Error("another tokenizer was given the ids of the first")
	}
}

func TestPrefixesConcurrently(t *testing.T) {
	p := newPrefixes(64 << 10)
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range 60 {
				text := randomText(rand.New(rand.NewPCG(uint64(i%7), 3)), 10_000+w)
				if got, want := p.encode(nil, new(pairs), 1, text, 0), new(pairs).Encode(nil, text, false); !slices.Equal(got, want) {
					t.Error("ids differ")
				}
			}
		})
	}
	wg.Wait()
}

// small is a tokenizer that is in the repository.
func small(t testing.TB) *bpe.Tokenizer {
	t.Helper()
	files, _ := filepath.Glob("bpe/testdata/small/*.json")
	for _, f := range files {
		raw, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if tok, err := bpe.New(raw, nil, nil, nil); err == nil {
			return tok
		}
		var x struct {
			Tokenizer json.RawMessage `json:"tokenizer"`
		}
		if json.Unmarshal(raw, &x) == nil && len(x.Tokenizer) > 0 {
			if tok, err := bpe.New(x.Tokenizer, nil, nil, nil); err == nil {
				return tok
			}
		}
	}
	dirs, _ := filepath.Glob("bpe/testdata/small/*")
	for _, d := range dirs {
		if tok, err := bpe.Load(d); err == nil {
			return tok
		}
	}
	t.Fatal("no tokenizer in bpe/testdata/small can be read")
	return nil
}

func TestLocalCompletions(t *testing.T) {
	next := SourceFunc(func(context.Context, *Request) Result { return Result{Why: "next"} })
	tok := small(t)
	l := NewLocal(unverified(), next, nil)
	l.Set("m", NewModel(tok, nil, "no template", 100))
	ask := func(ep Endpoint, body string) Result {
		return l.Tokens(context.Background(), &Request{Endpoint: ep, Model: "m", Body: []byte(body)})
	}
	res := ask(Completions, `{"model":"m","prompt":["hello there","two"],"cache_salt":"s"}`)
	if res.Source != "local" || len(res.Prompts) != 2 || res.Salt != "s" ||
		!slices.Equal(res.Prompts[0].IDs, tok.EncodeString(nil, "hello there", true)) || !slices.Equal(res.Prompts[1].IDs, tok.EncodeString(nil, "two", true)) {
		t.Errorf("%+v", res)
	}
	res = ask(Completions, `{"prompt":"hello","add_special_tokens":false}`)
	if !slices.Equal(res.Prompts[0].IDs, tok.EncodeString(nil, "hello", false)) {
		t.Errorf("%+v", res)
	}
	for _, body := range []string{`{"prompt":"x","truncate_prompt_tokens":3}`, `{"prompt":{}}`, `{}`, `{"prompt":"\ud800"}`, `{"prompt":[1,2]}`} {
		if res := ask(Completions, body); len(res.Prompts) > 0 || !strings.Contains(res.Why, "next") {
			t.Errorf("%s: %+v, want it to be handed on", body, res)
		}
	}
	for _, body := range []string{`{"prompt":"x","add_special_tokens":"no"}`, `{"prompt":"x","add_special_tokens":null}`} {
		if res := ask(Completions, body); len(res.Prompts) > 0 || res.Refused || !strings.Contains(res.Why, "add_special_tokens") {
			t.Errorf("%s: %+v, want the engine to say", body, res)
		}
	}
	for _, body := range []string{`{"prompt":"","add_special_tokens":false}`, `{"prompt":["x",""],"add_special_tokens":false}`, `{"prompt":"x","cache_salt":""}`, `{"prompt":"x","cache_salt":7}`} {
		if res := ask(Completions, body); len(res.Prompts) > 0 || !res.Refused {
			t.Errorf("%s: %+v, want it refused as by vLLM", body, res)
		}
	}
	if res := ask(Chat, `{"messages":[]}`); !strings.Contains(res.Why, "no template") {
		t.Errorf("%+v, want the reason why chats are not made here", res)
	}
	if res := ask(Embeddings, `{}`); res.Why != "next" {
		t.Errorf("%+v", res)
	}
}

// A model whose tokens are proven wrong goes to the engine, and comes back after
// it was right for long.
func TestDemotionAndBack(t *testing.T) {
	tok := small(t)
	wrong := true
	next := SourceFunc(func(_ context.Context, r *Request) Result {
		ids := tok.EncodeString(nil, "hello", true)
		if wrong {
			ids = append(slices.Clone(ids), 1)
		}
		return Result{Prompts: []Prompt{{IDs: ids}}, Source: "render"}
	})
	var told []Mismatch
	l := NewLocal(unverified(), next, func(x Mismatch) { told = append(told, x) })
	l.Set("m", NewModel(tok, nil, "", 0))
	ask := func() string {
		return l.Tokens(context.Background(), &Request{Endpoint: Completions, Model: "m", Body: []byte(`{"prompt":"hello"}`)}).Source
	}
	for i := range demoteAfter {
		if got := ask(); got != "local" {
			t.Fatalf("request %d: %s, want local", i, got)
		}
		l.Served("m", 5, 6)
	}
	if len(told) != demoteAfter || !told[demoteAfter-1].Demoted || told[0].Theirs != 6 {
		t.Fatalf("%+v, want %d mismatches, the last one with the demotion", told, demoteAfter)
	}
	for range 3 * restoreAfter {
		if got := ask(); got != "render" {
			t.Fatalf("%s after the demotion, want render", got)
		}
	}
	if last := told[len(told)-1]; last.At != len(tok.EncodeString(nil, "hello", true)) || last.Body == "" {
		t.Errorf("%+v, want the place of the first difference", last)
	}
	wrong = false
	for range restoreAfter {
		ask()
	}
	if got := ask(); got != "local" {
		t.Errorf("%s after %d equal answers, want local", got, restoreAfter)
	}
	if st := l.Stats().Models["m"]; st.Demoted || st.Mismatched == 0 || !told[len(told)-1].Restored {
		t.Errorf("%+v", st)
	}
}

// TestQwen3 compares with the engine's own recorded tokens, where the tokenizer's
// files are at hand (make fixtures).
func TestQwen3(t *testing.T) {
	tok := realTokenizer(t, "qwen3")
	dir := filepath.Join(tokenizers(t), "qwen3")
	l := NewLocal(unverified(), None, nil)
	cfg, err := chat.Open(os.DirFS(dir), "", nil)
	cfg.Now = time.Now
	var renderer *chat.Renderer
	if err == nil {
		renderer, err = chat.New(cfg)
	}
	if err != nil {
		missing(t, fmt.Sprintf("no chat template of Qwen3: %v", err))
	}
	l.Set("tiny-qwen3", NewModel(tok, renderer, "", 1024))
	for _, name := range []string{"main_render_chat", "main_render_chat_cache_salt", "main_render_completions_batch"} {
		x := recorded(t, name)
		want, err := readRender([]byte(x.Response.Body), 0)
		if err != nil {
			t.Fatal(err)
		}
		ep := Chat
		if strings.Contains(name, "completions") {
			ep = Completions
		}
		got := l.Tokens(context.Background(), &Request{Endpoint: ep, Model: "tiny-qwen3", Body: x.Request.Body})
		if fmt.Sprint(ids(got)) != fmt.Sprint(ids(want)) || got.Source != "local" || got.Salt != want.Salt {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
}

func ids(r Result) (out [][]uint32) {
	for _, p := range r.Prompts {
		out = append(out, p.IDs)
	}
	return out
}

func cacheDir(t testing.TB) string {
	if d := os.Getenv("KVASIR_CACHE"); d != "" {
		return d
	}
	home, err := os.UserHomeDir()
	if err != nil {
		t.Skip("no home directory")
	}
	return filepath.Join(home, ".cache", "kvasir")
}
