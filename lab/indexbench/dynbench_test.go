package indexbench

import (
	"encoding/json"
	"flag"
	"testing"
)

var (
	full        = flag.Bool("dynbench", false, "run the whole dynbench workload and print its result")
	targets     = flag.Int("targets", 64, "")
	seqs        = flag.Int("seqs", 100, "")
	blocks      = flag.Int("blocks", 2000, "")
	eventBlocks = flag.Int("event-blocks", 0, "")
	queries     = flag.Int("queries", 1000, "")
)

// TestDynbenchSmall runs everything small and checks what doesn't depend on the
// machine.
func TestDynbenchSmall(t *testing.T) {
	for _, eb := range []int{0, 1, 7} {
		res, err := Dynbench{Targets: 5, Seqs: 30, Blocks: 100, EventBlocks: eb, Queries: 50}.Run()
		if err != nil {
			t.Fatal(err)
		}
		// 20 sequences with prefix, 10 without their 40 blocks
		if want := 5 * (20*100 + 10*60); res.Memberships != want {
			t.Errorf("%d memberships, want %d", res.Memberships, want)
		}
		if want := 20*40 + 5*30*60; res.Rows != want {
			t.Errorf("%d distinct blocks, want %d", res.Rows, want)
		}
		for _, l := range res.Lookup {
			want := map[string][2]int{"hit": {5, 100}, "prefix40": {5, 40}, "miss": {0, 0}}[l.Case]
			if got := [2]int{l.Matched, l.Deepest}; got != want {
				t.Errorf("%s of %d blocks: %d targets, deepest %d; want %v", l.Case, l.QueryBlocks, l.Matched, l.Deepest, want)
			}
		}
	}
	if _, err := (Dynbench{Targets: 0, Seqs: 1, Blocks: 10}).Run(); err == nil {
		t.Error("no targets: no error")
	}
}

// TestDynbenchFull prints what the verb prints: go test -run Full -dynbench ./indexbench
func TestDynbenchFull(t *testing.T) {
	if !*full {
		t.Skip("only with -dynbench")
	}
	res, err := Dynbench{Targets: *targets, Seqs: *seqs, Blocks: *blocks, EventBlocks: *eventBlocks, Queries: *queries}.Run()
	if err != nil {
		t.Fatal(err)
	}
	b, _ := json.MarshalIndent(res, "", " ")
	t.Logf("%s", b)
}

// TestGrowth prints how lookups fare from 1 M to 30 M memberships (with
// -dynbench), or checks a small run.
func TestGrowth(t *testing.T) {
	d, sizes := Dynbench{Targets: 4, Seqs: 1, Blocks: 50, Queries: 20}, []int{500, 5000}
	if *full {
		d, sizes = Dynbench{Targets: *targets, Seqs: 1, Blocks: *blocks, Queries: *queries}, []int{1e6, 3e7}
	}
	g, err := d.Grow(sizes...)
	if err != nil {
		t.Fatal(err)
	}
	for i, l := range g.Lookup {
		if l.Matched != d.Targets || l.Deepest != d.Blocks || g.Memberships[i] < sizes[i] {
			t.Errorf("at %d memberships: %+v", g.Memberships[i], l)
		}
	}
	b, _ := json.Marshal(g)
	t.Logf("%s", b)
}
