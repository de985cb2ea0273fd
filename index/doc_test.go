package index

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestInvariantsAreCited: every invariant that the code cites is in the list of
// doc.go, every one of the list is cited by code that relies on it, and those with a
// star are checked in check.go or pagecheck.go.
func TestInvariantsAreCited(t *testing.T) {
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	listed, starred := map[string]bool{}, map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^//\t(U\d+)(\*?) `).FindAllStringSubmatch(string(doc), -1) {
		if listed[m[1]] {
			t.Errorf("%s is in doc.go twice", m[1])
		}
		listed[m[1]], starred[m[1]] = true, m[2] != ""
	}
	if len(listed) == 0 {
		t.Fatal("doc.go lists no invariants")
	}
	cited, checked := map[string]bool{}, map[string]bool{}
	files, _ := filepath.Glob("*.go")
	for _, f := range files {
		if f == "doc.go" || strings.HasSuffix(f, "_test.go") {
			continue
		}
		src, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, u := range regexp.MustCompile(`\bU\d+\b`).FindAllString(string(src), -1) {
			if !listed[u] {
				t.Errorf("%s cites %s, which isn't in doc.go", f, u)
			}
			if strings.HasSuffix(f, "check.go") {
				checked[u] = true
			} else {
				cited[u] = true
			}
		}
	}
	for u := range listed {
		if !cited[u] {
			t.Errorf("no code cites %s of doc.go", u)
		}
		if starred[u] != checked[u] {
			t.Errorf("%s is said to be checked: %v; a check names it: %v", u, starred[u], checked[u])
		}
	}
}
