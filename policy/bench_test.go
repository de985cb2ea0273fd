package policy

import (
	"fmt"
	"testing"
	"time"

	"kvasir/kv"
)

// Pick of every policy for a prompt of 500 blocks, calibrated where it can be.
func BenchmarkPick(b *testing.B) {
	for _, name := range Names() {
		for _, n := range []int{16, 1024} {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				cfg := named(name)
				cfg.Marginal.Coefficients = nominal
				p := must(b, cfg, seeded(1))
				cands := fleet(n)
				for i := range cands {
					cands[i].Load = kv.Load{Requests: i % 5, Prefill: i % 7 * 300, Prompt: i * 10, DecodeBlocks: i % 90, NewBlocks: 400}
					cands[i].Overlap = kv.Overlap{GPU: int32(i%7) * 160}
				}
				req := &Request{Now: t0, Tokens: 8000, SessionHash: 77, BlockSize: 16, Text: make([]byte, 32000)}
				for k := range 500 {
					req.Hashes = append(req.Hashes, kv.Hash(h64(uint64(k))))
				}
				for range 10 {
					run(p, req, cands)
				}
				b.ReportAllocs()
				for b.Loop() {
					p.Pick(req, cands)
				}
			})
		}
	}
}

// steer where 60,000 sessions are expected back, at every target some: what a
// decision and what a placement take.
func BenchmarkSteer(b *testing.B) {
	for _, n := range []int{16, 1024} {
		setup := func(b *testing.B) (*steer, *Request, []Candidate) {
			cfg := named("steer")
			cfg.Marginal.Coefficients = nominal
			p := must(b, cfg, seeded(1)).(*steer)
			cands := fleet(n)
			for k := range 60000 {
				s := float64(k) * .001
				tag := p.returns.placed(at(s), -1, kv.Hash(h64(uint64(k+1000000))), kv.Target(k%n), float64(k%100)*.05, 0)
				if k%4 != 0 {
					p.returns.ended(at(s), tag)
				}
				if k%5 == 0 && k > 0 {
					p.returns.hazard[k/5%2].event(float64(k % 40))
				}
			}
			p.returns.sweep(p.returns.seconds(at(70)))
			for i := range cands {
				cands[i].Load = kv.Load{Requests: i % 5, Wait: time.Duration(i%9) * 300 * time.Millisecond, Prompt: i * 10}
				cands[i].Overlap = kv.Overlap{GPU: int32(i%7) * 1000}
			}
			req := &Request{Now: at(71), Tokens: 8000, BlockSize: 16}
			for k := range 500 {
				req.Hashes = append(req.Hashes, kv.Hash(h64(uint64(k))))
			}
			return p, req, cands
		}
		b.Run(fmt.Sprintf("pick/%d", n), func(b *testing.B) {
			p, req, cands := setup(b)
			b.ReportAllocs()
			for b.Loop() {
				p.Pick(req, cands)
			}
		})
		b.Run(fmt.Sprintf("placed/%d", n), func(b *testing.B) {
			p, req, cands := setup(b)
			p.Pick(req, cands)
			b.ReportAllocs()
			for k := 0; b.Loop(); k++ {
				req.Now = req.Now.Add(time.Millisecond)
				req.Hashes[499] = kv.Hash(h64(uint64(k % 50000)))
				p.Placed(req, cands, k%n)
			}
		})
	}
}
