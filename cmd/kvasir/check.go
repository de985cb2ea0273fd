package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"

	"kvasir/config"
	"kvasir/docs"
	"kvasir/doctor"
	"kvasir/policy"
)

type checkCmd struct {
	serveFlags
	Offline bool `help:"Don't ask the engines."`
	JSON    bool `help:"Print as JSON, with the keys of the file."`
	Schema  bool `help:"Print the JSON schema of the file, for editors, and nothing else."`
}

func (checkCmd) Help() string {
	return `Examples:
  kvasir check --engine http://10.0.0.1:8000 --engine http://10.0.0.2:8000
  kvasir check --config kvasir.yaml --offline
  kvasir check                     # defaults and the list of policies
  kvasir check --engine http://10.0.0.1:8000 >kvasir.yaml     # a file for serve
  kvasir check --schema >kvasir.schema.json

Exit status 1 if the configuration is one that serve refuses, or an engine is unreachable.`
}

func (c checkCmd) Run(ctx context.Context) error { return c.run(ctx, os.Stdout) }

func (c checkCmd) run(ctx context.Context, w io.Writer) error {
	if c.Schema {
		_, err := w.Write(docs.Schema)
		return err
	}
	cfg, err := c.config()
	if err != nil && !(errors.Is(err, config.ErrNoEngines) && c.Config == "") {
		return err
	}
	found := append(doctor.CheckPolicy(cfg), doctor.CheckFiles(cfg)...)
	if !c.Offline {
		found = append(found, doctor.Check(ctx, cfg)...)
	}
	if c.JSON {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		err = enc.Encode(map[string]any{"version": 1, "config": cfg.Resolved(), "findings": found})
	} else {
		err = printCheck(w, cfg, found)
	}
	if err != nil {
		return err
	}
	return wrong(found)
}

// wrong is an error if anything that was found is bad.
func wrong(found []doctor.Finding) error {
	bad := 0
	for _, f := range found {
		for _, l := range f.Lines {
			if l.Bad {
				bad++
			}
		}
	}
	switch bad {
	case 0:
		return nil
	case 1:
		return errors.New("1 thing is wrong")
	}
	return fmt.Errorf("%d things are wrong", bad)
}

// printCheck writes a file that serve accepts: what is no setting is a comment.
func printCheck(w io.Writer, cfg config.Config, found []doctor.Finding) error {
	text, err := cfg.Resolved().YAML()
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "# What is in force: defaults, then the file, then flags. docs/configuration.md says what each key means.\n")
	if cfg.Policy.Name == "auto" {
		fmt.Fprintf(w, "# policy auto stands for marginal with hot_prefix.\n")
	}
	fmt.Fprintf(w, "%s\n# policies:\n", text)
	for _, n := range policy.Names() {
		fmt.Fprintf(w, "#   %-18s  %s\n", n, policy.Summary(n))
	}
	printNeeds(w, policy.Needs(cfg.Policy), cfg.Policy.Name)
	for _, f := range found {
		fmt.Fprintf(w, "#\n# %s\n", f.Engine)
		for _, l := range f.Lines {
			mark := "ok  "
			switch {
			case l.Bad:
				mark = "BAD "
			case l.Fix != "":
				mark = "warn"
			}
			fmt.Fprintf(w, "#   %s  %-10s %s\n", mark, l.What, oneLine(l.Says))
			if l.Fix != "" {
				fmt.Fprintf(w, "#         %-10s %s\n", "", "→ "+oneLine(l.Fix))
			}
		}
	}
	if len(cfg.Engines) == 0 {
		fmt.Fprintln(w, "#\n# No engine is configured: give --engine http://HOST:PORT to have it looked at.")
	}
	return nil
}

// oneLine keeps what engines say inside its comment.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' || r == '\u0085' {
			return ' '
		}
		return r
	}, s)
}

// printNeeds says what the policy lives on.
func printNeeds(w io.Writer, n policy.Need, name string) {
	var list []string
	for _, x := range []struct {
		on   bool
		what string
	}{
		{n.Events, "the engines' cache events"}, {n.Tokens, "token ids"}, {n.Session, "a session key (x-session-id)"},
		{n.Text, "the prompt's text"}, {n.Engine, "the engines' own load figures"}, {n.Dispatch, "predictions from its own dispatches"},
	} {
		if x.on {
			list = append(list, x.what)
		}
	}
	if len(list) == 0 {
		list = []string{"nothing but the list of engines"}
	}
	fmt.Fprintf(w, "# %s needs %s\n", name, strings.Join(list, ", "))
}
