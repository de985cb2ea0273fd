package bpe

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// TestRefused: what is not done is named, with the field, so that the caller can
// fall back and say why; what is broken is named too.
func TestRefused(t *testing.T) {
	model := `"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]}`
	for _, x := range []struct {
		file        string
		unsupported bool
		want        string
	}{
		{`{"model":{"type":"WordPiece","vocab":{}}}`, true, `tokenizer.json: model.type: "WordPiece" is not supported`},
		{`{"model":{"type":"Unigram","vocab":[["a",0]]}}`, true, `model.type: "Unigram"`},
		{`{"model":{"type":"BPE","dropout":0.1,"vocab":{},"merges":[]}}`, true, "model.dropout: 0.1"},
		{`{"model":{"type":"BPE","end_of_word_suffix":"</w>","vocab":{},"merges":[]}}`, true, `model.end_of_word_suffix: "</w>"`},
		{`{"normalizer":{"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"Precompiled"}]},` + model + `}`, true, `normalizer.normalizers[1].type: "Precompiled"`},
		{`{"normalizer":{"type":"Replace","pattern":{"Regex":"x"},"content":""},` + model + `}`, true, "normalizer.pattern"},
		{`{"pre_tokenizer":{"type":"BertPreTokenizer"},` + model + `}`, true, `pre_tokenizer.type: "BertPreTokenizer"`},
		{`{"pre_tokenizer":{"type":"Split","pattern":{"Regex":"\\w+"},"behavior":"Isolated"},` + model + `}`, true, `pre_tokenizer.pattern.Regex: "\\w+"`},
		{`{"post_processor":{"type":"Other"},` + model + `}`, true, `post_processor.type: "Other"`},
		{`{"pre_tokenizer":{"type":"ByteLevel"},` + model + `}`, true, "without byte 0x00"},
		{`{"model":{"type":"BPE","vocab":{"a":0,"b":1},"merges":["a b"]}}`, false, `model.merges: merge 0: "a" + "b" = "ab": not all of them are in the vocabulary`},
		{`{"model":{"type":"BPE","vocab":{"a":0,"b":0},"merges":[]}}`, false, `model.vocab: "a" and "b" both have id 0`},
		{`{"model":{"type":"BPE","vocab":{"a":-1},"merges":[]}}`, false, "want a token id from 0 to"},
		{`{"model":{"type":"BPE","vocab":{"a":9999999},"merges":[]}}`, false, "want a token id from 0 to"},
		{`{"model":{"type":"BPE","vocab":{"a":0},"merges":["a"]}}`, false, "merge 0: want two tokens"},
		{`{"model":{"type":"BPE","unk_token":"u","vocab":{"a":0},"merges":[]}}`, false, `model.unk_token: "u" is not in the vocabulary`},
		{`{"added_tokens":[{"id":4000000,"content":"x"}],` + model + `}`, false, `added_tokens: "x" has id 4000000`},
		{`{"added_tokens":7,` + model + `}`, false, "added_tokens"},
		{`{}`, false, "model: is missing"},
		{`{"model":{"type":"BPE"}}`, false, "vocab or merges are missing"},
		{`{` + model, false, "tokenizer.json: model"},
		{`{` + model + `} x`, false, "text after the object"},
		{strings.Repeat(`{"a":`, 200), false, "nested deeper than 64"},
		{`[]`, false, "want '{'"},
		{``, false, "want '{'"},
	} {
		_, err := New([]byte(x.file), nil, nil, nil)
		if err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%.80s: %v, want %s", x.file, err, x.want)
			continue
		}
		var u *Unsupported
		var b *BadFile
		if errors.As(err, &u) != x.unsupported || errors.As(err, &b) == x.unsupported {
			t.Errorf("%.80s: %T", x.file, err)
		}
	}
}

func TestConfig(t *testing.T) {
	b, err := os.ReadFile("testdata/small/llama2.json")
	if err != nil {
		t.Fatal(err)
	}
	k, err := New(b, []byte(`{"bos_token":"<s>","eos_token":{"content":"</s>","lstrip":false},"pad_token":null,
		"added_tokens_decoder":{"900":{"content":"<late>","special":true},"0":{"content":"<unk>"}}}`),
		[]byte(`{"bos_token":"<other>","unk_token":"<unk>"}`), []byte(`{"eos_token_id":[2,900]}`))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"} {
		if got, ok := k.Special(name); !ok || got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if _, ok := k.Special("pad_token"); ok {
		t.Error("a pad_token of null")
	}
	if id, ok := k.AddedID("<late>"); !ok || id != 900 {
		t.Error("added_tokens_decoder's token is not there:", id)
	}
	if ids := k.EncodeString(nil, "<late>", false); len(ids) != 1 || ids[0] != 900 {
		t.Error(ids)
	}
	if e := k.Ends(); len(e) != 2 || e[1] != 900 || k.VocabSize() != 901 {
		t.Error(e, k.VocabSize())
	}
	for _, bad := range []string{`{"bos_token":7}`, `[]`, `{"added_tokens_decoder":{"x":{"content":"y"}}}`} {
		var want *BadFile
		if _, err := New(b, []byte(bad), nil, nil); !errors.As(err, &want) || want.File != configFile {
			t.Error(bad, err)
		}
	}
}

// TestShared: equal files are one Tokenizer, which is free again when nobody
// holds it.
func TestShared(t *testing.T) {
	b, err := os.ReadFile("testdata/small/nfc.json")
	if err != nil {
		t.Fatal(err)
	}
	one, two := t.TempDir(), t.TempDir()
	for _, dir := range []string{one, two} {
		if err := os.WriteFile(filepath.Join(dir, "tokenizer.json"), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var all [4]*Tokenizer
	var wg sync.WaitGroup
	for i := range all {
		wg.Go(func() { all[i], _ = Load([]string{one, two}[i%2]) })
	}
	wg.Wait()
	for _, k := range all {
		if k == nil || k != all[0] {
			t.Fatal("equal files, different tokenizers")
		}
	}
	if err := os.WriteFile(filepath.Join(two, configFile), []byte(`{"bos_token":"x"}`), 0o644); err != nil {
		t.Fatal(err)
	}
	if k, err := Load(two); err != nil || k == all[0] {
		t.Fatal("another config, the same tokenizer", err)
	}
	runtime.KeepAlive(all)
}

// TestConcurrent shares one cache among goroutines; the race detector and equal
// ids watch it.
func TestConcurrent(t *testing.T) {
	k := loadSmall(t, "testdata/small/nfc.json")
	cases := smallCases(t, "testdata/small/nfc.json")
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 3 * len(cases) {
				c := cases[(i*(g+1))%len(cases)]
				if got := k.EncodeString(nil, c.Text, c.Special); len(got) != len(c.IDs) {
					t.Errorf("%q: %v, want %v", c.Text, got, c.IDs)
					return
				}
			}
		})
	}
	wg.Wait()
}

// TestSize: a vocabulary of 150,000 tokens may take 60 MB.
func TestSize(t *testing.T) {
	for _, family := range families {
		dir := dirOf(t, family)
		heap := func() uint64 {
			runtime.GC()
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return m.HeapAlloc
		}
		loadedMu.Lock()
		delete(held, family)
		loadedMu.Unlock()
		runtime.LockOSThread()
		before, start := heap(), cpu()
		k, err := Load(dir)
		if err != nil {
			t.Fatal(err)
		}
		took := cpu() - start
		runtime.UnlockOSThread()
		size := int64(heap()) - int64(before)
		limit := int64(60e6) * int64(max(k.VocabSize(), 150_000)) / 150_000
		t.Logf("%s: %d tokens, %.1f MB, loaded in %v of CPU", family, k.VocabSize(), float64(size)/1e6, took)
		if size > limit {
			t.Errorf("%s: %d bytes, want at most %d", family, size, limit)
		}
		runtime.KeepAlive(k)
	}
}
