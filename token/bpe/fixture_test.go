package bpe

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// families are the encode fixtures: testdata/encode/NAME.jsonl.gz.
var families = []string{
	"deepseek_v3", "deepseek_v4", "gemma3", "gptoss", "llama3", "llama3_2", "mistral_nemo", "mistral_tekken", "qwen2_5", "qwen3",
}

// dirOf returns the directory with the tokenizer files of a family. Most may
// not be kept in this repository: `go run ./token/bpe/fetch` puts them into the
// cache. Without them the test is skipped, but fails where CI=true.
func dirOf(t testing.TB, family string) string {
	t.Helper()
	root := os.Getenv("KVASIR_TOKENIZERS")
	if root == "" {
		cache := os.Getenv("KVASIR_CACHE")
		if cache == "" {
			home, err := os.UserHomeDir()
			if err != nil {
				t.Skip(err)
			}
			cache = filepath.Join(home, ".cache", "kvasir")
		}
		root = filepath.Join(cache, "tokenizers")
	}
	dir := filepath.Join(root, family)
	if _, err := os.Stat(dir); err != nil {
		msg := fmt.Sprintf("no tokenizer files of %s in %s: run `go run ./token/bpe/fetch`, or set KVASIR_TOKENIZERS", family, root)
		if os.Getenv("CI") == "true" {
			t.Fatal(msg)
		}
		t.Skip(msg)
	}
	return dir
}

var (
	loadedMu sync.Mutex
	held     = map[string]*Tokenizer{} // load once for all tests
)

func load(t testing.TB, family string) *Tokenizer {
	t.Helper()
	dir := dirOf(t, family)
	loadedMu.Lock()
	defer loadedMu.Unlock()
	if k := held[family]; k != nil {
		return k
	}
	k, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	held[family] = k
	return k
}

type fixture struct {
	Cat     string   `json:"cat"`
	Text    string   `json:"text"`
	Special bool     `json:"add_special_tokens"`
	IDs     []uint32 `json:"ids"`
}

func fixtures(t testing.TB, family string) []fixture {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", "encode", family+".jsonl.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var out []fixture
	for r := bufio.NewReaderSize(z, 1<<20); ; {
		line, err := r.ReadString('\n')
		if strings.TrimSuffix(line, "\n") != "" {
			var x fixture
			if err := json.Unmarshal([]byte(line), &x); err != nil {
				t.Fatal(err)
			}
			out = append(out, x)
		}
		if err != nil {
			break
		}
	}
	return out
}

// TestFixtures demands the reference's ids on every line of all ten families.
func TestFixtures(t *testing.T) {
	for _, family := range families {
		t.Run(family, func(t *testing.T) {
			k := load(t, family)
			rows := fixtures(t, family)
			if len(rows) < 600 {
				t.Fatalf("only %d rows", len(rows))
			}
			wrong := 0
			byCat := map[string]int{}
			for pass := range 2 { // the second time, words come out of the cache
				for i, x := range rows {
					got := k.EncodeString(nil, x.Text, x.Special)
					if slices.Equal(got, x.IDs) {
						if text := k.Decode(nil, got, false); !x.Special && reversible(family, x.Text) && string(text) != x.Text {
							t.Errorf("line %d: %.60q decodes to %.60q", i+1, x.Text, text)
						}
						continue
					}
					wrong++
					byCat[x.Cat]++
					if wrong <= 5 {
						at := 0
						for at < min(len(got), len(x.IDs)) && got[at] == x.IDs[at] {
							at++
						}
						t.Errorf("pass %d, line %d (%s): %.60q: first difference at %d: got %v, want %v", pass, i+1, x.Cat, x.Text, at,
							got[at:min(at+6, len(got))], x.IDs[at:min(at+6, len(x.IDs))])
					}
				}
			}
			t.Logf("%s: %d rows, %d wrong in two passes %v", family, len(rows), wrong, byCat)
		})
	}
}

func TestLoadNothing(t *testing.T) {
	if _, err := Load(t.TempDir()); err == nil || !strings.Contains(err.Error(), "no tokenizer.json") {
		t.Fatal(err)
	}
}

// reversible says whether nothing is lost on the way to ids: NFC and Gemma's
// spaces lose something.
func reversible(family, text string) bool {
	return !strings.HasPrefix(family, "qwen") && !(family == "gemma3" && strings.Contains(text, "\u2581"))
}
