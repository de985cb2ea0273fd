package sim

import (
	"strings"
	"testing"
)

func TestTrace(t *testing.T) {
	get := func(spec string) *Workload {
		w, err := Generate(spec, 2)
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	w := get("conversations:conversations=3,turns=2,block=16")
	requests, sessions, err := w.Trace()
	if err != nil || len(requests) != 0 || len(sessions) != 3 {
		t.Fatalf("%d requests, %d sessions, %v", len(requests), len(sessions), err)
	}
	s := sessions[2]
	if a, b := s.Turns[0], s.Turns[1]; s.BlockSize != 16 || len(s.Turns) != 2 || a.Input != 1230 || b.Input != 1476 || len(b.Blocks) != 1476/16 || a.Blocks[70] != b.Blocks[70] || b.Think < .05 || b.Think > .3 {
		t.Errorf("%+v", s)
	}
	w = get("tool:requests=50,speed=2")
	requests, sessions, err = w.Trace()
	if err != nil || len(requests) != 50 || len(sessions) != 0 {
		t.Fatalf("%d requests, %d sessions, %v", len(requests), len(sessions), err)
	}
	if a, q := w.open[49], requests[49]; q.At != a.at/2 || q.Input != a.prompt || q.Output != a.out || len(q.Blocks) != len(a.blocks) || q.BlockSize != 512 {
		t.Errorf("%+v of %+v", q, a)
	}
	if _, _, err := get("rl_rollouts").Trace(); err == nil || !strings.Contains(err.Error(), "rl_rollouts") {
		t.Errorf("error %v", err)
	}
}
