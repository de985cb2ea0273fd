package token

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"kvasir/kv"
	"kvasir/setting"
)

// An exchange is a recorded request and vLLM's answer.
type exchange struct {
	Request struct {
		Path string          `json:"path"`
		Body json.RawMessage `json:"body"`
	} `json:"request"`
	Response struct {
		Status int    `json:"status"`
		Body   string `json:"body_raw"`
	} `json:"response"`
}

func recorded(t *testing.T, name string) exchange {
	t.Helper()
	b, err := os.ReadFile("testdata/" + name + ".json")
	if err != nil {
		t.Fatal(err)
	}
	var x exchange
	if err := json.Unmarshal(b, &x); err != nil {
		t.Fatal(err)
	}
	return x
}

// An oracle answers paths with recorded exchanges, and 404 as vLLM does.
type oracle struct {
	*httptest.Server
	mu    sync.Mutex
	asked []string // paths
	last  []byte   // body
}

func newOracle(t *testing.T, names ...string) *oracle {
	t.Helper()
	by := map[string]exchange{}
	for _, n := range names {
		x := recorded(t, n)
		by[x.Request.Path] = x
	}
	o := &oracle{}
	o.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := make([]byte, r.ContentLength)
		r.Body.Read(body)
		o.mu.Lock()
		o.asked = append(o.asked, r.URL.Path)
		o.last = body
		o.mu.Unlock()
		x, ok := by[r.URL.Path]
		if !ok {
			w.WriteHeader(404)
			fmt.Fprint(w, `{"detail":"Not Found"}`)
			return
		}
		w.WriteHeader(x.Response.Status)
		fmt.Fprint(w, x.Response.Body)
	}))
	t.Cleanup(o.Close)
	return o
}

func (o *oracle) source(cfg RemoteConfig) *Remote {
	return NewRemote(cfg, o.Client(), 1, func(string) []string { return []string{o.URL} }, time.Now)
}

func (o *oracle) paths() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.asked)
}

func TestRenderIsExactAndAskedOnce(t *testing.T) {
	o := newOracle(t, "main_render_chat_cache_salt")
	x := recorded(t, "main_render_chat_cache_salt")
	src := o.source(setting.Defaults[RemoteConfig]())
	q := &Request{Endpoint: Chat, Model: "tiny-qwen3", Body: x.Request.Body}
	for range 3 {
		res := src.Tokens(context.Background(), q)
		if res.Source != "render" || len(res.Prompts) != 1 || len(res.Prompts[0].IDs) != 24 || res.Prompts[0].IDs[0] != 151644 || res.Salt != "tenant-1" {
			t.Fatalf("%+v", res)
		}
	}
	if p := o.paths(); len(p) != 1 {
		t.Errorf("asked %v, want once: equal content is kept", p)
	}
	if st := src.Stats(); st.Hits != 2 || st.Misses != 1 || st.Asked != 1 {
		t.Errorf("%+v, want 2 hits, 1 miss, 1 question", st)
	}
}

func TestRenderOfSeveralPrompts(t *testing.T) {
	o := newOracle(t, "main_render_completions_batch")
	x := recorded(t, "main_render_completions_batch")
	res := o.source(setting.Defaults[RemoteConfig]()).Tokens(context.Background(), &Request{Endpoint: Completions, Body: x.Request.Body})
	if len(res.Prompts) != 2 || !slices.Equal(res.Prompts[0].IDs, []uint32{64, 293}) || !slices.Equal(res.Prompts[1].IDs, []uint32{66, 294, 384}) {
		t.Errorf("%+v, want the ids of two prompts", res)
	}
}

// Without render endpoints /tokenize is asked, and render not again for a while.
func TestTokenizeWhereRenderIsAbsent(t *testing.T) {
	o := newOracle(t, "main_tokenize_messages")
	src := o.source(uncached())
	body := []byte(`{"model":"m","messages":[{"role":"user","content":"x"}],"temperature":0.5,"tools":[{"a":1.0}],"cache_salt":"s"}`)
	for range 2 {
		res := src.Tokens(context.Background(), &Request{Endpoint: Chat, Body: body})
		if res.Source != "tokenize" || len(res.Prompts[0].IDs) != 24 || res.Salt != "s" {
			t.Fatalf("%+v", res)
		}
	}
	if got, want := fmt.Sprint(o.paths()), "[/v1/chat/completions/render /tokenize /tokenize]"; got != want {
		t.Errorf("asked %s, want %s", got, want)
	}
	if want := `{"model":"m","messages":[{"role":"user","content":"x"}],"tools":[{"a":1.0}]}`; string(o.last) != want {
		t.Errorf("asked %s, want %s", o.last, want)
	}
	// What /tokenize would get wrong is not asked.
	res := src.Tokens(context.Background(), &Request{Endpoint: Chat, Body: []byte(`{"messages":[],"reasoning_effort":"low"}`)})
	if len(res.Prompts) != 0 || !strings.Contains(res.Why, "reasoning_effort") {
		t.Errorf("%+v, want no tokens because of reasoning_effort", res)
	}
}

func TestRefusedRequestHasNoTokens(t *testing.T) {
	o := newOracle(t, "main_render_error_too_long")
	x := recorded(t, "main_render_error_too_long")
	ep := Chat
	if strings.HasPrefix(x.Request.Path, "/v1/completions") {
		ep = Completions
	}
	res := o.source(setting.Defaults[RemoteConfig]()).Tokens(context.Background(), &Request{Endpoint: ep, Body: x.Request.Body})
	if len(res.Prompts) != 0 || !strings.Contains(res.Why, "400") {
		t.Errorf("%+v, want none, because the engine will refuse it", res)
	}
}

func TestNoEngineAndTimeout(t *testing.T) {
	src := NewRemote(setting.Defaults[RemoteConfig](), http.DefaultClient, 0, func(string) []string { return nil }, time.Now)
	if res := src.Tokens(context.Background(), &Request{Endpoint: Chat, Model: "m"}); !strings.Contains(res.Why, `"m"`) {
		t.Errorf("%+v, want a reason that names the model", res)
	}
	block := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-block }))
	defer srv.Close()
	defer close(block)
	src = NewRemote(hasty(), srv.Client(), 0, func(string) []string { return []string{srv.URL} }, time.Now)
	if res := src.Tokens(context.Background(), &Request{Endpoint: Chat, Body: []byte("{}")}); len(res.Prompts) != 0 || res.Why == "" {
		t.Errorf("%+v, want none after the time-out, with the reason", res)
	}
}

func TestIDs(t *testing.T) {
	never := SourceFunc(func(context.Context, *Request) Result { return Result{Why: "next"} })
	for _, c := range []struct {
		body string
		want string // ids, or the reason
	}{
		{`{"prompt":[1,2,3]}`, "[[1 2 3]]"},
		{` { "prompt" : [ [ 1 , 2 ] , [ 3 ] ] } `, "[[1 2] [3]]"},
		{`{"prompt":[]}`, "the engine refuses this request: a prompt without tokens"},
		{`{"prompt":[[1],[]]}`, "the engine refuses this request: a prompt without tokens"},
		{`{"prompt":[1],"cache_salt":""}`, "the engine refuses this request: cache_salt"},
		{`{"prompt":[1],"add_special_tokens":null}`, "next"},
		{`{"prompt":[4294967295]}`, "[[4294967295]]"},
		{`{"prompt":[4294967296]}`, "token id 4294967296: want 0 to 4294967295"},
		{`{"prompt":"text"}`, "next"},
		{`{"prompt":["a","b"]}`, "next"},
		{`{"prompt":[1.5]}`, "next"},
		{`{"prompt":[-1]}`, "next"},
		{`{"prompt":[1],"truncate_prompt_tokens":5}`, "next"},
		{`{"prompt":[1],"truncate_prompt_tokens":null}`, "[[1]]"},
		{`{"prompt":[1],"prompt":[2]}`, "[[2]]"},
		{`{"messages":[]}`, "next"},
		{`[1]`, "body:"},
		{`{"prompt":[1]`, "body:"},
	} {
		res := IDs(never).Tokens(context.Background(), &Request{Endpoint: Completions, Body: []byte(c.body)})
		got := res.Why
		if got == "" {
			var ids [][]uint32
			for _, p := range res.Prompts {
				ids = append(ids, p.IDs)
			}
			got = fmt.Sprint(ids)
		}
		if !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: %s, want %s", c.body, got, c.want)
		}
	}
	res := IDs(never).Tokens(context.Background(), &Request{Endpoint: Completions, Body: []byte(`{"prompt":[1],"cache_salt":"a\u0062"}`)})
	if res.Salt != "ab" || res.Source != "ids" {
		t.Errorf("%+v, want salt ab", res)
	}
}

// TestExtras: an image of 40 tokens at 10 is in blocks 0 to 3 of 16 tokens, each
// with its offset from the block's start.
func TestExtras(t *testing.T) {
	body := `{"token_ids":[1` + strings.Repeat(",2", 63) + `],"features":{"mm_hashes":{"image":["h"]},"mm_placeholders":{"image":[{"offset":10,"length":40}]}}}`
	res, err := readRender([]byte(body), 7)
	if err != nil {
		t.Fatal(err)
	}
	got := res.Prompts[0].Extras(16)
	var want []kv.Extra
	for b, off := range []int{10, -6, -22, -38} {
		want = append(want, kv.Extra{Block: b, Digest: kv.Seed(7).Extra("h", off)})
	}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	for _, bad := range []string{
		`{"token_ids":[]}`, `{}`, `[]`, `[`, `{"token_ids":[-1]}`,
		`{"token_ids":[1],"features":{"mm_hashes":{"image":["h"]}}}`,
		`{"token_ids":[1],"features":{"mm_hashes":{"image":["h"]},"mm_placeholders":{"image":[{"offset":-1,"length":4}]}}}`,
		`{"token_ids":[1],"features":{"mm_hashes":{"image":["h"]},"mm_placeholders":{"image":[{"offset":1,"length":1}]}}}`,
	} {
		if res, err := readRender([]byte(bad), 0); err == nil {
			t.Errorf("%s gives %+v, want an error", bad, res)
		}
	}
}

// TestAnswersAreBounded: the memory of kept answers stays under its limit, and
// the latest are kept.
func TestAnswersAreBounded(t *testing.T) {
	a := newAnswers(64 << 10)
	key := func(i int) (k [32]byte) { k[0], k[1] = byte(i), byte(i>>8); return k }
	for i := range 1000 {
		a.put(key(i), Result{Prompts: []Prompt{{IDs: make([]uint32, 256)}}})
		if _, _, n := a.stats(); n > 64<<10 {
			t.Fatalf("%d bytes after %d answers, limit %d", n, i+1, 64<<10)
		}
	}
	if _, ok := a.get(key(999)); !ok {
		t.Error("the latest answer is gone")
	}
	if _, ok := a.get(key(0)); ok {
		t.Error("the oldest answer is still there")
	}
	a.put(key(2000), Result{Prompts: []Prompt{{IDs: make([]uint32, 1<<20)}}})
	if _, ok := a.get(key(2000)); ok {
		t.Error("an answer larger than the whole cache was kept")
	}
}

func FuzzIDs(f *testing.F) {
	for _, s := range []string{`{"prompt":[1,2]}`, `{"prompt":[[1],[2]]}`, `{"prompt":[`, `[[[[`, `{"prompt":"x","cache_salt":"\ud800"}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		q := &Request{Endpoint: Completions, Body: body}
		res := IDs(None).Tokens(context.Background(), q)
		if len(res.Prompts) == 0 && res.Why == "" {
			t.Fatal("neither tokens nor a reason")
		}
		n := 0
		for _, p := range res.Prompts {
			n += len(p.IDs)
		}
		if n > len(body) {
			t.Fatalf("%d ids out of %d bytes", n, len(body))
		}
		tokenizeBody(&Request{Endpoint: Chat, Body: body})
	})
}

func FuzzRender(f *testing.F) {
	f.Add([]byte(`[{"token_ids":[1]}]`))
	f.Add([]byte(`{"token_ids":[1],"features":{"mm_hashes":{"image":["h"]},"mm_placeholders":{"image":[{"offset":0,"length":1}]}}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		if res, err := readRender(body, 0); err == nil {
			for _, p := range res.Prompts {
				if len(p.IDs) == 0 {
					t.Fatal("a prompt without ids")
				}
			}
		}
	})
}

// uncached keeps no answer.
func uncached() RemoteConfig {
	c := setting.Defaults[RemoteConfig]()
	c.CacheBytes = 0
	return c
}

// hasty waits for no engine.
func hasty() RemoteConfig {
	c := setting.Defaults[RemoteConfig]()
	c.Timeout = time.Millisecond
	return c
}

// unverified compares nothing.
func unverified() LocalConfig {
	c := setting.Defaults[LocalConfig]()
	c.Verify = 0
	return c
}
