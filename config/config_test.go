package config

import (
	"os"
	"path/filepath"
	"reflect"
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
		// keys
		{engines + "listn: :1\n", `yaml:2:1: listn: unknown key, did you mean listen?`},
		{engines + "\n\nproxy:\n  first_tokn: 1s\n", "yaml:5:3: proxy.first_tokn: unknown key, did you mean first_token?"},
		{"engines: [{url: http://a:1, port: 3}]\n", `yaml:1:29: engines[0].port: unknown key, want one of url, events, `},
		{"listen: :1\nlisten: :2\n", `yaml:2:1: mapping key "listen" already defined`},
		// kinds
		{engines + "drain: fast\n", `yaml:2:8: drain: "fast", want 0s to 24h, as 30s or 5m`},
		{engines + "drain: 5\n", `yaml:2:8: drain: "5", want 0s to 24h, as 30s or 5m (did you mean 5s?)`},
		{engines + "proxy:\n  idle: 5 minutes\n", `yaml:3:9: proxy.idle: "5 minutes", want 10ms to 24h, as 30s or 5m (did you mean 5m?)`},
		{engines + "proxy: {attempts: many}\n", `yaml:2:19: proxy.attempts: "many", want 1 to 16`},
		{engines + "proxy: {attempts: 1.5}\n", `proxy.attempts: "1.5", want 1 to 16`},
		{engines + "proxy: {explain: 1}\n", `proxy.explain: "1", want true or false`},
		{engines + "proxy: [1]\n", `yaml:2:8: proxy: a list, want a mapping, key: value`},
		{engines + "proxy: {pass: /a}\n", `proxy.pass: "/a", want a list`},
		{engines + "listen: {a: b}\n", `listen: a mapping, want text`},
		{engines + "policy: {dynamo: {router_temperature: hot}}\n", `policy.dynamo.router_temperature: "hot", want at least 0`},
		{"engines: http://a:8000\n", `yaml:1:10: engines: "http://a:8000", want a list`},
		{"engines: [http://a:8000]\n", `yaml:1:11: engines[0]: "http://a:8000", want a mapping, key: value`},
		{"just text\n", `yaml:1:1: the file: "just text", want a mapping, key: value`},
		// syntax
		{engines + "\tlisten: :1\n", "yaml:2:1: "},
		{"engines: !00000 000\n", "yaml:"},
		{"engines: " + strings.Repeat("[", 100000), "yaml:1: nested deeper than 64"},
		{strings.Repeat("- ", 100000), "yaml:1: nested deeper than 64"},
		{engines + "---\nlisten: :1\n", "yaml:3:1: a second document, want one"},
		{engines + "listen: *there\n", "listen: *there, want an anchor that stands before it"},
		// values
		{"listen: :1\n", "engines: none given"},
		{engines + "listen: nowhere\n", `yaml:2:1: listen: "nowhere", want HOST:PORT`},
		{engines + "admin: nowhere\n", `yaml:2:1: admin: "nowhere", want HOST:PORT, :PORT or off`},
		{engines + "policy: {name: dynmo}\n", `did you mean "dynamo"`},
		{engines + "proxy: {idle: 1ns}\n", "yaml:2:9: proxy.idle: 1ns, want 10ms to 24h"},
		{engines + "proxy: {pass: [/a, /]}\n", `proxy.pass: "/", want paths such`},
		{engines + "tokens: {mode: sometimes}\n", `tokens.mode: "sometimes", want auto, remote or off`},
		{engines + "tokens: {template: {zone: Moon/Base}}\n", `tokens.template.zone: "Moon/Base", want a time zone`},
		{"engines: [{url: http://a:1, events: nowhere}]\n", `yaml:1:29: engines[0].events: "nowhere", want tcp://`},
		{"engines: [{url: http://a:1, replay: tcp://a:2}]\n", "want an endpoint in events as well"},
		{"engines: [{url: http://a:1, copies: some}]\n", `copies: "some", want auto, refcount`},
		{"engines: [{url: http://a:1, host_blocks: -1}]\n", "engines[0].host_blocks: -1, want 0 to 1073741824"},
		{"engines: [{url: http://a:1, events: listen}]\n", "want events_listen as well"},
		{"engines: [{url: http://a:1}, {url: http://A:1/v1}]\n", `yaml:1:31: engines[1].url: "http://A:1/v1", want another than engines[0]`},
		{"engines: [{url: ftp://a:1}]\n", `yaml:1:12: engines[0].url: "ftp://a:1", want http://HOST:PORT`},
		{"engines: [{}]\n", `engines[0].url: "", want http://HOST:PORT`},
		{engines + "receipts_file_bytes: 5\n", "receipts_file_bytes: 5, want 1MiB to 1TiB"},
		{engines + "receipts_file_keep: 0\n", "receipts_file_keep: 0, want 1 to 10000"},
		{engines + "state: a\nreceipts_file: ./a\n", `receipts_file: "./a", want another file than state`},
		{engines + "index_snapshot: a\nreceipts_file: a\n", `receipts_file: "a", want another file than index_snapshot`},
		{engines + "receipts: 0\nreceipts_file: a\n", "receipts: 0, want 1 to 1000000 where receipts_file"},
		{engines + "index_bytes: 5\n", "index_bytes: 5, want"},
		{engines + "index_bytes: 0\n", "index_bytes: 0, want"},
		{engines + "index_snapshot_every: 5ms\n", "index_snapshot_every: 5ms, want 0s (at shutdown only) or 1s to 24h"},
		{engines + "poll_metrics: 5ms\n", "poll_metrics: 5ms, want 0s (as the policy needs) or 10ms to 1h"},
		{engines + "index_snapshot: a\nstate: ./a\n", `yaml:2:1: index_snapshot: "a", want another file than state`},
	} {
		_, err := load(t, c.text)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want an error with %q", c.text, err, c.want)
		}
	}
}

func TestParseEngine(t *testing.T) {
	e, err := ParseEngine("http://a:1,events=tcp://a:2,replay=tcp://a:3,ranks=4")
	if err != nil || e != (Engine{URL: "http://a:1", Events: "tcp://a:2", Replay: "tcp://a:3", Ranks: 4, BlockSize: 16, Copies: "auto"}) {
		t.Errorf("%+v, %v", e, err)
	}
	for _, bad := range []string{"http://a:1,events", "http://a:1,ranks=x", "http://a:1,port=3", "http://a:1,ranks=-1"} {
		if e, err := ParseEngine(bad); err == nil {
			t.Errorf("%s: %+v is accepted", bad, e)
		}
	}
}

// No error shows a password.
func TestNoSecrets(t *testing.T) {
	for _, url := range []string{"http://u:hunter2@a:1", "ftp://u:hunter2@a:1", "http://u:hunter2@a:1?x", "http://u:hunter2@a:x", "http://u:hunter2@[a:1", "u:hunter2@a:1"} {
		_, err := load(t, "engines: [{url: '"+url+"'}]\n")
		if err == nil || strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), "http://HOST:PORT") {
			t.Errorf("%s: %v", url, err)
		}
	}
}

// What is empty in a file leaves the default alone, and so does a file of comments.
func TestEmpty(t *testing.T) {
	for _, text := range []string{"", "# nothing\n", "---\n", "---\n# nothing\n", "~\n", "{}\n", "proxy:\n", "proxy:\n  # all off\n", "listen:\n", "policy: {dynamo: }\nengines:\n", "tokens: {files: {dirs: }}\n"} {
		c := Defaults()
		if err := Parse("f", []byte(text), &c); err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		c.places = places{}
		if d := Defaults(); !reflect.DeepEqual(c, d) {
			t.Errorf("%q changes the defaults:\n%+v, want\n%+v", text, c, d)
		}
	}
}

// Values as people write them.
func TestValues(t *testing.T) {
	c, err := load(t, `
engines: &all
  - &first {url: http://a:1, events: off, ranks: 2}
  - <<: *first
    url: http://b:1
drain: 1h30m
poll: 500 ms
index_bytes: 4GiB
listen: &here 127.0.0.1:1
admin: "off"
proxy: {max_body: 64MB, retry_429: false, pass: [/a, '/b'], attempts: 0x4}
policy: {name: dynamo, dynamo: {router_temperature: 1e-1, overlap_score_weight: 2, overlap_score_credit: .5}}
tokens:
  files: {dirs: {m: /models/m}}
  template: {default_kwargs: {enable_thinking: false, n: 3, list: [1, a]}}
`)
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Engines) != 2 || c.Engines[1].URL != "http://b:1" || c.Engines[1].Events != "off" || c.Engines[1].Ranks != 2 || c.Engines[1].Copies != "auto" {
		t.Errorf("engines %+v", c.Engines)
	}
	if c.Drain != 90*time.Minute || c.Poll != 500*time.Millisecond || c.IndexBytes != 4<<30 || c.Proxy.MaxBody != 64_000_000 || c.Proxy.Retry429 || len(c.Proxy.Pass) != 2 || c.Proxy.Attempts != 4 {
		t.Errorf("%+v", c)
	}
	if d := c.Policy.Dynamo; d.Temperature != .1 || *d.OverlapWeight != 2 || d.OverlapCredit != .5 {
		t.Errorf("%+v", d)
	}
	k := c.Tokens.Template.Kwargs
	if k["enable_thinking"] != false || k["n"] != uint64(3) || len(k["list"].([]any)) != 2 {
		t.Errorf("%#v", k)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(engines))
	f.Add([]byte("proxy: {first_token: 1s}\npolicy: {dynamo: {temperature: .nan}}"))
	f.Fuzz(func(t *testing.T, b []byte) {
		c := Defaults()
		if Parse("f", b, &c) == nil {
			c.Validate()
		}
	})
}
