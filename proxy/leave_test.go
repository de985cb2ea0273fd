package proxy

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
)

// A client that leaves at the end mark, as many do, has had its whole answer: that is
// no cancellation, and policies learn from it. One that leaves before is one.
func TestLeavingAtTheEndMarkIsCompletion(t *testing.T) {
	const (
		anthropic = "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"A\"}}\n\n"
		stop      = "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"
		delta     = "event: response.output_text.delta\ndata: {\"delta\":\"A\",\"type\":\"response.output_text.delta\"}\n\n"
		completed = "event: response.completed\ndata: {\"response\":{\"usage\":null},\"type\":\"response.completed\"}\n\n"
		responses = `{"model":"m","input":"hi","stream":true}`
	)
	for _, c := range []struct {
		name, path, body string
		events           []string
		after            bool // the engine says something after the client has left
		want             string
	}{
		{"[DONE]", chatPath, chatStream, []string{chatA, chatB, chatUsage, chatDone}, false, "a:completed"},
		{"[DONE], and more to come", chatPath, chatStream, []string{chatA, chatDone}, true, "a:completed"},
		{"before [DONE]", chatPath, chatStream, []string{chatA, chatB}, false, "a:cancelled"},
		{"before [DONE], and more to come", chatPath, chatStream, []string{chatA, chatB}, true, "a:cancelled"},
		{"message_stop", "/v1/messages", chatStream, []string{anthropic, stop}, false, "a:completed"},
		{"before message_stop", "/v1/messages", chatStream, []string{anthropic}, false, "a:cancelled"},
		{"response.completed", "/v1/responses", responses, []string{delta, completed}, false, "a:completed"},
		{"before response.completed", "/v1/responses", responses, []string{delta}, false, "a:cancelled"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, setup{})
				defer w.close()
				left := make(chan struct{})
				w.serve("a:80", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
					stream(c.events...)(rw, r)
					if c.after {
						<-left
						io.WriteString(rw, strings.Repeat(keepAlive, 1000))
						rw.(http.Flusher).Flush()
					}
					<-r.Context().Done() // the connection stays open
				}))
				w.engine("a:80")
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				resp, err := w.send(ctx, "POST", c.path, c.body)
				if err != nil {
					t.Fatal(err)
				}
				for in, n := bufio.NewReader(resp.Body), 0; n < len(c.events); n++ {
					if _, err := readEvent(in); err != nil {
						t.Fatal(err)
					}
				}
				cancel()
				resp.Body.Close()
				close(left)
				synctest.Wait()
				if got := w.outcomes(); got != c.want {
					t.Errorf("%s, want %s", got, c.want)
				}
				w.idle()
			})
		})
	}
}
