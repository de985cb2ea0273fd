package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kvasir/config"
)

func file(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "kvasir.yaml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// check refuses what serve refuses, with the same words; without any configuration
// it shows the defaults.
func TestCheckRefuses(t *testing.T) {
	const engine = "engines: [{url: http://a:1}]\n"
	for _, c := range []struct {
		text string // of the file; "" for none
		edit func(*serveFlags)
		want string // part of the error, "" for none
	}{
		{"", nil, ""},
		{engine, nil, ""},
		{"# nothing\n", func(f *serveFlags) { f.Engine = []string{"http://a:1"} }, ""},
		{"# nothing\n", nil, "engines: none given"},
		{"engines:\n - url: http://a:8000\n   modle: x\n", nil, "kvasir.yaml:3:4: engines[0].modle: unknown key"},
		{"engines:\n\t- url: http://a:8000\n", nil, "kvasir.yaml:2:1: "},
		{"engines: http://a:8000\n", nil, "kvasir.yaml:1:10: engines: "},
		{"listen: 8080\n", nil, `kvasir.yaml:1:1: listen: "8080", want HOST:PORT`},
		{engine, func(f *serveFlags) { f.Listen = "8080" }, `listen: "8080", want HOST:PORT`},
		{"", func(f *serveFlags) { f.Policy = "nope" }, `policy.name: "nope"`},
		{"", func(f *serveFlags) { f.Engine = []string{"foo"} }, `--engine url: "foo", want http://`},
		{"engines: [{url: 'http://u:hunter2@a:1'}]\n", nil, "with a user"},
	} {
		cmd := checkCmd{Offline: true}
		if c.text != "" {
			cmd.Config = file(t, c.text)
		}
		if c.edit != nil {
			c.edit(&cmd.serveFlags)
		}
		var out bytes.Buffer
		err := cmd.run(context.Background(), &out)
		_, want := cmd.config()
		switch {
		case c.want == "" && (err != nil || !strings.Contains(out.String(), "listen: ")):
			t.Errorf("%q: %v\n%s", c.text, err, out.String())
		case c.want == "":
		case err == nil || !strings.Contains(err.Error(), c.want) || err.Error() != want.Error():
			t.Errorf("%q: %v, want an error with %q, as serve has it: %v", c.text, err, c.want, want)
		case out.Len() > 0:
			t.Errorf("%q: prints in spite of %v:\n%s", c.text, err, out.String())
		}
		if strings.Contains(out.String(), "hunter2") || err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: shows a password", c.text)
		}
	}
}

// A flag wins over the file, and its errors don't blame the file's line.
func TestFlagHasNoLine(t *testing.T) {
	f := serveFlags{Config: file(t, "engines: [{url: http://a:1}]\nlisten: :1\n"), Listen: "nowhere"}
	if _, err := f.config(); err == nil || strings.Contains(err.Error(), "yaml") {
		t.Errorf("%v", err)
	}
}

// What check prints is a file for serve, comments and findings included; JSON has
// the same keys; and both fail where an engine doesn't answer, whatever that says.
func TestCheckPrints(t *testing.T) {
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	for _, asJSON := range []bool{false, true} {
		cmd := checkCmd{JSON: asJSON}
		cmd.Engine = []string{gone.URL}
		var out bytes.Buffer
		if err := cmd.run(context.Background(), &out); err == nil || err.Error() != "1 thing is wrong" {
			t.Errorf("JSON %v: %v, want 1 thing that is wrong", asJSON, err)
		}
		text := out.Bytes()
		if asJSON {
			var doc struct{ Config, Findings json.RawMessage }
			if err := json.Unmarshal(text, &doc); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(doc.Findings), `"bad": true`) {
				t.Errorf("findings %s", doc.Findings)
			}
			text = doc.Config
		}
		cfg, err := config.Load(file(t, string(text)))
		if err == nil {
			err = cfg.Validate()
		}
		if err != nil {
			t.Fatalf("serve refuses what check prints: %v\n%s", err, text)
		}
		if cfg.Policy.Name != "marginal" || !cfg.Policy.HotPrefix.Enabled || cfg.Tokens.Local.CacheBytes != 256<<20 || cfg.PollMetrics == 0 || cfg.Engines[0].URL != gone.URL {
			t.Errorf("not what is in force: %s", text)
		}
	}
}

func TestOneLine(t *testing.T) {
	if got := oneLine("a\nb\u2028\x1b[31m"); got != "a b  [31m" {
		t.Errorf("%q", got)
	}
}
