package kvasir_test

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestCitations: a reason that stands in a document stands in this repository.
// A comment cites a file as docs/mock.md, from the root or from its own folder, a
// heading of it as docs/mock.md, "Steps", and a note as note 0006.
func TestCitations(t *testing.T) {
	seen := 0
	for file, comment := range comments(t) {
		faults, n := citations(path.Dir(file), comment, os.ReadFile)
		seen += n
		for _, f := range faults {
			t.Errorf("%s: %s", file, f)
		}
	}
	if seen < 40 {
		t.Errorf("saw %d citations: does the test look at all?", seen)
	}
}

var (
	cited   = regexp.MustCompile(`([A-Za-z0-9_./-]+\.md)(?:, "([^"]+)")?`)
	noted   = regexp.MustCompile(`\b[Nn]otes? (\d+)\b`)
	section = regexp.MustCompile(`\b[Ss]ections? \d`)
	outside = regexp.MustCompile(`RFC|WHATWG|Unicode|arXiv`) // whose sections may be cited
)

// citations returns what is wrong with the documents that text cites, and how many it cites.
func citations(dir, text string, read func(string) ([]byte, error)) (faults []string, n int) {
	text = strings.Join(strings.Fields(text), " ")
	for _, m := range cited.FindAllStringSubmatch(text, -1) {
		if strings.HasPrefix(m[1], "//") {
			continue // of a URL
		}
		n++
		b, err := read(m[1])
		if err != nil {
			b, err = read(path.Join(dir, m[1]))
		}
		switch {
		case err != nil:
			faults = append(faults, fmt.Sprintf("cites %s, which is not in the repository", m[1]))
		case m[2] != "" && !headings(b)[anchor(m[2])]:
			faults = append(faults, fmt.Sprintf("cites %s, %q: it has no such heading", m[1], m[2]))
		}
	}
	for _, m := range noted.FindAllStringSubmatch(text, -1) {
		n++
		if found, _ := filepath.Glob("docs/notes/" + m[1] + "-*.md"); len(found) != 1 {
			faults = append(faults, fmt.Sprintf("cites note %s, which is not in docs/notes", m[1]))
		}
	}
	if s := section.FindString(text); s != "" && !outside.MatchString(text) {
		faults = append(faults, fmt.Sprintf("cites %q, of what? Documents here have headings, not numbers", s))
	}
	return faults, n
}

// TestLinks: a link in a document of ours leads to a file that is here, and to a heading of it.
func TestLinks(t *testing.T) {
	links, seen := regexp.MustCompile(`\]\(([^)\s]+)\)`), 0
	walk(t, ".md", func(file string) {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range links.FindAllStringSubmatch(string(b), -1) {
			target, at, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			seen++
			to := path.Join(path.Dir(file), target)
			if file == "lab/experiments/words.md" { // goes into docs/experiments.md
				to = path.Join("docs", target)
			}
			if target == "" {
				to = file
			}
			if _, err := os.Stat(to); err != nil {
				t.Errorf("%s links to %s, which is not here", file, m[1])
			} else if at != "" && strings.HasSuffix(to, ".md") {
				if b, err := os.ReadFile(to); err != nil || !headings(b)[at] {
					t.Errorf("%s links to %s: it has no such heading", file, m[1])
				}
			}
		}
	})
	if seen < 50 {
		t.Errorf("saw %d links: does the test look at all?", seen)
	}
}

// TestCitationsSees shows what the test refuses.
func TestCitationsSees(t *testing.T) {
	read := func(name string) ([]byte, error) {
		if name == "docs/mock.md" || name == "lab/sim/README.md" {
			return []byte("# The mock\n\n## The `ref` view, once\n"), nil
		}
		return nil, fs.ErrNotExist
	}
	for text, want := range map[string]string{
		"see docs/mock.md":                              "",
		`see docs/mock.md, "The ref view, once".`:       "",
		"see docs/mock.md,\n\"The ref\nview, once\"":    "",
		"see README.md":                                 "", // of its own folder
		"RFC 9110, section 7.6.1":                       "",
		"note 0006 says":                                "",
		"see experiments.md":                            "not in the repository",
		"docs/policies.md":                              "not in the repository",
		`see docs/mock.md, "Steps"`:                     "no such heading",
		"section 2.5 has it":                            "of what?",
		"note 0099 says":                                "not in docs/notes",
		"docs/mock.md, and (experiments.md, section 3)": "not in the repository",
	} {
		faults, _ := citations("lab/sim", text, read)
		got := strings.Join(faults, "; ")
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// headings returns the anchors of a document.
func headings(b []byte) map[string]bool {
	out := map[string]bool{}
	for _, line := range strings.Split(string(b), "\n") {
		if title := strings.TrimLeft(line, "#"); title != line && strings.HasPrefix(title, " ") {
			out[anchor(title)] = true
		}
	}
	return out
}

var punctuation = regexp.MustCompile(`[^\p{L}\p{N} _-]`)

// anchor is GitHub's: lower case, without punctuation, with dashes for spaces.
func anchor(title string) string {
	s := punctuation.ReplaceAllString(strings.ToLower(strings.TrimSpace(title)), "")
	return strings.ReplaceAll(s, " ", "-")
}

// comments returns all that the comments of each Go file say, tests and generators too.
func comments(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	walk(t, ".go", func(file string) {
		if file == "docs_test.go" {
			return // it cites what is absent
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, g := range f.Comments {
			out[file] += g.Text() + "\n"
		}
	})
	return out
}

// walk visits the files of the repository whose names end so.
func walk(t *testing.T, suffix string, visit func(file string)) {
	t.Helper()
	err := filepath.WalkDir(".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if n := d.Name(); d.IsDir() && p != "." && (strings.HasPrefix(n, ".") || n == "testdata" || n == "node_modules") {
			return filepath.SkipDir
		}
		if !d.IsDir() && strings.HasSuffix(p, suffix) {
			visit(filepath.ToSlash(p))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
