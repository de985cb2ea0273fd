package proxy

import (
	"io"
	"net/http"
	"testing"
	"testing/synctest"

	"kvasir/kv"
)

// "identity" is no coding: the body is read, and its model found. What can't be read goes
// where there is no choice, and is refused where there is one.
func TestContentEncoding(t *testing.T) {
	for _, c := range []struct {
		coding, body string
		models       int
		code         int
		by           string
	}{
		{"identity", `{"model":"b","prompt":"x"}`, 2, 200, "b:80"},
		{"Identity ", `{"model":"b","prompt":"x"}`, 2, 200, "b:80"},
		{"identity", `{"model":"nope","prompt":"x"}`, 2, 404, ""},
		{"gzip", "\x1f\x8b\x00", 2, 415, ""},
		{"gzip", "\x1f\x8b\x00", 1, 200, "a:80"},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, setup{})
			defer w.close()
			for _, name := range []string{"a", "b"}[:c.models] {
				w.engine(name+":80", kv.Model{ID: name})
				w.serve(name+":80", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
					if b, _ := io.ReadAll(r.Body); string(b) != c.body || r.Header.Get("Content-Encoding") == "" {
						t.Errorf("%s: the engine got %q, %v", c.coding, b, r.Header)
					}
					answerJSON(200, goodDoc)(rw, r)
				}))
			}
			code, h, body := w.do("POST", "/v1/completions", c.body, "Content-Encoding", c.coding)
			if code != c.code || h.Get("X-Kvasir-Replica") != c.by {
				t.Errorf("%s with %d models: %d %s by %q; want %d by %q", c.coding, c.models, code, body, h.Get("X-Kvasir-Replica"), c.code, c.by)
			}
		})
	}
}
