package receipt

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"kvasir/kv"
	"kvasir/sched"
)

const (
	headerText = `{"kvasir":"receipts","version":1,"run":"ab","start":"2026-11-29T00:00:00Z"}`
	lineText   = `{"at":1.5,"id":4,"session":"x","prompt_tokens":40,"output_tokens":3,"predicted_cached_tokens":16,"served_cached_tokens":32,"block_size":16,"blocks":"AAAAAAAAAAUAAAAAAAAABg"}`
)

func TestParse(t *testing.T) {
	x, h, err := Parse([]byte(lineText))
	if err != nil || h != nil || x.ID != 4 || *x.ServedCached != 32 || x.ServedPrompt != nil || !reflect.DeepEqual(x.Blocks, Blocks{5, 6}) {
		t.Errorf("%+v, %v", x, err)
	}
}

// Every error names the field, its value and what is accepted.
func TestParseErrors(t *testing.T) {
	for _, c := range []struct{ text, field, part string }{
		{`{"kvasir":"receipts","version":2,"start":"2026-11-29T00:00:00Z"}`, "version", "is 2"},
		{`{"kvasir":"receipts","start":"2026-11-29T00:00:00Z"}`, "version", "is 0"},
		{`{"kvasir":"beer","version":1,"start":"2026-11-29T00:00:00Z"}`, "version", "beer"},
		{`{"kvasir":"receipts","version":1}`, "start", "1970"},
		{`[1]`, "", "want"},
		{`{"at":`, "", "JSON"},
		{`{"at":-1}`, "at", "is -1"},
		{`{"took_s":1e300}`, "took_s", "1e+300"},
		{`{"first_token_s":-0.5}`, "first_token_s", "-0.5"},
		{`{"next_turn_s":1e11}`, "next_turn_s", "1e+11"},
		{`{"prompt_tokens":-1}`, "prompt_tokens", "is -1"},
		{`{"prompt_tokens":"9"}`, "prompt_tokens", "string"},
		{`{"output_tokens":1000000000}`, "output_tokens", "1000000000"},
		{`{"target":-3}`, "target", "-3"},
		{`{"candidates":[{"target":70000}]}`, "candidates", "70000"},
		{`{"served_cached_tokens":-1}`, "served_cached_tokens", "-1"},
		{`{"prompt_tokens":40,"block_size":16,"blocks":"AAAAAAAAAAUAAAAAAAAABgAAAAAAAAAH"}`, "blocks", "has 3"},
		{`{"prompt_tokens":40,"blocks":"AAAAAAAAAAU"}`, "blocks", "has 1"},
		{`{"prompt_tokens":40,"block_size":16,"blocks":"AAAA"}`, "", "base64"},
		{`{"prompt_tokens":40,"block_size":16,"blocks":[5,6]}`, "", "base64"},
	} {
		_, _, err := Parse([]byte(c.text))
		var fe *FieldError
		if !errors.As(err, &fe) || fe.Field != c.field || !strings.Contains(fe.Msg, c.part) {
			t.Errorf("%s: %v, want field %q and %q", c.text, err, c.field, c.part)
		}
	}
}

// FuzzParse: nothing that comes from a file is more than a line or an error, and what
// is accepted stays what it is when it is written again.
func FuzzParse(f *testing.F) {
	for _, s := range []string{headerText, lineText, "", "{}", "null", `{"candidates":[{}]}`, string(encoder().Append(nil, sample(1)))} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		x, h, err := Parse(text)
		if err != nil || h != nil {
			return
		}
		if math.IsNaN(x.At) || x.At < 0 || x.Tokens < 0 || x.Output < 0 || x.Target < 0 || len(x.Blocks) > 0 && len(x.Blocks)*x.BlockSize > x.Tokens {
			t.Fatalf("accepted %+v", x)
		}
		b, err := json.Marshal(&x)
		if err != nil {
			t.Fatal(err)
		}
		y, _, err := Parse(b)
		if again, _ := json.Marshal(&y); err != nil || string(again) != string(b) {
			t.Fatalf("%s became %s, %v", b, again, err)
		}
	})
}

// BenchmarkAdd is what a request's own goroutine pays; BenchmarkEncode what the log's
// pays for it, later. 500 blocks are a prompt of 8,000 tokens.
func BenchmarkAdd(b *testing.B) {
	l := &Log{wake: make(chan struct{}, 1)}
	l.pool.New = func() any { return new(sched.Receipt) }
	r := sample(1)
	b.ReportAllocs()
	for b.Loop() {
		l.Add(r)
		if len(l.queue) == wakeAt {
			b.StopTimer()
			for _, x := range l.queue {
				l.free(x)
			}
			l.queue, l.bytes = l.queue[:0], 0
			b.StartTimer()
		}
	}
}

func BenchmarkEncode(b *testing.B) {
	for _, n := range []int{0, 500} {
		b.Run(fmt.Sprintf("%dblocks", n), func(b *testing.B) {
			e, r := encoder(), sample(1)
			r.Tokens, r.NumKept = 16*n, 8
			for i := range r.Candidates {
				r.Candidates[i] = r.Candidates[0]
			}
			r.Blocks.Hashes = make([]kv.Hash, n)
			b.ReportAllocs()
			var text []byte
			for b.Loop() {
				text = e.Append(text[:0], r)
			}
			b.ReportMetric(float64(len(text)), "B/line")
		})
	}
}
