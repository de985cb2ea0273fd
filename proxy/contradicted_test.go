package proxy

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"

	"kvasir/token"
)

// A request that the source of tokens takes for one that the engine will refuse goes to
// the engine all the same; if that serves it, the source was wrong, and that is counted.
func TestContradictedCountsTheServedOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refuses := true
		w := newWorld(t, setup{source: token.SourceFunc(func(context.Context, *token.Request) token.Result {
			return token.Result{Why: "no such role", Refused: refuses}
		})})
		defer w.close()
		status := 200
		w.serve("a:80", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			answerJSON(status, goodDoc)(rw, r)
		}))
		w.engine("a:80")
		for _, x := range []struct {
			refuses bool
			status  int
			want    uint64
		}{{true, 400, 0}, {false, 200, 0}, {true, 200, 1}, {true, 422, 1}, {true, 200, 2}, {false, 200, 2}} {
			refuses, status = x.refuses, x.status
			if code, _, answer := w.do("POST", chatPath, chatBody); code != x.status {
				t.Fatal(code, answer)
			}
			synctest.Wait()
			if got := w.proxy.Stats().Contradicted; got != x.want {
				t.Errorf("refuses %v, the engine says %d: %d counted, want %d", x.refuses, x.status, got, x.want)
			}
		}
	})
}
