package main

import (
	"bytes"
	"context"
	"fmt"
	"go/parser"
	"go/token"
	"slices"
	"strings"
	"testing"
)

// of returns what the operators make of a function's body: "old => new".
func of(t *testing.T, body string) []string {
	t.Helper()
	src := "package p\n\nfunc f(a, b int, ok bool, s []int) (int, error) {\n" + body + "\n}\n"
	fset := token.NewFileSet()
	ast, err := parser.ParseFile(fset, "p.go", src, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, m := range mutate(fset, &file{name: "p.go", src: []byte(src), ast: ast}) {
		out = append(out, fmt.Sprintf("%s => %s", src[m.from:m.to], m.with))
	}
	return out
}

func TestOperators(t *testing.T) {
	for _, c := range []struct{ body, want string }{
		{"_ = a < b", "< => <=\n_ = a < b => if false { _ = a < b }"},
		{"a += b", "+= => -=\na += b => if false { a += b }"},
		{"a--", "-- => ++\na-- => if false { a-- }"},
		{"a := -b", "-b => b"},
		{"c := !ok", "!ok => ok"},
		{"c := true", "true => false"},
		{"c := 3", "3 => 4"},
		{"c := 16", "16 => 64\n16 => 4"},
		{"c := .2", ".2 => 0.8\n.2 => 0.05"},
		{"c := 0x9e3779b97f4a7c15", ""},
		{"c := a * b", "* => /\na * b => (a)\na * b => (b)"},
		{"c := ok && a == b", "&& => ||\nok => true\na == b => true\n== => !="},
		{"c := max(a, b)", "max => min"},
		{"c := make([]int, 0, 64)", "0 => 1"},
		{"c := T{A: a, b: b}", "A: a, => \nb: b => "},
		{"panic(\"no\" + string(a))", ""},
		{"return a, nil", "return a, nil => if false { return a, nil }; return *new(int), *new(error)"},
		{"return 0, nil", "0 => 1"},
		{"if ok {}", "ok => false && (ok)\nok => true || (ok)"},
		{"for ok {}", "ok => false && (ok)"},
		{"if a > b { a = b }", "a > b => false && (a > b)\na > b => true || (a > b)\na = b => if false { a = b }"},
		{"switch { case ok: g() }", "ok => false && (ok)\ng() => if false { g() }"},
		{"c := func() bool { return a < b }", "return a < b => if false { return a < b }; return *new(bool)\nreturn a < b => if false { return a < b }; return true\n< => <="},
	} {
		got := of(t, c.body)
		want := strings.Split(c.want, "\n")
		if c.want == "" {
			want = nil
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s:\n got %q\nwant %q", c.body, got, want)
		}
	}
}

func TestKept(t *testing.T) {
	k, err := parseKept("# one\n# reason\na.go f: x => y\na.go f: x => z\n\n# other\nb.go *\n")
	if err != nil || len(k) != 3 || k["a.go f: x => z"] != "one reason" || k["b.go *"] != "other" {
		t.Errorf("got %v, %v", k, err)
	}
	for text, want := range map[string]string{
		"a.go f: x => y":                       "line 1: \"a.go f: x => y\" has no reason",
		"# one\na.go f: x\n\na.go f: z":        "line 4: \"a.go f: z\" has no reason",
		"# one\na.go f: x\n# two\na.go f: x\n": "line 4: \"a.go f: x\" stands twice",
	} {
		if _, err := parseKept(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	if !(kept{"b.go *": "why"}).whole(&mutant{File: "b.go"}) {
		t.Error("a file's row does not excuse the file")
	}
}

// The whole way, with a package whose tests see some mutants and not others.
func TestPlay(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a dozen test binaries")
	}
	s, err := play(context.Background(), &options{seed: 1, jobs: 2}, "./testdata/clamp", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]*mutant{}
	for _, m := range s.Mutants {
		byName[m.Name] = m
	}
	for name, want := range map[string]state{
		"clamp.go New: High: low + n => nothing": killed,
		"clamp.go New: func New(low, n int) Range { return Range{Low: low, High: low + n} } => func New(low, n int) Range { return Range{ High: low + n} }": survived,
		"clamp.go Range.Clamp: return min(x, r.High) => return max(x, r.High)":                                                                              killed,
		"clamp.go Range.Clamp: if x < r.Low { => if true || (x < r.Low) {":                                                                                  killed,
		"clamp.go Range.Clamp: if x < r.Low { => if x <= r.Low {":                                                                                           survived,
		"clamp.go Range.Clamp: return r.Low => if false { return r.Low }; return *new(int)":                                                                 uncovered,
		"clamp.go Twice: func Twice(x int) int { return 2 * x } => func Twice(x int) int { return 3 * x }":                                                  uncovered,
	} {
		switch m := byName[name]; {
		case m == nil:
			t.Errorf("no mutant %q", name)
		case m.State != want:
			t.Errorf("%s: %s, want %s", name, m.State, want)
		}
	}
	if s.Excused != 1 || s.Killed == 0 || s.Survived == 0 || s.Killed+s.Survived+s.Excused > len(s.Mutants) {
		t.Errorf("score %+v", s)
	}
	var b bytes.Buffer
	s.print(&b, &options{})
	if !strings.Contains(b.String(), "not reached: clamp.go:19\n-\tfunc Twice(x int) int { return 2 * x }\n+\tfunc Twice(x int) int { return 3 * x }\n") {
		t.Errorf("the list of survivors:\n%s", &b)
	}
}

// Equal code and seed give the same sample, and an edit elsewhere moves little of it.
func TestSample(t *testing.T) {
	p, err := load(context.Background(), "./testdata/clamp")
	if err != nil {
		t.Fatal(err)
	}
	names := func(seed uint64) (out []string) {
		for _, m := range p.sample(p.mutants(), &options{n: 5, seed: seed}, kept{}) {
			out = append(out, m.Name)
		}
		return out
	}
	if a, b := names(1), names(1); !slices.Equal(a, b) || len(a) != 5 {
		t.Errorf("two samples with one seed: %q, %q", a, b)
	}
	if a, b := names(1), names(2); slices.Equal(a, b) {
		t.Errorf("seeds 1 and 2 give the same: %q", a)
	}
	if stale := (kept{"clamp.go Gone: a => b": "why", "clamp.go *": "why"}).stale(p.mutants()); !slices.Equal(stale, []string{"clamp.go Gone: a => b"}) {
		t.Errorf("stale rows: %q", stale)
	}
}
