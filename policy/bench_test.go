package policy

import (
	"fmt"
	"testing"

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
				req := &Request{Now: t0, Tokens: 8000, Known: true, SessionHash: 77, BlockSize: 16, Text: make([]byte, 32000)}
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
