package proxy

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
)

// All receipts of a request have its id: the client's, or the one that engines got
// from us.
func TestReceiptsHaveTheRequestsID(t *testing.T) {
	for _, c := range []struct {
		name, sent, want string
		ours             bool
	}{
		{name: "the client's", sent: "req-7", want: "req-7", ours: true},
		{name: "cut", sent: strings.Repeat("x", 500), want: strings.Repeat("x", maxID)},
		{name: "ours", ours: true, want: "as the engines got it"},
		{name: "none", want: ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, setup{cfg: func(cfg *Config) { cfg.RequestID = c.ours }})
			defer w.close()
			w.engine("a:80") // nobody listens there
			w.engine("b:80")
			got := ""
			w.serve("b:80", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				got = r.Header.Get("X-Request-Id")
				rw.Write([]byte(goodDoc))
			}))
			var h []string
			if c.sent != "" {
				h = []string{"X-Request-Id", c.sent}
			}
			attempts := 0
			for range 2 {
				w.mu.Lock()
				w.ended = nil
				w.mu.Unlock()
				w.do("POST", "/v1/completions", `{"model":"m","prompt":"p"}`, h...)
				synctest.Wait()
				want := c.want
				if c.ours && c.sent == "" {
					want = got
				}
				if c.ours && want == "" {
					t.Errorf("%s: no id", c.name)
				}
				attempts += len(w.ended)
				for i, r := range w.ended {
					if r.Request != want {
						t.Errorf("%s: attempt %d has the id %q, want %q", c.name, i+1, r.Request, want)
					}
				}
			}
			if attempts != 4 {
				t.Errorf("%s: %d attempts at two requests, want a retry each", c.name, attempts)
			}
		})
	}
}
