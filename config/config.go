// Package config reads one YAML file into the Config structs that the packages
// own. It adds no behaviour: a field's meaning, default and range stand where
// the field stands.
package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"github.com/goccy/go-yaml"

	"kvasir/index"
	"kvasir/kv"
	"kvasir/policy"
	"kvasir/proxy"
	"kvasir/token"
	"kvasir/token/files"
)

// A Config is everything that `kvasir serve` can be told. Start from Defaults.
type Config struct {
	Listen  string   `yaml:"listen"`  // OpenAI-compatible traffic
	Admin   string   `yaml:"admin"`   // metrics, fleet, receipts; "off" for none
	Engines []Engine `yaml:"engines"` // the replicas
	// EventsListen is where engines dial in whose events are "listen", as
	// tcp://*:5557. vLLM dials where its endpoint has no wildcard.
	EventsListen string `yaml:"events_listen"`

	Policy policy.Config `yaml:"policy"`
	Tokens Tokens        `yaml:"tokens"`
	Proxy  proxy.Config  `yaml:"proxy"`

	// Drain is how long open requests may take to end after SIGTERM.
	Drain time.Duration `yaml:"drain"`
	// Poll is how often each engine is asked for its health and models.
	Poll time.Duration `yaml:"poll"`
	// PollMetrics is how often each engine is asked for its own load figures. 0: every
	// 100 ms where the policy decides by them (llmd_approx, llmd_precise, weighted, …),
	// else every 5 s. They cost the engine a page of metrics each.
	PollMetrics time.Duration `yaml:"poll_metrics"`
	// State is a file that keeps what the policy has learned over a restart; "" for none.
	State string `yaml:"state"`
	// IndexBytes bounds the memory of the index; 0 is its default, 4 GiB.
	IndexBytes int64 `yaml:"index_bytes"`
	// IndexSnapshot is a file that keeps what the index believes over a restart; "" for
	// none. It is written at shutdown, and every IndexSnapshotEvery (0: at shutdown
	// only). What is read at start counts as "filling" until the engine's replay
	// service, or its next batch, has shown that it is the same process and that
	// nothing was missed; else it is forgotten. The file has the seed of the hashes:
	// keep it private.
	IndexSnapshot      string        `yaml:"index_snapshot"`
	IndexSnapshotEvery time.Duration `yaml:"index_snapshot_every"`
	// Receipts is how many of the latest decisions are kept.
	Receipts int `yaml:"receipts"`
}

// Tokens says how requests get their token ids.
type Tokens struct {
	// Mode is auto (in process where the model's files are found, else by the
	// engines), remote (by the engines only) or off (routing by load).
	Mode string `yaml:"mode"`
	// Files says where models' tokenizer files may be looked for.
	Files  files.Config       `yaml:"files"`
	Local  token.LocalConfig  `yaml:"local"`
	Remote token.RemoteConfig `yaml:"remote"`
	// Template is what engines' flags say about prompts.
	Template Template `yaml:"template"`
}

// Template mirrors the engine's flags that change prompts. Zero is vLLM's default.
type Template struct {
	Format               string         `yaml:"content_format"` // --chat-template-content-format
	Kwargs               map[string]any `yaml:"default_kwargs"` // --default-chat-template-kwargs
	TrustRequest         bool           `yaml:"trust_request"`  // --trust-request-chat-template
	ExcludeToolsWhenNone bool           `yaml:"exclude_tools_when_none"`
	TokenizerMode        string         `yaml:"tokenizer_mode"`         // --tokenizer-mode
	HarmonyRecipientLast bool           `yaml:"harmony_recipient_last"` // gpt-oss: engines with oss-harmony 0.0.10 or later
	Zone                 string         `yaml:"zone"`                   // time zone of the engines, for prompts with a date; "" is ours
}

// An Engine is one replica. URL alone is enough for engines that tell where
// their events are.
type Engine struct {
	URL    string `yaml:"url"`    // http://HOST:PORT
	Events string `yaml:"events"` // tcp://HOST:PORT of its KV events (rank 0; rank r at PORT+r), "off" for none, "listen" if the engine dials events_listen, "" to ask the engine
	Replay string `yaml:"replay"` // tcp://HOST:PORT of the replay service (rank 0)
	Ranks  int    `yaml:"ranks"`  // data-parallel ranks, 0 to ask the engine

	// Copies says what the engine's removals mean where a block has several copies:
	// auto, refcount (each removal is one copy), last-copy or first-remove.
	Copies string `yaml:"copies"`
	// HostBlocks and DiskBlocks are the sizes per rank of lower tiers whose removals
	// the engine does not report; 0 for none such.
	HostBlocks int `yaml:"host_blocks"`
	DiskBlocks int `yaml:"disk_blocks"`
}

// Index returns how the index has to read the engine's events.
func (e Engine) Index() (index.TargetConfig, error) {
	var c index.TargetConfig
	var err error
	if e.Copies != "" {
		c.Copies, err = index.ParseCopyMode(e.Copies)
	}
	c.Tiers[kv.Host].Blocks, c.Tiers[kv.Disk].Blocks = e.HostBlocks, e.DiskBlocks
	return c, err
}

// Defaults returns the configuration of a router that is told only its engines.
func Defaults() Config {
	return Config{
		Listen:   ":8080",
		Admin:    "127.0.0.1:8081",
		Policy:   policy.Defaults(),
		Tokens:   Tokens{Mode: "auto"},
		Proxy:    proxy.Default(),
		Drain:    2 * time.Minute,
		Poll:     2 * time.Second,
		Receipts: 2048,

		IndexSnapshotEvery: 5 * time.Minute,
	}
}

// Load reads a file over Defaults. Unknown keys are errors; every error names
// the file, and the line where there is one.
func Load(path string) (Config, error) {
	c := Defaults()
	b, err := os.ReadFile(path)
	if err != nil {
		return c, fmt.Errorf("config: %w", err)
	}
	if err := Parse(b, &c); err != nil {
		return c, fmt.Errorf("config %s: %w", path, err)
	}
	return c, nil
}

// Parse reads YAML over what c has.
func Parse(b []byte, c *Config) error {
	dec := yaml.NewDecoder(bytes.NewReader(b), yaml.Strict(), yaml.DisallowUnknownField())
	if err := dec.Decode(c); err != nil && !errors.Is(err, io.EOF) {
		return errors.New(strings.TrimSpace(yaml.FormatError(err, false, true)))
	}
	return nil
}

// Validate names the first field that is out of range, its value, and what is
// accepted.
func (c *Config) Validate() error {
	if err := checkListen("listen", c.Listen); err != nil {
		return err
	}
	if c.Admin != "off" {
		if err := checkListen("admin", c.Admin); err != nil {
			return err
		}
	}
	if len(c.Engines) == 0 {
		return errors.New("engines: none given; name at least one: --engine http://HOST:PORT")
	}
	for i, e := range c.Engines {
		if err := e.validate(); err != nil {
			return fmt.Errorf("engines[%d]: %w", i, err)
		}
		if e.Events == "listen" && c.EventsListen == "" {
			return fmt.Errorf("engines[%d]: events: listen, but events_listen is empty: say where engines dial in, as tcp://*:5557", i)
		}
	}
	if c.EventsListen != "" && !isEndpoint(c.EventsListen) {
		return fmt.Errorf("events_listen: %q, want tcp://HOST:PORT (HOST may be *) or ipc://PATH", c.EventsListen)
	}
	if c.Drain < 0 || c.Drain > 24*time.Hour {
		return fmt.Errorf("drain: %v, want 0s to 24h", c.Drain)
	}
	if c.Poll < 50*time.Millisecond || c.Poll > time.Hour {
		return fmt.Errorf("poll: %v, want 50ms to 1h", c.Poll)
	}
	if c.PollMetrics != 0 && (c.PollMetrics < 10*time.Millisecond || c.PollMetrics > time.Hour) {
		return fmt.Errorf("poll_metrics: %v, want 0s (as the policy needs) or 10ms to 1h", c.PollMetrics)
	}
	if c.IndexBytes != 0 && c.IndexBytes < 1<<20 {
		return fmt.Errorf("index_bytes: %d, want 0 (4 GiB) or at least 1048576", c.IndexBytes)
	}
	if c.IndexSnapshotEvery != 0 && (c.IndexSnapshotEvery < time.Second || c.IndexSnapshotEvery > 24*time.Hour) {
		return fmt.Errorf("index_snapshot_every: %v, want 0s (at shutdown only) or 1s to 24h", c.IndexSnapshotEvery)
	}
	if c.IndexSnapshot != "" && c.IndexSnapshot == c.State {
		return fmt.Errorf("index_snapshot: %q is the file of state already", c.IndexSnapshot)
	}
	if c.Receipts < 0 || c.Receipts > 1_000_000 {
		return fmt.Errorf("receipts: %d, want 0 to 1000000", c.Receipts)
	}
	if err := c.Policy.Validate(); err != nil {
		return err
	}
	if err := c.Tokens.validate(); err != nil {
		return err
	}
	return c.Proxy.Validate()
}

func (t *Tokens) validate() error {
	switch t.Mode {
	case "auto", "remote", "off":
	default:
		return fmt.Errorf("tokens.mode: %q, want auto, remote or off", t.Mode)
	}
	switch t.Template.Format {
	case "", "auto", "string", "openai":
	default:
		return fmt.Errorf("tokens.template.content_format: %q, want auto, string or openai", t.Template.Format)
	}
	if _, err := time.LoadLocation(t.Template.Zone); err != nil {
		return fmt.Errorf("tokens.template.zone: %q: %w", t.Template.Zone, err)
	}
	if err := t.Local.Validate(); err != nil {
		return err
	}
	return t.Remote.Validate()
}

func (e Engine) validate() error {
	if e.Events != "" && e.Events != "off" && e.Events != "listen" && !isEndpoint(e.Events) {
		return fmt.Errorf("events: %q, want tcp://HOST:PORT, ipc://PATH, listen or off", e.Events)
	}
	if e.Replay != "" && !isEndpoint(e.Replay) {
		return fmt.Errorf("replay: %q, want tcp://HOST:PORT or ipc://PATH", e.Replay)
	}
	if e.Replay != "" && (e.Events == "" || e.Events == "off") {
		return fmt.Errorf("replay: %q, but events is %q: give both, or neither to ask the engine", e.Replay, e.Events)
	}
	if _, err := e.Index(); err != nil {
		return fmt.Errorf("copies: %q, want auto, refcount, last-copy or first-remove", e.Copies)
	}
	if e.HostBlocks < 0 || e.DiskBlocks < 0 || e.HostBlocks > 1<<30 || e.DiskBlocks > 1<<30 {
		return fmt.Errorf("host_blocks and disk_blocks: %d and %d, want 0 to %d", e.HostBlocks, e.DiskBlocks, 1<<30)
	}
	if e.Ranks < 0 || e.Ranks > 1024 {
		return fmt.Errorf("ranks: %d, want 0 (ask the engine) to 1024", e.Ranks)
	}
	return nil
}

func isEndpoint(s string) bool {
	return strings.HasPrefix(s, "tcp://") && len(s) > len("tcp://") || strings.HasPrefix(s, "ipc://") && len(s) > len("ipc://")
}

func checkListen(field, addr string) error {
	if _, _, err := net.SplitHostPort(addr); err != nil {
		return fmt.Errorf("%s: %q, want HOST:PORT or :PORT", field, addr)
	}
	return nil
}

// ParseEngine reads what a person writes behind --engine: URL, then key=value
// pairs behind commas (events, replay, ranks).
func ParseEngine(s string) (Engine, error) {
	parts := strings.Split(s, ",")
	e := Engine{URL: parts[0]}
	for _, p := range parts[1:] {
		k, v, ok := strings.Cut(p, "=")
		if !ok {
			return e, fmt.Errorf("--engine %q: %q, want key=value (events, replay, ranks)", s, p)
		}
		switch k {
		case "events":
			e.Events = v
		case "replay":
			e.Replay = v
		case "ranks":
			if _, err := fmt.Sscanf(v, "%d", &e.Ranks); err != nil {
				return e, fmt.Errorf("--engine %q: ranks %q, want a number", s, v)
			}
		default:
			return e, fmt.Errorf("--engine %q: unknown key %q, want events, replay or ranks", s, k)
		}
	}
	return e, e.validate()
}
