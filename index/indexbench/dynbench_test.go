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

// TestDynbenchFull prints what the verb prints: go test -run Full -dynbench ./index/indexbench
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
