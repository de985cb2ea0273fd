package token

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"kvasir/setting"
)

// A tripper is an engine behind an http.Client, without sockets.
type tripper func(*http.Request) (*http.Response, error)

func (f tripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// remoteOf returns a Remote of one engine, with an edited configuration.
func remoteOf(engine tripper, edit func(*RemoteConfig)) *Remote {
	c := setting.Defaults[RemoteConfig]()
	edit(&c)
	return NewRemote(c, &http.Client{Transport: engine}, 0, func(string) []string { return []string{"http://a:1"} }, time.Now)
}

func answered(r *http.Request, code int, body string) *http.Response {
	return &http.Response{StatusCode: code, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body)), Request: r}
}

func numbered(n int) *Request {
	return &Request{Endpoint: Chat, Model: "m", Body: fmt.Appendf(nil, `{"messages":[],"n":%d}`, n)}
}

// A question waits for its engine as long as Timeout says, and no longer.
func TestQuestionsEndByTimeout(t *testing.T) {
	for _, limit := range []time.Duration{time.Millisecond, 2 * time.Second, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			silent := func(r *http.Request) (*http.Response, error) { <-r.Context().Done(); return nil, r.Context().Err() }
			src := remoteOf(silent, func(c *RemoteConfig) { c.Timeout = limit })
			start := time.Now()
			res := src.Tokens(context.Background(), numbered(1))
			if took := time.Since(start); took != limit || len(res.Prompts) != 0 || !strings.Contains(res.Why, "deadline") {
				t.Errorf("after %v, want %v: %+v", took, limit, res)
			}
		})
	}
}

// At most Concurrency questions are on their way. One that gets no place within Timeout
// has no tokens.
func TestQuestionsAtOnceAreBounded(t *testing.T) {
	for _, n := range []int{1, 3} {
		synctest.Test(t, func(t *testing.T) {
			var asked atomic.Int32
			answer := make(chan bool)
			src := remoteOf(func(r *http.Request) (*http.Response, error) {
				asked.Add(1)
				<-answer // whatever the limit is: these are on their way
				return answered(r, 200, `{"token_ids":[7]}`), nil
			}, func(c *RemoteConfig) { c.Concurrency = n })
			got := make(chan Result, 5)
			for i := range 5 {
				go func() { got <- src.Tokens(context.Background(), numbered(i)) }()
			}
			synctest.Wait()
			if m := int(asked.Load()); m != n {
				t.Errorf("%d questions at once, want %d", m, n)
			}
			for range 5 - n {
				if res := <-got; !strings.Contains(res.Why, "too many questions at once") {
					t.Errorf("%+v, want it given up for want of a place", res)
				}
			}
			close(answer)
			for range n {
				if res := <-got; res.Source != "render" {
					t.Errorf("%+v, want tokens", res)
				}
			}
		})
	}
}

// Equal content is asked once, as far as CacheBytes has room.
func TestAnswersAreKeptWithinCacheBytes(t *testing.T) {
	ids := "1" + strings.Repeat(",2", 999) // 4 kB
	for _, c := range []struct {
		bytes int64
		asked int
	}{{0, 12}, {16 << 10, 12}, {1 << 20, 4}} {
		asked := 0
		src := remoteOf(func(r *http.Request) (*http.Response, error) {
			asked++
			return answered(r, 200, `{"token_ids":[`+ids+`]}`), nil
		}, func(to *RemoteConfig) { to.CacheBytes = c.bytes })
		for range 3 {
			for i := range 4 { // one after the other: what doesn't hold all holds none of them long enough
				if res := src.Tokens(context.Background(), numbered(i)); res.Source != "render" {
					t.Fatalf("%+v", res)
				}
			}
		}
		if s := src.Stats(); asked != c.asked || s.CacheBytes > c.bytes {
			t.Errorf("%d bytes: asked %d times, want %d; %d bytes kept", c.bytes, asked, c.asked, s.CacheBytes)
		}
	}
}

// An engine without render endpoints is asked for them again after Retry.
func TestRenderIsLookedForAgain(t *testing.T) {
	for _, c := range []struct {
		retry time.Duration
		want  int
	}{{time.Minute, 10}, {5 * time.Minute, 2}} {
		synctest.Test(t, func(t *testing.T) {
			render := 0
			src := remoteOf(func(r *http.Request) (*http.Response, error) {
				if r.URL.Path == "/tokenize" {
					return answered(r, 200, `{"tokens":[7]}`), nil
				}
				render++
				return answered(r, 404, `{"detail":"Not Found"}`), nil
			}, func(to *RemoteConfig) { to.Retry = c.retry })
			for i := range 100 { // in ten minutes
				if res := src.Tokens(context.Background(), numbered(i)); res.Source != "tokenize" {
					t.Fatalf("%+v", res)
				}
				time.Sleep(6*time.Second + time.Millisecond)
			}
			if render != c.want {
				t.Errorf("render was looked for %d times in ten minutes, want %d: every %v", render, c.want, c.retry)
			}
		})
	}
}

// A conversation's next turn costs its new text where CacheBytes has room for the old.
func TestBeginningsAreKeptWithinCacheBytes(t *testing.T) {
	text := strings.Repeat("words and words ", 4<<10)
	body := fmt.Appendf(nil, `{"prompt":%q}`, text)
	for _, c := range []struct {
		bytes int64
		hits  bool
	}{{0, false}, {1 << 10, false}, {64 << 20, true}} {
		cfg := unverified()
		cfg.CacheBytes = c.bytes
		l := NewLocal(cfg, None, nil)
		l.Set("m", NewModel(small(t), nil, "", 0))
		var first Result
		for n := range 2 {
			res := l.Tokens(context.Background(), &Request{Endpoint: Completions, Model: "m", Body: body})
			if n == 0 {
				first = res
			}
			if res.Source != "local" || fmt.Sprint(ids(res)) != fmt.Sprint(ids(first)) {
				t.Errorf("%d bytes: %s %s; want equal tokens whatever is kept", c.bytes, res.Source, res.Why)
			}
		}
		if s := l.Stats().Prefix; (s.Hits > 0) != c.hits || s.Bytes > c.bytes {
			t.Errorf("%d bytes: %+v, hits: want %v", c.bytes, s, c.hits)
		}
	}
}
