// Package kvasir_test holds the plan of the house as a test: which package may
// import which, and what the core must not mention. See ARCHITECTURE.md.
package kvasir_test

import (
	"fmt"
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
	"fleet":           {"kv"},
	"index":           {"kv", "index/table", "index/pagetable"},
	"index/table":     {},
	"index/pagetable": {},
	"ledger":          {"kv"},
	"policy":          {"kv", "setting", "policy/learn"},
	"policy/learn":    {"kv"},
	"sched":           {"kv", "fleet", "index", "ledger", "policy", "policy/learn"},

	// the edge
	"zmtp":            {},
	"engine":          {"kv", "zmtp", "engine/wire", "engine/seq"},
	"engine/wire":     {"kv"},
	"engine/seq":      {"kv"},
	"token":           {"kv", "token/bpe", "token/chat"},
	"token/files":     {"setting"},
	"token/bpe":       {},
	"token/bpe/fetch": {},
	"token/jinja":     {},
	"token/chat":      {"token/jinja"},
	"token/library":   {"kv", "setting", "token", "token/bpe", "token/chat", "token/files", "token/jinja"},
	"proxy":           {"kv", "sched", "token", "fleet", "setting"},
	"metrics":         {"kv", "sched", "fleet", "index", "policy/learn", "proxy", "token"},
	"web":             {"kv", "sched", "fleet", "policy/learn"},
	"receipt":         {"kv", "sched"},
	"config":          {"kv", "fleet", "index", "policy", "proxy", "setting", "token", "token/files", "token/library"},
	"router":          {"kv", "fleet", "index", "ledger", "policy", "sched", "engine", "token", "token/library", "proxy", "metrics", "web", "config", "receipt"},
	"doctor":          {"kv", "engine", "policy", "token", "token/library", "proxy", "config", "receipt"},

	// the laboratory: what is not the router. Nothing outside of lab and cmd
	// imports it.
	"lab/mock":              {"kv"},
	"lab/mockserver":        {"kv", "lab/mock", "zmtp"},
	"lab/trace":             {"receipt"},
	"lab/trace/demo":        {"lab/trace"},
	"lab/replay":            {"lab/trace", "lab/mock"},
	"lab/sim":               {"kv", "fleet", "index", "ledger", "policy", "sched", "lab/mock", "lab/trace", "receipt"},
	"lab/report":            {"lab/sim"},
	"lab/plan":              {},
	"lab/indexbench":        {"kv", "index"},
	"lab/tokenbench":        {"kv", "token", "token/bpe", "token/chat", "token/jinja"},
	"lab/mutants":           {},
	"lab/experiments":       {"lab/mock", "lab/report", "lab/sim", "policy"},
	"lab/experiments/agree": {"config", "router", "lab/mock", "lab/mockserver", "lab/replay", "lab/sim", "lab/trace"},
	"lab/eventbench":        {"kv", "engine", "zmtp"},

	"config/reference": {"config", "metrics", "setting"},
	"docs":             {}, // what the binary carries of them

	// small programs that fetch or generate, run by go run
	"token/chat/fetch": {},
	"token/bpe/gen":    {},
	"config/gen":       {"config/reference"},

	// wiring only
	"cmd/kvasir": {"*"},
}

// core has the rooms that must be synchronous and deterministic, with all that is
// inside of them.
var core = []string{"kv", "fleet", "index", "ledger", "policy", "sched", "lab/mock"}

// coreMay lists what the core may import of the standard library: what computes. A
// package that can read a clock, draw by chance, start or wait for a goroutine, log,
// or reach a file or a socket is not here: what it gives is an argument.
var coreMay = []string{
	"bufio", "bytes", "cmp", "encoding/binary", "encoding/json", "errors", "fmt", "hash/crc32", "io", "math", "math/bits",
	"net/url", "slices", "strconv", "strings", "sync", "sync/atomic", "time",
}

// fileMay has what one file may import besides, and why.
var fileMay = map[string]string{
	"index/index.go runtime": "Gosched between the steps of waiting for readers (yield): the writer lets them run and neither sleeps nor reads a clock",
}

// onlyOf says which names the core may use of packages that also know the clock or
// the terminal; noneOf which it may not.
var (
	onlyOf = map[string][]string{
		"time":    {"Time", "Duration", "Nanosecond", "Microsecond", "Millisecond", "Second", "Minute", "Hour", "Unix", "UnixMilli", "UnixNano", "Date", "UTC"},
		"runtime": {"Gosched"},
	}
	noneOf = map[string]map[string]string{
		"sync": {"WaitGroup": "it starts and waits for goroutines", "Cond": "the core does not wait"},
		"fmt": {
			"Print": "the core has no terminal", "Printf": "the core has no terminal", "Println": "the core has no terminal",
			"Scan": "the core has no terminal", "Scanf": "the core has no terminal", "Scanln": "the core has no terminal",
		},
	}
)

func TestHouse(t *testing.T) {
	used, rooms := map[string]bool{}, sources(t)
	for dir, files := range rooms {
		if _, known := allowed[dir]; !known {
			t.Errorf("package %s is not in the table of arch_test.go: add it with what it may import", dir)
			continue
		}
		for _, f := range files {
			for _, fault := range faults(dir, f, used) {
				t.Error(fault)
			}
		}
	}
	for dir, may := range allowed {
		if rooms[dir] == nil {
			t.Errorf("arch_test.go has a row for %s, which has no code", dir)
		}
		for _, ours := range may {
			if ours != "*" && !used[dir+" "+ours] {
				t.Errorf("arch_test.go lets %s import %s, which it doesn't: take it out", dir, ours)
			}
		}
	}
	for _, std := range coreMay {
		if !used[std] {
			t.Errorf("arch_test.go lets the core import %s, which it doesn't: take it out", std)
		}
	}
	for row := range fileMay {
		if !used[row] {
			t.Errorf("arch_test.go has a row %q that nothing uses", row)
		}
	}
}

func inCore(dir string) bool { return within(dir, core...) }

// within says whether dir is one of rooms or inside of one.
func within(dir string, rooms ...string) bool {
	return slices.ContainsFunc(rooms, func(room string) bool { return dir == room || strings.HasPrefix(dir, room+"/") })
}

// faults says what f, a file of room dir, does that the plan forbids, and notes in
// used the permissions that it needs.
func faults(dir string, f source, used map[string]bool) (out []string) {
	paths := map[string]string{} // import path by the name that the file has for it
	for _, imp := range f.file.Imports {
		path, _ := strconv.Unquote(imp.Path.Value)
		name := path[strings.LastIndex(path, "/")+1:]
		if imp.Name != nil {
			name = imp.Name.Name
		}
		paths[name] = path
		if why := refused(dir, f.name, name, path, used); why != "" {
			out = append(out, fmt.Sprintf("%s imports %s: %s", f.name, path, why))
		}
	}
	if inCore(dir) {
		out = append(out, coreFaults(f, paths)...)
	}
	return out
}

// refused says why room dir may not import path, "" if it may.
func refused(dir, file, name, path string, used map[string]bool) string {
	ours, is := strings.CutPrefix(path, "kvasir/")
	switch {
	case path == "C":
		return "no cgo"
	case is && within(ours, "lab") && !within(dir, "lab", "cmd"):
		return "the laboratory is not the router: only lab and cmd import it"
	case is && within(ours, "cmd"):
		return "nobody imports a command"
	case is:
		used[dir+" "+ours] = true
		if may := allowed[dir]; !slices.Contains(may, ours) && !slices.Contains(may, "*") {
			return "not in its row of arch_test.go"
		}
	case !inCore(dir):
	case name == "." || name == "_":
		return "the core names what it imports"
	case fileMay[file+" "+path] != "":
		used[file+" "+path] = true
	case !slices.Contains(coreMay, path):
		return "not among coreMay of arch_test.go: clock, chance, files, sockets and logs are arguments of the core"
	default:
		used[path] = true
	}
	return ""
}

// coreFaults refuses goroutines, channels and clocks in a file of the core, under
// whichever name it has imported them.
func coreFaults(f source, paths map[string]string) (out []string) {
	say := func(n ast.Node, what string) {
		out = append(out, fmt.Sprintf("%s: %s", f.fset.Position(n.Pos()), what))
	}
	ast.Inspect(f.file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			say(n, "a goroutine; they belong to the edge")
		case *ast.ChanType:
			say(n, "a channel; the core does not wait")
		case *ast.CallExpr:
			if x, ok := n.Fun.(*ast.Ident); ok && (x.Name == "print" || x.Name == "println") {
				say(n, x.Name+": the core has no terminal")
			}
		case *ast.SelectorExpr:
			x, ok := n.X.(*ast.Ident)
			if !ok {
				return true
			}
			path := paths[x.Name]
			if may, limited := onlyOf[path]; limited && !slices.Contains(may, n.Sel.Name) {
				say(n, fmt.Sprintf("%s.%s: not among onlyOf of arch_test.go; time is an argument", path, n.Sel.Name))
			}
			if why := noneOf[path][n.Sel.Name]; why != "" {
				say(n, fmt.Sprintf("%s.%s: %s", path, n.Sel.Name, why))
			}
		}
		return true
	})
	return out
}

// TestHouseSeesHoles puts what must not be into a core room, one at a time.
func TestHouseSeesHoles(t *testing.T) {
	for _, c := range []struct{ dir, imports, body, want string }{
		{"ledger", `clock "time"`, "clock.Now()", "time.Now"},
		{"ledger", `"time"`, "f := time.Since; f(time.Time{})", "time.Since"},
		{"ledger", `"time"`, "time.LoadLocation(``)", "time.LoadLocation"},
		{"ledger", `. "time"`, "Now()", "names what it imports"},
		{"ledger", `_ "time"`, "", "names what it imports"},
		{"ledger", `"math/rand/v2"`, "rand.Int64()", "not among coreMay"},
		{"policy/learn", `"math/rand"`, "rand.Int63()", "not among coreMay"},
		{"ledger", `"syscall"`, "syscall.Getpid()", "not among coreMay"},
		{"ledger", `"unsafe"`, "", "not among coreMay"},
		{"ledger", `"runtime"`, "runtime.Gosched()", "not among coreMay"},
		{"ledger", `"log/slog"`, "slog.Info(``)", "not among coreMay"},
		{"ledger", `"golang.org/x/sync/errgroup"`, "", "not among coreMay"},
		{"ledger", `"sync"`, "var wg sync.WaitGroup; wg.Go(func() {})", "sync.WaitGroup"},
		{"ledger", `s "sync"`, "new(s.WaitGroup).Go(func() {})", "sync.WaitGroup"},
		{"ledger", `"fmt"`, "fmt.Println()", "fmt.Println"},
		{"ledger", `"errors"`, "println()", "no terminal"},
		{"ledger", `"errors"`, "go func() {}()", "a goroutine"},
		{"ledger", `"errors"`, "<-make(chan int)", "a channel"},
		{"ledger", `"kvasir/index"`, "", "not in its row"},
		{"ledger", `idx "kvasir/index"`, "", "not in its row"},
		{"router", `"kvasir/lab/sim"`, "", "only lab and cmd"},
		{"token/bpe/gen", `"kvasir/lab/sim"`, "", "only lab and cmd"},
		{"lab/report", `"kvasir/cmd/kvasir"`, "", "nobody imports a command"},
		{"router", `"C"`, "", "no cgo"},
		// What is right is let through.
		{"ledger", `clock "time"; "sync"`, "var m sync.Mutex; m.Lock(); _ = clock.Second", ""},
		{"router", `"time"; "math/rand/v2"`, "time.Now(); go func() {}()", ""},
		{"cmd/kvasir", `"kvasir/lab/sim"`, "", ""},
		{"lab/report", `"kvasir/lab/sim"`, "", ""},
	} {
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, "x.go", "package x\nimport ("+c.imports+")\nfunc f() {\n"+c.body+"\n}\n", parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Join(faults(c.dir, source{c.dir + "/x.go", fset, f}, map[string]bool{}), "; ")
		if c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s, import %s, %s: %q, want %q", c.dir, c.imports, c.body, got, c.want)
		}
	}
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

// TestNoRealSleep: tests wait for events. Where they let time pass it is a bubble's
// (testing/synctest), whose clock is virtual: a function that sleeps begins a bubble
// (synctest.Test), or can only run in one (synctest.Wait panics outside), or is called
// in bubbles only.
func TestNoRealSleep(t *testing.T) {
	fset := token.NewFileSet()
	byDir := map[string][]*ast.File{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		f, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
		byDir[filepath.Dir(path)] = append(byDir[filepath.Dir(path)], f)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, files := range byDir {
		for _, f := range realSleeps(files, &seen) {
			t.Errorf("%s: time.Sleep outside of a bubble: wait for the event, or use testing/synctest", fset.Position(f))
		}
	}
	if seen == 0 {
		t.Error("no call of time.Sleep was seen: does the test look at all?")
	}
}

// realSleeps returns where the test files of one package sleep on a real clock, and
// counts all sleeps.
func realSleeps(files []*ast.File, seen *int) (at []token.Pos) {
	inBubble, outside := map[string]bool{}, map[string]bool{} // functions called there
	sleeps := map[string][]token.Pos{}                        // by function, of those that begin no bubble themselves
	for _, f := range files {
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			var here []token.Pos
			bubbles := false
			var walk func(n ast.Node, bubble bool)
			walk = func(root ast.Node, bubble bool) {
				ast.Inspect(root, func(n ast.Node) bool {
					switch n := n.(type) {
					case *ast.CallExpr:
						switch name := calledName(n); name {
						case "time.Sleep":
							*seen++
							here = append(here, n.Pos())
						case "synctest.Wait":
							bubbles = true
						case "synctest.Test":
							bubbles = true
							for _, arg := range n.Args {
								walk(arg, true)
							}
							return false
						default:
							if bubble {
								inBubble[name] = true
							} else {
								outside[name] = true
							}
						}
					}
					return true
				})
			}
			walk(fn, false)
			if !bubbles && len(here) > 0 {
				sleeps[fn.Name.Name] = here
			}
		}
	}
	for name, where := range sleeps {
		if !inBubble[name] || outside[name] {
			at = append(at, where...)
		}
	}
	return at
}

// calledName is f or pkg.f, as it is written.
func calledName(c *ast.CallExpr) string {
	switch f := c.Fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		if x, ok := f.X.(*ast.Ident); ok {
			return x.Name + "." + f.Sel.Name
		}
	}
	return ""
}

// TestRealSleeps: what is a sleep on a real clock, and what isn't.
func TestRealSleeps(t *testing.T) {
	for name, c := range map[string]struct {
		code  string
		sleep int
	}{
		"in a bubble":                        {`func TestX(t *T) { synctest.Test(t, func(t *T) { time.Sleep(1) }) }`, 0},
		"plain, though the file has bubbles": {`func TestX(t *T) { synctest.Test(t, f) }; func TestY(t *T) { time.Sleep(1) }`, 1},
		"settles":                            {`func settle() { time.Sleep(1); synctest.Wait() }; func TestX(t *T) { settle() }`, 0},
		"called in a bubble":                 {`func nap() { time.Sleep(1) }; func TestX(t *T) { synctest.Test(t, func(t *T) { nap() }) }`, 0},
		"called in one and outside":          {`func nap() { time.Sleep(1) }; func TestX(t *T) { synctest.Test(t, func(t *T) { nap() }) }; func TestY(t *T) { nap() }`, 1},
		"called by nobody":                   {`func nap() { time.Sleep(1); time.Sleep(2) }`, 2},
	} {
		f, err := parser.ParseFile(token.NewFileSet(), "x_test.go", "package x\n"+c.code, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		seen := 0
		if got := realSleeps([]*ast.File{f}, &seen); len(got) != c.sleep || seen == 0 {
			t.Errorf("%s: %d real sleeps of %d, want %d", name, len(got), seen, c.sleep)
		}
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
			if n := d.Name(); path != "." && (strings.HasPrefix(n, ".") || n == "testdata" || n == "interop") {
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
		dir := filepath.ToSlash(filepath.Dir(path))
		out[dir] = append(out[dir], source{path, fset, f})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}
