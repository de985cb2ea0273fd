package demo

import (
	"strings"
	"testing"
)

func TestSessions(t *testing.T) {
	list, err := Sessions()
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != 24 {
		t.Fatalf("%d sessions, want 24", len(list))
	}
	parent := map[uint64]uint64{}
	shared := 0
	for _, s := range list {
		if s.BlockSize != 64 || len(s.Turns) != 12 {
			t.Fatalf("session %s: blocks of %d tokens and %d turns, want 64 and 12", s.ID, s.BlockSize, len(s.Turns))
		}
		for i, turn := range s.Turns {
			if len(turn.Blocks) != turn.Input/64 {
				t.Errorf("session %s turn %d: %d blocks for %d tokens", s.ID, i, len(turn.Blocks), turn.Input)
			}
			for k, b := range turn.Blocks {
				if k == 0 {
					continue
				}
				if p, ok := parent[b]; ok && p != turn.Blocks[k-1] && b > 0xffff {
					t.Errorf("session %s turn %d: block %d has two parents: ids aren't chained", s.ID, i, b)
				}
				parent[b] = turn.Blocks[k-1]
				if b <= 0xffff {
					shared++
				}
			}
		}
	}
	if shared == 0 {
		t.Error("no shared front")
	}
	if !strings.Contains(Notice, "Callan Fox") || !strings.Contains(Licence, "Apache License") {
		t.Error("notice or licence is missing")
	}
	if len(sessions) > 200<<10 {
		t.Errorf("%d bytes, want at most 200 KiB", len(sessions))
	}
}
