// Package config reads one YAML file into the Config structs that the packages
// own. A setting's meaning, default and range stand once, where its field stands:
// see package setting.
package config

import (
	"fmt"
	"net"
	"path"
	"strconv"
	"strings"
	"time"

	"kvasir/fleet"
	"kvasir/index"
	"kvasir/kv"
	"kvasir/policy"
	"kvasir/proxy"
	"kvasir/setting"
	"kvasir/token"
	"kvasir/token/files"
	"kvasir/token/library"
)

// A Config is everything that `kvasir serve` can be told. Start from Defaults.
type Config struct {
	// Listen is where OpenAI-compatible traffic comes in.
	Listen string `yaml:"listen" default:":8080" want:"HOST:PORT or :PORT" example:"127.0.0.1:8000"`
	// Admin is where metrics, the fleet's page and receipts are served; "off" for nowhere.
	Admin string `yaml:"admin" default:"127.0.0.1:8081" want:"HOST:PORT, :PORT or off" example:"off"`
	// Engines are the replicas.
	Engines []Engine `yaml:"engines"`
	// EventsListen is where engines dial in whose events are "listen". vLLM dials where
	// its endpoint has no wildcard.
	EventsListen string `yaml:"events_listen" want:"tcp://HOST:PORT (HOST may be *), ipc://PATH or nothing" example:"tcp://*:5557"`

	// Policy picks the engine of each request.
	Policy policy.Config `yaml:"policy"`
	// Tokens says how requests get their token ids.
	Tokens Tokens `yaml:"tokens"`
	// Proxy is the front door.
	Proxy proxy.Config `yaml:"proxy"`

	// DrainGrace is how long, after SIGTERM, new requests are still served while /ready
	// says 503 and each answer closes its connection: until load balancers have noticed.
	// Ctrl-C doesn't wait for it.
	DrainGrace time.Duration `yaml:"drain_grace" default:"5s" range:"0s..1h"`
	// Drain is how long open requests may take to end after DrainGrace. Streams that are
	// still open then get an error event.
	Drain time.Duration `yaml:"drain" default:"2m" range:"0s..24h"`
	// Poll is how often each engine is asked for its health and models.
	Poll time.Duration `yaml:"poll" default:"2s" range:"50ms..1h"`
	// PollMetrics is how often each engine is asked for its own load figures, at the cost
	// of a page of metrics each. Left to the policy it is every 100 ms where that decides
	// by them (llmd_approx, llmd_precise, weighted), else every 5 s.
	PollMetrics time.Duration `yaml:"poll_metrics" range:"10ms..1h" or:"0s: as the policy needs"`
	// State is a file that keeps what the policy has learned over a restart; "" for none.
	State string `yaml:"state" example:"/var/lib/kvasir/policy.json"`
	// IndexBytes bounds the memory of the index.
	IndexBytes int64 `yaml:"index_bytes" default:"4Gi" range:"1Mi..1Ti" unit:"bytes"`
	// IndexSnapshot is a file that keeps what the index believes over a restart; "" for
	// none. It is written at shutdown, and every IndexSnapshotEvery. What is read at start
	// counts as "filling" until the engine's replay service, or its next batch, has shown
	// that it is the same process and that nothing was missed; else it is forgotten. The
	// file has the seed of the hashes: keep it private.
	IndexSnapshot string `yaml:"index_snapshot" want:"a file that isn't the one of state" example:"/var/lib/kvasir/index"`
	// IndexSnapshotEvery is how often IndexSnapshot is written.
	IndexSnapshotEvery time.Duration `yaml:"index_snapshot_every" default:"5m" range:"1s..24h" or:"0s: at shutdown only"`
	// Receipts is how many of the latest decisions are kept.
	Receipts int `yaml:"receipts" default:"2048" range:"0..1000000"`
	// ReceiptsFile is a file that gets a line for each decision whose request has
	// ended, for kvasir sim -i; "" for none. It has counts and one-way names, and no text
	// of prompts.
	ReceiptsFile string `yaml:"receipts_file" want:"a file of its own" example:"/var/log/kvasir/receipts.jsonl"`
	// ReceiptsFileBytes is the size at which the file is renamed, by its time, and a new
	// one begun.
	ReceiptsFileBytes int64 `yaml:"receipts_file_bytes" default:"256Mi" range:"1Mi..1Ti" unit:"bytes"`
	// ReceiptsFileKeep is how many renamed files are kept; older ones are deleted.
	ReceiptsFileKeep int `yaml:"receipts_file_keep" default:"8" range:"1..10000"`

	// places says where keys stand in the file that was read.
	places places
}

// Tokens says how requests get their token ids.
type Tokens struct {
	// Mode is auto (in process where the model's files are found, else by the
	// engines), remote (by the engines only) or off (routing by load).
	Mode string `yaml:"mode" default:"auto" oneof:"auto|remote|off"`
	// Files says where models' tokenizer files may be looked for.
	Files files.Config `yaml:"files"`
	// Local says how tokens are made in process.
	Local token.LocalConfig `yaml:"local"`
	// Remote says how the engines are asked to tokenize.
	Remote token.RemoteConfig `yaml:"remote"`
	// Template is what engines' flags say about prompts.
	Template library.Template `yaml:"template"`
}

// An Engine is one replica. URL alone is enough for engines that tell where their
// events are. Start from NewEngine.
type Engine struct {
	// URL is the engine's address.
	URL string `yaml:"url" want:"http://HOST:PORT" example:"http://10.0.0.1:8000"`
	// Events is where its KV events are (rank 0; rank r at PORT+r): an endpoint, "off" for
	// none, "listen" if the engine dials EventsListen, "" to ask the engine.
	Events string `yaml:"events" want:"tcp://HOST:PORT, ipc://PATH, listen or off" example:"tcp://10.0.0.1:5557"`
	// Replay is where its replay service is (rank 0). Give it only beside Events.
	Replay string `yaml:"replay" want:"tcp://HOST:PORT or ipc://PATH" example:"tcp://10.0.0.1:6557"`
	// Ranks is how many data-parallel ranks it has.
	Ranks int `yaml:"ranks" range:"1..1024" or:"0: ask the engine"`

	// BlockSize is taken for the size of its blocks while it tells none, by metrics or
	// events: what it was sent lately is remembered in pieces of so many tokens.
	BlockSize int `yaml:"block_size" default:"16" range:"1..65536" unit:"tokens"`

	// Copies says what the engine's removals mean where a block has several copies:
	// refcount (each removal is one copy), last-copy or first-remove.
	Copies string `yaml:"copies" default:"auto" oneof:"auto|refcount|last-copy|first-remove"`
	// HostBlocks is the size per rank of a host tier whose removals the engine does not
	// report; 0 for none such.
	HostBlocks int `yaml:"host_blocks" range:"0..1Gi" unit:"blocks"`
	// DiskBlocks is likewise that of a disk tier.
	DiskBlocks int `yaml:"disk_blocks" range:"0..1Gi" unit:"blocks"`
}

// NewEngine returns an engine of which only the address is known.
func NewEngine(url string) Engine {
	e := setting.Defaults[Engine]()
	e.URL = url
	return e
}

// Index returns how the index has to read the engine's events.
func (e Engine) Index() (c index.TargetConfig, err error) {
	c.Copies, err = index.ParseCopyMode(e.Copies)
	c.Tiers[kv.Host].Blocks, c.Tiers[kv.Disk].Blocks = e.HostBlocks, e.DiskBlocks
	return c, err
}

// Defaults returns the configuration of a router that is told only its engines.
func Defaults() Config { return setting.Defaults[Config]() }

// Validate returns an error that names the first field that is out of range, its
// value, what is accepted and, where a file has it, the line.
func (c *Config) Validate() error {
	err := setting.Check("", c)
	if err == nil && len(c.Engines) == 0 {
		err = ErrNoEngines
	}
	return c.places.locate(err)
}

// ErrNoEngines says that no engine is configured; all else was accepted.
var ErrNoEngines error = &setting.Error{Key: "engines", Value: "none given", Want: "at least one: --engine http://HOST:PORT"}

// Check accepts what the tags can't say.
func (c *Config) Check() error {
	if err := checkListen("listen", c.Listen, "HOST:PORT or :PORT"); err != nil {
		return err
	}
	if c.Admin != "off" {
		if err := checkListen("admin", c.Admin, "HOST:PORT, :PORT or off"); err != nil {
			return err
		}
	}
	names := map[string]int{}
	for i, e := range c.Engines {
		_, name, _ := fleet.CleanURL(e.URL)
		if j, twice := names[name]; twice {
			return &setting.Error{Key: fmt.Sprintf("engines[%d].url", i), Value: strconv.Quote(e.URL), Want: fmt.Sprintf("another than engines[%d]", j)}
		}
		names[name] = i
		if e.Events == "listen" && c.EventsListen == "" {
			return &setting.Error{Key: fmt.Sprintf("engines[%d].events", i), Value: "listen", Want: "events_listen as well: where engines dial in, as tcp://*:5557"}
		}
	}
	if c.EventsListen != "" && !isEndpoint(c.EventsListen) {
		return &setting.Error{Key: "events_listen", Value: strconv.Quote(c.EventsListen), Want: "tcp://HOST:PORT (HOST may be *) or ipc://PATH"}
	}
	if c.IndexSnapshot != "" && path.Clean(c.IndexSnapshot) == path.Clean(c.State) {
		return &setting.Error{Key: "index_snapshot", Value: strconv.Quote(c.IndexSnapshot), Want: "another file than state"}
	}
	if c.ReceiptsFile == "" {
		return nil
	}
	for _, x := range []struct{ key, file string }{{"state", c.State}, {"index_snapshot", c.IndexSnapshot}} {
		if x.file != "" && path.Clean(c.ReceiptsFile) == path.Clean(x.file) {
			return &setting.Error{Key: "receipts_file", Value: strconv.Quote(c.ReceiptsFile), Want: "another file than " + x.key}
		}
	}
	if c.Receipts == 0 {
		return &setting.Error{Key: "receipts", Value: "0", Want: "1 to 1000000 where receipts_file is given: receipts wait there for their requests' ends"}
	}
	return nil
}

// Check accepts what the tags can't say.
func (e *Engine) Check() error {
	if _, _, err := fleet.CleanURL(e.URL); err != nil {
		value, want, _ := strings.Cut(err.Error(), ", want ")
		return &setting.Error{Key: "url", Value: value, Want: want}
	}
	if e.Events != "" && e.Events != "off" && e.Events != "listen" && !isEndpoint(e.Events) {
		return &setting.Error{Key: "events", Value: strconv.Quote(e.Events), Want: "tcp://HOST:PORT, ipc://PATH, listen or off"}
	}
	if e.Replay != "" && !isEndpoint(e.Replay) {
		return &setting.Error{Key: "replay", Value: strconv.Quote(e.Replay), Want: "tcp://HOST:PORT or ipc://PATH"}
	}
	if e.Replay != "" && (e.Events == "" || e.Events == "off") {
		return &setting.Error{Key: "replay", Value: strconv.Quote(e.Replay), Want: "an endpoint in events as well, or neither to ask the engine"}
	}
	return nil
}

func isEndpoint(s string) bool {
	return strings.HasPrefix(s, "tcp://") && len(s) > len("tcp://") || strings.HasPrefix(s, "ipc://") && len(s) > len("ipc://")
}

func checkListen(key, addr, want string) error {
	if _, _, err := net.SplitHostPort(addr); err != nil {
		return &setting.Error{Key: key, Value: strconv.Quote(addr), Want: want}
	}
	return nil
}

// ParseEngine reads what a person writes behind --engine: URL, then key=value
// pairs behind commas (events, replay, ranks).
func ParseEngine(s string) (Engine, error) {
	parts := strings.Split(s, ",")
	e := NewEngine(parts[0])
	for _, p := range parts[1:] {
		k, v, ok := strings.Cut(p, "=")
		if !ok {
			return e, fmt.Errorf("--engine: %q, want key=value (events, replay, ranks)", p)
		}
		switch k {
		case "events":
			e.Events = v
		case "replay":
			e.Replay = v
		case "ranks":
			n, err := strconv.Atoi(v)
			if err != nil {
				return e, fmt.Errorf("--engine: ranks %q, want a number", v)
			}
			e.Ranks = n
		default:
			return e, fmt.Errorf("--engine: unknown key %q, want events, replay or ranks", k)
		}
	}
	return e, setting.Check("--engine ", &e)
}
