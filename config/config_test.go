package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func load(t *testing.T, text string) (Config, error) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "kvasir.yaml")
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	c, err := Load(name)
	if err == nil {
		err = c.Validate()
	}
	return c, err
}

const engines = "engines: [{url: http://a:8000}]\n"

func TestFile(t *testing.T) {
	c, err := load(t, `
listen: 127.0.0.1:9000
engines:
  - {url: http://10.0.0.1:8000}
  - {url: http://10.0.0.2:8000, events: tcp://10.0.0.2:5557, replay: tcp://10.0.0.2:5558, ranks: 2}
policy: {name: least_load}
proxy:
  first_token: 90s
  hold_for: 5s
tokens:
  mode: remote
  remote: {timeout: 3s}
  files: {dirs: {m: /models/m}}
drain: 10s
`)
	if err != nil {
		t.Fatal(err)
	}
	if c.Listen != "127.0.0.1:9000" || len(c.Engines) != 2 || c.Engines[1].Ranks != 2 || c.Policy.Name != "least_load" ||
		c.Proxy.FirstToken != 90*time.Second || c.Proxy.HoldFor != 5*time.Second || c.Tokens.Remote.Timeout != 3*time.Second ||
		c.Tokens.Files.Dirs["m"] != "/models/m" || c.Drain != 10*time.Second {
		t.Errorf("%+v", c)
	}
	// What the file doesn't say is the default.
	if d := Defaults(); c.Admin != d.Admin || c.Proxy.Idle != d.Proxy.Idle || c.Policy.Dynamo != d.Policy.Dynamo {
		t.Errorf("defaults were lost: %+v", c)
	}
}

// Every error names the file, the line or the field, the value and what is accepted.
func TestErrors(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{engines + "listn: :1\n", `unknown field "listn"`},
		{engines + "\n\nproxy:\n  first_tokn: 1s\n", "5:3"},
		{"engines: [{url: http://a:1, port: 3}]\n", `unknown field "port"`},
		{engines + "drain: fast\n", "kvasir.yaml"},
		{"listen: :1\n", "engines: none given"},
		{engines + "listen: nowhere\n", `listen: "nowhere", want HOST:PORT`},
		{engines + "policy: {name: dynmo}\n", `did you mean "dynamo"`},
		{engines + "proxy: {idle: 1ns}\n", "proxy.idle: 1ns, want"},
		{engines + "tokens: {mode: sometimes}\n", `tokens.mode: "sometimes", want auto, remote or off`},
		{"engines: [{url: http://a:1, events: nowhere}]\n", `engines[0]: events: "nowhere", want tcp://`},
		{"engines: [{url: http://a:1, replay: tcp://a:2}]\n", "give both"},
		{"engines: [{url: http://a:1, copies: some}]\n", `copies: "some", want auto, refcount`},
		{"engines: [{url: http://a:1, host_blocks: -1}]\n", "host_blocks and disk_blocks: -1"},
		{"engines: [{url: http://a:1, events: listen}]\n", "events_listen is empty"},
		{engines + "index_bytes: 5\n", "index_bytes: 5, want"},
		{engines + "index_snapshot_every: 5ms\n", "index_snapshot_every: 5ms, want 0s (at shutdown only) or 1s to 24h"},
		{engines + "index_snapshot: a\nstate: a\n", "is the file of state already"},
	} {
		_, err := load(t, c.text)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want an error with %q", c.text, err, c.want)
		}
	}
}

func TestParseEngine(t *testing.T) {
	e, err := ParseEngine("http://a:1,events=tcp://a:2,replay=tcp://a:3,ranks=4")
	if err != nil || e != (Engine{URL: "http://a:1", Events: "tcp://a:2", Replay: "tcp://a:3", Ranks: 4}) {
		t.Errorf("%+v, %v", e, err)
	}
	for _, bad := range []string{"http://a:1,events", "http://a:1,ranks=x", "http://a:1,port=3", "http://a:1,ranks=-1"} {
		if e, err := ParseEngine(bad); err == nil {
			t.Errorf("%s: %+v is accepted", bad, e)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(engines))
	f.Add([]byte("proxy: {first_token: 1s}\npolicy: {dynamo: {temperature: .nan}}"))
	f.Fuzz(func(t *testing.T, b []byte) {
		c := Defaults()
		if Parse(b, &c) == nil {
			c.Validate()
		}
	})
}
