package trace

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
)

const (
	mooncakeLine = `{"timestamp": 3000, "input_length": 1100, "output_length": 0, "hash_ids": [0, 14, 15]}`
	cellLine     = `{"id":7,"t":0.5,"input":1024,"output":9,"session":"s1","blocks":[0,1]}`
	turnsLine    = `{"session":3,"turns":[{"think":0,"input":600,"output":5,"blocks":[1]},{"think":2.5,"input":1300,"output":6,"blocks":[1,2]}]}`
	wekaLine     = `{"id":"trace_0001","tool":100,"sys":20,"scope":"local","models":["m"],"main":[[0,1024,0,0,1.5,[0,1]],[9,1600,30,4,2,[0,1,2]]],"subs":[[5,[[0,512,3,0,0,[7]]]]]}`
	receiptLine  = `{"at":1.5,"id":4,"session":"x","prompt_tokens":40,"output_tokens":3,"served_cached_tokens":32,"block_size":16,"blocks":"AAAAAAAAAAUAAAAAAAAABg"}`
	headerLine   = `{"kvasir":"receipts","version":1,"run":"ab","start":"2026-11-29T00:00:00Z"}`
)

func open(t *testing.T, text string, skip bool) *Reader {
	t.Helper()
	r, err := NewReader(strings.NewReader(text), "x.jsonl", Options{SkipBad: skip})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestReads(t *testing.T) {
	q, err := open(t, "\n"+mooncakeLine+"\r\n\n", false).NextRequest()
	if err != nil || q.At != 3 || q.Input != 1100 || q.Output != 1 || !slices.Equal(q.Blocks, []uint64{0, 14}) {
		t.Errorf("mooncake: %+v, %v", q, err)
	}
	q, err = open(t, cellLine, false).NextRequest()
	if err != nil || q.ID != 7 || q.At != .5 || q.Input != 1024 || q.Output != 9 || q.Session != "s1" || len(q.Blocks) != 2 || q.BlockSize != 512 {
		t.Errorf("cell: %+v, %v", q, err)
	}
	s, err := open(t, turnsLine, false).NextSession()
	if err != nil || s.ID != "3" || len(s.Turns) != 2 || s.Turns[1].Think != 2.5 || len(s.Turns[1].Blocks) != 2 {
		t.Errorf("turns: %+v, %v", s, err)
	}
	f, err := open(t, wekaLine, false).NextWeka()
	if err != nil || f.Tool != 100 || len(f.Main) != 2 || f.Main[0].Output != 1 || f.Main[1].Think != 4 || len(f.Main[1].Blocks) != 3 ||
		len(f.Subs) != 1 || f.Subs[0].Start != 5 || f.Subs[0].Requests[0].Blocks[0] != 7 {
		t.Errorf("weka: %+v, %v", f, err)
	}
	r := open(t, headerLine+"\n"+receiptLine+"\n"+`{"at":2,"id":5,"prompt_tokens":0}`+"\n", false)
	q, err = r.NextRequest()
	if err != nil || q.At != 1.5 || q.Input != 40 || q.BlockSize != 16 || len(q.Blocks) != 2 {
		t.Errorf("receipt as a request: %+v, %v", q, err)
	}
	if _, err = r.NextRequest(); err != io.EOF {
		t.Errorf("a receipt of unknown length is no request: %v", err)
	}
}

func TestGzip(t *testing.T) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	io.WriteString(z, cellLine+"\n"+cellLine)
	z.Close()
	r, err := NewReader(&b, "x.gz", Options{})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for ; err == nil; n++ {
		_, err = r.NextRequest()
	}
	if err != io.EOF || n != 3 {
		t.Errorf("%d calls, then %v", n, err)
	}
	if r.Close() != nil {
		t.Error("close failed")
	}
	if _, err := NewReader(bytes.NewReader([]byte{0x1f, 0x8b, 1, 2}), "x.gz", Options{}); err == nil {
		t.Error("broken gzip was accepted")
	}
}

// Every error names file, line and field, and what was expected.
func TestBadLines(t *testing.T) {
	for _, c := range []struct{ line, field, part string }{
		{`{"timestamp": 1, "input_length": 5, "hash_ids": []}`, "output_length", "missing"},
		{`{"timestamp": -1, "input_length": 5, "output_length": 1}`, "timestamp", "-1"},
		{`{"timestamp": 1, "input_length": 0, "output_length": 1}`, "input_length", "between 1 and"},
		{`{"timestamp": 1, "input_length": 1.5, "output_length": 1}`, "input_length", "1.5"},
		{`{"timestamp": 1, "input_length": "9", "output_length": 1}`, "input_length", "string"},
		{`{"timestamp": 1, "input_length": 600, "output_length": 1, "hash_ids": [1,2,3]}`, "hash_ids", "3 ids"},
		{`{"timestamp": 1, "input_length": 600, "output_length": 1, "hash_ids": [-1]}`, "hash_ids", "number -1"},
		{`{"t": 1, "input": 600, "output": 1e12, "blocks": []}`, "output", "1e+12"},
		{`{"t": 1e300, "input": 600, "output": 1, "blocks": []}`, "t", "1e+300"},
		{`{"t": 1, "input": 600`, "", "JSON"},
		{`[1,2]`, "", "JSON"},
		{`{"session": 1, "turns": []}`, "turns", "empty"},
		{`{"session": 1, "turns": [{"think":1,"input":5}]}`, "turns.0.output", "missing"},
		{`{"session": 1, "block_size": 0, "turns": [{"think":1,"input":5,"output":1}]}`, "block_size", "0"},
		{`{"id":"x","main":[[0,5,1,0]]}`, "main.0", "4 values"},
		{`{"id":"x","main":[],"subs":[[1]]}`, "subs.0", "start"},
		{`{"kvasir":"receipts","version":99}`, "version", "99"},
	} {
		r, err := NewReader(strings.NewReader(c.line), "bad.jsonl", Options{})
		if err == nil {
			switch r.Format() {
			case Turns:
				_, err = r.NextSession()
			case Weka:
				_, err = r.NextWeka()
			case Receipts:
				_, err = r.NextReceipt()
			default:
				_, err = r.NextRequest()
			}
		}
		var le *LineError
		if !errors.As(err, &le) {
			t.Errorf("%s: error is %v", c.line, err)
			continue
		}
		if le.File != "bad.jsonl" || le.Line != 1 || le.Field != c.field || !strings.Contains(le.Msg, c.part) {
			t.Errorf("%s: %v, want field %q and %q", c.line, err, c.field, c.part)
		}
	}
}

func TestSkipBad(t *testing.T) {
	text := "nonsense\n" + cellLine + "\n{\"t\":1}\n" + cellLine + "\n"
	r := open(t, text, true)
	n := 0
	for {
		if _, err := r.NextRequest(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		n++
	}
	skipped, first := r.Skipped()
	if n != 2 || skipped != 2 || first == nil || !strings.Contains(first.Error(), "x.jsonl:1:") {
		t.Errorf("%d requests, %d skipped, first %v", n, skipped, first)
	}
	if _, err := NewReader(strings.NewReader("\n\n"), "empty", Options{}); err == nil {
		t.Error("an empty file was accepted")
	}
}

func TestWriter(t *testing.T) {
	w := Writer{BlockTokens: 8, Word: Pseudo}
	a := string(w.AppendText(nil, []uint64{1, 2}, 20, 7))
	b := string(w.AppendText(nil, []uint64{1, 3}, 20, 8))
	wa, wb := strings.Fields(a), strings.Fields(b)
	if len(wa) != 20 || len(wb) != 20 {
		t.Fatalf("%d and %d words, want 20", len(wa), len(wb))
	}
	if !slices.Equal(wa[:8], wb[:8]) {
		t.Error("equal ids gave different words")
	}
	if slices.Equal(wa[8:16], wb[8:16]) || slices.Equal(wa[16:], wb[16:]) {
		t.Error("different ids gave equal words")
	}
	if other := (Writer{BlockTokens: 8, Word: Pseudo, Salt: 1}); string(other.AppendText(nil, []uint64{1, 2}, 20, 7)) == a {
		t.Error("the salt changes nothing")
	}
	long := Writer{BlockTokens: 8, PerWord: 2}
	if n := len(strings.Fields(string(long.AppendText(nil, []uint64{1}, 20, 7)))); n != 10 {
		t.Errorf("%d words of 2 tokens for 20 tokens", n)
	}
	x := w.AppendTokens(nil, []uint64{1, 2}, 20, 7, 1000, 9000)
	y := w.AppendTokens(nil, []uint64{1, 3}, 17, 8, 1000, 9000)
	if len(x) != 20 || len(y) != 17 || !slices.Equal(x[:8], y[:8]) || slices.Equal(x[8:16], y[8:16]) {
		t.Errorf("tokens %v and %v", x, y)
	}
	for _, v := range append(x, y...) {
		if v < 1000 || v >= 9000 {
			t.Errorf("token %d is not between 1000 and 8999", v)
		}
	}
	// Ids beyond the prompt's length are ignored.
	if n := len(w.AppendTokens(nil, []uint64{1, 2, 3, 4}, 10, 7, 0, 10)); n != 10 {
		t.Errorf("%d tokens, want 10", n)
	}
}

// Receipts are read as requests but for those that failed, and that nobody knows the
// length of; half a line at the end is skipped, a later version never.
func TestReceipts(t *testing.T) {
	more := `{"at":2,"id":5,"prompt_tokens":0,"output_tokens":1}` + "\n" + `{"at":3,"id":6,"prompt_tokens":0,"served_prompt_tokens":9,"output_tokens":0}` + "\n" +
		`{"at":4,"id":7,"prompt_tokens":9,"outcome":"failed"}` + "\n"
	r := open(t, headerLine+"\n"+receiptLine+"\n"+more+`{"at":5,"id":8,"pro`, false)
	var got []Request
	for {
		q, err := r.NextRequest()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, q)
	}
	if len(got) != 2 || got[0].ID != 4 || got[0].Session != "x" || got[1].ID != 6 || got[1].Input != 9 || got[1].Output != 1 {
		t.Errorf("requests %+v, want receipts 4 and 6", got)
	}
	if n, err := r.Skipped(); n != 1 || err == nil || !strings.Contains(err.Error(), "x.jsonl:6:") {
		t.Errorf("%d skipped, %v; want the half line", n, err)
	}
	if run, start := r.Run(); run != "ab" || start.Year() != 2026 {
		t.Errorf("run %q, started %v", run, start)
	}
	for _, skip := range []bool{false, true} {
		r := open(t, `{"kvasir":"receipts","version":2,"start":"2026-11-29T00:00:00Z"}`+"\n"+receiptLine+"\n", skip)
		if _, err := r.NextReceipt(); err == nil || !strings.Contains(err.Error(), "want version 1 to 1") {
			t.Errorf("a later version, skip %v: %v", skip, err)
		}
	}
	if _, err := open(t, headerLine+"\n"+receiptLine+"\nnonsense\n"+receiptLine+"\n", false).NextReceipt(); err != nil {
		t.Error(err)
	}
	r = open(t, headerLine+"\nnonsense\n"+receiptLine+"\n", false)
	if _, err := r.NextReceipt(); err == nil || !strings.Contains(err.Error(), "x.jsonl:2:") {
		t.Errorf("nonsense in the middle: %v", err)
	}
}

func FuzzReader(f *testing.F) {
	for _, s := range []string{mooncakeLine, cellLine, turnsLine, wekaLine, headerLine + "\n" + receiptLine, "{}", "\x1f\x8b", `{"turns":[{"blocks":[1e99]}]}`, `{"main":[[[],[],[],[],[],1]]}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, skip := range []bool{false, true} {
			r, err := NewReader(bytes.NewReader(b), "fuzz", Options{SkipBad: skip})
			if err != nil {
				continue
			}
			for range 1000 {
				switch r.Format() {
				case Turns:
					s, e := r.NextSession()
					err = e
					for _, x := range s.Turns {
						if e == nil && (x.Input < 1 || x.Output < 1 || len(x.Blocks) > x.Input/s.BlockSize || x.Think < 0) {
							t.Fatalf("accepted %+v", x)
						}
					}
				case Weka:
					s, e := r.NextWeka()
					err = e
					for _, x := range s.Main {
						if e == nil && (x.Input < 1 || x.Output < 1 || len(x.Blocks) > x.Input/BlockSize || !(x.Think >= 0)) {
							t.Fatalf("accepted %+v", x)
						}
					}
				default:
					x, e := r.NextRequest()
					err = e
					if e == nil && (x.Input < 1 || x.Output < 1 || len(x.Blocks) > x.Input/x.BlockSize || !(x.At >= 0)) {
						t.Fatalf("accepted %+v", x)
					}
				}
				if err != nil {
					break
				}
			}
		}
	})
}
