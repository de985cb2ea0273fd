// Command kvasir is a KV-aware request router for fleets of LLM engines, and the
// tools around it. One file per verb; wiring only.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/alecthomas/kong"
)

// A cli has one field per verb; kong makes the command line of it.
type cli struct {
	Serve   serveCmd   `cmd:"" help:"The router: an OpenAI-compatible front door that sends each request to the engine that holds its prefix."`
	Demo    demoCmd    `cmd:"" help:"Modelled engines, the router and a recorded workload in one process: what to run first."`
	Mock    mockCmd    `cmd:"" aliases:"engine" help:"A modelled engine that speaks vLLM's HTTP and KV events, for tests and demos without a GPU."`
	Replay  replayCmd  `cmd:"" help:"A load client that plays a trace against any OpenAI endpoint."`
	Tokens  tokensCmd  `cmd:"" help:"What text and which token ids a request becomes, beside the engine's own."`
	Check   checkCmd   `cmd:"" help:"The effective configuration and what the engines say, with what is wrong and how to mend it."`
	Sim     simCmd     `cmd:"" help:"Policies on a trace in virtual time, by the production core: table, JSON or a page with plots."`
	Plan    planCmd    `cmd:"" help:"Napkin arithmetic: what routing by prefix saves, beside the simulator."`
	Bench   benchCmd   `cmd:"" help:"What this machine does: index and event path."`
	Version versionCmd `cmd:"" help:"The version of this binary."`
}

func main() {
	var c cli
	parser := kong.Must(&c,
		kong.Name("kvasir"),
		kong.Description("Kvasir sends each LLM request to the engine replica that already holds its prefix in the KV cache, unless waiting there costs more.\n\nStart with:  kvasir demo"),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 100}),
	)
	args := os.Args[1:]
	if len(args) == 0 {
		args = []string{"--help"}
	}
	k, err := parser.Parse(args)
	if err != nil {
		fmt.Fprintln(os.Stderr, "kvasir:", usage(err))
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	k.BindTo(ctx, (*context.Context)(nil))
	if err := k.Run(); err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "kvasir:", err)
		os.Exit(1)
	}
}

// usage is the error about a command line, and where to read on.
func usage(err error) string {
	verb := ""
	var e *kong.ParseError
	if errors.As(err, &e) && e.Context != nil && e.Context.Command() != "" {
		verb = " " + e.Context.Command()
	}
	return fmt.Sprintf("%v; see kvasir%s --help", err, verb)
}

// version is what the build says of itself.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	v, dirty := info.Main.Version, ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision" && (v == "" || v == "(devel)"):
			v = s.Value[:min(12, len(s.Value))]
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "+changes"
		}
	}
	if v == "" || v == "(devel)" {
		return "devel"
	}
	if len(dirty) > 0 && len(v) == 12 {
		v += dirty
	}
	return v
}
