package router

import (
	"bytes"
	"log/slog"
	"sync"
	"time"
)

// complainEvery is how often the same complaint about the same engine is logged.
const complainEvery = 10 * time.Second

// complaints log failed requests without a line for each: the first at once, then one line
// now and then that says how many there were.
type complaints struct {
	log *slog.Logger

	mu   sync.Mutex
	last map[complaint]*repeated // guarded by mu; at most replicas times reasons
}

type complaint struct{ replica, why string }

type repeated struct {
	at time.Time // of the last line
	n  int       // complaints since then
}

func (c *complaints) warn(replica, why string, err error, now time.Time) {
	if n, due := c.count(complaint{replica, why}, now); due {
		c.log.Warn("requests fail", "replica", replica, "why", why, "since_last_line", n, "err", err)
	}
}

// count counts one more, and reports how many the next line stands for if it is due.
func (c *complaints) count(k complaint, now time.Time) (n int, due bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.last[k]
	switch {
	case r == nil && len(c.last) < 10_000:
		if c.last == nil {
			c.last = map[complaint]*repeated{}
		}
		c.last[k] = &repeated{at: now}
		return 1, true
	case r == nil: // replicas come and go
		clear(c.last)
		return 1, true
	}
	if r.n++; now.Sub(r.at) < complainEvery {
		return 0, false
	}
	n, r.n, r.at = r.n, 0, now
	return n, true
}

// A serverLog takes what net/http's server has to say. That clients break off, it says at
// length: that is for debugging. A panic is not.
type serverLog struct{ log *slog.Logger }

func (l serverLog) Write(p []byte) (int, error) {
	line := string(bytes.TrimSpace(p))
	if bytes.Contains(p, []byte("panic serving")) {
		l.log.Error("a bug in Kvasir, please report it: one request was lost", "panic", line)
	} else {
		l.log.Debug("front door", "says", line)
	}
	return len(p), nil
}
