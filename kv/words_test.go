package kv

import (
	"fmt"
	"testing"
	"time"
)

func TestNames(t *testing.T) {
	for _, c := range []struct {
		is   fmt.Stringer
		want string
	}{
		{GPU, "gpu"}, {Host, "host"}, {Disk, "disk"}, {Tier(3), "tier(3)"},
		{Unknown, "unknown"}, {Filling, "filling"}, {Exact, "exact"}, {Stale, "stale"}, {Blind, "blind"}, {Trust(5), "trust(5)"}, {Trust(200), "trust(200)"},
	} {
		if c.is.String() != c.want {
			t.Errorf("%T %q, want %q", c.is, c.is, c.want)
		}
	}
}

func TestHeld(t *testing.T) {
	if n := (Overlap{GPU: 1, Host: 20, Disk: 300, Predicted: 4000}).Held(); n != 321 {
		t.Errorf("%d tokens are held, want 321: a prediction isn't a fact", n)
	}
}

func TestGaugeKnown(t *testing.T) {
	for _, c := range []struct {
		g    Gauge
		want bool
	}{{Gauge{}, false}, {Gauge{Running: 1}, false}, {Gauge{At: time.Unix(1, 0)}, true}} {
		if c.g.Known() != c.want {
			t.Errorf("%+v: known %v, want %v", c.g, c.g.Known(), c.want)
		}
	}
}
