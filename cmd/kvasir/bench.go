package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime"

	"kvasir/index"
	"kvasir/kv"
	"kvasir/lab/eventbench"
	"kvasir/lab/indexbench"
)

// benchCmd runs the packages' own benchmarks for people who size a machine.
type benchCmd struct {
	Index  benchIndexCmd  `cmd:"" help:"Lookups, stores, removals and memory of the prefix index."`
	Events benchEventsCmd `cmd:"" help:"KV events from the wire to the index."`
	Tokens benchTokensCmd `cmd:"" help:"Requests to token ids and blocks, for a model's files."`
}

type benchIndexCmd struct {
	Workload    string `default:"dynbench" enum:"dynbench" help:"dynbench: what Dynamo's indexers were measured with."`
	Targets     int    `default:"64" help:"Ranks."`
	Seqs        int    `default:"100" help:"Sequences of each."`
	Blocks      int    `default:"2000" help:"Blocks of each sequence."`
	EventBlocks int    `default:"0" help:"Blocks per event; 0: one event for a sequence."`
	JSON        bool   `help:"Print as JSON."`
}

func (benchIndexCmd) Help() string {
	return `Examples:
  kvasir bench index                                   # 8.7 million pairs of target and block, about 300 MB
  kvasir bench index --targets 16 --blocks 500 --event-blocks 1 --json`
}

func (c benchIndexCmd) Run() error {
	r, err := indexbench.Dynbench{Targets: c.Targets, Seqs: c.Seqs, Blocks: c.Blocks, EventBlocks: c.EventBlocks}.Run()
	if err != nil {
		return err
	}
	if c.JSON {
		return json.NewEncoder(os.Stdout).Encode(r)
	}
	fmt.Printf("%d memberships, %.1f bytes each (resident memory)\n", r.Memberships, r.BytesPerMembership)
	fmt.Printf("store  %.1f million blocks per CPU second, hashing of tokens included\nremove %.0f ns per block\n", r.StoreMBlocksPerCPU, r.RemoveNsPerBlock)
	fmt.Printf("%-10s %12s %10s %10s %8s\n", "lookup", "query blocks", "p50 µs", "p99 µs", "allocs")
	for _, l := range r.Lookup {
		fmt.Printf("%-10s %12d %10.2f %10.2f %8.0f\n", l.Case, l.QueryBlocks, l.P50, l.P99, l.Allocs)
	}
	return nil
}

type benchEventsCmd struct {
	Dialect     string `default:"vllm-map" enum:"vllm-map,vllm-array,sglang-map" help:"How events are written."`
	EventBlocks int    `default:"0" help:"Blocks per event; 0: one event for a sequence."`
	BlockSize   int    `default:"16" help:"Tokens per block."`
	Targets     int    `default:"1" help:"Ranks that send at the same time."`
	JSON        bool   `help:"Print as JSON."`
}

func (benchEventsCmd) Help() string {
	return `Examples:
  kvasir bench events
  kvasir bench events --dialect vllm-array --event-blocks 1 --json

CPU of the whole process, from ZeroMQ frames to the index, over a network in memory.`
}

func (c benchEventsCmd) Run(ctx context.Context) error {
	const seed = kv.Seed(1)
	ix := index.New(index.Config{Seed: seed})
	r, err := eventbench.Run(ctx, eventbench.Config{
		Dialect: c.Dialect, EventBlocks: c.EventBlocks, BlockSize: c.BlockSize, Targets: c.Targets,
	}, seed, func(ev *kv.Event) { ix.Apply(ev) })
	if err != nil {
		return err
	}
	runtime.KeepAlive(ix)
	if c.JSON {
		return json.NewEncoder(os.Stdout).Encode(r)
	}
	fmt.Printf("%d blocks in %d events (%d MB): %.3f µs CPU per block, %.1f million blocks per CPU second, %.2f allocations per event\n",
		r.Blocks, r.Events, r.Bytes>>20, r.CPUPerBlock, r.BlocksPerCPU/1e6, r.AllocsPerEvent)
	return nil
}
