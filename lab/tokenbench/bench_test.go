package tokenbench

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"kvasir/token"
	"kvasir/token/bpe"
	"kvasir/token/chat"
)

func model(t testing.TB, family string) *token.Model {
	t.Helper()
	root := os.Getenv("KVASIR_TOKENIZERS")
	if root == "" {
		cache := os.Getenv("KVASIR_CACHE")
		if cache == "" {
			home, err := os.UserHomeDir()
			if err != nil {
				t.Skip("no home directory")
			}
			cache = filepath.Join(home, ".cache", "kvasir")
		}
		root = filepath.Join(cache, "tokenizers")
	}
	dir := filepath.Join(root, family)
	tok, err := bpe.Load(dir)
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skipf("no files of %s (make fixtures): %v", family, err)
	}
	cfg := chat.Config{Kind: chat.KindHarmony} // gpt-oss: its package has no config.json
	if family != "gptoss" {
		if cfg, err = chat.Open(os.DirFS(dir), "", nil); err != nil {
			t.Fatal(err)
		}
	}
	cfg.Now = time.Now
	r, err := chat.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return token.NewModel(tok, r, "", 1<<20)
}

func BenchmarkNextTurn(b *testing.B) {
	for _, family := range []string{"qwen3", "gptoss"} {
		b.Run(family, func(b *testing.B) {
			v, x, err := grown(model(b, family))
			if err != nil {
				b.Fatal(err)
			}
			for range 15 {
				v.turn(turnBytes)
			}
			body := v.body()
			x.run(body)
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			b.ReportAllocs()
			b.SetBytes(int64(len(body)))
			began := threadCPU()
			for b.Loop() {
				x.run(body)
			}
			b.ReportMetric(micros(threadCPU()-began)/float64(b.N), "cpu-us/op")
		})
	}
}
