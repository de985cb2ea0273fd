package proxy

import (
	"bufio"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"kvasir/fleet"
	"kvasir/kv"
	"kvasir/policy"
	"kvasir/sched"
)

// Where each hint comes from, and what wins: over HTTP, as the receipt has it.
func TestHints(t *testing.T) {
	type want struct {
		priority, expected, max int
		deadline, next          time.Duration
		tenant                  string
	}
	for _, c := range []struct {
		name    string
		orders  []fleet.Order // of the engines
		body    string        // members of the body
		headers []string
		want    want
	}{
		{name: "nothing"},
		{name: "our headers", headers: []string{"X-Kvasir-Priority", "-3", "X-Kvasir-Deadline", "1500ms", "X-Kvasir-Tenant", "acme", "X-Kvasir-Expected-Output", "70", "X-Kvasir-Next-Turn", "2.5"},
			want: want{priority: -3, deadline: 1500 * time.Millisecond, tenant: "acme", expected: 70, next: 2500 * time.Millisecond}},
		{name: "in other units", headers: []string{"X-Kvasir-Deadline", "2", "X-Kvasir-Next-Turn", "1m"}, want: want{deadline: 2 * time.Second, next: time.Minute}},

		// The body's priority means what the engines take it for.
		{name: "vLLM: the lower the earlier", body: `,"priority":5`, orders: []fleet.Order{fleet.LowFirst, fleet.LowFirst}, want: want{priority: -5}},
		{name: "vLLM: urgent", body: `,"priority":-5`, orders: []fleet.Order{fleet.LowFirst, fleet.LowFirst}, want: want{priority: 5}},
		{name: "SGLang: the higher the earlier", body: `,"priority":-5`, orders: []fleet.Order{fleet.HighFirst, fleet.HighFirst}, want: want{priority: -5}},
		{name: "engines that disagree", body: `,"priority":5`, orders: []fleet.Order{fleet.LowFirst, fleet.HighFirst}},
		{name: "engines that don't say", body: `,"priority":5`},

		{name: "Dynamo's body beats the plain one", body: `,"priority":5,"nvext":{"agent_hints":{"priority":7}}`, orders: []fleet.Order{fleet.LowFirst, fleet.LowFirst}, want: want{priority: 7}},
		{name: "Dynamo's header beats its body", body: `,"nvext":{"agent_hints":{"priority":7}}`, headers: []string{"X-Dynamo-Request-Priority", "0"}},
		{name: "our header beats all", body: `,"priority":5,"nvext":{"agent_hints":{"priority":7}}`, headers: []string{"X-Dynamo-Request-Priority", "9", "X-Kvasir-Priority", "0"}, orders: []fleet.Order{fleet.LowFirst, fleet.LowFirst}},
		{name: "others' words that can't be read", body: `,"priority":"high","nvext":{"agent_hints":{"priority":"x","osl":-1}}`, headers: []string{"X-Dynamo-Request-Priority", "urgent"}, orders: []fleet.Order{fleet.LowFirst, fleet.LowFirst}},

		{name: "Dynamo's output length", body: `,"nvext":{"agent_hints":{"osl":40}}`, want: want{expected: 40}},
		{name: "of each choice", body: `,"n":2,"nvext":{"agent_hints":{"osl":40}}`, want: want{expected: 80}},
		{name: "no more than allowed", body: `,"max_tokens":30,"nvext":{"agent_hints":{"osl":40}}`, want: want{expected: 30, max: 30}},
		{name: "our header beats Dynamo's", body: `,"max_tokens":300,"nvext":{"agent_hints":{"osl":40}}`, headers: []string{"X-Kvasir-Expected-Output", "70"}, want: want{expected: 70, max: 300}},
		{name: "but not what is allowed", body: `,"max_tokens":30`, headers: []string{"X-Kvasir-Expected-Output", "70"}, want: want{expected: 30, max: 30}},

		{name: "the tenant's own name beats its key", headers: []string{"Authorization", "Bearer sk-secret", "X-Kvasir-Tenant", "acme"}, want: want{tenant: "acme"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, setup{})
			defer w.close()
			for i, name := range []string{"a:80", "b:80"} {
				r := w.engine(name)
				w.serve(name, answerJSON(200, "{}"))
				if i < len(c.orders) {
					w.table.Update(r.ID, func(r *fleet.Replica) { r.Priorities = c.orders[i] })
				}
			}
			if code, _, answer := w.do("POST", "/v1/completions", `{"model":"m","prompt":"x"`+c.body+`}`, c.headers...); code != 200 {
				t.Errorf("%s: %d %s", c.name, code, answer)
				return
			}
			synctest.Wait()
			r := w.lastReceipt()
			if got := (want{r.Priority, r.Expected, r.MaxOutput, r.Deadline, r.NextTurn, r.Tenant}); got != c.want {
				t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
			}
		})
	}
}

// A header of ours that can't be read is refused in the words of the endpoint, and
// no engine hears of it.
func TestHintsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{})
		defer w.close()
		w.engine("a:80")
		w.serve("a:80", answerJSON(200, "{}"))
		for _, c := range []struct{ name, value, words string }{
			{"X-Kvasir-Priority", "high", `is "high", want a whole number`},
			{"X-Kvasir-Priority", "", `is "", want`},
			{"X-Kvasir-Priority", "1.5", "want a whole number"},
			{"X-Kvasir-Priority", "2147483648", "want a whole number"},
			{"X-Kvasir-Deadline", "soon", `is "soon", want seconds, or a number with a unit as in 1500ms, above 0 and at most 24h`},
			{"X-Kvasir-Deadline", "0", "above 0"},
			{"X-Kvasir-Deadline", "-1s", "above 0"},
			{"X-Kvasir-Deadline", "25h", "at most 24h"},
			{"X-Kvasir-Deadline", "1e300", "at most 24h"},
			{"X-Kvasir-Deadline", "NaN", "at most 24h"},
			{"X-Kvasir-Next-Turn", "later", "want seconds"},
			{"X-Kvasir-Next-Turn", "86401", "at most 24h"},
			{"X-Kvasir-Expected-Output", "0", "1 to 1000000000"},
			{"X-Kvasir-Expected-Output", "many", "1 to 1000000000"},
			{"X-Kvasir-Tenant", "", "1 to 64 visible ASCII characters"},
			{"X-Kvasir-Tenant", "two words", "visible ASCII"},
			{"X-Kvasir-Tenant", "caf\xc3\xa9", "visible ASCII"},
			{"X-Kvasir-Tenant", strings.Repeat("x", 65), "1 to 64"},
		} {
			code, h, body := w.do("POST", chatPath, chatBody, c.name, c.value)
			if code != 400 || !strings.Contains(body, strings.ReplaceAll(c.words, `"`, `\"`)) || !strings.Contains(body, `"param":"`+c.name+`","code":"invalid_header"`) || h.Get("Content-Type") != "application/json" {
				t.Errorf("%s: %q: %d %s, want %q", c.name, c.value, code, body, c.words)
			}
		}
		code, _, body := w.do("POST", chatPath, chatBody, "X-Kvasir-Tenant", "a", "X-Kvasir-Tenant", "b")
		if code != 400 || !strings.Contains(body, "is there 2 times, want it once") {
			t.Errorf("twice: %d %s", code, body)
		}
		code, _, body = w.do("POST", "/v1/messages", `{"model":"m","messages":[]}`, "X-Kvasir-Priority", "x")
		if code != 400 || !strings.HasPrefix(body, `{"type":"error","error":{"type":"invalid_request_error","message":"the header X-Kvasir-Priority is \"x\"`) {
			t.Errorf("Anthropic's: %d %s", code, body)
		}
		if o := w.outcomes(); o != "" {
			t.Errorf("an engine had it: %q", o)
		}
	})
}

// Who has no name of its own is known by its key: the same for the same key, another
// for another key and in another process, and never the key.
func TestTenantByKey(t *testing.T) {
	tenants := func() (out []string) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, setup{})
			defer w.close()
			w.engine("a:80")
			w.serve("a:80", answerJSON(200, "{}"))
			for _, h := range [][]string{{"Authorization", "Bearer sk-one"}, {"Authorization", "bearer  sk-one"}, {"X-Api-Key", "sk-one"}, {"Authorization", "Bearer sk-two"}, {"Authorization", "Basic sk-one"}, nil} {
				if code, _, body := w.do("POST", chatPath, chatBody, h...); code != 200 {
					t.Fatalf("%d %s", code, body)
				}
				synctest.Wait()
				out = append(out, w.lastReceipt().Tenant)
			}
		})
		return out
	}
	a, b := tenants(), tenants()
	if a[0] != a[1] || a[0] != a[2] || a[0] == a[3] || a[0] == a[4] || a[5] != "" {
		t.Errorf("%q", a)
	}
	if len(a[0]) != len("key:")+12 || !strings.HasPrefix(a[0], "key:") || strings.Contains(a[0], "sk-") {
		t.Errorf("%q", a[0])
	}
	if a[0] == b[0] {
		t.Errorf("%q in two processes: whoever reads it can try keys", a[0])
	}
}

// What can be shed is what the client's words make so: with a queue everywhere, a
// request that may be refused gets a 429 that says so, and no other does.
func TestShedByWhatClientsSay(t *testing.T) {
	for _, c := range []struct {
		name, body string
		order      fleet.Order
		headers    []string
		code       int
		words      string
	}{
		{name: "nothing said", code: 200},
		{name: "vLLM: later than the others", body: `,"priority":5`, order: fleet.LowFirst, code: 429, words: "this request's priority is low (-5); try again in 1s"},
		{name: "vLLM: before the others", body: `,"priority":-5`, order: fleet.LowFirst, code: 200},
		{name: "SGLang: later than the others", body: `,"priority":-5`, order: fleet.HighFirst, code: 429, words: "this request's priority is low (-5); try again in 1s"},
		{name: "our header", headers: []string{"X-Kvasir-Priority", "-5"}, code: 429, words: "this request's priority is low (-5); try again in 1s"},
		{name: "Dynamo's", body: `,"nvext":{"agent_hints":{"priority":-1}}`, code: 429, words: "this request's priority is low (-1); try again in 1s"},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, setup{policy: "least_load", settings: func(p *policy.Config) { p.Shed.Enabled, p.Shed.Queue = true, 1 }})
			defer w.close()
			for i, name := range []string{"a:80", "b:80"} {
				r := w.engine(name)
				w.serve(name, answerJSON(200, "{}"))
				w.table.Update(r.ID, func(r *fleet.Replica) { r.Priorities = c.order })
				w.sched.SetGauge(kv.Target(i), kv.Gauge{Waiting: 1, Running: 20, At: time.Now()})
			}
			code, h, answer := w.do("POST", "/v1/completions", `{"model":"m","prompt":"x"`+c.body+`}`, c.headers...)
			if code != c.code || !strings.Contains(answer, c.words) {
				t.Errorf("%s: %d %s, want %d, %q", c.name, code, answer, c.code, c.words)
			}
			if code == 429 && h.Get("Retry-After") != "1" {
				t.Errorf("%s: Retry-After %q", c.name, h.Get("Retry-After"))
			}
		})
	}
}

// A deadline is the client's, else the configured one. What is refused for it is told
// so, and when it could be in time; what could never be is told that.
func TestShedByDeadline(t *testing.T) {
	const rate = 100 // tokens per second: the body below, of 400 bytes, takes a second
	body := `{"model":"m","prompt":"x"}`
	body += strings.Repeat(" ", 400-len(body))
	for _, c := range []struct {
		name    string
		config  time.Duration
		headers []string
		queue   int // tokens owed on the only engine
		code    int
		after   string
		words   string
	}{
		{name: "none", queue: 100000, code: 200},
		{name: "configured", config: 3 * time.Second, queue: 500, code: 429, after: "3", words: "no engine could begin to answer before 6s, and this request's deadline to the first token is 3s; try again in 3s"},
		{name: "the client's", config: 3 * time.Second, headers: []string{"X-Kvasir-Deadline", "4"}, queue: 500, code: 429, after: "2", words: "this request's deadline to the first token is 4s; try again in 2s"},
		{name: "the client's, without a configured one", headers: []string{"X-Kvasir-Deadline", "1500ms"}, queue: 500, code: 429, after: "5", words: "deadline to the first token is 1.5s"},
		{name: "a patient client", config: 3 * time.Second, headers: []string{"X-Kvasir-Deadline", "7s"}, queue: 500, code: 200},
		{name: "never", headers: []string{"X-Kvasir-Deadline", "500ms"}, queue: 0, code: 429, after: "1", words: "this request's prompt takes 1s to compute, even on an idle engine: longer than its deadline of 500ms"},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, setup{policy: "least_load", settings: func(p *policy.Config) { p.Shed.Enabled, p.Shed.Deadline, p.Shed.Rate = true, c.config, rate }})
			defer w.close()
			w.engine("a:80")
			w.serve("a:80", answerJSON(200, "{}"))
			if c.queue > 0 {
				d, err := w.sched.Route(&sched.Request{Model: "m", Bytes: 4 * c.queue, Deadline: time.Hour}, time.Now())
				if err != nil {
					t.Fatal(err)
				}
				defer d.Done(time.Now(), sched.Failed)
			}
			code, h, answer := w.do("POST", "/v1/completions", body, c.headers...)
			if code != c.code || !strings.Contains(answer, c.words) || h.Get("Retry-After") != c.after {
				t.Errorf("%s: %d, Retry-After %q, %s\nwant %d, %q, %q", c.name, code, h.Get("Retry-After"), answer, c.code, c.after, c.words)
			}
		})
	}
}

// At another engine a request has what is left of its deadline.
func TestDeadlineOverRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{cfg: func(c *Config) { c.FirstToken, c.Answer = time.Second, time.Second }})
		defer w.close()
		for _, name := range []string{"a:80", "b:80"} {
			w.engine(name)
			w.serve(name, answerJSON(503, "{}"))
		}
		w.do("POST", chatPath, chatBody, "X-Kvasir-Deadline", "10s")
		synctest.Wait()
		got := ""
		for _, r := range w.ended {
			got += fmt.Sprint(r.Deadline, " ")
		}
		if got != "10s 10s " {
			t.Errorf("deadlines %s", got)
		}
		c := &call{arrived: time.Now(), deadline: 10 * time.Second}
		for wait, want := range map[time.Duration]time.Duration{0: 10 * time.Second, 3 * time.Second: 7 * time.Second, 11 * time.Second: 1} {
			if got := c.left(c.arrived.Add(wait)); got != want {
				t.Errorf("after %v %v are left, want %v", wait, got, want)
			}
		}
	})
}

// The expected output reaches the ledger: of an answer that is as long as expected,
// nothing is owed any more where output blocks are counted.
func TestExpectedOutputFades(t *testing.T) {
	for expect, want := range map[string]bool{"": true, "32": false} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, setup{policy: "dynamo", settings: func(p *policy.Config) { p.Dynamo.OutputBlocks = true }})
			defer w.close()
			w.engine("a:80")
			more := make(chan bool)
			w.serve("a:80", streamUntil(more, slices.Repeat([]string{chatA}, 64)...))
			var h []string
			if expect != "" {
				h = []string{"X-Kvasir-Expected-Output", expect}
			}
			resp, err := w.send(t.Context(), "POST", chatPath, chatStream, h...)
			if err != nil {
				t.Fatal(err)
			}
			for r, n := bufio.NewReader(resp.Body), 0; n < 64; n++ {
				if _, err := readEvent(r); err != nil {
					t.Fatal(err)
				}
			}
			synctest.Wait()
			if got := w.sched.Load(0, time.Now()).DecodeBlocks; (got > 0) != want {
				t.Errorf("expected %q: %d blocks are owed after 64 tokens (told in steps of up to 32), want some: %v", expect, got, want)
			}
			close(more)
			resp.Body.Close()
		})
	}
}

// What we read of a request is passed on as it came.
func TestHintsArePassedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{policy: "sglang_cache_aware"})
		defer w.close()
		w.engine("a:80")
		got := w.recorder("a:80", "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")
		body := `{"prompt" : "\u0061","priority":5, "nvext":{"agent_hints":{"osl":4,"priority":1}},"model":"m"}`
		head := "X-Kvasir-Deadline: 2\r\nX-Kvasir-Expected-Output: 7\r\nX-Kvasir-Next-Turn: 1s\r\nX-Kvasir-Priority: -1\r\nX-Kvasir-Tenant: t\r\n"
		w.wire("POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + head + "Content-Length: " + fmt.Sprint(len(body)) + "\r\n\r\n" + body)
		if len(*got) != 1 || !strings.HasSuffix((*got)[0], "\r\n\r\n"+body) {
			t.Fatalf("%q", *got)
		}
		for line := range strings.SplitSeq(strings.TrimSpace(head), "\r\n") {
			if !strings.Contains((*got)[0], line+"\r\n") {
				t.Errorf("%q is missing in %q", line, (*got)[0])
			}
		}
	})
}

// streamUntil streams events, then waits.
func streamUntil(more <-chan bool, events ...string) http.HandlerFunc {
	s := stream(events...)
	return func(w http.ResponseWriter, r *http.Request) {
		s(w, r)
		<-more
	}
}
