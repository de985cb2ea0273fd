package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"hash/fnv"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// A pkg is a package as the compiler sees it: the files that this platform and no
// build tag choose, with what is needed to check the types of a changed one.
type pkg struct {
	path, dir string
	fset      *token.FileSet
	files     []*file
	imports   types.Importer
}

type file struct {
	name string // without its folder
	src  []byte
	ast  *ast.File
}

// load reads the package and the export data of all that it imports.
func load(ctx context.Context, name string) (*pkg, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles,DepOnly", name)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w\n%s", err, errs.Bytes())
	}
	p := &pkg{fset: token.NewFileSet()}
	exports := map[string]string{}
	var names []string
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var l struct {
			ImportPath, Dir, Export string
			GoFiles                 []string
			DepOnly                 bool
		}
		if err := d.Decode(&l); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		exports[l.ImportPath] = l.Export
		if !l.DepOnly {
			if p.path != "" {
				return nil, fmt.Errorf("%s and %s: one package at a time", p.path, l.ImportPath)
			}
			p.path, p.dir, names = l.ImportPath, l.Dir, l.GoFiles
		}
	}
	p.imports = importer.ForCompiler(p.fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	for _, n := range names {
		f := &file{name: n}
		if f.src, err = os.ReadFile(filepath.Join(p.dir, n)); err != nil {
			return nil, err
		}
		if f.ast, err = parser.ParseFile(p.fset, filepath.Join(p.dir, n), f.src, parser.SkipObjectResolution); err != nil {
			return nil, err
		}
		p.files = append(p.files, f)
	}
	if err := p.check(nil); err != nil {
		return nil, fmt.Errorf("unchanged, it doesn't compile: %w", err)
	}
	return p, nil
}

// check says why the package with m in it doesn't compile: go/types reports what
// the compiler would, unused variables and imports too, in a hundredth of the time.
func (p *pkg) check(m *mutant) error {
	files := make([]*ast.File, len(p.files))
	for i, f := range p.files {
		files[i] = f.ast
		if m == nil || m.file != f {
			continue
		}
		changed, err := parser.ParseFile(p.fset, filepath.Join(p.dir, f.name), m.text(), parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		files[i] = changed
	}
	c := types.Config{Importer: p.imports, Sizes: types.SizesFor("gc", runtime.GOARCH)}
	_, err := c.Check(p.path, p.fset, files, nil)
	return err
}

// mutants returns every change that the operators propose, in the order of the
// text, each with a name of its own.
func (p *pkg) mutants() []*mutant {
	var all []*mutant
	for _, f := range p.files {
		for _, m := range mutate(p.fset, f) {
			m.file = f
			all = append(all, m)
		}
	}
	seen := map[string]int{}
	for _, m := range all {
		m.name()
		seen[m.Name]++
		if n := seen[m.Name]; n > 1 {
			m.Name += fmt.Sprintf(" #%d", n)
		}
	}
	return all
}

// sample chooses o.n of those that compile. Each mutant has its place in the order
// by its own name, so an edit elsewhere leaves most of the sample as it was.
func (p *pkg) sample(all []*mutant, o *options, k kept) []*mutant {
	rank := func(m *mutant) uint64 {
		h := fnv.New64a()
		fmt.Fprintf(h, "%d %s", o.seed, m.Name)
		return h.Sum64() * 0x9e3779b97f4a7c15
	}
	order := slices.Clone(all)
	slices.SortFunc(order, func(a, b *mutant) int {
		if x, y := rank(a), rank(b); x != y {
			if x < y {
				return -1
			}
			return 1
		}
		return strings.Compare(a.Name, b.Name)
	})
	var out []*mutant
	for _, m := range order {
		if o.n > 0 && len(out) == o.n {
			break
		}
		if !strings.Contains(m.Name, o.only) || k.whole(m) || p.check(m) != nil {
			continue
		}
		m.Excuse = k.reason(m)
		out = append(out, m)
	}
	return out
}
