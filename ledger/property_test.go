package ledger

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"kvasir/kv"
)

// Random lifecycles, with every call repeated now and then and made on dead IDs:
// the sums hold after each step (check), the distinct blocks are those of a
// plain map, and a drained ledger is exactly zero.
func TestLifecycles(t *testing.T) {
	for seed := range uint64(25) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 0))
			cfg := Config{OutputBlocks: seed%2 == 0, Private: seed%5 == 4}
			l := New(cfg)
			now := t0
			type req struct {
				target kv.Target
				hashes []kv.Hash
			}
			live := map[ID]req{}
			var ids []ID
			for range 300 {
				now = now.Add(time.Duration(r.IntN(1000)) * time.Millisecond)
				var id ID
				if len(ids) > 0 {
					id = ids[r.IntN(len(ids))]
				}
				_, alive := live[id]
				switch k := r.IntN(20); {
				case k < 6:
					n := r.IntN(150)
					a := Admission{
						Target: kv.Target(r.IntN(4)), Hashes: chain(n, r.IntN(150), r.IntN(150)), BlockSize: 1 + r.IntN(20),
						Prompt: n*16 + r.IntN(16), Uncached: r.IntN(n*16 + 16), Output: r.IntN(3) * 20,
						Prefill: time.Duration(r.IntN(1e9)), Connected: r.IntN(2) == 0, Private: r.IntN(8) == 0, Silent: r.IntN(3) == 0,
					}
					id := l.Admit(now, &a)
					if _, used := live[id]; used || id == 0 {
						t.Fatalf("ID %x is in use", id)
					}
					live[id] = req{a.Target, a.Hashes}
					if cfg.Private || a.Private {
						live[id] = req{a.Target, nil}
					}
					ids = append(ids, id)
				case k < 9:
					if _, ok := l.FirstToken(id, now); ok && !alive {
						t.Fatal("first token of a dead request")
					}
				case k < 13:
					if ok := l.Progress(id, now, r.IntN(30)); ok != alive {
						t.Fatalf("progress says %v, request alive %v", ok, alive)
					}
				case k < 18:
					if _, ok := l.Done(id, now); ok != alive {
						t.Fatalf("done says %v, request alive %v", ok, alive)
					}
					delete(live, id)
				case k < 19:
					for _, id := range l.Expire(nil, now, 20*time.Second) {
						if _, ok := live[id]; !ok {
							t.Fatal("expired a dead request")
						}
						delete(live, id)
					}
				default:
					tgt := kv.Target(r.IntN(4))
					n := l.Forget(tgt)
					for id, q := range live {
						if q.target == tgt {
							delete(live, id)
							n--
						}
					}
					if n != 0 {
						t.Fatalf("forgot %d too many", n)
					}
				}
				l.check()
				probe := chain(r.IntN(200), r.IntN(150), r.IntN(150))
				for tgt := range kv.Target(4) {
					held := map[kv.Hash]bool{}
					for _, q := range live {
						if q.target == tgt {
							for _, h := range q.hashes {
								held[h] = true
							}
						}
					}
					fresh := 0
					for _, h := range probe {
						if !held[h] {
							fresh++
						}
					}
					v := l.View(tgt, now, probe)
					if !cfg.Private && v.NewBlocks != fresh {
						t.Fatalf("target %d: %d new blocks, want %d", tgt, v.NewBlocks, fresh)
					}
					if v.DecodeBlocks < 0 || v.Wait < 0 || v.Prefill < 0 {
						t.Fatalf("negative: %+v", v)
					}
				}
			}
			for id := range live {
				l.Done(id, now)
				l.check()
			}
			for tgt := range kv.Target(5) {
				if v := l.View(tgt, now, nil); v != (kv.Load{}) {
					t.Errorf("drained, and target %d owes %+v", tgt, v)
				}
			}
			if l.Requests() != 0 {
				t.Errorf("%d requests left", l.Requests())
			}
		})
	}
}

func TestSteadyStateDoesNotAllocate(t *testing.T) {
	if invariants {
		t.Skip("the check allocates")
	}
	l := New(Config{OutputBlocks: true})
	prompts := make([][]kv.Hash, 64)
	for i := range prompts {
		prompts[i] = chain(500, 40+i)
	}
	ids := make([]ID, 0, 64)
	now := t0
	round := func() {
		for i := range 64 {
			now = now.Add(time.Millisecond)
			tgt := kv.Target(i % 8)
			l.View(tgt, now, prompts[i])
			ids = append(ids, l.Admit(now, &Admission{Target: tgt, Hashes: prompts[i], BlockSize: 16, Prompt: 8000, Uncached: 800, Output: 100}))
		}
		for _, id := range ids {
			l.FirstToken(id, now)
			l.Progress(id, now, 50)
			l.Done(id, now)
		}
		ids = ids[:0]
	}
	round()
	if n := testing.AllocsPerRun(20, round); n != 0 {
		t.Errorf("%v allocations per 64 requests, want 0", n)
	}
}

func BenchmarkAdmitDone500(b *testing.B) {
	l := New(Config{})
	a := Admission{Hashes: chain(500), BlockSize: 16, Prompt: 8000, Uncached: 800}
	l.Admit(t0, &Admission{Hashes: chain(500, 250), BlockSize: 16, Prompt: 8000})
	for b.Loop() {
		l.Done(l.Admit(t0, &a), t0)
	}
}

func BenchmarkView500(b *testing.B) {
	l := New(Config{})
	for i := range 100 {
		l.Admit(t0, &Admission{Hashes: chain(500, i*4), BlockSize: 16, Prompt: 8000})
	}
	h := chain(500, 250)
	for b.Loop() {
		l.View(0, t0, h)
	}
}
