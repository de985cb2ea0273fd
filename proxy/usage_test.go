package proxy

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
)

// With AskUsage the engine is asked, the client does not notice, and what was cached
// is known.
func TestAskUsage(t *testing.T) {
	const ask = `"stream_options":{"include_usage":true},`
	withOptions := `{"stream_options":{"include_usage":false},"model":"m","stream":true}`
	for _, c := range []struct {
		name, path, body string
		on               bool
		sent             string // "" as body
		served           bool
	}{
		{"off", chatPath, chatStream, false, "", false},
		{"on", chatPath, chatStream, true, "{" + ask + chatStream[1:], true},
		{"completions", "/v1/completions", " { \"model\":\"m\",\"stream\":true}", true, " {" + ask + " \"model\":\"m\",\"stream\":true}", true},
		{"the client has its own", chatPath, withOptions, true, "", false},
		{"no stream", chatPath, chatBody, true, "", false},
		{"another API", "/v1/responses", chatStream, true, "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, setup{cfg: func(cfg *Config) { cfg.AskUsage = c.on }})
				defer w.close()
				w.engine("a:80")
				var sent string
				w.serve("a:80", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
					b, _ := io.ReadAll(r.Body)
					sent = string(b)
					events := []string{keepAlive, chatRole, chatA, chatB[:9], chatB[9:]}
					if strings.Contains(sent, `"include_usage":true`) {
						events = append(events, chatUsage[:50], chatUsage[50:]+chatDone)
					} else {
						events = append(events, chatDone)
					}
					stream(events...)(rw, r)
				}))
				code, _, got := w.do("POST", c.path, c.body)
				if want := keepAlive + chatRole + chatA + chatB + chatDone; code != 200 || got != want {
					t.Errorf("%d %q", code, got)
				}
				if c.sent == "" {
					c.sent = c.body
				}
				if sent != c.sent {
					t.Errorf("sent %q\nwant %q", sent, c.sent)
				}
				if r := w.lastReceipt(); r.Served != c.served {
					t.Errorf("served: %v", r.Served)
				}
			})
		})
	}
}

// However the stream is cut, only that one chunk goes; and a failure in the middle of
// an event still ends in a clean error.
func TestStripper(t *testing.T) {
	long := "data: " + strings.Repeat("x", maxEvent+10)
	for _, c := range []struct{ in, out, open string }{
		{chatA + chatUsage + chatDone, chatA + chatDone, ""},
		{strings.ReplaceAll(chatA+chatUsage+chatDone, "\n", "\r\n"), strings.ReplaceAll(chatA+chatDone, "\n", "\r\n"), ""},
		{keepAlive + "data: {\"choices\":[{\"delta\":{}}],\"usage\":{\"prompt_tokens\":1}}\n\n", keepAlive + "data: {\"choices\":[{\"delta\":{}}],\"usage\":{\"prompt_tokens\":1}}\n\n", ""},
		{"data: {\"choices\":[],\"usage\":null}\n\n", "data: {\"choices\":[],\"usage\":null}\n\n", ""},
		{"data: \"usage\"\n\ndata: {\"usage\"\n\n", "data: \"usage\"\n\ndata: {\"usage\"\n\n", ""},
		{chatA + chatB[:30], chatA, chatB[:30]},
		{long, long, ""},
	} {
		for _, size := range []int{1, 7, 100, 1 << 30} {
			if size == 1 && len(c.in) > 10_000 {
				continue
			}
			var s stripper
			var got []byte
			for p := range slices.Chunk([]byte(c.in), min(size, len(c.in))) {
				got = append(got, s.filter(p)...)
			}
			if size < 1<<30 && len(c.in) > 10_000 { // goes out in parts
				got = append(got, s.open...)
				s.open = nil
			}
			if string(got) != c.out || string(s.open) != c.open {
				t.Errorf("in pieces of %d: %.200q, open %.60q", size, got, s.open)
			}
		}
	}
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{cfg: func(cfg *Config) { cfg.AskUsage = true }})
		defer w.close()
		w.engine("a:80")
		w.serve("a:80", timed(chatA, chatB[:30], "ABORT"))
		_, _, got := w.do("POST", chatPath, chatStream)
		if !strings.HasPrefix(got, chatA+`data: {"error"`) || !strings.HasSuffix(got, "\n\n"+chatDone) {
			t.Errorf("%q", got)
		}
	})
}
