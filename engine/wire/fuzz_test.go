package wire

import (
	"encoding/hex"
	"os"
	"strings"
	"testing"

	"kvasir/kv"
)

// FuzzDecode: no payload panics, and what comes out keeps kv.Event's promises.
func FuzzDecode(f *testing.F) {
	text, err := os.ReadFile("testdata/golden/events.txt")
	if err != nil {
		f.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if p, err := hex.DecodeString(strings.TrimSpace(line)); err == nil && len(p) > 0 {
			f.Add(p)
		}
	}
	for _, p := range payloads() {
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		d := Decoder{Seed: seed}
		b, err := d.Decode(payload)
		rank, time := PeekRank(payload), PeekTime(payload)
		if err == nil && time != b.Time && time != 0 && payload[0]&0xf0 == 0x90 {
			t.Errorf("peeked time %v, decoded %v", time, b.Time)
		}
		if err == nil && payload[0] == 0x93 && rank != b.Rank {
			t.Errorf("peeked rank %d, decoded %d", rank, b.Rank)
		}
		slow := Decoder{Seed: seed, slow: true}
		for range 2 { // the second time, all shapes are known
			b2, err2 := slow.Decode(payload)
			if got, want := show(b, err, d.Stats), show(b2, err2, slow.Stats); got != want || b.Blocks != b2.Blocks {
				t.Errorf("with repetitions and shapes\n%s\nwithout\n%s", got, want)
			}
			b, err = d.Decode(payload)
		}
		size := 0
		for _, e := range b.Events {
			size += len(e.Handles) + len(e.Tokens) + len(e.Extras)
			if e.Kind > kv.Cleared || e.Tier >= kv.NumTiers || e.BlockSize < 0 || e.BlockSize > maxBlock || e.Window < 0 {
				t.Errorf("out of range: %+v", e)
			}
			if e.Copies != nil && len(e.Copies) != len(e.Handles) {
				t.Errorf("%d copies for %d handles", len(e.Copies), len(e.Handles))
			}
			if e.Kind != kv.Stored || e.Attention != kv.Dense {
				continue
			}
			if n := len(e.Tokens); n != 0 && n != len(e.Handles)*int(e.BlockSize) && len(e.Handles) > 0 {
				t.Errorf("%d tokens, %d handles of %d", n, len(e.Handles), e.BlockSize)
			}
			last := 0
			for _, x := range e.Extras {
				if x.Block < last || x.Block >= len(e.Handles) {
					t.Errorf("extra of block %d after %d, %d handles", x.Block, last, len(e.Handles))
				}
				last = x.Block
			}
		}
		if size > 2*len(payload) {
			t.Errorf("%d elements from %d bytes", size, len(payload))
		}
	})
}
