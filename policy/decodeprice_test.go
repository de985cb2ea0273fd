package policy

import (
	"math"
	"testing"
	"time"

	"kvasir/kv"
)

// TestDecodePrice: decode costs more only where first tokens hardly matter, and
// never more than the top.
func TestDecodePrice(t *testing.T) {
	seconds := func(s float64) time.Duration { return time.Duration(s * 1e9) }
	for _, c := range []struct {
		name         string
		first, after float64
		n            int
		top          float64
		want, flight float64
	}{
		{"nothing known", .001, 10, mixSamples - 1, 1, .3, 0},
		{"an agent's turn", .66, 7.2, 100, 1, .3, 0},
		{"just ordinary", .03, .97, 100, 1, .3, 0},
		{"half a rollout", .02, .98, 100, 1, .45, .0075},
		{"a rollout", .1, 9.9, 100, 1, .9, .03},
		{"a long rollout", .01, 10, 100, 1, 1, .03},
		{"constant", .01, 10, 100, 0, .3, 0},
		{"a top below the price", .01, 10, 100, .2, .3, 0},
		{"no first token at all", 1e-9, 1e4, 100, 50, .3 * 30, .03},
	} {
		var m mix
		for range c.n {
			m.firstToken(&kv.FirstToken{Latency: seconds(c.first)})
			m.firstToken(&kv.FirstToken{Latency: time.Hour, FromPeer: true})
			m.done(&kv.Done{Streaming: seconds(c.after)})
			m.done(&kv.Done{Streaming: time.Hour, Failed: true})
			m.done(&kv.Done{Streaming: time.Hour, FromPeer: true})
			m.done(&kv.Done{})
		}
		if got := m.decodePrice(.3, c.top); math.Abs(got-c.want) > 1e-6 {
			t.Errorf("%s: %.4f, want %.4f", c.name, got, c.want)
		}
		if got := m.flightPrice(0, .3, c.top); math.Abs(got-c.flight) > 1e-6 {
			t.Errorf("%s: sigma %.4f, want %.4f", c.name, got, c.flight)
		}
		if got := m.flightPrice(.5, .3, c.top); got != .5 {
			t.Errorf("%s: a sigma of .5 becomes %.4f", c.name, got)
		}
	}
}

// TestDecodePriceFollows: a fleet that goes over from chats to rollouts gets
// their price within a few thousand requests.
func TestDecodePriceFollows(t *testing.T) {
	var m mix
	for range 10000 {
		m.firstToken(&kv.FirstToken{Latency: time.Second})
		m.done(&kv.Done{Streaming: 9 * time.Second})
	}
	for range 8000 {
		m.firstToken(&kv.FirstToken{Latency: 50 * time.Millisecond})
		m.done(&kv.Done{Streaming: 10 * time.Second})
	}
	if got := m.decodePrice(.3, 1); got != 1 {
		t.Errorf("%.3f, want 1", got)
	}
}
