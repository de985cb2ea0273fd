package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"strconv"
	"strings"
)

// A mutant is one changed place: the bytes [from, to) of a file become with.
type mutant struct {
	file     *file
	fn       string // the function around it, "" outside of all
	from, to int
	with     string

	Name   string // file, function, old text => new text: see kept.go
	File   string
	Line   int
	Diff   string
	State  state
	Excuse string `json:",omitempty"` // why it may live
}

func (m *mutant) text() []byte {
	s := m.file.src
	return append(append(append(make([]byte, 0, len(s)+len(m.with)), s[:m.from]...), m.with...), s[m.to:]...)
}

// name fills in what people read.
func (m *mutant) name() {
	m.File = m.file.name
	where := m.fn
	if where == "" {
		where = "-"
	}
	start, end := m.from, m.to
	for start > 0 && m.file.src[start-1] != '\n' {
		start--
	}
	for end < len(m.file.src) && m.file.src[end] != '\n' {
		end++
	}
	src := string(m.file.src)
	before, after := short(src[start:end]), short(src[start:m.from]+m.with+src[m.to:end])
	m.Diff = "-\t" + before + "\n+\t" + after
	if m.to-m.from > 12 {
		before, after = short(src[m.from:m.to]), short(m.with)
	}
	if after == "" {
		after = "nothing"
	}
	m.Name = fmt.Sprintf("%s %s: %s => %s", m.File, where, before, after)
}

// short is s on one line of bounded length.
func short(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if r := []rune(s); len(r) > 140 {
		s = string(r[:140]) + "…"
	}
	return s
}

// A walker collects the mutants of one file.
type walker struct {
	fset *token.FileSet
	f    *file
	fn   *ast.FuncDecl
	skip map[*ast.BinaryExpr]bool // comparisons whose border changes nothing
	out  []*mutant
}

// mutate proposes changes to f. Some won't compile: pkg.check says which. Code that
// panics on purpose is left alone, as are imports, types and tags.
func mutate(fset *token.FileSet, f *file) []*mutant {
	w := &walker{fset: fset, f: f, skip: map[*ast.BinaryExpr]bool{}}
	for _, d := range f.ast.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Body != nil {
				w.fn = d
				w.walk(d.Body, d.Type.Results)
			}
		case *ast.GenDecl:
			w.fn = nil
			if d.Tok == token.CONST || d.Tok == token.VAR {
				w.walk(d, nil)
			}
		}
	}
	return w.out
}

// walk visits n, inside of a function that returns results.
func (w *walker) walk(n ast.Node, results *ast.FieldList) {
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			w.walk(n.Body, n.Type.Results)
			return false
		case *ast.ArrayType, *ast.StructType, *ast.InterfaceType:
			return false
		case *ast.CallExpr:
			return w.call(n)
		case *ast.BinaryExpr:
			w.binary(n)
		case *ast.UnaryExpr:
			if n.Op == token.NOT || n.Op == token.SUB {
				w.change(n, w.src(n.X))
			}
		case *ast.BasicLit:
			w.number(n)
		case *ast.Ident:
			if n.Name == "true" || n.Name == "false" {
				w.change(n, strconv.FormatBool(n.Name == "false"))
			}
		case *ast.KeyValueExpr:
			return w.field(n)
		case *ast.IfStmt:
			w.cond(n.Cond, true)
			w.clamp(n)
		case *ast.ForStmt:
			if n.Cond != nil {
				w.cond(n.Cond, false)
			}
		case *ast.SwitchStmt:
			if n.Tag == nil {
				for _, c := range n.Body.List {
					for _, e := range c.(*ast.CaseClause).List {
						w.cond(e, false)
					}
				}
			}
		case *ast.ReturnStmt:
			w.results(n, results)
		case ast.Stmt:
			return w.statement(n)
		}
		return true
	})
}

// call swaps min and max. A panic's arguments, and capacities, have no mutants:
// nobody can see them.
func (w *walker) call(n *ast.CallExpr) bool {
	f, ok := n.Fun.(*ast.Ident)
	if !ok {
		return true
	}
	switch f.Name {
	case "panic":
		return false
	case "min", "max":
		w.change(f, map[string]string{"min": "max", "max": "min"}[f.Name])
	case "make":
		if len(n.Args) == 3 {
			w.walk(n.Args[1], nil)
		}
		return len(n.Args) == 2
	}
	return true
}

var swaps = map[token.Token][]string{
	token.LSS: {"<="}, token.LEQ: {"<"}, token.GTR: {">="}, token.GEQ: {">"},
	token.EQL: {"!="}, token.NEQ: {"=="},
	token.LAND: {"||"}, token.LOR: {"&&"},
	token.ADD: {"-"}, token.SUB: {"+"}, token.MUL: {"/"}, token.QUO: {"*"}, token.REM: {"/"},
	token.AND: {"|"}, token.OR: {"&"}, token.XOR: {"|"}, token.AND_NOT: {"&"},
	token.SHL: {">>"}, token.SHR: {"<<"},
	token.ADD_ASSIGN: {"-="}, token.SUB_ASSIGN: {"+="}, token.MUL_ASSIGN: {"/="}, token.QUO_ASSIGN: {"*="},
	token.OR_ASSIGN: {"&="}, token.AND_ASSIGN: {"|="},
	token.INC: {"--"}, token.DEC: {"++"},
}

// binary swaps the operator, and drops a factor, a summand or a condition.
func (w *walker) binary(n *ast.BinaryExpr) {
	if !w.skip[n] {
		w.operator(n.OpPos, n.Op)
	}
	switch n.Op {
	case token.MUL, token.QUO, token.ADD, token.SUB:
		w.change(n, "("+w.src(n.X)+")")
		if n.Op == token.MUL || n.Op == token.ADD {
			w.change(n, "("+w.src(n.Y)+")")
		}
	case token.LAND:
		w.change(n.X, "true")
		w.change(n.Y, "true")
	case token.LOR:
		w.change(n.X, "false")
		w.change(n.Y, "false")
	}
}

func (w *walker) operator(at token.Pos, op token.Token) {
	for _, s := range swaps[op] {
		from := w.offset(at)
		w.add(at, from, from+len(op.String()), s)
	}
}

// number changes a constant so far that a test which knows its value sees it.
// Small ones go one up: they count, or say how far beside. The very large are
// seeds and masks, where another is as good.
func (w *walker) number(n *ast.BasicLit) {
	switch n.Kind {
	case token.INT:
		v, err := strconv.ParseInt(n.Value, 0, 64)
		switch {
		case err != nil || v > 1<<31:
		case v <= 3:
			w.change(n, strconv.FormatInt(v+1, 10))
		default:
			w.change(n, strconv.FormatInt(v*4, 10))
			w.change(n, strconv.FormatInt(v/4, 10))
		}
	case token.FLOAT:
		if v, err := strconv.ParseFloat(n.Value, 64); err == nil {
			w.change(n, strconv.FormatFloat(v*4, 'g', -1, 64))
			w.change(n, strconv.FormatFloat(v/4, 'g', -1, 64))
		}
	}
}

// field leaves out Field: x of a composite literal, so that it is zero.
func (w *walker) field(n *ast.KeyValueExpr) bool {
	if _, ok := n.Key.(*ast.Ident); !ok {
		return true
	}
	to := w.offset(n.End())
	for to < len(w.f.src) && (w.f.src[to] == ' ' || w.f.src[to] == '\t') {
		to++
	}
	if to < len(w.f.src) && w.f.src[to] == ',' {
		w.add(n.Pos(), w.offset(n.Pos()), to+1, "")
	} else {
		w.add(n.Pos(), w.offset(n.Pos()), w.offset(n.End()), "")
	}
	w.walk(n.Value, nil)
	return false
}

// cond makes a condition never, and where that can't loop for ever always, true.
// The names in it stay used.
func (w *walker) cond(e ast.Expr, always bool) {
	w.change(e, "false && ("+w.src(e)+")")
	if always {
		w.change(e, "true || ("+w.src(e)+")")
	}
}

// clamp notes "if a > b { b = a }": with >= it assigns what was there already.
func (w *walker) clamp(n *ast.IfStmt) {
	c, ok := n.Cond.(*ast.BinaryExpr)
	if !ok || n.Else != nil || len(n.Body.List) != 1 || c.Op == token.EQL || c.Op == token.NEQ {
		return
	}
	a, ok := n.Body.List[0].(*ast.AssignStmt)
	if !ok || a.Tok != token.ASSIGN || len(a.Lhs) != 1 || len(a.Rhs) != 1 {
		return
	}
	x, y, to, from := w.src(c.X), w.src(c.Y), w.src(a.Lhs[0]), w.src(a.Rhs[0])
	w.skip[c] = x == to && y == from || x == from && y == to
}

// results returns zeros instead, and true instead of a computed bool.
func (w *walker) results(n *ast.ReturnStmt, results *ast.FieldList) {
	if results == nil || len(n.Results) == 0 {
		return
	}
	var zero []string
	for _, r := range results.List {
		for range max(len(r.Names), 1) {
			zero = append(zero, "*new("+w.src(r.Type)+")")
		}
	}
	trivial := true
	for _, e := range n.Results {
		switch s := w.src(e); s {
		case "nil", "0", "false", `""`, "true":
		default:
			trivial = trivial && strings.HasSuffix(s, "{}")
		}
	}
	if trivial {
		return // already zero, or a word that its own operator turns
	}
	old := "if false { " + w.src(n) + " }; return "
	w.change(n, old+strings.Join(zero, ", "))
	if len(zero) == 1 && zero[0] == "*new(bool)" {
		w.change(n, old+"true")
	}
}

// statement leaves it out, and still compiles it.
func (w *walker) statement(n ast.Stmt) bool {
	switch n := n.(type) {
	case *ast.AssignStmt:
		w.operator(n.TokPos, n.Tok)
		if n.Tok != token.DEFINE {
			w.without(n)
		}
	case *ast.IncDecStmt:
		w.operator(n.TokPos, n.Tok)
		w.without(n)
	case *ast.ExprStmt:
		if c, ok := n.X.(*ast.CallExpr); ok {
			if f, ok := c.Fun.(*ast.Ident); ok && f.Name == "panic" {
				return false
			}
		}
		w.without(n)
	case *ast.SendStmt, *ast.DeferStmt, *ast.GoStmt:
		w.without(n)
	case *ast.BranchStmt:
		if n.Tok == token.BREAK || n.Tok == token.CONTINUE {
			w.without(n)
		}
	}
	return true
}

func (w *walker) without(n ast.Stmt) { w.change(n, "if false { "+w.src(n)+" }") }

func (w *walker) src(n ast.Node) string { return string(w.f.src[w.offset(n.Pos()):w.offset(n.End())]) }

func (w *walker) offset(p token.Pos) int { return w.fset.Position(p).Offset }

func (w *walker) change(n ast.Node, with string) {
	w.add(n.Pos(), w.offset(n.Pos()), w.offset(n.End()), with)
}

func (w *walker) add(at token.Pos, from, to int, with string) {
	m := &mutant{from: from, to: to, with: with, Line: w.fset.Position(at).Line}
	if w.fn != nil {
		m.fn = w.fn.Name.Name
		if r := w.fn.Recv; r != nil && len(r.List) == 1 {
			m.fn = strings.TrimPrefix(w.src(r.List[0].Type), "*") + "." + m.fn
		}
	}
	w.out = append(w.out, m)
}
