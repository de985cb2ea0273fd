package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"kvasir/config"
	"kvasir/kv"
	"kvasir/lab/tokenbench"
	"kvasir/token"
	"kvasir/token/library"
)

type benchTokensCmd struct {
	Model string `required:"" placeholder:"DIR" help:"Directory with the model's files (tokenizer.json or tekken.json, config.json, chat template)."`
	JSON  bool   `help:"Print as JSON."`
}

func (benchTokensCmd) Help() string {
	return `Examples:
  kvasir bench tokens --model ./Qwen3-8B
  kvasir bench tokens --model ./Qwen3-8B --json

CPU seconds of one thread. Encoding: generated text that was not seen before, of 6,000 different words. Rendering and parsing: 60 turns
with tools. Next turn: 2 KB more of a conversation of 100,000 tokens, from the body of the request to the hashes of its blocks; cold: all of
it for the first time. Floor: one look at each byte of that body.`
}

func (c benchTokensCmd) Run(ctx context.Context) error {
	cfg := config.Defaults()
	cfg.Tokens.Files.Dirs = map[string]string{"model": c.Model}
	r, err := tokenbench.Run(func() (*token.Model, error) {
		m, _, err := library.Open(ctx, cfg.Tokens.Files, cfg.Tokens.Template, library.Engine{}, kv.Model{ID: "model"})
		return m, err
	})
	if err != nil {
		return err
	}
	if c.JSON {
		return json.NewEncoder(os.Stdout).Encode(r)
	}
	fmt.Printf("load       %.2f s, %.0f MB resident\n%-8s %8s %10s\n", r.Load, r.Resident, "text", "bytes", "MB/CPU s")
	for _, e := range r.Encode {
		fmt.Printf("%-8s %8d %10.1f\n", e.Text, e.Bytes, e.MBps)
	}
	if r.NoChat != "" {
		fmt.Printf("chats are not rendered here: %s\n", r.NoChat)
		return nil
	}
	t := r.NextTurn
	fmt.Printf("parse      %.0f µs, render %.0f µs (60 turns %s tools)\n", r.Parse, r.Render, map[bool]string{true: "with", false: "without"}[r.NoTools == ""])
	fmt.Printf("next turn  %.0f µs, %.1f %% of the cold cost of %.0f µs (%d tokens, body of %d bytes, %.0f allocations); floor %.0f µs\n",
		t.P50, 100*t.P50/t.Cold, t.Cold, t.Tokens, t.Bytes, t.Allocs, t.Floor)
	return nil
}
