package proxy

import (
	"bufio"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"

	"kvasir/kv"
	"kvasir/sched"
)

// A recording is one exchange with a real vLLM; see testdata/README.md.
type recording struct {
	Name    string
	Path    string
	Headers map[string]string
	Body    string
	Status  int
	Stream  bool
	Answer  string
	Given   [][2]string `json:"response_headers"`
}

func recordings(tb testing.TB) []recording {
	f, err := os.Open("testdata/vllm_http.jsonl")
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	var out []recording
	for in := json.NewDecoder(bufio.NewReader(f)); ; {
		var r recording
		if err := in.Decode(&r); err == io.EOF {
			return out
		} else if err != nil {
			tb.Fatal(err)
		}
		out = append(out, r)
	}
}

// refused are the recordings that the proxy answers itself, with vLLM's status.
var refused = map[string]bool{
	"main_error_bad_json": true, "main_error_empty_body": true, "main_error_not_an_object": true,
	"main_error_unknown_model": true, "main_error_unknown_model_completions": true, "main_error_unknown_model_stream": true,
	"main_messages_error_unknown_model": true, "main_tokenize_bad_model": true,
}

// Every recorded exchange goes through unchanged, however the engine's bytes are cut
// into writes, and its usage is understood.
func TestRecordings(t *testing.T) {
	all := recordings(t)
	if len(all) < 100 {
		t.Fatalf("%d recordings", len(all))
	}
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{})
		defer w.close()
		w.engine("a:80", kv.Model{ID: "tiny-qwen3"}, kv.Model{ID: "tiny-hybrid"}, kv.Model{ID: "support-bot", Parent: "tiny-qwen3"}, kv.Model{ID: "second-bot", Parent: "tiny-qwen3"})
		var cur recording
		var sent string
		cut := rand.New(rand.NewPCG(1, 2))
		w.serve("a:80", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			b, _ := io.ReadAll(r.Body)
			sent = string(b)
			for _, h := range cur.Given {
				if h[0] != "transfer-encoding" {
					rw.Header().Add(h[0], h[1])
				}
			}
			rw.WriteHeader(cur.Status)
			for rest := cur.Answer; rest != ""; {
				n := min(1+cut.IntN(200), len(rest))
				io.WriteString(rw, rest[:n])
				rw.(http.Flusher).Flush()
				rest = rest[n:]
			}
		}))
		for _, cur = range all {
			headers := []string{}
			for k, v := range cur.Headers {
				headers = append(headers, http.CanonicalHeaderKey(k), v)
			}
			sent = ""
			code, h, answer := w.do("POST", cur.Path, cur.Body, headers...)
			if strings.HasSuffix(cur.Path, "load_lora_adapter") || cur.Path == "/v1/nope" { // no business of clients
				if code != 404 || sent != "" {
					t.Errorf("%s: %d, the engine got %q; want 404, and nothing", cur.Name, code, sent)
				}
				continue
			}
			if code != cur.Status {
				t.Errorf("%s: %d %s, want %d", cur.Name, code, clip(answer, 300), cur.Status)
			}
			if refused[cur.Name] {
				if sent != "" {
					t.Errorf("%s: went to the engine", cur.Name)
				}
				continue
			}
			if sent != cur.Body {
				t.Errorf("%s: the engine got %q", cur.Name, clip(sent, 300))
			}
			if answer != cur.Answer {
				t.Errorf("%s: the client got\n%q\nwant\n%q", cur.Name, answer, cur.Answer)
			}
			for _, g := range cur.Given {
				if g[0] != "transfer-encoding" && h.Get(g[0]) != g[1] {
					t.Errorf("%s: header %s: %q, want %q", cur.Name, g[0], h.Get(g[0]), g[1])
				}
			}
			r := w.lastReceipt()
			if r.Outcome != sched.Completed {
				t.Errorf("%s: %v", cur.Name, r.Outcome)
			}
			prompt, cached, told := usageOf(cur)
			if r.Served != told || r.ServedPrompt != prompt || r.ServedCached != cached {
				t.Errorf("%s: served %v %d/%d, want %v %d/%d", cur.Name, r.Served, r.ServedCached, r.ServedPrompt, told, cached, prompt)
			}
		}
		w.idle()
		if len(w.failed) > 0 {
			t.Errorf("failures %v", w.failed)
		}
	})
}

// usageOf reads a recording's usage the slow way: the last usage object that tells
// what was cached.
func usageOf(r recording) (prompt, cached int, told bool) {
	if r.Status != 200 || strings.HasSuffix(r.Path, "/render") || strings.HasSuffix(r.Path, "tokenize") || strings.HasSuffix(r.Path, "count_tokens") {
		return 0, 0, false
	}
	docs := []string{r.Answer}
	if r.Stream {
		docs = nil
		for line := range strings.Lines(r.Answer) {
			if d, ok := strings.CutPrefix(line, "data: "); ok {
				docs = append(docs, d)
			}
		}
	}
	type details struct {
		Cached *int `json:"cached_tokens"`
	}
	type counts struct {
		Prompt, Input  *int
		PromptTokens   *int     `json:"prompt_tokens"`
		InputTokens    *int     `json:"input_tokens"`
		PromptDetails  *details `json:"prompt_tokens_details"`
		InputDetails   *details `json:"input_tokens_details"`
		Read, Creation *int
		CacheRead      *int `json:"cache_read_input_tokens"`
		CacheCreation  *int `json:"cache_creation_input_tokens"`
	}
	for _, d := range docs {
		var v struct {
			Usage    *counts
			Response struct{ Usage *counts }
		}
		if json.Unmarshal([]byte(d), &v) != nil {
			continue
		}
		u := v.Usage
		if u == nil {
			u = v.Response.Usage
		}
		switch {
		case u == nil:
		case u.CacheRead != nil:
			prompt, cached, told = *u.InputTokens+*u.CacheRead+*u.CacheCreation, *u.CacheRead, true
		case u.InputDetails != nil && u.InputDetails.Cached != nil:
			prompt, cached, told = *u.InputTokens, *u.InputDetails.Cached, true
		case u.PromptDetails != nil && u.PromptDetails.Cached != nil:
			prompt, cached, told = *u.PromptTokens, *u.PromptDetails.Cached, true
		}
	}
	return prompt, cached, told
}
