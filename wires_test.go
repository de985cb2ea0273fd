package kvasir_test

import (
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"slices"
	"strings"
	"testing"
)

// TestEveryWireEnds: each exported field of what a decision is made from is set by
// shipped code and read by shipped code. The laboratory doesn't count.
func TestEveryWireEnds(t *testing.T) {
	h := newHouse(t)
	for path, names := range map[string][]string{
		"policy": {"Request", "Candidate"},
		"sched":  {"Request"},
	} {
		for _, name := range names {
			object := h.load(path).Scope().Lookup(name)
			if object == nil {
				t.Fatalf("%s.%s is gone: name here what has taken its place", path, name)
			}
			of := object.Type().Underlying().(*types.Struct)
			for f := range of.Fields() {
				if !f.Exported() {
					continue
				}
				if h.set[f] == 0 {
					t.Errorf("%s.%s.%s is set by no shipped code: feed it or delete it", path, name, f.Name())
				}
				if h.read[f] == 0 {
					t.Errorf("%s.%s.%s is read by no shipped code: use it or delete it", path, name, f.Name())
				}
			}
		}
	}
}

// A house is our packages, type-checked. Those of others, but for sync, are empty:
// what they declare is of no interest, and errors for want of it are ignored.
type house struct {
	t         *testing.T
	files     map[string][]source
	loaded    map[string]*types.Package
	sync      *types.Package
	set, read map[*types.Var]int // fields, by how often shipped code does so
}

func newHouse(t *testing.T) *house {
	h := &house{t: t, files: sources(t), loaded: map[string]*types.Package{}, set: map[*types.Var]int{}, read: map[*types.Var]int{}}
	for _, dir := range slices.Sorted(maps.Keys(h.files)) {
		if !strings.HasPrefix(dir, "lab/") && dir != "." {
			h.load(dir)
		}
	}
	return h
}

// Import is types.Importer.
func (h *house) Import(path string) (*types.Package, error) {
	if ours, ok := strings.CutPrefix(path, "kvasir/"); ok {
		return h.load(ours), nil
	}
	if path == "sync" { // a *T comes out of a sync.Pool
		if h.sync == nil {
			var err error
			if h.sync, err = importer.ForCompiler(token.NewFileSet(), "source", nil).Import(path); err != nil {
				h.t.Fatal(err)
			}
		}
		return h.sync, nil
	}
	if h.loaded[path] == nil {
		h.loaded[path] = types.NewPackage(path, path[strings.LastIndex(path, "/")+1:])
		h.loaded[path].MarkComplete()
	}
	return h.loaded[path], nil
}

func (h *house) load(dir string) *types.Package {
	if p := h.loaded["kvasir/"+dir]; p != nil {
		return p
	}
	files := h.files[dir]
	if len(files) == 0 {
		h.t.Fatalf("no package in %s", dir)
	}
	// All of a package must have positions in one set.
	fset, parsed := token.NewFileSet(), []*ast.File{}
	for _, f := range files {
		file, err := parser.ParseFile(fset, f.name, nil, parser.SkipObjectResolution)
		if err != nil {
			h.t.Fatal(err)
		}
		parsed = append(parsed, file)
	}
	info := &types.Info{Selections: map[*ast.SelectorExpr]*types.Selection{}, Uses: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: h, Error: func(error) {}}
	p, _ := config.Check("kvasir/"+dir, fset, parsed, info)
	h.loaded["kvasir/"+dir] = p
	for _, f := range parsed {
		h.count(f, info)
	}
	return p
}

// count adds up the uses of fields in f: a key of a literal and the left side of an
// assignment set a field, all else reads it.
func (h *house) count(f *ast.File, info *types.Info) {
	setting := map[*ast.SelectorExpr]bool{}
	mark := func(e ast.Expr) {
		if s, ok := ast.Unparen(e).(*ast.SelectorExpr); ok {
			setting[s] = true
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for _, e := range n.Lhs {
				mark(e)
			}
		case *ast.IncDecStmt:
			mark(n.X)
		case *ast.CompositeLit:
			for _, e := range n.Elts {
				if kv, ok := e.(*ast.KeyValueExpr); ok {
					if key, ok := kv.Key.(*ast.Ident); ok {
						if v, ok := info.Uses[key].(*types.Var); ok {
							h.set[v]++
						}
					}
				}
			}
		case *ast.SelectorExpr:
			s := info.Selections[n]
			if s == nil || s.Kind() != types.FieldVal {
				return true
			}
			if v, ok := s.Obj().(*types.Var); !ok {
				return true
			} else if setting[n] {
				h.set[v]++
			} else {
				h.read[v]++
			}
		}
		return true
	})
}
