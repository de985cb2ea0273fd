package seq

import (
	"testing"
	"time"
)

// The defaults are what the comments of Config say, and what is set stays.
func TestDefaults(t *testing.T) {
	c := Config{}.withDefaults()
	if j := c.Jitter(); j != .5 {
		t.Errorf("jitter %v, want 0.5", j)
	}
	c.Jitter = nil
	check := func(c, want Config) {
		t.Helper()
		// Functions can't be compared, and Jitter is nil in both.
		if c.Replay != want.Replay || c.ReplayTimeout != want.ReplayTimeout || c.AnswerTimeout != want.AnswerTimeout || c.Backoff != want.Backoff ||
			c.MaxBackoff != want.MaxBackoff || c.ProbeAfter != want.ProbeAfter || c.BlindAfter != want.BlindAfter || c.HoldBatches != want.HoldBatches || c.HoldBytes != want.HoldBytes {
			t.Errorf("%+v, want %+v", c, want)
		}
	}
	check(c, Config{
		ReplayTimeout: 5 * time.Second, AnswerTimeout: time.Second, Backoff: time.Second, MaxBackoff: time.Minute,
		ProbeAfter: 10 * time.Second, BlindAfter: 30 * time.Second, HoldBatches: 8192, HoldBytes: 16 << 20,
	})
	set := Config{Replay: true, ReplayTimeout: 1, AnswerTimeout: 2, Backoff: 3, MaxBackoff: 4, ProbeAfter: 5, BlindAfter: 6, HoldBatches: 1, HoldBytes: 1}
	c = set.withDefaults()
	check(c, set)
}
