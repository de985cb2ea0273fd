package zmtp

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Engines die, come back and are dropped while topics change, from several
// goroutines at once. Whatever happens: every Connected has its Disconnected,
// epochs grow, and within an epoch messages are in order, each at most once,
// without a hole (no queue is full here). In quiet, everything arrives again.
func TestChurn(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { churn(t, seed) })
		})
	}
}

func churn(t *testing.T, seed uint64) {
	const engines = 6
	m := &memnet{}
	var mu sync.Mutex
	live := map[uint64]*Peer{}
	last := map[string]uint64{} // endpoint -> epoch
	next := map[uint64]uint64{} // epoch -> number
	arrived := map[string]int{}
	ended := 0
	s, err := NewSub(SubConfig{
		Config: Config{Dial: m.dial, Heartbeat: time.Second},
		Topics: []string{"kv"},
		Connected: func(p *Peer) {
			mu.Lock()
			defer mu.Unlock()
			if p.Epoch <= last[p.Endpoint] {
				t.Errorf("%s: epoch %d after %d", p.Endpoint, p.Epoch, last[p.Endpoint])
			}
			last[p.Endpoint], live[p.Epoch] = p.Epoch, p
		},
		Message: func(p *Peer, f [][]byte) {
			mu.Lock()
			defer mu.Unlock()
			n := binary.BigEndian.Uint64(f[1])
			if want, ok := next[p.Epoch]; live[p.Epoch] != p || ok && n != want {
				t.Errorf("%s: epoch %d: message %d, want %d", p.Endpoint, p.Epoch, n, want)
			}
			next[p.Epoch] = n + 1
			arrived[p.Endpoint]++
		},
		Disconnected: func(p *Peer, err error) {
			mu.Lock()
			defer mu.Unlock()
			if live[p.Epoch] != p || err == nil {
				t.Errorf("%s: epoch %d ended twice or for no reason (%v)", p.Endpoint, p.Epoch, err)
			}
			delete(live, p.Epoch)
			ended++
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	quiet := make(chan struct{})
	var actors sync.WaitGroup
	for i := range engines {
		at := fmt.Sprintf("tcp://e:%d", i+1)
		if err := s.Connect(at); err != nil {
			t.Fatal(err)
		}
		actors.Go(func() { // an engine with its lives
			rng := rand.New(rand.NewPCG(seed, uint64(i)))
			for running := true; running; {
				pub, err := NewPub(PubConfig{Config: Config{Listen: m.listen, Heartbeat: time.Second, QueueLen: 1 << 20}})
				if err != nil {
					t.Error(err)
				}
				pub.Bind(at)
				n := uint64(0)
				send := func(pause time.Duration) {
					pub.Send([]byte("kv"), binary.BigEndian.AppendUint64(nil, n), make([]byte, rng.IntN(3000)))
					n++
					time.Sleep(pause)
				}
				for range rng.IntN(300) {
					send(time.Duration(rng.IntN(50)) * time.Millisecond)
				}
				select {
				case <-quiet:
					running = false
					for range 300 { // half a minute without a fault
						send(100 * time.Millisecond)
					}
				default:
				}
				pub.Close()
				time.Sleep(time.Duration(rng.IntN(2000)) * time.Millisecond)
			}
		})
	}
	actors.Go(func() { // the owner drops connections and adds topics that nobody publishes
		rng := rand.New(rand.NewPCG(seed, 1000))
		for i := range 100 {
			mu.Lock()
			for _, p := range live {
				p.Close()
				break
			}
			mu.Unlock()
			if topic := fmt.Sprint("t", rng.IntN(5)); i%2 == 0 {
				s.Subscribe(topic)
			} else {
				s.Unsubscribe(topic)
			}
			time.Sleep(time.Duration(rng.IntN(500)) * time.Millisecond)
		}
		mu.Lock()
		clear(arrived)
		mu.Unlock()
		close(quiet)
	})
	actors.Wait()
	s.Close()
	for at := range last {
		if arrived[at] < 200 {
			t.Errorf("%s: only %d messages in quiet", at, arrived[at])
		}
	}
	if len(live) != 0 || len(last) != engines || ended < 50 {
		t.Errorf("%d connections never ended, %d engines seen, %d connections in all", len(live), len(last), ended)
	}
}
