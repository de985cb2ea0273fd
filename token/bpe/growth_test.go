package bpe

import (
	"bytes"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// bruteMerge is the definition: the lowest rank first, leftmost among equals.
func bruteMerge(m *model, sym []uint32) []uint32 {
	sym = slices.Clone(sym)
	for {
		best, at := none, -1
		for i := range len(sym) - 1 {
			if v := m.pairs.find(sym[i], sym[i+1]); v < best {
				best, at = v, i
			}
		}
		if at < 0 {
			return sym
		}
		sym = append(append(sym[:at], uint32(best)), sym[at+2:]...)
	}
}

// bruteSymbols are the bytes or characters of b, without any short cut.
func bruteSymbols(m *model, b []byte) (sym []uint32) {
	if m.byteLevel {
		for _, c := range b {
			sym = append(sym, m.byteID[c])
		}
		return sym
	}
	var s scratch
	m.symbols(b, 0, len(b), &s)
	return slices.Clone(s.sym)
}

// TestMerge holds every way to merge a word against the definition: the cut at
// seams, the start at characters, linear search, heap and windows.
func TestMerge(t *testing.T) {
	files := smallFiles(t)
	for _, file := range files {
		k := loadSmall(t, file)
		m := k.model
		r := rand.New(rand.NewPCG(8, 9))
		cases := smallCases(t, file)
		for range 300 {
			var b []byte
			for range 1 + r.IntN(4) {
				b = append(b, cases[r.IntN(len(cases))].Text...)
				if r.IntN(3) == 0 {
					b = append(b, bytes.Repeat([]byte(string(rune('a'+r.IntN(26)))), r.IntN(60))...)
				}
			}
			if len(b) == 0 {
				continue
			}
			want := bruteMerge(m, bruteSymbols(m, b))
			var s scratch
			m.symbols(b, 0, len(b), &s)
			if got := m.merge(nil, &s); !slices.Equal(got, want) {
				t.Fatalf("%s: merge of %q: %v, want %v", file, b, got, want)
			}
			m.symbols(b, 0, len(b), &s)
			if got := m.mergeLong(nil, &s); !slices.Equal(got, want) {
				t.Fatalf("%s: mergeLong of %q: %v, want %v", file, b, got, want)
			}
			if got := m.windows(nil, b, 16+r.IntN(100), &s); !slices.Equal(got, want) {
				t.Fatalf("%s: windows of %q: %v, want %v", file, b, got, want)
			}
			if !m.ignoreMerges {
				if got := k.fresh(nil, b, &s); !slices.Equal(got, want) {
					t.Fatalf("%s: fresh of %q: %v, want %v", file, b, got, want)
				}
			}
		}
	}
}

// TestSeams does the same on real vocabularies, where characters are cut in
// pieces by tokens and most pairs have a seam.
func TestSeams(t *testing.T) {
	for _, family := range []string{"qwen3", "gptoss", "deepseek_v3", "mistral_tekken", "gemma3", "llama3"} {
		t.Run(family, func(t *testing.T) {
			k := load(t, family)
			m := k.model
			r := rand.New(rand.NewPCG(10, 11))
			rows := fixtures(t, family)
			cuts := 0
			for range 1500 {
				var b []byte
				for len(b) < 30 {
					x := []rune(rows[r.IntN(len(rows))].Text)
					if len(x) == 0 {
						continue
					}
					at := r.IntN(len(x))
					b = append(b, string(x[at:min(len(x), at+1+r.IntN(12))])...)
				}
				want := bruteMerge(m, bruteSymbols(m, b))
				var got []uint32
				var s scratch
				for i := 0; i < len(b); {
					j := m.seams.end(b, i)
					got = m.encode(got, b[i:j], &s)
					i = j
					cuts++
				}
				if !slices.Equal(got, want) {
					t.Fatalf("%q: %v, want %v", b, got, want)
				}
				if got := m.encode(nil, b, &s); !slices.Equal(got, want) {
					t.Fatalf("%q without cuts: %v, want %v", b, got, want)
				}
				if got := m.windows(nil, b, 24, &s); !slices.Equal(got, want) {
					t.Fatalf("%q in windows: %v, want %v", b, got, want)
				}
			}
			if cuts < 3*1500 {
				t.Errorf("only %d parts of 1500 words", cuts)
			}
		})
	}
}

// hostileUnits are repeated to words that break tokenizers.
var hostileUnits = []string{"", "a", "ab", " ", "\n", "=", "aA", "the", "é", "中", "😀", "e\u0301", "\u0301", "\r\n", "\u3000", "\x80", "▁", "/", "'s", "<|im_end|", "\n\n \n"}

// hostile is a text of n bytes: the unit again and again, or random letters.
func hostile(unit string, n int) []byte {
	if unit != "" {
		return bytes.Repeat([]byte(unit), n/len(unit))
	}
	r := rand.New(rand.NewPCG(12, 13))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte('a' + r.IntN(26))
	}
	return b
}

// TestGrowth counts the merges of hostile texts: twice the text may not take
// more than a little over twice the work, and memory stays bounded.
func TestGrowth(t *testing.T) {
	kinds := map[string]*Tokenizer{}
	for _, file := range smallFiles(t) {
		if strings.Contains(file, "nfc") || strings.Contains(file, "gemma") || strings.Contains(file, "whole") || strings.Contains(file, "llama2") {
			kinds[file] = loadSmall(t, file)
		}
	}
	const n = 100_000
	for file, k := range kinds {
		for _, unit := range hostileUnits {
			count := func(b []byte) int {
				s := &scratch{}
				clear(k.cache.short)
				clear(k.cache.long)
				k.encode(nil, b, s)
				return s.merged
			}
			a, b := count(hostile(unit, n)), count(hostile(unit, 2*n))
			if b > 2*a+a/4+10_000 {
				t.Errorf("%s, %q: %d merges for %d bytes, %d for twice as many", file, unit, a, n, b)
			}
		}
	}
}

// TestGrowthReal runs 20 MB words through the real vocabularies.
func TestGrowthReal(t *testing.T) {
	if testing.Short() {
		t.Skip("20 MB texts: not with -short")
	}
	for _, family := range []string{"qwen3", "gemma3"} {
		k := load(t, family)
		for _, unit := range []string{"", "a", "中"} {
			b := hostile(unit, 20<<20)
			var before, after runtime.MemStats
			dst := make([]uint32, 0, len(b)+len(b)/4)
			runtime.GC()
			runtime.ReadMemStats(&before)
			s := &scratch{}
			dst = k.encode(dst, b, s)
			runtime.ReadMemStats(&after)
			if got := after.TotalAlloc - before.TotalAlloc; got > 8<<20 {
				t.Errorf("%s, %q: %d bytes allocated for a text of %d", family, unit, got, len(b))
			}
			if s.merged > 2*len(b) {
				t.Errorf("%s, %q: %d merges", family, unit, s.merged)
			}
			if len(dst) == 0 {
				t.Error("nothing")
			}
		}
	}
}

// TestAllocs: a warm encode allocates nothing beyond the output.
func TestAllocs(t *testing.T) {
	if raceEnabled {
		t.Skip("sync.Pool drops items under the race detector")
	}
	for _, file := range smallFiles(t) {
		k := loadSmall(t, file)
		text := []byte("The router asks which engine holds the prefix 12345, and counts: naïve café e\u0301 東京 <sp> {\"id\": 17}\n\n  return zebra123abc")
		dst := make([]uint32, 0, 1000)
		k.Encode(dst, text, true)
		if n := testing.AllocsPerRun(100, func() { k.Encode(dst, text, true) }); n >= 1 {
			t.Errorf("%s: %v allocations", file, n)
		}
	}
}

// FuzzEncode: no text panics, invalid bytes are as U+FFFD, cuts are exact, and
// the cache changes nothing.
func FuzzEncode(f *testing.F) {
	for _, x := range []string{"", "a", "héllo wörld  12", "\xff\xfe\xe4\xb8", "\xf0\x9f\x98", "<l> <r> <b>word", "e\u0301<e>", "\u1100\u1161\u11a8", strings.Repeat("ab", 200)} {
		f.Add([]byte(x), uint16(3))
	}
	var all []*Tokenizer
	for _, file := range smallFiles(f) {
		all = append(all, loadSmall(f, file))
	}
	f.Fuzz(func(t *testing.T, b []byte, at uint16) {
		for _, k := range all {
			ids := k.Encode(nil, b, true)
			if again := k.Encode(nil, b, true); !slices.Equal(ids, again) {
				t.Fatalf("%q: %v, then %v", b, ids, again)
			}
			if valid := k.Encode(nil, []byte(strings.ToValidUTF8(string(b), "")), true); len(b) == len(bytes.ToValidUTF8(b, nil)) && !slices.Equal(ids, valid) {
				t.Fatalf("%q: %v, as string %v", b, ids, valid)
			}
			for _, id := range ids {
				if int(id) >= k.VocabSize() {
					t.Fatalf("id %d of %d", id, k.VocabSize())
				}
			}
			whole := k.Encode(nil, b, false)
			c := k.CutBefore(b, int(at)%(len(b)+1))
			if parts := k.Encode(k.Encode(nil, b[:c], false), b[c:], false); !slices.Equal(parts, whole) {
				t.Fatalf("%q cut at %d: %v, want %v", b, c, parts, whole)
			}
			k.Decode(nil, ids, true)
		}
	})
}

// FuzzLoad: broken files give errors, never a panic.
func FuzzLoad(f *testing.F) {
	f.Add([]byte(`{"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]}}`))
	f.Add([]byte(`{"added_tokens":[{"id":3,"content":"<s>","special":true}],"normalizer":{"type":"NFC"},"pre_tokenizer":{"type":"Metaspace","replacement":"▁","prepend_scheme":"first"},"model":{"type":"BPE","unk_token":"a","byte_fallback":true,"fuse_unk":true,"vocab":{"a":0,"▁":1,"a▁":2,"<0x00>":7},"merges":[["a","▁"]]}}`))
	f.Add([]byte(`{"post_processor":{"type":"TemplateProcessing","single":[{"Sequence":{"id":"A"}},{"SpecialToken":{"id":"x"}}],"special_tokens":{"x":{"ids":[0]}}},"model":{"vocab":{"\u00e9\ud83d\ude00":0},"merges":[]}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		k, err := New(b, nil, nil, nil)
		if err != nil {
			return
		}
		ids := k.EncodeString(nil, "a ab ▁b é<s>\x00", true)
		k.Decode(nil, ids, false)
	})
}

func TestInvalidUTF8(t *testing.T) {
	for in, want := range map[string]string{
		"\xff": "\ufffd", "a\xe4\xb8b": "a\ufffdb", "\xe4\xb8\xe4\xb8\xad": "\ufffd中", "\xf0\x9f\x98": "\ufffd", "\xf0\x9f\x98\xff": "\ufffd\ufffd",
		"\xc0\x80": "\ufffd\ufffd", "\xed\xa0\x80": "\ufffd\ufffd\ufffd", "\xf4\x90\x80\x80": "\ufffd\ufffd\ufffd\ufffd", "\xe0\x80": "\ufffd\ufffd", "\xf1\x80\x80\x41": "\ufffdA",
	} {
		if got := string(appendValid(nil, []byte(in))); got != want {
			t.Errorf("%q becomes %q, want %q", in, got, want)
		}
	}
}
