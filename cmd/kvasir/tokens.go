package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"kvasir/config"
	"kvasir/doctor"
	"kvasir/engine"
	"kvasir/kv"
	"kvasir/proxy"
	"kvasir/setting"
	"kvasir/token"
	"kvasir/token/files"
	"kvasir/token/library"
)

type tokensCmd struct {
	Model     string `required:"" placeholder:"DIR" help:"Directory with the model's files (tokenizer.json or tekken.json, config.json, chat template)."`
	File      string `required:"" placeholder:"FILE" help:"The request's body as JSON, or one a line (.jsonl); - for standard input."`
	Lines     bool   `help:"The file has one request a line, whatever its name."`
	Endpoint  string `default:"" enum:",chat,completions" help:"chat or completions; default: as the body looks."`
	Against   string `placeholder:"URL" help:"An engine to compare with."`
	BlockSize int    `default:"16" help:"Tokens per block, for the count of full blocks."`
	MaxLen    int    `name:"max-model-len" help:"Of the engine, for truncate_prompt_tokens."`
	Config    string `placeholder:"FILE" help:"A configuration of serve: its tokens.template says how the engines were started."`

	Template map[string]string `placeholder:"KEY=VALUE" help:"One key of tokens.template, over the file's: content_format, default_kwargs, trust_request, exclude_tools_when_none, tokenizer_mode, harmony or zone."`

	JSON bool `help:"Print as JSON."`
}

func (tokensCmd) Help() string {
	return `Examples:
  kvasir tokens --model ./Qwen3-8B --file request.json
  kvasir tokens --model ./Qwen3-8B --file request.json --against http://127.0.0.1:8000
  kvasir tokens --model ./Qwen3-8B --file requests.jsonl --against http://127.0.0.1:8000 --json
  kvasir tokens --model ./gpt-oss-20b --file request.json --template harmony=openai --template zone=UTC
  kvasir tokens --model ./Qwen3-8B --file request.json --template 'default_kwargs={enable_thinking: false}'

Shows what text a request becomes and which ids, and with --against the first difference from the engine's own.
Of a file with one request a line, each is reported on a line. Exit status 1 if there is a difference: other
ids, or one of the two refuses what the other takes. Requests that are not made here are no difference.`
}

// A tokensReport is what --json prints. Fields are added, never changed.
type tokensReport struct {
	Version  int         `json:"version"`
	Line     int         `json:"line,omitempty"` // of a file with several requests
	Rendered string      `json:"rendered"`
	IDs      []uint32    `json:"ids"`
	Prompts  [][]uint32  `json:"prompts,omitempty"` // of a request with several
	Source   string      `json:"source"`            // local or remote
	Why      string      `json:"why,omitempty"`     // remote: why not here
	Refused  bool        `json:"refused,omitempty"` // the engine is expected to refuse the request
	Blocks   int         `json:"full_blocks"`
	Against  *difference `json:"against,omitempty"`
}

type difference struct {
	Equal  bool     `json:"equal"`
	At     int      `json:"at"`               // first id that differs
	Prompt int      `json:"prompt,omitempty"` // which one, of several
	Ours   []uint32 `json:"ours,omitempty"`
	Theirs []uint32 `json:"theirs,omitempty"`
	Why    string   `json:"why,omitempty"` // the engine's, where it gives no ids
}

func (c tokensCmd) Run(ctx context.Context) error {
	if c.Against != "" && !strings.Contains(c.Against, "://") {
		return fmt.Errorf("--against %q: want a URL such as http://127.0.0.1:8000", c.Against)
	}
	cfg, err := c.config()
	if err != nil {
		return err
	}
	m, _, err := library.Open(ctx, files.Config{Dirs: map[string]string{"model": c.Model}}, cfg.Tokens.Template, c.engine(ctx), kv.Model{ID: "model", MaxLen: c.MaxLen})
	if err != nil {
		return err
	}
	cfg.Tokens.Remote.Timeout = 30 * time.Second
	engine := token.NewRemote(cfg.Tokens.Remote, &http.Client{Transport: proxy.Transport(cfg.Proxy)}, 0,
		func(string) []string { return []string{strings.TrimRight(c.Against, "/")} }, time.Now)
	in := os.Stdin
	if c.File != "-" {
		if in, err = os.Open(c.File); err != nil {
			return err
		}
		defer in.Close()
	}
	if c.Lines || strings.HasSuffix(c.File, ".jsonl") {
		return c.all(ctx, m, engine, in)
	}
	body, err := io.ReadAll(in)
	if err != nil {
		return err
	}
	r, err := c.one(ctx, m, engine, body)
	if err != nil {
		return err
	}
	return c.print(r)
}

// config is the file's, with what --template says.
func (c tokensCmd) config() (config.Config, error) {
	cfg := config.Defaults()
	if c.Config != "" {
		var err error
		if cfg, err = config.Load(c.Config); err != nil {
			return cfg, err
		}
	}
	for _, k := range slices.Sorted(maps.Keys(c.Template)) {
		name := "--template " + k
		if err := config.Parse(name, fmt.Appendf(nil, "tokens: {template: {%s: %s}}", k, c.Template[k]), &cfg); err != nil {
			return cfg, err
		}
	}
	return cfg, setting.Check("tokens.template.", &cfg.Tokens.Template)
}

// engine is what the engine to compare with says of itself; where it says nothing,
// or where there is none, the newest is taken.
func (c tokensCmd) engine(ctx context.Context) library.Engine {
	if c.Against == "" {
		return library.Engine{}
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	info, err := doctor.Look(ctx, engine.Config{URL: strings.TrimRight(c.Against, "/"), Events: "off", Poll: 200 * time.Millisecond})
	if err != nil {
		return library.Engine{}
	}
	return library.Engine{Kind: info.Kind, Version: info.Version}
}

// maxLine bounds one request of a file with many.
const maxLine = 64 << 20

// all reports one request a line.
func (c tokensCmd) all(ctx context.Context, m *token.Model, engine token.Source, in io.Reader) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxLine)
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	var line, here, refused, differ int
	for lines.Scan() {
		line++
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		r, err := c.one(ctx, m, engine, bytes.Clone(lines.Bytes()))
		if err != nil {
			return fmt.Errorf("line %d: %w", line, err)
		}
		r.Line = line
		if r.Source == "local" {
			here++
		}
		if r.Refused {
			refused++
		}
		if r.Against != nil && !r.Against.Equal {
			differ++
		}
		if c.JSON {
			err = json.NewEncoder(out).Encode(r)
		} else {
			_, err = fmt.Fprintf(out, "%d: %s\n", line, r.says())
		}
		if err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("line %d: %w", line+1, err)
	}
	if !c.JSON {
		fmt.Fprintf(out, "%d requests: %d made here, %d to be refused, %d left to the engine\n", line, here, refused, line-here-refused)
	}
	if differ > 0 {
		return fmt.Errorf("%d of %d requests differ from the engine", differ, line)
	}
	return nil
}

// one makes the report of one request.
func (c tokensCmd) one(ctx context.Context, m *token.Model, engine token.Source, body []byte) (*tokensReport, error) {
	q := &token.Request{Endpoint: c.kind(body), Body: body}
	text, ours, err := m.Explain(q)
	out := &tokensReport{Version: 1, Rendered: text, Source: "local"}
	if err != nil {
		out.Source, out.Why, out.Refused = "remote", err.Error(), ours.Refused
	}
	if c.Against != "" {
		theirs := engine.Tokens(ctx, q)
		if len(theirs.Prompts) == 0 && !theirs.Refused {
			return nil, errors.New("the engine's ids: " + theirs.Why)
		}
		if out.Source == "local" || out.Refused {
			out.Against = firstDifference(ours, theirs)
		} else {
			ours = theirs
		}
	}
	for i, p := range ours.Prompts {
		if i == 0 {
			out.IDs = p.IDs
			out.Blocks = len(p.IDs) / max(c.BlockSize, 1)
		}
		if len(ours.Prompts) > 1 {
			out.Prompts = append(out.Prompts, p.IDs)
		}
	}
	return out, nil
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

// firstDifference looks for the first difference. Both refusing is none.
func firstDifference(ours, theirs token.Result) *difference {
	if ours.Refused || theirs.Refused {
		return &difference{Equal: ours.Refused == theirs.Refused, At: -1, Why: theirs.Why}
	}
	if len(ours.Prompts) != len(theirs.Prompts) {
		return &difference{At: -1, Why: fmt.Sprintf("%d prompts here, %d there", len(ours.Prompts), len(theirs.Prompts))}
	}
	for i := range ours.Prompts {
		a, b := ours.Prompts[i].IDs, theirs.Prompts[i].IDs
		at := 0
		for at < len(a) && at < len(b) && a[at] == b[at] {
			at++
		}
		if at < len(a) || at < len(b) {
			near := func(ids []uint32) []uint32 { return ids[min(max(at-3, 0), len(ids)):min(at+8, len(ids))] }
			return &difference{At: at, Prompt: i, Ours: near(a), Theirs: near(b)}
		}
	}
	return &difference{Equal: true, At: -1}
}

// says is the report in one line.
func (r *tokensReport) says() string {
	s := fmt.Sprintf("%d ids", len(r.IDs))
	switch {
	case r.Refused:
		s = r.Why
	case r.Source == "remote":
		s = "not made here: " + r.Why
	}
	if a := r.Against; a != nil {
		switch {
		case a.Equal && r.Refused:
			s += "; so does the engine"
		case a.Equal:
			s += ", equal to the engine's"
		case a.Why != "":
			s += "; DIFFERENT, the engine: " + a.Why
		case r.Refused:
			s += "; DIFFERENT, the engine takes it"
		default:
			s += fmt.Sprintf("; DIFFERENT from id %d on: ours … %d, theirs … %d", a.At, a.Ours, a.Theirs)
		}
	}
	return s
}

func (c tokensCmd) print(r *tokensReport) error {
	var bad error
	if r.Against != nil && !r.Against.Equal {
		bad = errors.New("different from the engine")
	}
	if c.JSON {
		if err := json.NewEncoder(os.Stdout).Encode(r); err != nil {
			return err
		}
		return bad
	}
	if r.Source == "local" {
		fmt.Printf("%s\n----\n", r.Rendered)
	}
	if r.IDs != nil {
		fmt.Printf("%d full blocks of %d, ids %d\n", r.Blocks, c.BlockSize, r.IDs)
	}
	fmt.Println(r.says())
	return bad
}
