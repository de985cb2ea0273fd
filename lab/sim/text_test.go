package sim

import (
	"bytes"
	"testing"

	"kvasir/kv"
	"kvasir/lab/mock"
	"kvasir/policy"
)

// Prompts have as much text in common as blocks, to a few letters, and four bytes of
// it a token; what is behind the blocks is nobody else's.
func TestPromptsHaveText(t *testing.T) {
	prompt := func(id uint64, tokens, size int, blocks ...kv.Hash) []byte {
		return appendPrompt(nil, &request{Request: mock.Request{ID: id, Prompt: tokens, Blocks: blocks}, prompt: len(blocks)}, size)
	}
	for _, size := range []int{1, 16, 512} {
		same := func(a, b []byte, blocks int) {
			t.Helper()
			n := 0
			for n < min(len(a), len(b)) && a[n] == b[n] {
				n++
			}
			if n < 4*size*blocks || n > 4*size*blocks+3 {
				t.Errorf("blocks of %d: %d bytes in common, want those of %d blocks", size, n, blocks)
			}
		}
		a := prompt(1, 5*size+size/2, size, 10, 11, 12, 13, 14)
		if len(a) != 4*(5*size+size/2) || !bytes.Equal(a, prompt(1, 5*size+size/2, size, 10, 11, 12, 13, 14)) {
			t.Errorf("blocks of %d: %d bytes", size, len(a))
		}
		same(a, prompt(2, 4*size, size, 10, 11, 12, 99), 3)
		same(a, prompt(3, 2*size, size, 20, 11), 0)
		same(a, prompt(4, 9*size, size, 10, 11), 2)
		if size > 1 {
			same(a, prompt(5, 5*size+size/2, size, 10, 11, 12, 13, 14), 5)
		}
	}
}

// Policies with a text tree decide by it in a simulation too, as they do in `serve`:
// whatever becomes of the engines' events is nothing to them. Those that read the index
// see the difference.
func TestTextPoliciesReadText(t *testing.T) {
	w, err := Generate("tool:requests=400", 3)
	if err != nil {
		t.Fatal(err)
	}
	places := func(name string, loss float64) (out []int) {
		a := runArm(t, w, name, 3, func(c *Config) { c.Faults.EventLoss = loss })
		for id := range uint64(400) {
			out = append(out, a.metrics.byID[id].replica)
		}
		return out
	}
	differ := func(a, b []int) (n int) {
		for i := range a {
			if a[i] != b[i] {
				n++
			}
		}
		return n
	}
	for name, text := range map[string]bool{"ray_prefix": true, "sglang_cache_aware": true, "sglang_cache_aware:library": true, "lmetric": false} {
		if n := differ(places(name, 0), places(name, 1)); (n == 0) != text {
			t.Errorf("%s: %d of 400 requests go elsewhere without events; by text: %v", name, n, text)
		}
		a, err := armOf(name, mock.Profile8B)
		if err != nil || policy.Needs(a.config).Text != text {
			t.Errorf("%s needs text: %v, %v", name, !text, err)
		}
	}
}
