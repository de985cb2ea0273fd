package wire

import (
	"fmt"
	"strings"
	"testing"
)

// TestShapes: whatever an engine's events differ in, a few of them teach the
// decoder all that it needs, and what it makes of them is what it makes of them
// in full.
func TestShapes(t *testing.T) {
	kinds := []string{"full_attention", "sliding_window", "mamba"}
	for name, event := range map[string]func(n int) any{
		"store": func(n int) any { return store(list{uint64(n)}, uint64(n-1), tokens(n, 2), 2) },
		"another session each time": func(n int) any {
			return store(list{uint64(n) << 40}, nil, tokens(n, 2), 2, "session_id", fmt.Sprint("session", n))
		},
		"long salts, and lists that we don't know": func(n int) any {
			return store(list{n}, nil, tokens(n, 2), 2, "cache_salt", strings.Repeat(fmt.Sprint(n), 300), "skipped_token_ids", tokens(n, n%5*200))
		},
		"three groups": func(n int) any {
			return store(list{n}, n-1, tokens(n, 2), 2, "group_idx", n%3, "kv_cache_spec_kind", kinds[n%3], "kv_cache_spec_sliding_window", 128*(n%3))
		},
		"adapters, salts and images": func(n int) any {
			return store(list{n}, n-1, tokens(n, 2), 2, "lora_name", fmt.Sprint("adapter", n%5), "extra_keys", list{list{fmt.Sprint("adapter", n%5), list{"image", n % 3}}}, "cache_salt", fmt.Sprint(n))
		},
		"adapters by number": func(n int) any {
			return list{"BlockStored", list{n}, nil, tokens(n, 2), 2, []any{nil, 3, 4}[n%3], "GPU", nil, []any{nil, list{nil}}[n%2]}
		},
		"three forms in turn": func(n int) any {
			return []any{
				store(list{n}, nil, tokens(n, 2), 2), list{"BlockStored", list{n}, n - 1, tokens(n, 2), 2, nil, "GPU"},
				list{"BlockRemoved", list{n}, "GPU"}}[n%3]
		},
		"removals": func(n int) any {
			return kvs{"type", "BlockRemoved", "block_hashes", list{n, n + 1}, "medium", []any{"GPU", "CPU", nil}[n%3], "group_idx", n % 7}
		},
		"copies": func(n int) any {
			return kvs{"type", "BlockRemoved", "block_hashes", list{n, n + 1}, "remaining_copy_counts", []any{nil, list{1, n}}[n%2]}
		},
		"moves": func(n int) any {
			return list{"BlockTransferred", list{n}, []any{"GPU", "CPU"}[n%2], []any{"DISK", "GPU"}[n%2]}
		},
		"clears": func(n int) any { return kvs{"type", "AllBlocksCleared", "medium", []any{nil, "GPU", "CPU"}[n%3]} },
	} {
		d, slow := Decoder{Seed: seed, s: new(scratch)}, Decoder{Seed: seed, slow: true}
		for n := 1000; n < 1300; n++ {
			payload := batch(event(n))
			b, err := d.Decode(payload)
			want, err2 := slow.Decode(payload)
			if got, want := show(b, err, d.Stats), show(want, err2, slow.Stats); got != want {
				t.Fatalf("%s: got %s\nwant %s", name, got, want)
			}
		}
		if n := d.s.shapes.learned; n > 8 {
			t.Errorf("%s: %d of 300 events were decoded in full", name, n)
		}
		d.s = nil // not for the pool
	}
}

// TestShapesHesitate: events that have no shape in common don't make the decoder
// learn one each time.
func TestShapesHesitate(t *testing.T) {
	d := Decoder{Seed: seed, s: new(scratch)}
	var payloads [50][]byte
	for n := range payloads {
		payloads[n] = batch(store(list{n}, nil, tokens(n, 2), 2, fmt.Sprint("key", n), 1))
	}
	round := func() {
		for _, p := range payloads {
			if _, err := d.Decode(p); err != nil {
				t.Fatal(err)
			}
		}
	}
	round()
	round()
	if n := testing.AllocsPerRun(10, round); n != 0 {
		t.Errorf("%v allocations", n)
	}
	d.s = nil
}
