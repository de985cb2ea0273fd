package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"kvasir/config"
	"kvasir/proxy"
	"kvasir/router"
	"kvasir/token"
)

type tokensCmd struct {
	Model     string `required:"" placeholder:"DIR" help:"Directory with the model's files (tokenizer.json or tekken.json, config.json, chat template)."`
	File      string `required:"" placeholder:"FILE" help:"The request's body as JSON; - for standard input."`
	Endpoint  string `default:"" enum:",chat,completions" help:"chat or completions; default: as the body looks."`
	Against   string `placeholder:"URL" help:"An engine to compare with."`
	BlockSize int    `default:"16" help:"Tokens per block, for the count of full blocks."`
	MaxLen    int    `name:"max-model-len" help:"Of the engine, for truncate_prompt_tokens."`
	JSON      bool   `help:"Print as JSON."`
}

func (tokensCmd) Help() string {
	return `Examples:
  kvasir tokens --model ./Qwen3-8B --file request.json
  kvasir tokens --model ./Qwen3-8B --file request.json --against http://127.0.0.1:8000

Shows what text a request becomes and which ids, and with --against the first difference from the engine's own.
Exit status 1 if there is one.`
}

// A tokensReport is what --json prints. Fields are added, never changed.
type tokensReport struct {
	Version  int         `json:"version"`
	Rendered string      `json:"rendered"`
	IDs      []uint32    `json:"ids"`
	Prompts  [][]uint32  `json:"prompts,omitempty"` // of a request with several
	Source   string      `json:"source"`            // local or remote
	Why      string      `json:"why,omitempty"`     // remote: why not here
	Blocks   int         `json:"full_blocks"`
	Against  *difference `json:"against,omitempty"`
}

type difference struct {
	Equal  bool     `json:"equal"`
	At     int      `json:"at"` // first id that differs
	Ours   []uint32 `json:"ours,omitempty"`
	Theirs []uint32 `json:"theirs,omitempty"`
}

func (c tokensCmd) Run(ctx context.Context) error {
	body, err := readFile(c.File)
	if err != nil {
		return err
	}
	cfg := config.Defaults()
	cfg.Tokens.Files.Dirs = map[string]string{"model": c.Model}
	m, _, err := router.OpenModel(ctx, cfg.Tokens, "model", "", c.MaxLen)
	if err != nil {
		return err
	}
	q := &token.Request{Endpoint: c.kind(body), Body: body}
	text, res, err := m.Explain(q)
	out := tokensReport{Version: 1, Rendered: text, Source: "local"}
	if err != nil {
		out.Source, out.Why = "remote", err.Error()
	}
	for i, p := range res.Prompts {
		if i == 0 {
			out.IDs = p.IDs
			out.Blocks = len(p.IDs) / max(c.BlockSize, 1)
		}
		if len(res.Prompts) > 1 {
			out.Prompts = append(out.Prompts, p.IDs)
		}
	}
	if c.Against != "" {
		theirs, err := c.ask(ctx, cfg, q)
		if err != nil {
			return err
		}
		if out.Source == "remote" {
			out.IDs = theirs
		} else {
			out.Against = compareIDs(out.IDs, theirs)
		}
	}
	return c.print(&out)
}

func readFile(name string) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(os.Stdin)
	}
	return os.ReadFile(name)
}

func (c tokensCmd) kind(body []byte) token.Endpoint {
	switch c.Endpoint {
	case "chat":
		return token.Chat
	case "completions":
		return token.Completions
	}
	var look struct {
		Prompt json.RawMessage `json:"prompt"`
	}
	if json.Unmarshal(body, &look) == nil && look.Prompt != nil {
		return token.Completions
	}
	return token.Chat
}

// ask gets the engine's own ids.
func (c tokensCmd) ask(ctx context.Context, cfg config.Config, q *token.Request) ([]uint32, error) {
	src := token.NewRemote(token.RemoteConfig{Timeout: 30 * time.Second}, &http.Client{Transport: proxy.Transport(cfg.Proxy)}, 0,
		func(string) []string { return []string{strings.TrimRight(c.Against, "/")} }, time.Now)
	res := src.Tokens(ctx, q)
	if len(res.Prompts) == 0 {
		return nil, errors.New("the engine's ids: " + res.Why)
	}
	return res.Prompts[0].IDs, nil
}

func compareIDs(ours, theirs []uint32) *difference {
	at := 0
	for at < len(ours) && at < len(theirs) && ours[at] == theirs[at] {
		at++
	}
	if at == len(ours) && at == len(theirs) {
		return &difference{Equal: true, At: -1}
	}
	near := func(ids []uint32) []uint32 { return ids[min(max(at-3, 0), len(ids)):min(at+8, len(ids))] }
	return &difference{At: at, Ours: near(ours), Theirs: near(theirs)}
}

func (c tokensCmd) print(r *tokensReport) error {
	var bad error
	if r.Against != nil && !r.Against.Equal {
		bad = fmt.Errorf("the ids differ from the engine's from id %d on", r.Against.At)
	}
	if c.JSON {
		if err := json.NewEncoder(os.Stdout).Encode(r); err != nil {
			return err
		}
		return bad
	}
	if r.Source == "remote" {
		fmt.Printf("not made here: %s\n", r.Why)
		if r.IDs == nil {
			return nil
		}
	} else {
		fmt.Printf("%s\n----\n", r.Rendered)
	}
	fmt.Printf("%d ids, %d full blocks of %d: %d\n", len(r.IDs), r.Blocks, c.BlockSize, r.IDs)
	if a := r.Against; a != nil {
		if a.Equal {
			fmt.Println("equal to the engine's")
		} else {
			fmt.Printf("first difference at id %d:\n  ours   … %d\n  theirs … %d\n", a.At, a.Ours, a.Theirs)
		}
	}
	return bad
}
