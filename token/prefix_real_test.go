package token

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"

	"kvasir/token/bpe"
	"kvasir/token/chat"
)

var families = []string{
	"deepseek_v3", "deepseek_v4", "gemma3", "gptoss", "llama3", "llama3_2", "mistral_nemo", "mistral_tekken", "qwen2_5", "qwen3",
}

// realTokenizer loads a real tokenizer. Without its files the test is skipped, and fails
// where CI=true.
func realTokenizer(t testing.TB, family string) *bpe.Tokenizer {
	t.Helper()
	tok, err := bpe.Load(filepath.Join(tokenizers(t), family))
	if err != nil {
		missing(t, fmt.Sprintf("no tokenizer files of %s (make fixtures, or set KVASIR_TOKENIZERS): %v", family, err))
	}
	return tok
}

// tokenizers is where make fixtures puts tokenizer files.
func tokenizers(t testing.TB) string {
	if root := os.Getenv("KVASIR_TOKENIZERS"); root != "" {
		return root
	}
	return filepath.Join(cacheDir(t), "tokenizers")
}

func missing(t testing.TB, why string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(why)
	}
	t.Skip(why)
}

// pieces of text where tokens reach far, or cuts are dangerous.
var snippets = []string{
	" ", "  ", "\n", "\n\n", " \n", "\r\n", "\t", "/", "//", "'s", "'S", "don't", ".", "...", ", ", "1", "12345", " 7", "a", "the", " the", "The quick brown fox jumps over the lazy dog. ",
	"<|im_end|>", "<|im_start|>user\n", "<|eot_id|>", "<start_of_turn>", "<｜User｜>", "[INST]", "<|", "|>", "<s>", "</s>", "\n\n<think>\n", "e\u0301", "\u0301", "\u200d", "👨\u200d👩\u200d👧", "한글", "\u1112\u1161",
	"你好，世界。", "こんにちは", "\u0e20\u0e32", "▁", "\u00a0", "\u3000", "\u2028", "\xff", "\xe4\xb8", "{\"key\": [1, 2.5, null]},\n", "func f(x int) {\n\treturn x\n}\n", "aaaaaaaaaaaaaaaa", "QWxhZGRpbjpvcGVu", "=====", "ſ", "İ", "ﬁ",
}

func randomReal(r *rand.Rand, n int) []byte {
	var b []byte
	odd := r.IntN(3) == 0
	for len(b) < n {
		switch x := r.IntN(20); {
		case x == 0:
			b = append(b, snippets[r.IntN(len(snippets))]...)
		case x == 1 && odd: // a stretch without a safe place
			c := snippets[r.IntN(len(snippets))]
			for range r.IntN(3 * pieceSize / len(c)) {
				b = append(b, c...)
			}
		case odd:
			b = append(b, snippets[r.IntN(len(snippets))]...)
		default:
			b = append(b, "some words, of prose "[r.IntN(5):]...)
		}
	}
	return b[:n]
}

// With every real tokenizer, texts that share beginnings up to a random byte, or
// are old ones edited anywhere, come out as if each were encoded whole; also from
// several goroutines, and under eviction, with memory within its bound.
func TestPrefixesWithRealTokenizers(t *testing.T) {
	for i, family := range families {
		t.Run(family, func(t *testing.T) {
			tok := realTokenizer(t, family)
			const limit = 512 << 10
			p := newPrefixes(limit)
			var wg sync.WaitGroup
			for worker := range 2 {
				wg.Go(func() {
					// Both workers make the same texts at first.
					r := rand.New(rand.NewPCG(uint64(i), 9))
					var known [][]byte
					texts := 120
					if raceEnabled { // ten times as slow
						texts = 40
					}
					for n := range texts {
						if n == 20 {
							r = rand.New(rand.NewPCG(uint64(i), 10+uint64(worker)))
						}
						text := edited(r, known)
						known = append(known, text)
						want := tok.Encode(nil, text, false)
						if got := p.encode(nil, tok, 1, text, 0); !slices.Equal(got, want) {
							t.Errorf("text %d of %d bytes, known or not: the ids differ from those of the whole\n%.300q", n, len(text), text)
							return
						}
						if n := p.snapshot().Bytes; n > limit {
							t.Errorf("%d bytes are kept, limit %d", n, limit)
						}
					}
				})
			}
			wg.Wait()
			if s := p.snapshot(); s.Hits == 0 {
				t.Errorf("no piece was ever found: %+v", s)
			}
		})
	}
}

// edited makes a new text, mostly out of an old one.
func edited(r *rand.Rand, known [][]byte) []byte {
	fresh := randomReal(r, r.IntN(6*pieceSize))
	if len(known) == 0 {
		return fresh
	}
	old := known[r.IntN(len(known))]
	if len(old) > 40*pieceSize {
		old = old[:40*pieceSize]
	}
	at := r.IntN(len(old) + 1)
	switch r.IntN(5) {
	case 0:
		return fresh
	case 1: // cut anywhere, also inside of a character
		return slices.Clone(old[:at])
	case 2: // one byte changed
		out := slices.Clone(old)
		if at < len(out) {
			out[at] = "a \n.\xe4"[r.IntN(5)]
		}
		return out
	case 3: // something put in
		return slices.Concat(old[:at], []byte(snippets[r.IntN(len(snippets))]), old[at:])
	}
	return slices.Concat(old, fresh)
}

// The same for prompts in parts, as gpt-oss and Mistral have them.
func TestPartsWithRealTokenizers(t *testing.T) {
	for i, family := range []string{"gptoss", "mistral_tekken"} {
		t.Run(family, func(t *testing.T) {
			tok := realTokenizer(t, family)
			control := "<|start|>"
			if family == "mistral_tekken" {
				control = "[INST]"
			}
			p := newPrefixes(512 << 10)
			r := rand.New(rand.NewPCG(uint64(i), 12))
			var parts []chat.Part
			for n := range 100 {
				parts = slices.Clone(parts[:r.IntN(len(parts)+1)])
				for range r.IntN(30) {
					x := chat.Part{Text: string(randomReal(r, r.IntN(400)))}
					if r.IntN(3) == 0 {
						x = chat.Part{Text: control, Control: true}
					} else if r.IntN(10) == 0 { // the same text, but no control token
						x.Text = control
					}
					parts = append(parts, x)
				}
				if len(parts) == 0 {
					continue
				}
				want, err := (&chat.Prompt{Parts: parts}).Encode(nil, tok)
				if err != nil {
					t.Fatal(err)
				}
				got, err := p.encodeParts(context.Background(), nil, tok, 1, parts)
				if err != nil || !slices.Equal(got, want) {
					t.Fatalf("prompt %d of %d parts: the ids differ from those of each part (%v)", n, len(parts), err)
				}
			}
			if s := p.snapshot(); s.Hits == 0 {
				t.Errorf("no piece was ever found: %+v", s)
			}
			if _, err := p.encodeParts(context.Background(), nil, tok, 1, []chat.Part{{Text: "<|no such token|>", Control: true}}); err == nil {
				t.Error("an unknown control token was encoded")
			}
		})
	}
}

// A counting encoder never finds a safe place, and counts where it looks.
type hopeless struct{ looked int }

func (h *hopeless) Encode(dst []uint32, text []byte, _ bool) []uint32 {
	return append(dst, uint32(len(text)))
}

func (h *hopeless) CutBefore(_ []byte, at int) int { h.looked += at; return 0 }

// A text without a safe place is searched for one in linear time.
func TestSearchForCutsIsLinear(t *testing.T) {
	p := newPrefixes(1 << 20)
	for _, n := range []int{100_000, 1_000_000, 20_000_000} {
		h := &hopeless{}
		if got := p.encode(nil, h, 1, make([]byte, n), 0); len(got) != 1 || got[0] != uint32(n) {
			t.Fatalf("%d ids for a text without cuts", len(got))
		}
		if h.looked > 2*n {
			t.Errorf("%d bytes were looked at in a text of %d", h.looked, n)
		}
	}
}

// A turn more of a long conversation allocates its ids and little else, and the
// ids have no room to spare.
func TestPrefixAllocations(t *testing.T) {
	tok := small(t)
	p := newPrefixes(1 << 24)
	text := randomText(rand.New(rand.NewPCG(4, 4)), 300_000)
	ids := p.encode(nil, tok, 1, text, 0)
	if raceEnabled {
		t.Skip("sync.Pool forgets at random under the race detector")
	}
	if n := testing.AllocsPerRun(20, func() { p.encode(nil, tok, 1, text, 0) }); n > 2 {
		t.Errorf("%v allocations for a known text, want 1 for the ids", n)
	}
	if spare := cap(ids) - len(ids); spare > len(ids)/4 {
		t.Errorf("%d ids with room for %d", len(ids), cap(ids))
	}
}

// What is counted is what the heap holds, within a fifth.
func TestPrefixMemoryIsCounted(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector has memory of its own")
	}
	tok := small(t)
	p := newPrefixes(32 << 20)
	heap := func() int64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	r := rand.New(rand.NewPCG(6, 6))
	tok.Encode(nil, randomText(r, 100_000), false)
	before := heap()
	for range 200 {
		p.encode(nil, tok, 1, randomText(r, 100_000), 0)
	}
	held, counted := heap()-before, p.snapshot().Bytes
	if counted < 16<<20 || held > counted*6/5 {
		t.Errorf("%d bytes are held, %d are counted", held, counted)
	}
	runtime.KeepAlive(p)
}
