package tokenbench

import (
	"encoding/json"
	"testing"
	"unicode/utf8"

	"kvasir/token"
)

// The contract of `kvasir bench tokens --json`: every figure is there, and was
// measured.
func TestReport(t *testing.T) {
	m := model(t, "qwen3")
	r, err := Run(func() (*token.Model, error) { return m, nil })
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Encode []struct {
			Text  string  `json:"text"`
			Bytes int     `json:"bytes"`
			MBps  float64 `json:"mb_per_cpu_s"`
		} `json:"encode"`
		Render   float64 `json:"render_us"`
		Parse    float64 `json:"parse_us"`
		NextTurn struct {
			P50  float64 `json:"p50"`
			Cold float64 `json:"cold"`
		} `json:"next_turn_us"`
		Load     *float64 `json:"load_s"`
		Resident *float64 `json:"resident_mb"`
	}
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Encode) != 2*len(Kinds) || got.Render <= 0 || got.Parse <= 0 || got.NextTurn.P50 <= 0 || got.Load == nil || got.Resident == nil {
		t.Errorf("%s", b)
	}
	for _, e := range got.Encode {
		if e.MBps <= 0 || e.Bytes == 0 || e.Text == "" {
			t.Errorf("%+v", e)
		}
	}
	if n := r.NextTurn.Tokens; n < 95_000 || n > 105_000 {
		t.Errorf("the conversation has %d tokens, want about 100,000", n)
	}
	// A ratio of CPU times of one thread, far from its limit: only what is not
	// kept at all breaks it.
	if got.NextTurn.P50 > got.NextTurn.Cold/2 {
		t.Errorf("a next turn costs %.0f µs, the first %.0f: nothing is kept", got.NextTurn.P50, got.NextTurn.Cold)
	}
}

// The ids of a 100,000-token conversation are the one big allocation of its next
// turn: neither the body nor the rendered text is copied into new memory.
func TestNextTurnAllocates(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector makes pools forget, so bytes mean nothing under it")
	}
	for _, family := range []string{"qwen3", "gptoss"} {
		v, x, err := grown(model(t, family))
		if err != nil {
			t.Fatal(err)
		}
		body := v.body()
		n, err := x.run(body)
		if err != nil {
			t.Fatal(err)
		}
		res := testing.Benchmark(func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				x.run(body)
			}
		})
		if got, most := res.AllocedBytesPerOp(), int64(4*n+4*n/2); got > most {
			t.Errorf("%s: %d bytes are allocated for %d ids and a body of %d, want at most %d", family, got, n, len(body), most)
		}
	}
}

func TestCorpusIsTheSameForASeed(t *testing.T) {
	for _, kind := range Kinds {
		a, b, c := NewCorpus(1, 6000).Text(kind, 5000), NewCorpus(1, 6000).Text(kind, 5000), NewCorpus(2, 6000).Text(kind, 5000)
		if string(a) != string(b) || string(a) == string(c) || len(a) != 5000 {
			t.Errorf("%s: %d and %d bytes", kind, len(a), len(b))
		}
		if !utf8.Valid(a[:len(a)-3]) && kind != "chinese" {
			t.Errorf("%s is not UTF-8", kind)
		}
	}
}
