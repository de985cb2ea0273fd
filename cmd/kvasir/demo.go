package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"text/tabwriter"
	"time"

	"golang.org/x/term"

	"kvasir/config"
	"kvasir/lab/mock"
	"kvasir/lab/mockserver"
	"kvasir/lab/replay"
	"kvasir/lab/trace"
	"kvasir/lab/trace/demo"
	"kvasir/router"
)

type demoCmd struct {
	Engines int     `default:"4" help:"Modelled engines."`
	Users   int     `default:"12" help:"Sessions at a time."`
	Speed   float64 `default:"1" help:"How many times faster the engines are."`
	Policy  string  `short:"p" default:"auto" help:"The KV-aware policy that is compared with round robin."`
	Receipt string  `name:"receipts-file" placeholder:"FILE" help:"Keep the receipts of the KV-aware run here, for kvasir sim -i."`
	Keep    bool    `help:"Leave the router and the engines up at the end."`
	JSON    bool    `help:"Print both reports as JSON."`
}

func (demoCmd) Help() string {
	return `Plays a small set of recorded coding-agent sessions twice against modelled engines with real sockets on
loopback, first round robin, then KV-aware, and compares what users would have felt. About half a minute.

Examples:
  kvasir demo
  kvasir demo --keep              # then send requests of your own
  kvasir demo --engines 8 --users 24`
}

func (c demoCmd) Run(ctx context.Context) error {
	if c.Engines < 1 || c.Engines > 64 {
		return fmt.Errorf("--engines %d: want 1 to 64", c.Engines)
	}
	if !(c.Speed >= 0.1 && c.Speed <= 100) {
		return fmt.Errorf("--speed %v: want 0.1 to 100", c.Speed)
	}
	sessions, err := demo.Sessions()
	if err != nil {
		return err
	}
	requests := 0
	for _, s := range sessions {
		requests += len(s.Turns)
	}
	out := io.Writer(os.Stdout)
	if c.JSON {
		out = os.Stderr
	}
	p := mock.ProfileDemo
	fmt.Fprintf(out, "%d modelled engines (real HTTP and ZeroMQ on loopback, %d tokens of KV cache each) behind one router.\n", c.Engines, p.KVTokens)
	fmt.Fprintf(out, "Workload: %d recorded Claude Code sessions, %d requests, %d users at a time.\n\n", len(sessions), requests, c.Users)

	var reports []*replay.Report
	var names []string
	for _, policy := range []string{"round_robin", c.Policy} {
		s, err := c.start(ctx, policy)
		if err != nil {
			return err
		}
		rep, err := c.play(ctx, out, s, policy, sessions)
		keep := c.Keep && policy == c.Policy && err == nil
		if !keep {
			s.close()
		}
		if err != nil {
			return err
		}
		reports, names = append(reports, rep), append(names, policy)
		if keep {
			defer s.close()
			defer c.wait(ctx, out, s)
		}
	}
	if c.JSON {
		enc := json.NewEncoder(os.Stdout)
		enc.SetIndent("", "  ")
		return enc.Encode(map[string]any{"version": 1, "policies": names, "reports": reports})
	}
	compare(out, names, reports)
	return nil
}

// A stage is a running fleet with its router.
type stage struct {
	engines []*mockserver.Server
	router  *router.Router
	end     context.CancelFunc
}

func (s *stage) close() {
	s.end()
	if s.router != nil {
		s.router.Close()
	}
	for _, e := range s.engines {
		e.Close()
	}
}

// start brings up engines with empty caches and a router with policy in front.
func (c demoCmd) start(ctx context.Context, policy string) (s *stage, err error) {
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	s = &stage{end: end}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	cfg := config.Defaults()
	cfg.Listen, cfg.Admin, cfg.Policy.Name = "127.0.0.1:0", "127.0.0.1:0", policy
	cfg.Poll = 500 * time.Millisecond
	if policy == c.Policy {
		cfg.ReceiptsFile = c.Receipt
	}
	for range c.Engines {
		ec := mockserver.Defaults()
		ec.Model, ec.Profile = "modelled-demo", mock.ProfileDemo.Faster(c.Speed)
		e, err := mockserver.New(ec)
		if err != nil {
			return s, err
		}
		if err := e.Start(); err != nil {
			return s, err
		}
		s.engines = append(s.engines, e)
		cfg.Engines = append(cfg.Engines, config.NewEngine(e.URL()))
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	if s.router, err = router.New(cfg, log, version()); err != nil {
		return s, err
	}
	if err := s.router.Start(life); err != nil {
		return s, err
	}
	return s, s.router.Ready(ctx, c.Engines, 10*time.Second)
}

// play runs the workload through a stage, with live progress on a terminal.
func (c demoCmd) play(ctx context.Context, out io.Writer, s *stage, policy string, sessions []trace.Session) (*replay.Report, error) {
	cfg := replay.Defaults()
	cfg.URL, cfg.Users = s.router.URL(), c.Users
	cfg.Writer = trace.Writer{BlockTokens: sessions[0].BlockSize, Word: trace.Pseudo}
	policy = shown(policy)
	fmt.Fprintf(out, "playing with %-12s", policy+" …")
	live := term.IsTerminal(int(os.Stdout.Fd())) && !c.JSON
	var prompt, cached int
	var waited time.Duration
	rep, err := replay.Run(ctx, cfg, replay.Workload{Sessions: sessions}, func(done, total int, x *replay.Sample) {
		prompt, cached, waited = prompt+x.Prompt, cached+x.Cached, waited+x.TTFT
		if live && (done%8 == 0 || done == total) {
			fmt.Fprintf(out, "\rplaying with %-12s %4d of %d requests   hit rate %4.1f %%   mean TTFT %4.0f ms ",
				policy, done, total, 100*float64(cached)/float64(max(prompt, 1)), float64(waited.Milliseconds())/float64(done))
		}
	})
	if rep != nil {
		fmt.Fprintf(out, "   %.1f s\n", rep.Wall)
	}
	if err == nil && rep.Failed > 0 {
		err = fmt.Errorf("%d of %d requests failed; the first error: %s", rep.Failed, rep.Requests, rep.Errors[0])
	}
	return rep, err
}

// compare prints both reports side by side, and says in words what they show.
func compare(out io.Writer, names []string, reports []*replay.Report) {
	a, b := reports[0], reports[1]
	t := tabwriter.NewWriter(out, 0, 0, 3, ' ', tabwriter.AlignRight)
	row := func(name string, f func(*replay.Report) string, change string) {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t\n", name, f(a), f(b), change)
	}
	ms := func(get func(*replay.Report) float64) (func(*replay.Report) string, string) {
		return func(r *replay.Report) string { return fmt.Sprintf("%.0f ms", 1e3*get(r)) }, percent(get(a), get(b))
	}
	fmt.Fprintln(out)
	fmt.Fprintf(t, "\t%s\t%s\tchange\t\n", shown(names[0]), shown(names[1]))
	row("hit rate (of prompt tokens)", func(r *replay.Report) string { return fmt.Sprintf("%.1f %%", 100*r.HitRate) }, fmt.Sprintf("%+.1f points", 100*(b.HitRate-a.HitRate)))
	for _, x := range []struct {
		name string
		get  func(*replay.Report) float64
	}{
		{"TTFT p50", func(r *replay.Report) float64 { return r.TTFT.P50 }},
		{"TTFT p95", func(r *replay.Report) float64 { return r.TTFT.P95 }},
		{"TTFT p50, hits", func(r *replay.Report) float64 { return r.TTFTHit.P50 }},
		{"TTFT p50, misses", func(r *replay.Report) float64 { return r.TTFTMiss.P50 }},
		{"TTFT p95, hits", func(r *replay.Report) float64 { return r.TTFTHit.P95 }},
		{"TTFT p95, misses", func(r *replay.Report) float64 { return r.TTFTMiss.P95 }},
		{"whole request, mean", func(r *replay.Report) float64 { return r.E2E.Mean }},
	} {
		f, change := ms(x.get)
		row(x.name, f, change)
	}
	row("hits / misses", func(r *replay.Report) string { return fmt.Sprintf("%d / %d", r.TTFTHit.N, r.TTFTMiss.N) }, "")
	row("fullest engine's share", func(r *replay.Report) string { return fmt.Sprintf("%.2f x", r.Balance) }, "")
	row("decision p50 / p99", func(r *replay.Report) string {
		return fmt.Sprintf("%.0f / %.0f µs", 1e6*r.Decision.P50, 1e6*r.Decision.P99)
	}, "")
	t.Flush()
	fmt.Fprintln(out, "\nA hit is a request with at least half of its prompt in the cache of the engine that got it.")
	fmt.Fprintln(out)
	words(out, names[1], a, b)
}

// words says in three sentences what happened and what to try next.
func words(out io.Writer, policy string, a, b *replay.Report) {
	verb := "and the first token came"
	if b.TTFT.P50 < a.TTFT.P50 {
		verb = "so the first token came"
	}
	fmt.Fprintf(out, "1. %s routing served %.0f %% of all prompt tokens from cache where round robin served %.0f %%, %s after %.0f instead of %.0f ms (median), %.0f instead of %.0f ms (p95).\n",
		shown(policy), 100*b.HitRate, 100*a.HitRate, verb, 1e3*b.TTFT.P50, 1e3*a.TTFT.P50, 1e3*b.TTFT.P95, 1e3*a.TTFT.P95)
	price := "locality did not cost balance"
	if b.Balance > a.Balance+0.15 {
		price = "locality cost some balance"
	}
	fmt.Fprintf(out, "2. The fullest engine got %.2f times its share of prompt tokens (round robin: %.2f): %s", b.Balance, a.Balance, price)
	if p := b.Predictions; p != nil {
		fmt.Fprintf(out, "; of %d predictions of cached tokens %d were exact", p.Requests, p.Exact)
	}
	fmt.Fprintln(out, ".")
	fmt.Fprintln(out, "3. Next: kvasir demo --keep leaves this fleet up for requests of your own; kvasir serve --engine http://HOST:PORT routes to real engines; kvasir check says what they lack.")
}

// shown is what a policy is called before people who don't know them yet.
func shown(policy string) string {
	if policy == "auto" {
		return "kv-aware"
	}
	return policy
}

func percent(a, b float64) string {
	if a == 0 || b == 0 || math.IsNaN(a) || math.IsNaN(b) {
		return ""
	}
	return fmt.Sprintf("%+.0f %%", 100*(b/a-1))
}

// wait leaves the stage up until the person has had enough.
func (c demoCmd) wait(ctx context.Context, out io.Writer, s *stage) {
	fmt.Fprintf(out, `
The router is up at %[1]s, its figures at %[2]s. Try:

curl -si %[1]s/v1/chat/completions -H 'Content-Type: application/json' -d '{"model":"modelled-demo","max_tokens":8,"messages":[{"role":"user","content":"hello"}]}'
curl -s %[2]s/v1/kvasir/decisions?limit=1

Ctrl-C stops everything.
`, s.router.URL(), s.router.AdminURL())
	<-ctx.Done()
}
