package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"kvasir/config"
	"kvasir/router"
)

// serveFlags mirror the file; what is given on the command line wins over it.
type serveFlags struct {
	Config    string            `short:"c" type:"existingfile" placeholder:"FILE" help:"YAML file; flags win over it."`
	Engine    []string          `short:"e" sep:"none" placeholder:"URL" help:"An engine, repeatable: http://HOST:PORT[,events=tcp://…][,replay=tcp://…][,ranks=N]. Events are found by asking the engine unless given."`
	Listen    string            `placeholder:":8080" help:"Address for OpenAI-compatible traffic."`
	Admin     string            `placeholder:"127.0.0.1:8081" help:"Address for metrics, fleet and receipts; off for none."`
	Policy    string            `short:"p" placeholder:"auto" help:"Which policy picks the engine; kvasir check lists them."`
	Drain     *time.Duration    `placeholder:"2m" help:"How long open requests may take to end after SIGTERM."`
	Receipts  string            `name:"receipts-file" placeholder:"FILE" help:"Keep receipts of all decisions here, for kvasir sim -i; without text of prompts."`
	Tokenizer map[string]string `placeholder:"MODEL=DIR" help:"Directory with a model's tokenizer files, by served model name; repeatable."`
	Quiet     bool              `name:"no-headers" help:"Leave the x-kvasir-* headers out of answers."`
}

// config joins defaults, file and flags.
func (f *serveFlags) config() (config.Config, error) {
	cfg := config.Defaults()
	if f.Config != "" {
		var err error
		if cfg, err = config.Load(f.Config); err != nil {
			return cfg, err
		}
	}
	if len(f.Engine) > 0 {
		cfg.Engines = nil
		cfg.Flagged("engines")
		for _, s := range f.Engine {
			e, err := config.ParseEngine(s)
			if err != nil {
				return cfg, err
			}
			cfg.Engines = append(cfg.Engines, e)
		}
	}
	if f.Listen != "" {
		cfg.Listen = f.Listen
		cfg.Flagged("listen")
	}
	if f.Admin != "" {
		cfg.Admin = f.Admin
		cfg.Flagged("admin")
	}
	if f.Policy != "" {
		cfg.Policy.Name = f.Policy
		cfg.Flagged("policy.name")
	}
	if f.Drain != nil {
		cfg.Drain = *f.Drain
		cfg.Flagged("drain")
	}
	if f.Receipts != "" {
		cfg.ReceiptsFile = f.Receipts
	}
	for model, dir := range f.Tokenizer {
		if cfg.Tokens.Files.Dirs == nil {
			cfg.Tokens.Files.Dirs = map[string]string{}
		}
		cfg.Tokens.Files.Dirs[model] = dir
	}
	if f.Quiet {
		cfg.Proxy.Explain = false
	}
	return cfg, cfg.Validate()
}

type serveCmd struct {
	serveFlags
	LogFormat string `default:"text" enum:"text,json" help:"Log lines as text or json."`
	LogLevel  string `default:"info" enum:"debug,info,warn,error" help:"Least severe line to log."`
}

func (serveCmd) Help() string {
	return `Examples:
  kvasir serve --engine http://10.0.0.1:8000 --engine http://10.0.0.2:8000
  kvasir serve --engine http://a:8000,events=tcp://a:5557,replay=tcp://a:5558 --policy least_load
  kvasir serve --config kvasir.yaml

Tokens are made here where the model's files are found (--tokenizer, the engine's directory, the Hugging Face
cache); else vLLM needs --enable-scale-out (render endpoints). For events it needs
--kv-events-config '{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"tcp://*:5557","replay_endpoint":"tcp://*:6557"}',
for the comparison of predictions --enable-prompt-tokens-details. kvasir check tells what is missing.

A restart costs nothing where the file says  index_snapshot: FILE  (and engines have a replay endpoint): what the index
believes is written at shutdown and every 5 minutes (index_snapshot_every), and believed again as far as each engine
confirms it. state: FILE keeps what the policy has learned. --receipts-file FILE keeps what was decided (docs/receipts.md).

SIGTERM drains: for drain_grace /ready says 503 and requests are still served, then no new connections, and open
requests end, or are told after drain. Ctrl-C is the same without the grace. A second signal stops at once.`
}

func (c serveCmd) Run(ctx context.Context) error {
	cfg, err := c.config()
	if err != nil {
		return err
	}
	log, err := newLogger(c.LogFormat, c.LogLevel)
	if err != nil {
		return err
	}
	slog.SetDefault(log) // net/http's client logs through it, too
	r, err := router.New(cfg, log, version())
	if err != nil {
		return err
	}
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	if err := r.Start(life); err != nil {
		return err
	}
	stopHangups := ignoreHangups(log)
	defer stopHangups()
	<-ctx.Done()
	drain, stop := secondSignal(life)
	defer stop()
	if !byPerson(ctx) {
		r.Leave(drain)
	}
	err = r.Drain(drain)
	end()
	r.Close()
	return err
}

func newLogger(format, level string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("--log-level %q: %w", level, err)
	}
	o := &slog.HandlerOptions{Level: l}
	if format == "json" {
		return slog.New(slog.NewJSONHandler(os.Stderr, o)), nil
	}
	return slog.New(slog.NewTextHandler(os.Stderr, o)), nil
}
