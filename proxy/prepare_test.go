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

	"kvasir/fleet"
	"kvasir/kv"
	"kvasir/sched"
	"kvasir/token"
)

func ids(n int) []uint32 {
	out := make([]uint32, n)
	for i := range out {
		out[i] = uint32(i)
	}
	return out
}

// What the scheduler is told of a request's tokens, and the client of the prediction.
func TestTokens(t *testing.T) {
	for _, c := range []struct {
		name   string
		res    token.Result
		cached string // x-kvasir-cached-tokens of the second, equal request
		tokens int
		source string
		why    string
	}{
		{"one prompt", token.Result{Prompts: []token.Prompt{{IDs: ids(100)}}, Source: "render"}, "96/100", 100, "render", ""},
		{"several: the longest is looked for, all are booked", token.Result{Prompts: []token.Prompt{{IDs: ids(20)}, {IDs: ids(100)}, {IDs: ids(7)}}, Source: "ids"}, "96/127", 127, "ids", ""},
		{"none", token.Result{Why: "no render endpoint"}, "", 0, "", "no render endpoint"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var asked token.Request
				w := newWorld(t, setup{source: token.SourceFunc(func(_ context.Context, r *token.Request) token.Result {
					asked = *r
					return c.res
				})})
				defer w.close()
				w.engine("a:80")
				w.serve("a:80", stream(chatA, chatUsage, chatDone))
				if _, h, _ := w.do("POST", chatPath, chatStream, "Authorization", "Bearer k"); c.tokens > 0 && h.Get("X-Kvasir-Cached-Tokens") != fmt.Sprintf("0/%d", c.tokens) {
					t.Errorf("cold: %q", h.Get("X-Kvasir-Cached-Tokens"))
				}
				if asked.Endpoint != token.Chat || asked.Model != "m" || asked.Authorization != "Bearer k" || string(asked.Body) != chatStream {
					t.Errorf("asked %+v", asked)
				}
				// The engine reports what it has stored.
				w.engineStored(0, ids(96), "")
				_, h, _ := w.do("POST", chatPath, chatStream)
				if got := h.Get("X-Kvasir-Cached-Tokens"); got != c.cached {
					t.Errorf("x-kvasir-cached-tokens: %q, want %q", got, c.cached)
				}
				if r := w.lastReceipt(); r.Tokens != c.tokens || r.Source != c.source || r.Why != c.why {
					t.Errorf("receipt: %d tokens from %q, why %q", r.Tokens, r.Source, r.Why)
				}
			})
		})
	}
}

// engineStored makes target t's engine report blocks of 16 tokens.
func (w *world) engineStored(t kv.Target, tokens []uint32, lora string) {
	n := len(tokens) / 16
	handles := make([]kv.Handle, n)
	for i := range handles {
		handles[i] = kv.Handle(1000 + i)
	}
	w.sched.Apply(&kv.Event{
		Kind: kv.Stored, Source: kv.Engine, Target: t, BlockSize: 16, Root: true, Handles: handles, Tokens: tokens[:n*16], Key: kv.Key{LoRA: lora},
	})
}

// An adapter's blocks are its own.
func TestAdapterIsAKeyOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{source: token.SourceFunc(func(context.Context, *token.Request) token.Result {
			return token.Result{Prompts: []token.Prompt{{IDs: ids(100)}}, Source: "ids"}
		})})
		defer w.close()
		w.engine("a:80", fleet.Model{ID: "m"}, fleet.Model{ID: "bot", Parent: "m"})
		w.serve("a:80", answerJSON(500, "no")) // so that no prediction stays
		w.engineStored(0, ids(96), "bot")
		for model, want := range map[string]string{"m": "a:80 0", "bot": "a:80 96"} {
			w.do("POST", "/v1/completions", `{"model":"`+model+`"}`)
			r := w.lastReceipt()
			if got := fmt.Sprintf("%s %d", r.Replica, r.Overlap.Held()); got != want {
				t.Errorf("%s: %s, want %s", model, got, want)
			}
		}
	})
}

// Tokens that come too late are not waited for.
func TestTokensAreNotWaitedForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{source: token.SourceFunc(func(ctx context.Context, _ *token.Request) token.Result {
			<-ctx.Done()
			return token.Result{Why: "render took too long"}
		})})
		defer w.close()
		w.engine("a:80")
		w.serve("a:80", answerJSON(200, goodDoc))
		start := time.Now()
		if code, _, _ := w.do("POST", chatPath, chatBody); code != 200 || time.Since(start) != 500*time.Millisecond {
			t.Errorf("%d after %v", code, time.Since(start))
		}
	})
}

// The rank goes to engines with several, and to no others; the client's own pins it.
func TestRanks(t *testing.T) {
	for _, c := range []struct {
		name   string
		ranks  int
		client string // its header
		sent   []string
		booked []int // ranks, -1: any
	}{
		{"one rank", 1, "", []string{"", ""}, []int{0, 0}},
		{"two ranks", 2, "", []string{"0", "1"}, []int{0, 1}},
		{"pinned", 2, "1", []string{"1", "1"}, []int{1, 1}},
		{"out of range", 2, "2", []string{"2", "2"}, []int{-1, -1}},
		{"one rank, pinned", 1, "0", []string{"0", "0"}, []int{0, 0}},
		{"one rank, out of range", 1, "1", []string{"1", "1"}, []int{0, 0}},
		{"no number", 2, "x", []string{"0", "1"}, []int{0, 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, setup{})
				defer w.close()
				r := w.engine("a:80")
				if _, _, err := w.table.SetRanks(r.ID, c.ranks); err != nil {
					t.Fatal(err)
				}
				var sent []string
				w.serve("a:80", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
					io.Copy(io.Discard, r.Body)
					sent = append(sent, strings.Join(r.Header[rankHeader], "|"))
				}))
				headers := []string{}
				if c.client != "" {
					headers = []string{"X-data-parallel-rank", c.client}
				}
				for i := range 2 {
					w.do("POST", "/v1/completions", chatBody, headers...)
					if got := w.lastReceipt().Rank; c.booked[i] >= 0 && got != c.booked[i] {
						t.Errorf("request %d booked on rank %d, want %d", i, got, c.booked[i])
					}
				}
				if fmt.Sprint(sent) != fmt.Sprint(c.sent) {
					t.Errorf("sent %q, want %q", sent, c.sent)
				}
			})
		})
	}
}

func TestSessions(t *testing.T) {
	long := strings.Repeat("s", 1000)
	for _, c := range []struct{ name, header, body, want string }{
		{"none", "", `{"model":"m"}`, ""},
		{"header wins", "s1", `{"model":"m","session_id":"s2"}`, "x-session-id=s1"},
		{"session_id", "", `{"model":"m","user":"u","session_id":"s2"}`, "session_id=s2"},
		{"Anthropic", "", `{"model":"m","metadata":{"a":{"user_id":"no"},"user_id":"user_1_session_2"},"user":"u"}`, "metadata.user_id=user_1_session_2"},
		{"cache key", "", `{"model":"m","user":"u","prompt_cache_key":"k\u00e9"}`, "prompt_cache_key=ké"},
		{"user", "", `{"model":"m","user":"u"}`, "user=u"},
		{"not a string", "", `{"model":"m","user":7,"session_id":null,"metadata":"x"}`, ""},
		{"long header", long, `{"model":"m"}`, "x-session-id=" + long[:maxSession]},
		{"long field", "", `{"model":"m","user":"` + long + `"}`, "user=" + long[:maxSession]},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, setup{})
				defer w.close()
				w.engine("a:80")
				w.serve("a:80", answerJSON(200, "{}"))
				headers := []string{}
				if c.header != "" {
					headers = []string{"X-Session-Id", c.header}
				}
				w.do("POST", chatPath, c.body, headers...)
				if got := w.lastReceipt().Session; got != c.want {
					t.Errorf("session %q, want %q", got, c.want)
				}
			})
		})
	}
}

func TestStats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{})
		defer w.close()
		w.engine("a:80")
		w.engine("b:80")
		w.serve("a:80", answerJSON(503, "busy"))
		w.serve("b:80", timed(time.Second, chatA, chatDone))
		w.do("POST", chatPath, chatStream)
		w.do("GET", "/v1/models", "")
		w.do("GET", "/nope", "")
		s := w.proxy.Stats()
		want := []Requests{{Chat, 200, sched.Completed, 1}, {Models, 200, sched.Open, 1}, {Unknown, 404, sched.Open, 1}}
		if fmt.Sprint(s.Requests) != fmt.Sprint(want) {
			t.Errorf("requests %v, want %v", s.Requests, want)
		}
		if w.good != 1 {
			t.Errorf("Succeeded was called %d times", w.good)
		}
		if s.Retries[Overloaded] != 1 || s.Failures[Overloaded] != 1 || s.Open != 0 {
			t.Errorf("retries %v, failures %v, open %d", s.Retries, s.Failures, s.Open)
		}
		n := uint64(0)
		for i, b := range s.FirstToken.Counts {
			if n += b; b > 0 && s.FirstToken.Bounds[i] != 1 {
				t.Errorf("first token in bucket %v", s.FirstToken.Bounds[i])
			}
		}
		if n != 1 || s.FirstToken.Sum != 1 {
			t.Errorf("first token: %d, %v s", n, s.FirstToken.Sum)
		}
	})
}

func TestConfig(t *testing.T) {
	good := Default()
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		edit func(*Config)
		want string
	}{
		{func(c *Config) { c.MaxBody = 0 }, "proxy.max_body: 0, want bytes from 1 to 1073741824"},
		{func(c *Config) { c.Idle = -time.Second }, "proxy.idle: -1s, want a duration from 10ms to 24h0m0s"},
		{func(c *Config) { c.Attempts = 99 }, "proxy.attempts: 99, want a number from 1 to 16"},
		{func(c *Config) { c.HoldBytes = -1 }, "proxy.hold_bytes: -1"},
		{func(c *Config) { c.RetryAfter = 0 }, "proxy.retry_after"},
		{func(c *Config) { c.Pass = []string{"/"} }, `proxy.pass: "/", want a path prefix`},
	} {
		cfg := Default()
		c.edit(&cfg)
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
		if _, err := New(cfg, Parts{}); err == nil {
			t.Error("New took it")
		}
	}
	if _, err := New(good, Parts{}); err == nil {
		t.Error("New without a fleet")
	}
}
