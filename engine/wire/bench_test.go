package wire

import (
	"encoding/hex"
	"flag"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"
)

// payloads are batches as they are under load: one BlockStored of 64 blocks of
// 16 tokens with ids of a large vocabulary, then 64 removals, per dialect.
func payloads() map[string][]byte {
	const blocks, bs = 64, 16
	rng := rand.New(rand.NewPCG(1, 2))
	var hashes, toks, nils list
	for range blocks {
		hashes = append(hashes, rng.Uint64()|1<<63)
		nils = append(nils, nil)
	}
	for range blocks * bs {
		toks = append(toks, int(rng.ExpFloat64()*15000)%151680)
	}
	parent := rng.Uint64()
	events := list{store(hashes, parent, toks, bs, "extra_keys", nils, "group_idx", 0, "kv_cache_spec_kind", "full_attention")}
	array := list{list{"BlockStored", hashes, parent, toks, bs, nil, "GPU", nil, nils, 0, "full_attention", nil}}
	var mapRemoves, arrayRemoves list
	for _, h := range hashes {
		mapRemoves = append(mapRemoves, kvs{"type", "BlockRemoved", "block_hashes", list{h}, "medium", "GPU", "group_idx", 0})
		arrayRemoves = append(arrayRemoves, list{"BlockRemoved", list{h}, "GPU", 0})
	}
	small := func(blocks int) list { // as decode stores them: one or a few blocks an event, with as many removals
		return append(append(list(nil), mapRemoves[:blocks]...),
			store(hashes[:blocks], parent, toks[:blocks*bs], bs, "extra_keys", nils[:blocks], "group_idx", 0, "kv_cache_spec_kind", "full_attention"))
	}
	salted := append(list(nil), nils...)
	salted[0] = list{"adapter", "tenant"}
	salted[1] = list{"adapter", list{"c0ffee", 3}}
	return map[string][]byte{
		"vllm-map":     batch(events...),
		"vllm-array":   batch(array...),
		"vllm-keys":    batch(store(hashes, nil, toks, bs, "lora_name", "adapter", "extra_keys", salted)),
		"vllm-map-16":  batch(small(16)...),
		"vllm-map-1":   batch(small(1)...),
		"remove-map":   batch(mapRemoves...),
		"remove-array": batch(arrayRemoves...),
	}
}

var inFull = flag.Bool("in-full", false, "decode each event in full in BenchmarkDecode")

func BenchmarkDecode(b *testing.B) {
	for name, payload := range payloads() {
		b.Run(name, func(b *testing.B) {
			d := Decoder{Seed: seed, slow: *inFull}
			b.SetBytes(int64(len(payload)))
			b.ReportAllocs()
			blocks := 0
			cpu := cpuTime()
			for b.Loop() {
				batch, err := d.Decode(payload)
				if err != nil {
					b.Fatal(err)
				}
				blocks += batch.Blocks
			}
			b.ReportMetric(float64((cpuTime()-cpu).Nanoseconds())/float64(blocks), "cpu-ns/block")
		})
	}
}

// BenchmarkRecorded decodes what a real vLLM sent: chats, evictions, hybrid groups,
// adapters, salts, byte hashes.
func BenchmarkRecorded(b *testing.B) {
	var streams [][][]byte
	for _, messages := range recordings(b) {
		var s [][]byte
		for _, m := range messages {
			p, err := hex.DecodeString(m.Payload)
			if err != nil {
				b.Fatal(err)
			}
			s = append(s, p)
		}
		streams = append(streams, s)
	}
	decoders := make([]Decoder, len(streams))
	for i := range decoders {
		decoders[i] = Decoder{Seed: seed, slow: *inFull}
	}
	b.ReportAllocs()
	messages, blocks := 0, 0
	cpu := cpuTime()
	for b.Loop() {
		for i := range streams {
			for _, p := range streams[i] {
				batch, err := decoders[i].Decode(p)
				if err != nil {
					b.Fatal(err)
				}
				messages++
				blocks += batch.Blocks
			}
			decoders[i].Release()
		}
	}
	used := float64((cpuTime() - cpu).Nanoseconds())
	b.ReportMetric(used/float64(blocks), "cpu-ns/block")
	b.ReportMetric(used/float64(messages), "cpu-ns/message")
}

// cpuTime is the process's: wall time says little on a shared machine.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
