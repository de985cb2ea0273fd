package kvasir_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestConstantsAreExplained: each constant of the default's arithmetic stands in
// docs/cost.md, with its reason or what it was measured by.
func TestConstantsAreExplained(t *testing.T) {
	page, err := os.ReadFile("docs/cost.md")
	if err != nil {
		t.Fatal(err)
	}
	// Not of the arithmetic: versions and bounds of files, and what follows from others.
	other := map[string]bool{"stateKind": true, "stateVersion": true, "maxState": true, "recent": true, "perSpread": true}
	files, err := filepath.Glob("policy/learn/*.go")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, name := range append(files, "policy/marginal.go", "policy/memory.go", "policy/decodeprice.go", "policy/hotprefix.go") {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			d, ok := n.(*ast.GenDecl)
			if !ok || d.Tok != token.CONST {
				return true
			}
			for _, spec := range d.Specs {
				for _, id := range spec.(*ast.ValueSpec).Names {
					if seen++; !other[id.Name] && !strings.Contains(string(page), "`"+id.Name+"`") {
						t.Errorf("%s: the constant %s isn't explained in docs/cost.md, \"The constants\"", name, id.Name)
					}
				}
			}
			return true
		})
	}
	if seen < 25 {
		t.Errorf("saw %d constants: does the test look at all?", seen)
	}
}
