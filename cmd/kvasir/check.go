package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/goccy/go-yaml"

	"kvasir/policy"
	"kvasir/router"
)

type checkCmd struct {
	serveFlags
	Offline bool `help:"Don't ask the engines."`
	JSON    bool `help:"Print as JSON."`
}

func (checkCmd) Help() string {
	return `Examples:
  kvasir check --engine http://10.0.0.1:8000 --engine http://10.0.0.2:8000
  kvasir check --config kvasir.yaml --offline
  kvasir check                     # defaults and the list of policies

Exit status 1 if the configuration is wrong or an engine is unreachable.`
}

func (c checkCmd) Run(ctx context.Context) error {
	cfg, err := c.config()
	if err != nil && len(cfg.Engines) > 0 {
		return err
	}
	found := router.CheckFiles(cfg)
	if !c.Offline {
		found = append(found, router.Check(ctx, cfg)...)
	}
	if c.JSON {
		enc := json.NewEncoder(os.Stdout)
		enc.SetIndent("", "  ")
		return enc.Encode(map[string]any{"version": 1, "config": cfg, "findings": found})
	}
	text, err := yaml.MarshalWithOptions(cfg, yaml.Indent(2))
	if err != nil {
		return err
	}
	fmt.Printf("# The effective configuration: defaults, then the file, then flags.\n%s\n", text)
	fmt.Println("# policies:")
	for _, n := range policy.Names() {
		fmt.Printf("#   %-18s  %s\n", n, policy.Summary(n))
	}
	printNeeds(os.Stdout, policy.Needs(cfg.Policy), cfg.Policy.Name)
	bad := 0
	for _, f := range found {
		fmt.Printf("\n%s\n", f.Engine)
		for _, l := range f.Lines {
			mark := "ok  "
			switch {
			case l.Bad:
				mark = "BAD "
				bad++
			case l.Fix != "":
				mark = "warn"
			}
			fmt.Printf("  %s  %-10s %s\n", mark, l.What, l.Says)
			if l.Fix != "" {
				fmt.Printf("        %-10s %s\n", "", "→ "+l.Fix)
			}
		}
	}
	if len(cfg.Engines) == 0 {
		fmt.Println("\nNo engine is configured: give --engine http://HOST:PORT to have it looked at.")
	}
	if bad > 0 {
		return fmt.Errorf("%d things are wrong", bad)
	}
	return nil
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
