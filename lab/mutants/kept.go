package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// keptFile lists, per package, the mutants that may live. A row is a mutant's name
// as the list of survivors prints it; the comment above says why:
//
//	# ids are never reused, so "next" and "the same" can't differ
//	ledger.go Ledger.Admit: id < l.next => id <= l.next
//
//	# runs with -tags invariants only
//	check.go *
//
// Rows go by text, so they move with the code, and die with it: a row without a
// mutant is an error.
const keptFile = "testdata/mutants.txt"

type kept map[string]string // name, or "file *" → reason

func readKept(dir string) (kept, error) {
	b, err := os.ReadFile(filepath.Join(dir, keptFile))
	if errors.Is(err, fs.ErrNotExist) {
		return kept{}, nil
	}
	if err != nil {
		return nil, err
	}
	k, err := parseKept(string(b))
	if err != nil {
		return nil, fmt.Errorf("%s/%s: %w", dir, keptFile, err)
	}
	return k, nil
}

// parseKept gives each row the comment above it; rows without a gap between them
// share one.
func parseKept(text string) (kept, error) {
	k := kept{}
	reason, open := "", false
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		comment, is := strings.CutPrefix(line, "#")
		comment = strings.TrimSpace(comment)
		switch {
		case line == "":
			reason, open = "", false
		case is && open:
			reason += " " + comment
		case is:
			reason, open = comment, true
		case reason == "":
			return nil, fmt.Errorf("line %d: %q has no reason: write it above, after a #", i+1, line)
		case k[line] != "":
			return nil, fmt.Errorf("line %d: %q stands twice", i+1, line)
		default:
			k[line], open = reason, false
		}
	}
	return k, nil
}

func (k kept) reason(m *mutant) string { return k[m.Name] }

// whole says whether the whole file of m is excused: it has no place in the sample.
func (k kept) whole(m *mutant) bool { return k[m.File+" *"] != "" }

// stale returns rows that name none of the mutants.
func (k kept) stale(all []*mutant) []string {
	names := map[string]bool{}
	for _, m := range all {
		names[m.Name], names[m.File+" *"] = true, true
	}
	var out []string
	for row := range k {
		if !names[row] {
			out = append(out, row)
		}
	}
	return out
}
