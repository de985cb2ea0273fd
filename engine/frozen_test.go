package engine

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// An engine that stops (SIGSTOP) keeps its connections and says nothing. That is noticed
// in seconds, whenever it happens, also between two looks at the metrics: first as a doubt,
// then for certain.
func TestFrozenEngineIsNoticed(t *testing.T) {
	for _, often := range []time.Duration{0, 100 * time.Millisecond} { // looks at the metrics
		for at := 3 * time.Second; at < 12*time.Second; at += 700 * time.Millisecond {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				e := w.engine(t, "10.0.0.1", 0, true)
				defer func() { e.stop() }()
				var frozen atomic.Bool
				w.http["10.0.0.1:8000"] = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
					if frozen.Load() {
						<-r.Context().Done()
						return
					}
					e.ServeHTTP(rw, r)
				})
				_, rt := start(t, w, Config{MetricsPoll: often})
				settle(at)
				frozen.Store(true)
				stopped := time.Now()
				settle(6 * time.Second)
				rt.mu.Lock()
				defer rt.mu.Unlock()
				if len(rt.missed) < 2 {
					t.Fatalf("stopped after %v: %d looks failed within 6 s", at, len(rt.missed))
				}
				for i, limit := range []time.Duration{4 * time.Second, 6 * time.Second} {
					m := rt.missed[i]
					if took := m.told.Sub(stopped); took > limit || m.n != i+1 || !errors.Is(m.err, context.DeadlineExceeded) || m.told.Sub(m.began) > time.Second {
						t.Errorf("stopped after %v: look %d was told after %v, began %v before that, n %d, %v", at, i+1, took, m.told.Sub(m.began), m.n, m.err)
					}
				}
				if rt.down != 1 {
					t.Errorf("down %d times", rt.down)
				}
			})
		}
	}
}
