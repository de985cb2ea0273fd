package main

import (
	"context"
	"fmt"
	"time"

	"kvasir/lab/mockserver"
)

type mockCmd struct {
	Model     string  `default:"modelled-8b" help:"Served model name."`
	Listen    string  `default:"127.0.0.1:8000" help:"HTTP address; port 0 takes a free one."`
	Events    string  `default:"tcp://127.0.0.1:0" help:"Where KV events are published (ZMQ PUB, bound); \"off\" for none."`
	Replay    string  `default:"tcp://127.0.0.1:0" help:"Where replays are asked for (ZMQ ROUTER, bound); \"off\" for none."`
	Connect   string  `help:"Dial this endpoint with the events instead of binding one (a router that listens)."`
	Topic     string  `default:"kv-events" help:"Topic of the events."`
	Dialect   string  `default:"map" enum:"map,array" help:"How events are written: map (vLLM since 0.25) or array (before)."`
	Buffer    int     `name:"buffer-steps" default:"10000" help:"Event batches kept for replay."`
	Profile   string  `default:"8b" help:"Speed and size: 70b, 8b, demo, or a file from kvasir replay --fit-profile --json; constants can be changed behind a colon, as in 8b:cp=2e-4,kv_tokens=8192."`
	Speed     float64 `default:"1" help:"How many times faster than the profile."`
	BlockSize int     `default:"16" help:"Tokens per block."`
	Blocks    int     `help:"Blocks of the cache; 0: as the profile says."`
	MaxLen    int     `name:"max-model-len" default:"131072" help:"Prompt and output together, tokens."`
	HashSeed  string  `help:"Seed of the block hashes, as PYTHONHASHSEED for vLLM."`
	NoRender  bool    `help:"Answer 404 on render endpoints, as vLLM does without --enable-scale-out."`

	Refuse      float64       `group:"Faults" help:"Share of requests to answer 503, 0 to 1."`
	Hang        float64       `group:"Faults" help:"Share of streams that stop after the first token and stay open, 0 to 1."`
	LoseEvents  float64       `group:"Faults" help:"Share of event batches not to send (they stay in the replay buffer), 0 to 1."`
	DelayEvents time.Duration `group:"Faults" help:"Delay of each event batch."`
	Slow        float64       `group:"Faults" help:"Factor on the time of every step."`
}

func (mockCmd) Help() string {
	return `Examples:
  kvasir mock --listen 127.0.0.1:8000
  kvasir mock --listen 127.0.0.1:8001 --blocks 512 --refuse 0.1     # small cache, refuses every tenth request

The answer to a prompt is a function of the prompt: nonsense words, equal on every engine. One word of the
built-in vocabulary is one token. Speed and cache behave as a real engine's would, by an equation: see
the package documentation of kvasir/lab/mock.`
}

func (c mockCmd) Run(ctx context.Context) error {
	p, err := profileOf(c.Profile)
	if err != nil {
		return err
	}
	if !(c.Speed > 0 && c.Speed <= 1e6) {
		return fmt.Errorf("--speed %v: want a factor above 0, up to 1000000", c.Speed)
	}
	cfg := mockserver.Config{
		Model: c.Model, Listen: c.Listen, Events: c.Events, Replay: c.Replay, Connect: c.Connect, Topic: c.Topic,
		Buffer: c.Buffer, Dialect: mockserver.Dialect(c.Dialect), Profile: p.Faster(c.Speed), BlockSize: c.BlockSize,
		Blocks: c.Blocks, MaxLen: c.MaxLen, Version: "0.32.0", HashSeed: c.HashSeed, NoRender: c.NoRender,
		Faults: mockserver.Faults{Refuse: c.Refuse, Hang: c.Hang, LoseEvents: c.LoseEvents, DelayEvents: c.DelayEvents, Slow: c.Slow},
	}
	s, err := mockserver.New(cfg)
	if err != nil {
		return err
	}
	if err := s.Start(); err != nil {
		return err
	}
	defer s.Close()
	st := s.Stats()
	fmt.Printf("modelled engine %s: %s\n  cache   %d blocks of %d tokens\n", c.Model, s.URL(), st.Blocks, c.BlockSize)
	if e := s.EventsEndpoint(); e != "" {
		fmt.Printf("  events  %s\n", e)
	}
	if e := s.ReplayEndpoint(); e != "" {
		fmt.Printf("  replay  %s\n", e)
	}
	fmt.Printf("route to it:  kvasir serve --engine %s\nCtrl-C stops it.\n", s.URL())
	<-ctx.Done()
	return nil
}
