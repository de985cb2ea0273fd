package jinja

import (
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"testing"
	"time"
)

// frozen is the clock of all fixtures.
var frozen = time.Date(2026, 3, 14, 15, 9, 26, 0, time.UTC)

func readLines(t testing.TB, path string) [][]byte {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Split(bytes.TrimSuffix(data, []byte("\n")), []byte("\n"))
}

// TestUnit runs the 361 small cases whose answers jinja2 3.1.6 gave: text, or the class and message
// of the error.
func TestUnit(t *testing.T) {
	rows := readLines(t, "testdata/jinja_unit.jsonl.gz")
	head, err := ParseJSON(rows[0])
	if err != nil {
		t.Fatal(err)
	}
	hd, _ := head.AsDict()
	vars, _ := hd.Get("context").AsDict()
	if len(rows)-1 != 361 {
		t.Fatalf("%d cases, want 361", len(rows)-1)
	}
	for _, row := range rows[1:] {
		v, err := ParseJSON(row)
		if err != nil {
			t.Fatal(err)
		}
		c, _ := v.AsDict()
		src, _ := c.Get("template").AsString()
		tpl, err := Compile(src)
		got := ""
		if err == nil {
			got, err = tpl.Render(vars, Env{Now: frozen})
		}
		if want, ok := c.Get("out").AsString(); ok {
			if err != nil || got != want {
				t.Errorf("%s\n got %q %v\nwant %q", src, got, err, want)
			}
			continue
		}
		class, _ := c.Get("error").AsString()
		msg, _ := c.Get("message").AsString()
		e, ok := err.(*Error)
		if !ok || e.Type != class || e.Message != msg {
			t.Errorf("%s\n got %q %v\nwant %s: %s", src, got, err, class, msg)
		}
	}
}
