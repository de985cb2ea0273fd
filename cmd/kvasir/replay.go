package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"kvasir/lab/replay"
	"kvasir/lab/sim"
	"kvasir/lab/trace"
	"kvasir/lab/trace/demo"
)

type replayCmd struct {
	URL         string        `arg:"" help:"OpenAI endpoint, with or without /v1."`
	Trace       string        `short:"t" default:"demo" help:"Trace file (Mooncake, Claude Code sessions, cells; plain or gzip), a generator as gen:NAME[:key=value,…] (kvasir sim --list; sized for one replica), or demo for the built-in sessions."`
	Model       string        `help:"Model name; default: the endpoint's first."`
	Key         string        `env:"OPENAI_API_KEY" help:"API key."`
	Prompt      string        `default:"chat" enum:"chat,text,ids" help:"How prompts are sent: chat message, text, or token ids (exact lengths)."`
	BlockTokens int           `help:"Tokens to write per block id; fewer than recorded shrinks all prompts alike. 0: as recorded."`
	MaxInput    int           `help:"Leave out prompts longer than this; a session ends there."`
	MaxOutput   int           `help:"Cut answers to this many tokens."`
	Speed       float64       `default:"1" help:"Open loop: how many times faster than recorded."`
	Users       int           `default:"8" help:"Closed loop: sessions at a time."`
	Limit       int           `short:"n" help:"Stop after this many requests."`
	MaxThink    time.Duration `default:"1m" help:"Closed loop: cut longer pauses."`
	Timeout     time.Duration `default:"10m" help:"Of one request."`
	NextTurn    bool          `help:"Closed loop: requests say when their session goes on (x-kvasir-next-turn)."`
	Words       string        `default:"english" enum:"english,pseudo" help:"Words of the prompts; pseudo: one token each on modelled engines."`
	Salt        uint64        `help:"Another number, other text: nothing shared with an earlier replay."`
	SkipBad     bool          `help:"Count malformed lines and go on."`
	JSON        bool          `help:"Print the report as JSON."`

	Against string `group:"Two targets" placeholder:"URL" help:"Play the same workload there too, in other words so that no cache helps twice; one table with both."`
	Rounds  int    `group:"Two targets" default:"1" help:"Of each target, in turn: tells a difference from noise."`

	FitProfile bool `group:"Engine model" help:"Measure the engine with a series of prompts and print the constants of its model; nothing else may run there."`
	Budget     int  `group:"Engine model" default:"8192" help:"The engine's prompt tokens per step (vLLM: max_num_batched_tokens)."`
	Width      int  `group:"Engine model" default:"48" help:"Most requests at a time in that series."`
}

func (replayCmd) Help() string {
	return `Examples:
  kvasir replay http://127.0.0.1:8080 --users 12
  kvasir replay http://127.0.0.1:8080 -t mooncake_conversation.jsonl.gz --speed 2 --block-tokens 32 -n 500
  kvasir replay http://127.0.0.1:8080 -t weka_cc_sessions_512.jsonl.gz --users 8 --max-input 100000 --json
  kvasir replay http://127.0.0.1:8080 -t gen:conversations:groups=4,system=500 --users 7
  kvasir replay http://router-a:8080 --against http://router-b:8080 --rounds 3
  kvasir replay http://127.0.0.1:8000 --fit-profile --budget 8192 --max-input 12000

Traces of requests are played open loop (each at its time), traces of sessions closed loop (--users at a time).`
}

func (c replayCmd) Run(ctx context.Context) error {
	if c.FitProfile {
		return c.fit(ctx)
	}
	w, err := loadWorkload(c.Trace, c.SkipBad, c.Limit)
	if err != nil {
		return err
	}
	cfg := c.config()
	cfg.Writer.BlockTokens = c.BlockTokens
	if c.BlockTokens == 0 {
		cfg.Writer.BlockTokens = recordedBlock(w)
	}
	bar := newBar(c.JSON)
	if c.Against != "" {
		other := cfg
		other.URL = c.Against
		cmp, err := replay.Compare(ctx, cfg, other, w, c.Rounds, bar.step)
		bar.finish()
		if cmp == nil {
			return err
		}
		if err := c.print(err, cmp, cmp.Write); err != nil {
			return err
		}
		return c.failures(cmp.A.Failed+cmp.B.Failed, cmp.A.Requests+cmp.B.Requests, append(cmp.A.Errors, cmp.B.Errors...))
	}
	rep, err := replay.Run(ctx, cfg, w, bar.step)
	bar.finish()
	if rep == nil {
		return err
	}
	if err := c.print(err, rep, rep.Write); err != nil {
		return err
	}
	return c.failures(rep.Failed, rep.Requests, rep.Errors)
}

// config is what the flags say, but for the size of blocks.
func (c replayCmd) config() replay.Config {
	cfg := replay.Defaults()
	cfg.URL, cfg.Model, cfg.Key, cfg.Shape = c.URL, c.Model, c.Key, replay.Shape(c.Prompt)
	cfg.MaxInput, cfg.MaxOutput, cfg.Speed, cfg.Users, cfg.Limit = c.MaxInput, c.MaxOutput, c.Speed, c.Users, c.Limit
	cfg.MaxThink, cfg.Timeout, cfg.Writer.Salt, cfg.NextTurn = c.MaxThink, c.Timeout, c.Salt, c.NextTurn
	if c.Words == "pseudo" {
		cfg.Writer.Word = trace.Pseudo
	}
	return cfg
}

// print writes a report, also one that ended early with err.
func (c replayCmd) print(err error, report any, write func(io.Writer)) error {
	if errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "interrupted; this is what is known so far:")
	}
	if c.JSON {
		out := json.NewEncoder(os.Stdout)
		out.SetIndent("", "  ")
		return out.Encode(report)
	}
	write(os.Stdout)
	return nil
}

func (c replayCmd) failures(failed, all int, why []string) error {
	if failed == 0 {
		return nil
	}
	hint := ""
	if c.MaxInput == 0 && slices.ContainsFunc(why, func(e string) bool { return strings.HasPrefix(e, "status 400") }) {
		hint = "; if prompts are too long for the engine, --max-input leaves those out and --block-tokens shrinks all of them"
	}
	return fmt.Errorf("%d of %d requests failed%s", failed, all, hint)
}

// fit measures an engine and prints its profile.
func (c replayCmd) fit(ctx context.Context) error {
	cfg := c.config()
	if cfg.Writer.BlockTokens = c.BlockTokens; c.BlockTokens == 0 {
		cfg.Writer.BlockTokens = 64
	}
	if c.Salt == 0 {
		cfg.Writer.Salt = uint64(time.Now().UnixNano()) // prompts that no cache has seen
	}
	plan := replay.DefaultFitPlan()
	plan.Base.Budget, plan.Width = c.Budget, c.Width
	if c.MaxInput > 0 {
		plan.MaxInput = c.MaxInput
	}
	if c.Rounds > 1 {
		plan.Rounds = c.Rounds
	}
	bar := newBar(c.JSON)
	f, err := replay.FitProfile(ctx, cfg, plan, func(done, total int) { bar.step(done, total, nil) })
	bar.finish()
	if err != nil {
		return err
	}
	return c.print(nil, f, f.Write)
}

// loadWorkload reads a trace whole, up to limit requests.
func loadWorkload(name string, skipBad bool, limit int) (w replay.Workload, err error) {
	if name == "demo" {
		w.Sessions, err = demo.Sessions()
		return w, err
	}
	if spec, ok := strings.CutPrefix(name, "gen:"); ok {
		g, err := sim.Generate(spec, 1)
		if err != nil {
			return w, err
		}
		w.Requests, w.Sessions, err = g.Trace()
		return w, err
	}
	r, err := trace.Open(name, trace.Options{SkipBad: skipBad})
	if err != nil {
		return w, err
	}
	defer r.Close()
	for n := 0; limit == 0 || n < limit; {
		if r.Sessions() {
			var s trace.Session
			if s, err = r.NextSession(); err == nil {
				w.Sessions = append(w.Sessions, s)
				n += len(s.Turns)
			}
		} else {
			var q trace.Request
			if q, err = r.NextRequest(); err == nil {
				w.Requests = append(w.Requests, q)
				n++
			}
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return w, err
		}
	}
	if n, first := r.Skipped(); n > 0 {
		fmt.Fprintf(os.Stderr, "skipped %d malformed lines; the first: %v\n", n, first)
	}
	return w, nil
}

func recordedBlock(w replay.Workload) int {
	switch {
	case len(w.Sessions) > 0:
		return w.Sessions[0].BlockSize
	case len(w.Requests) > 0:
		return w.Requests[0].BlockSize
	}
	return trace.BlockSize
}

// A bar shows progress on a terminal and is silent elsewhere.
type bar struct{ b *progressbar.ProgressBar }

func newBar(quiet bool) *bar {
	if quiet || !term.IsTerminal(int(os.Stderr.Fd())) {
		return &bar{}
	}
	return &bar{progressbar.NewOptions(1, progressbar.OptionSetWriter(os.Stderr), progressbar.OptionShowCount(),
		progressbar.OptionSetPredictTime(true), progressbar.OptionClearOnFinish(), progressbar.OptionThrottle(100*time.Millisecond))}
}

func (b *bar) step(done, total int, _ *replay.Sample) {
	if b.b == nil {
		return
	}
	b.b.ChangeMax(max(total, done))
	b.b.Set(done)
}

func (b *bar) finish() {
	if b.b != nil {
		b.b.Finish()
	}
}
