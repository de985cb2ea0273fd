package proxy

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"kvasir/kv"
	"kvasir/token"
)

// TestCacheUse: what each field says of the cache, on each endpoint.
func TestCacheUse(t *testing.T) {
	const unread, odd, shows = "unread", "odd", "shows"
	for _, c := range []struct{ fields, completions, chat, responses string }{
		{`"temperature":0.5`, shows, shows, shows},
		{`"logprobs":5,"top_logprobs":3`, shows, shows, shows},
		{`"prompt_logprobs":1`, unread, unread, odd},
		{`"prompt_logprobs":0`, unread, unread, odd},
		{`"prompt_logprobs":-1`, unread, unread, odd},
		{`"prompt_logprobs":null`, shows, shows, shows},
		{`"prompt_logprobs":1,"prompt_logprobs":null`, shows, shows, shows}, // the last one counts
		{`"prompt_\u006cogprobs":1`, unread, unread, odd},
		{`"prompt_logprob_token_ids":[1]`, unread, unread, odd},
		{`"echo":true`, odd, unread, odd},
		{`"echo":true,"logprobs":0`, unread, unread, odd},
		{`"logprobs":1,"echo":true`, unread, unread, odd},
		{`"echo":true,"logprobs":null`, odd, unread, odd},
		{`"echo":false,"logprobs":1`, shows, shows, shows},
		{`"echo":null,"logprobs":1`, shows, shows, shows},
		{`"use_beam_search":true`, odd, odd, odd},
		{`"prompt_embeds":"AA=="`, odd, odd, odd},
		{`"kv_transfer_params":{"do_remote_decode":true}`, odd, odd, odd},
		{`"kv_transfer_params":null`, shows, shows, shows},
		{`"extra_key":"a"`, odd, odd, odd},
		{`"lora_path":"a"`, odd, odd, odd},
		{`"session_params":{}`, odd, odd, odd},
		{`"return_hidden_states":true`, odd, odd, odd},
		{`"bootstrap_room":7`, odd, odd, odd},
		{`"of_the_next_version":1`, odd, odd, odd},
	} {
		for kind, want := range map[token.Endpoint]string{token.Completions: c.completions, token.Chat: c.chat, token.Responses: c.responses} {
			f, _, err := readFields([]byte(`{"model":"m","prompt":[1],` + c.fields + `,"max_tokens":1}`))
			if err != nil {
				t.Fatal(err)
			}
			got := shows
			if f.cache.unread(kind) {
				got = unread
			} else if !f.cache.shows() {
				got = odd
			}
			if got != want {
				t.Errorf("%v {%s}: %s, want %s", kind, c.fields, got, want)
			}
			if got == unread && f.cache.shows() {
				t.Errorf("%v {%s}: it reads no cache, and shows something of it", kind, c.fields)
			}
		}
	}
}

// TestClientsEmptyNothing: an engine serves nothing from its cache, 40 times, for
// requests that can't show anything of it; and 40 times for plain ones.
func TestClientsEmptyNothing(t *testing.T) {
	const prompt = 3201
	ids := strings.TrimSuffix(strings.Repeat("7,", prompt), ",")
	for _, c := range []struct {
		path, fields  string
		predicted     int // tokens
		alarm, counts bool
	}{
		{"/v1/completions", `"prompt_logprobs":1`, 0, false, false},
		{"/v1/completions", `"echo":true,"logprobs":1`, 0, false, false},
		{chatPath, `"prompt_logprobs":1`, 0, false, false},
		{chatPath, `"echo":true`, 0, false, false},
		{"/v1/completions", `"extra_key":"x"`, 3200, false, true},
		{chatPath, `"who_knows":1`, 3200, false, true},
		{"/v1/completions", `"temperature":0`, 3200, true, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			tokens := make([]uint32, prompt)
			for i := range tokens {
				tokens[i] = 7
			}
			w := newWorld(t, setup{source: token.SourceFunc(func(context.Context, *token.Request) token.Result {
				return token.Result{Prompts: []token.Prompt{{IDs: tokens}}, Source: "ids"}
			})})
			defer w.close()
			w.serve("a:80", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body)
				answerJSON(200, fmt.Sprintf(`{"choices":[{"index":0,"text":"x","message":{"content":"x"}}],"usage":{"prompt_tokens":%d,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":0}}}`, prompt))(rw, r)
			}))
			r := w.engine("a:80", fleetModel("m"))
			handles := make([]kv.Handle, prompt/16)
			for i := range handles {
				handles[i] = kv.Handle(i + 1)
			}
			w.sched.Apply(&kv.Event{Kind: kv.Stored, Target: r.Targets[0], BlockSize: 16, Root: true, Handles: handles, Tokens: tokens[:prompt/16*16]})
			w.sched.SetTrust(r.Targets[0], kv.Exact, "of the test", time.Now()) // else nothing is confirmed
			for range 40 {
				code, h, body := w.do("POST", c.path, `{"model":"m","prompt":[`+ids+`],"messages":[],"max_tokens":1,`+c.fields+`}`)
				if want := fmt.Sprintf("%d/%d", c.predicted, prompt); code != 200 || h.Get("X-Kvasir-Cached-Tokens") != want && !c.alarm {
					t.Fatal(c.fields, code, h.Get("X-Kvasir-Cached-Tokens"), "want", want, body)
				}
			}
			synctest.Wait()
			if n := w.alarms(); n > 0 != c.alarm {
				t.Errorf("{%s}: %d alarms, want %v", c.fields, n, c.alarm)
			}
			time.Sleep(5 * time.Second)
			w.sched.Tick(time.Now())
			st := w.sched.State(r.Targets[0])
			if st.Compared > 0 != c.counts || st.Confirmed+st.Unconfirmed > 0 != c.counts {
				t.Errorf("{%s}: %d compared, %d confirmed, %d not; want either: %v", c.fields, st.Compared, st.Confirmed, st.Unconfirmed, c.counts)
			}
		})
	}
}

// TestSeveralPromptsShowNothing: usage is the sum, or that of one of them.
func TestSeveralPromptsShowNothing(t *testing.T) {
	c := call{p: &Proxy{}}
	for n, want := range map[int]bool{1: false, 2: true} {
		res := token.Result{}
		for range n {
			res.Prompts = append(res.Prompts, token.Prompt{IDs: []uint32{1}})
		}
		w := newWorld(t, setup{})
		c.p = w.proxy
		c.rt.kind = token.Completions
		if c.tokens(&res); c.route.Odd != want {
			t.Errorf("%d prompts: odd %v, want %v", n, c.route.Odd, want)
		}
		w.close()
	}
}
