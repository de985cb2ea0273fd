package proxy

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
)

// TestRoutingHeadersOfOthers: what sends a request on behind the engine's front is not for
// clients to say.
func TestRoutingHeadersOfOthers(t *testing.T) {
	sent := []string{
		"X-Prefiller-Host-Port", "169.254.169.254:80", "x-data-parallel-host-port", "169.254.169.254:80", "X-Encoder-Hosts-Ports", "169.254.169.254:80",
		"X-Kv-Cache-Source-Host-Port", "169.254.169.254:80", "X-GATEWAY-DESTINATION-ENDPOINT", "169.254.169.254:80", "X-Routed-Dp-Rank", "1",
		"X-Dynamo-Prefill-Dp-Rank", "1", "X-Dynamo-Worker-Instance-Id", "7", "X-Data-Parallel-Rank", "1", "X-Host-Port", "mine", "X-Gateway", "mine", "X-Session-Id", "s",
	}
	const ours = "X-Data-Parallel-Rank=1 X-Gateway=mine X-Host-Port=mine X-Session-Id=s"
	for _, c := range []struct {
		name  string
		strip []string // nil: the default
		want  string   // of sent, in the order of the names
		rank  string   // that the engine is told, with two ranks, where the client asks for 0
	}{
		{"default", nil, ours, "0"},
		{"rank too", []string{"x-*-host-port", "x-DATA-parallel-rank"}, "X-Dynamo-Prefill-Dp-Rank=1 X-Dynamo-Worker-Instance-Id=7 X-Encoder-Hosts-Ports=169.254.169.254:80 X-Gateway-Destination-Endpoint=169.254.169.254:80 X-Gateway=mine X-Host-Port=mine X-Routed-Dp-Rank=1 X-Session-Id=s", "1"}, // the other one's turn
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, setup{cfg: func(cfg *Config) {
					if c.strip != nil {
						cfg.Strip = c.strip
					}
				}})
				defer w.close()
				var got http.Header
				w.serve("a:80", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
					io.Copy(io.Discard, r.Body)
					got = r.Header
					answerJSON(200, goodDoc)(rw, r)
				}))
				r := w.engine("a:80")
				if code, _, body := w.do("POST", chatPath, chatBody, sent...); code != 200 {
					t.Fatal(code, body)
				}
				var names []string
				for i := 0; i < len(sent); i += 2 {
					names = append(names, http.CanonicalHeaderKey(sent[i]))
				}
				if have := listed(got, names); have != c.want {
					t.Errorf("the engine gets %s\nwant           %s", have, c.want)
				}
				if _, _, err := w.table.SetRanks(r.ID, 2); err != nil {
					t.Fatal(err)
				}
				if w.do("POST", chatPath, chatBody, "X-Data-Parallel-Rank", "0"); got.Get(rankHeader) != c.rank {
					t.Errorf("asked for rank 0 it is told %q, want %q", got.Get(rankHeader), c.rank)
				}
			})
		})
	}
}

// listed returns the values of names in h, by name.
func listed(h http.Header, names []string) string {
	var out []string
	for _, n := range names {
		for _, v := range h[n] {
			out = append(out, n+"="+v)
		}
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

func TestHeaderNames(t *testing.T) {
	n := headerNames{"x-a", "x-*-b", "c-*"}
	for name, want := range map[string]bool{
		"X-A": true, "x-a": true, "X-Ab": false, "X-1-B": true, "X-1-2-b": true, "X-b": false, "X--B": true, "C-": true, "C-x": true, "C": false, "Xc-d": false,
	} {
		if n.has(name) != want {
			t.Errorf("%s: %v, want %v", name, !want, want)
		}
	}
	for _, bad := range []string{"", "*", "x-*-*", "x a", "x:a", "X-\u00e4"} {
		c := Defaults()
		c.Strip = []string{"x-a", bad}
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "proxy.strip") {
			t.Errorf("%q: %v", bad, err)
		}
	}
	c := Defaults()
	c.Strip = []string{}
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
}
