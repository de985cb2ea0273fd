package proxy

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"kvasir/sched"
)

// A mad engine does to each request what the dice say: most are served.
type madEngine struct {
	mu   sync.Mutex
	dice *rand.Rand
}

func (m *madEngine) roll(n int) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.dice.IntN(n)
}

func (m *madEngine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	wait := func() any { return time.Duration(m.roll(3000)) * time.Millisecond }
	good := []any{wait(), keepAlive, wait(), chatRole, chatA, wait(), chatA, wait(), chatB, chatUsage, chatDone}
	switch m.roll(16) {
	case 0:
		answerJSON(503, "busy", "Retry-After", "1")(w, r)
	case 1:
		answerJSON(500, deadDoc)(w, r)
	case 2:
		timed(wait(), "ABORT")(w, r)
	case 3:
		timed(keepAlive, wait(), chatRole, wait(), "ABORT")(w, r)
	case 4:
		timed(keepAlive, 15*time.Second, keepAlive, "ABORT")(w, r)
	case 5:
		timed(chatRole, chatA, wait(), "ABORT")(w, r)
	case 6:
		timed(chatA, chatB[:m.roll(len(chatB))], wait(), "ABORT")(w, r)
	case 7:
		timed(wait(), deadSSE)(w, r)
	case 8:
		timed(chatA, wait(), deadSSE)(w, r)
	case 9:
		timed(chatA, time.Hour)(w, r) // hangs
	case 10:
		timed(time.Hour)(w, r)
	case 11:
		stream(`data: {"choices":[{"index":0,"delta":{},"finish_reason":"abort"}]}`+"\n\n", chatDone)(w, r)
	case 12:
		answerJSON(400, `{"error":{"message":"too long"}}`)(w, r)
	default:
		timed(good...)(w, r)
	}
}

// Engines fail in every way, clients leave at any time. Whatever happens: each
// client gets a whole answer, one error, or a cut connection; nothing stays
// booked, open or running.
func TestChaos(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, setup{policy: "least_load", cfg: func(c *Config) { c.FirstToken = time.Minute }})
				for i, addr := range []string{"a:80", "b:80", "c:80", "d:80"} {
					w.engine(addr)
					w.serve(addr, &madEngine{dice: rand.New(rand.NewPCG(seed, uint64(i)))})
				}
				const clients = 150
				ends := make(chan string, clients)
				for i := range clients {
					dice := rand.New(rand.NewPCG(seed, uint64(1000+i)))
					stay := time.Hour
					if dice.IntN(4) == 0 {
						stay = time.Duration(dice.IntN(30_000)) * time.Millisecond
					}
					start := time.Duration(dice.IntN(20_000)) * time.Millisecond
					go func() {
						time.Sleep(start)
						ctx, cancel := context.WithTimeout(context.Background(), stay)
						defer cancel()
						ends <- w.endOf(ctx)
					}()
				}
				counts := map[string]int{}
				for range clients {
					counts[<-ends]++
				}
				synctest.Wait()
				w.idle()
				if n := w.proxy.Stats().Open; n != 0 {
					t.Errorf("%d open", n)
				}
				if w.proxy.open.head != nil {
					t.Error("an attempt is still listed")
				}
				decided := 0
				for _, r := range w.ended {
					if r.Outcome == sched.Open {
						t.Errorf("decision %d is open", r.ID)
					}
					decided++
				}
				for _, want := range []string{"whole", "told", "cut", "left", "status 400"} {
					if counts[want] == 0 {
						t.Errorf("no client's request was %s: %v", want, counts)
					}
				}
				for got := range counts {
					if strings.HasPrefix(got, "BAD") {
						t.Error(got)
					}
				}
				t.Logf("%d decisions, %v, %v", decided, counts, w.proxy.Stats().Failures)
				w.close()
			})
		})
	}
}

// endOf sends a request and says how it ended.
func (w *world) endOf(ctx context.Context) string {
	resp, err := w.send(ctx, "POST", chatPath, chatStream)
	if err != nil {
		if ctx.Err() != nil {
			return "left"
		}
		return "BAD: " + err.Error()
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	body := strings.ReplaceAll(string(b), keepAlive, "")
	switch {
	case ctx.Err() != nil:
		return "left"
	case resp.StatusCode != 200:
		if strings.Count(body, `"error"`) > 1 {
			return "BAD: " + body
		}
		return fmt.Sprintf("status %d", resp.StatusCode)
	case err != nil:
		return "cut"
	case body == chatRole+chatA+chatA+chatB+chatUsage+chatDone:
		return "whole"
	case strings.Count(body, `data: {"error"`) == 1 && strings.HasSuffix(body, chatDone) && strings.Count(body, chatRole) <= 1:
		return "told"
	case strings.Contains(body, `"abort"`) && strings.HasSuffix(body, chatDone):
		return "aborted" // by every engine that was tried
	}
	return "BAD: " + body
}
