package jinja

import (
	"bytes"
	"os"
	"testing"
)

// TestRandom runs random templates against what jinja2 3.1.6 made of them: text for text, and an error
// where it had one. testdata/generate.py makes more; $KVASIR_JINJA_CASES names another file of its.
func TestRandom(t *testing.T) {
	var rows [][]byte
	if path := os.Getenv("KVASIR_JINJA_CASES"); path != "" {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		rows = bytes.Split(bytes.TrimSpace(data), []byte("\n"))
	} else {
		rows = readLines(t, "testdata/jinja_random.jsonl.gz")
	}
	var vars *Dict
	exact, unsupported := 0, 0
	for i, row := range rows {
		v, err := ParseJSON(row)
		if err != nil {
			continue // a lone surrogate
		}
		c, _ := v.AsDict()
		if i == 0 {
			vars, _ = c.Get("context").AsDict()
			continue
		}
		src, _ := c.Get("template").AsString()
		tpl, err := Compile(src)
		got := ""
		if err == nil {
			got, err = tpl.Render(vars, Env{Now: frozen})
		}
		want, hasText := c.Get("out").AsString()
		e, _ := err.(*Error)
		switch {
		case e != nil && e.Unsupported:
			unsupported++
		case hasText && (err != nil || got != want):
			t.Errorf("%q\n got %q %v\nwant %q", src, got, err, want)
		case !hasText && err == nil:
			msg, _ := c.Get("message").AsString()
			t.Errorf("%q\n got %q\nwant the error %s", src, got, msg)
		default:
			exact++
		}
	}
	t.Logf("%d exact, %d unsupported", exact, unsupported)
	if unsupported*50 > exact {
		t.Errorf("%d of %d cases are unsupported: more than 2 %%", unsupported, len(rows)-1)
	}
}
