package sim

import (
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"
)

// Hints reach the policies that look at them, and nothing else changes.
func TestHints(t *testing.T) {
	w, err := Generate("agent_serial:users=16,output=1000,requests=200", 3)
	if err != nil {
		t.Fatal(err)
	}
	places := func(policy string, h Hints) []int {
		cl := runArm(t, w, policy, 3, func(c *Config) { c.Hints = h })
		var list []int
		for id := range cl.metrics.byID {
			list = append(list, cl.metrics.byID[id].replica<<32|int(id))
		}
		slices.Sort(list)
		return list
	}
	for _, x := range []struct {
		policy  string
		h       Hints
		matters bool
	}{
		{"marginal:known", Hints{MaxOutput: true}, true},
		{"round_robin", Hints{MaxOutput: true}, false},
		{"steer", Hints{NextTurn: "exact"}, true},
		{"marginal:known", Hints{NextTurn: "exact"}, false},
	} {
		if same := reflect.DeepEqual(places(x.policy, Hints{}), places(x.policy, x.h)); same == x.matters {
			t.Errorf("%s under %+v: the same placements as without: %v", x.policy, x.h, same)
		}
	}
	if !reflect.DeepEqual(places("steer", Hints{NextTurn: "noisy"}), places("steer", Hints{NextTurn: "noisy"})) {
		t.Error("noisy hints don't repeat")
	}
}

func TestNextTurn(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 3))
	exact, noisy := Hints{NextTurn: "exact"}, Hints{NextTurn: "noisy"}
	if got := exact.say(2.5, r); got != 2500*time.Millisecond {
		t.Errorf("exact: %v", got)
	}
	sum, sq := 0.0, 0.0
	for range 10_000 {
		x := math.Log(noisy.say(8, r).Seconds() / 8)
		sum, sq = sum+x, sq+x*x
	}
	if mean, sd := sum/1e4, math.Sqrt(sq/1e4); math.Abs(mean) > .02 || math.Abs(sd-.5) > .02 {
		t.Errorf("noisy: log factor %.3f ± %.3f, want 0 ± 0.5", mean, sd)
	}
	// A turn's hint is the think time before the next one; the last turn has none.
	w, err := Generate("conversations:users=2,conversations=2,turns=3", 1)
	if err != nil {
		t.Fatal(err)
	}
	cl := runArm(t, w, "steer", 1, func(c *Config) { c.Hints = exact })
	at := map[[2]int32]*request{}
	for _, q := range cl.metrics.byID {
		at[[2]int32{q.conv, q.turn}] = q
	}
	for k, q := range at {
		want := 0.0
		if next := at[[2]int32{k[0], k[1] + 1}]; next != nil {
			want = next.arrival - q.done
		}
		if got := q.nextTurn.Seconds(); math.Abs(got-want) > 1e-6 {
			t.Errorf("session %d, turn %d says %v s, want %v", k[0], k[1], got, want)
		}
	}
}
