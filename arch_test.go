// Package kvasir_test holds the plan of the house as a test: which package may
// import which, and what the core must not mention. See ARCHITECTURE.md.
package kvasir_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// allowed says, per package, which of ours it may import. A new arrow is an edit
// of this table, and somebody reads it. Tests may import what they like of the
// same or a lower floor; only shipped files are checked.
var allowed = map[string][]string{
	// vocabulary
	"kv":      {},
	"setting": {}, // how a setting is declared

	// the core: siblings don't know each other; sched joins them
	"fleet":        {"kv"},
	"index":        {"kv"},
	"ledger":       {"kv"},
	"policy":       {"kv", "setting", "policy/learn"},
	"policy/learn": {"kv"},
	"sched":        {"kv", "fleet", "index", "ledger", "policy", "policy/learn"},

	// the edge
	"zmtp":            {},
	"engine":          {"kv", "zmtp", "engine/wire", "engine/seq"},
	"engine/wire":     {"kv"},
	"engine/seq":      {"kv"},
	"token":           {"kv", "setting", "token/bpe", "token/chat"},
	"token/files":     {"setting"},
	"token/bpe":       {},
	"token/bpe/fetch": {},
	"token/jinja":     {},
	"token/chat":      {"token/jinja", "token/bpe"},
	"proxy":           {"kv", "sched", "token", "fleet", "setting"},
	"metrics":         {"kv", "sched", "fleet", "index", "proxy", "token"},
	"web":             {"kv", "sched", "fleet"},
	"receipt":         {"kv", "sched"},
	"config":          {"kv", "fleet", "index", "policy", "proxy", "setting", "token", "token/files"},
	"router":          {"kv", "fleet", "index", "ledger", "policy", "sched", "engine", "token", "token/bpe", "token/chat", "token/jinja", "token/files", "proxy", "metrics", "web", "config", "receipt"},

	// the laboratory: what is not the router. Nothing outside of lab and cmd
	// imports it.
	"lab/mock":       {"kv"},
	"lab/mockserver": {"kv", "lab/mock", "zmtp"},
	"lab/trace":      {"kv", "sched", "receipt"},
	"lab/trace/demo": {"lab/trace"},
	"lab/replay":     {"lab/trace", "lab/mock"},
	"lab/sim":        {"kv", "fleet", "index", "ledger", "policy", "sched", "lab/mock", "lab/trace", "receipt"},
	"lab/report":     {"lab/sim"},
	"lab/plan":       {},
	"lab/indexbench": {"kv", "index"},
	"lab/tokenbench": {"kv", "token", "token/bpe", "token/chat", "token/jinja"},
	"lab/mutants":    {},
	"lab/eventbench": {"kv", "index", "engine", "engine/wire", "zmtp"},

	"config/reference": {"config", "setting"},
	"docs":             {}, // what the binary carries of them

	// wiring only
	"cmd/kvasir": {"*"},
}

// core has the rooms that must be synchronous and deterministic, with all that is
// inside of them.
var core = []string{"kv", "setting", "fleet", "index", "ledger", "policy", "sched", "lab/mock"}

// forbiddenInCore says what the core may not import, and what to do instead.
var forbiddenInCore = map[string]string{
	"net":         "sockets belong to the edge",
	"net/http":    "sockets belong to the edge",
	"os":          "files belong to the edge: take an io.Reader or io.Writer",
	"log":         "return the fact, let the edge log it",
	"log/slog":    "return the fact, let the edge log it",
	"math/rand":   "chance is an argument (intn func(int) int)",
	"context":     "the core does not wait",
	"os/exec":     "no",
	"unsafe":      "no",
	"crypto/rand": "chance is an argument",
}

// forbiddenCalls are selectors that the core may not use.
var forbiddenCalls = map[string]string{
	"time.Now":       "time is an argument",
	"time.Since":     "time is an argument",
	"time.Until":     "time is an argument",
	"time.Sleep":     "the core does not wait",
	"time.After":     "the core does not wait",
	"time.AfterFunc": "the core does not wait",
	"time.NewTimer":  "the core does not wait",
	"time.NewTicker": "the core does not wait",
	"time.Tick":      "the core does not wait",
}

func TestHouse(t *testing.T) {
	for dir, files := range sources(t) {
		may, known := allowed[dir]
		if !known {
			t.Errorf("package %s is not in the table of arch_test.go: add it with what it may import", dir)
			continue
		}
		for _, f := range files {
			for _, imp := range f.file.Imports {
				path, _ := strconv.Unquote(imp.Path.Value)
				ours, ok := strings.CutPrefix(path, "kvasir/")
				if ok && !slices.Contains(may, ours) && !slices.Contains(may, "*") {
					t.Errorf("%s imports %s: not in its row of arch_test.go", f.name, ours)
				}
				if path == "C" {
					t.Errorf("%s uses cgo", f.name)
				}
				if why, bad := forbiddenInCore[path]; bad && inCore(dir) {
					t.Errorf("%s imports %s: %s", f.name, path, why)
				}
			}
			if inCore(dir) {
				checkCore(t, f)
			}
		}
	}
}

func inCore(dir string) bool {
	return slices.ContainsFunc(core, func(room string) bool { return dir == room || strings.HasPrefix(dir, room+"/") })
}

// checkCore refuses goroutines and clocks in a file of the core.
func checkCore(t *testing.T, f source) {
	ast.Inspect(f.file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			t.Errorf("%s: %s: a goroutine; they belong to the edge", f.name, f.fset.Position(n.Pos()))
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok {
				if why, bad := forbiddenCalls[x.Name+"."+n.Sel.Name]; bad {
					t.Errorf("%s: %s.%s: %s", f.fset.Position(n.Pos()), x.Name, n.Sel.Name, why)
				}
			}
		}
		return true
	})
}

// TestNames refuses packages that are named after nothing.
func TestNames(t *testing.T) {
	bad := []string{"util", "utils", "common", "types", "manager", "helper", "helpers", "factory", "misc", "base", "pkg"}
	for dir := range sources(t) {
		for _, part := range strings.Split(dir, "/") {
			if slices.Contains(bad, part) {
				t.Errorf("package %s: %q says nothing; name it after its noun", dir, part)
			}
		}
	}
}

// sleepers may sleep outside of a bubble, and why.
var sleepers = map[string]string{"proxy/cpu_test.go": "a benchmark's engine takes its time between tokens"}

// TestNoRealSleep: tests wait for events. Where they let time pass it is a bubble's
// (testing/synctest), whose clock is virtual.
func TestNoRealSleep(t *testing.T) {
	seen := 0
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		bubble := slices.ContainsFunc(f.Imports, func(i *ast.ImportSpec) bool { return i.Path.Value == `"testing/synctest"` })
		ast.Inspect(f, func(n ast.Node) bool {
			call, ok := n.(*ast.SelectorExpr)
			if !ok || call.Sel.Name != "Sleep" {
				return true
			}
			if x, ok := call.X.(*ast.Ident); !ok || x.Name != "time" {
				return true
			}
			seen++
			if sleepers[filepath.ToSlash(path)] == "" && !bubble {
				t.Errorf("%s: time.Sleep: wait for the event, or use testing/synctest", fset.Position(n.Pos()))
			}
			return true
		})
		return nil
	})
	if err != nil || seen == 0 {
		t.Fatalf("%d calls seen, %v", seen, err)
	}
}

type source struct {
	name string
	fset *token.FileSet
	file *ast.File
}

// sources parses the shipped Go files of the repository, by directory. Folders
// with a go.mod of their own, testdata and interop are other houses.
func sources(t *testing.T) map[string][]source {
	t.Helper()
	out := map[string][]source{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if n := d.Name(); path != "." && (strings.HasPrefix(n, ".") || n == "testdata" || n == "interop" || n == "docs") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		if f.Name.Name == "main" && filepath.Dir(path) != "cmd/kvasir" {
			return nil // generators and small tools, run by go run
		}
		dir := filepath.ToSlash(filepath.Dir(path))
		out[dir] = append(out[dir], source{path, fset, f})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}
