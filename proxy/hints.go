package proxy

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"kvasir/fleet"
)

// The headers of ours that say something of a request; docs/requests.md has all that
// is read, and what wins over what. A value that can't be read is an error, as nobody
// else will complain of it. Hints in other products' words are taken where they can be
// read, and else ignored: they are for the engine to judge.
const (
	priorityHeader = "X-Kvasir-Priority"
	deadlineHeader = "X-Kvasir-Deadline"
	tenantHeader   = "X-Kvasir-Tenant"
	expectedHeader = "X-Kvasir-Expected-Output"
	nextTurnHeader = "X-Kvasir-Next-Turn"
)

// maxHint bounds the durations that clients may name.
const maxHint = 24 * time.Hour

// maxTenant bounds a tenant's name, in bytes.
const maxTenant = 64

// hints reads what the client says of the request beside its prompt, from headers and
// from c.f. It returns what is wrong with the first header that can't be read.
func (c *call) hints() (wrong *problem) {
	read := func(name, want string, take func(v string) bool) {
		v := c.r.Header[name]
		if wrong != nil || len(v) == 0 {
			return
		}
		if len(v) > 1 {
			wrong = badHeader(name, fmt.Sprintf("is there %d times, want it once: %s", len(v), want))
		} else if !take(v[0]) {
			wrong = badHeader(name, fmt.Sprintf("is %q, want %s", clip(v[0], 80), want))
		}
	}
	c.route.Priority = c.priority()
	read(priorityHeader, "a whole number; 0 is usual, below 0 may be refused under load", func(v string) bool {
		return integer(v, math.MinInt32, math.MaxInt32, &c.route.Priority)
	})
	const duration = "seconds, or a number with a unit as in 1500ms, above 0 and at most 24h"
	read(deadlineHeader, duration, func(v string) bool { return hintDuration(v, &c.deadline) })
	read(nextTurnHeader, duration, func(v string) bool { return hintDuration(v, &c.route.NextTurn) })
	c.route.Output = c.f.expected
	read(expectedHeader, "the number of output tokens, 1 to 1000000000", func(v string) bool {
		return integer(v, 1, 1_000_000_000, &c.route.Output)
	})
	if c.route.MaxOutput = c.f.output; c.route.MaxOutput > 0 {
		c.route.Output = min(c.route.Output, c.route.MaxOutput)
	}
	c.route.Tenant = c.keyTenant()
	read(tenantHeader, fmt.Sprintf("1 to %d visible ASCII characters", maxTenant), func(v string) bool {
		c.route.Tenant = v
		return tenantName(v)
	})
	return wrong
}

func badHeader(name, message string) *problem {
	e := badRequest("invalid_header", "the header "+name+" "+message)
	e.param = name
	return e
}

// integer reads a whole number from lo to hi.
func integer(v string, lo, hi int, to *int) bool {
	n, err := strconv.Atoi(v)
	if err != nil || n < lo || n > hi {
		return false
	}
	*to = n
	return true
}

// hintDuration reads a number of seconds, or a duration with a unit, in (0, maxHint].
func hintDuration(v string, to *time.Duration) bool {
	d, err := time.ParseDuration(v)
	if err != nil {
		s, err := strconv.ParseFloat(v, 64)
		if err != nil || !(s > 0 && s <= maxHint.Seconds()) {
			return false
		}
		d = max(1, time.Duration(s*float64(time.Second)))
	}
	if d <= 0 || d > maxHint {
		return false
	}
	*to = d
	return true
}

// left returns how much of the request's deadline is left at now: 0 without one, and
// 1 ns if it is over.
func (c *call) left(now time.Time) time.Duration {
	if c.deadline == 0 {
		return 0
	}
	return max(1, c.deadline-now.Sub(c.arrived))
}

// priority returns the request's priority without our own header: higher is more
// important, below 0 may be refused. Dynamo's words mean the same; the body's field
// means what the engines that serve the model take it for.
func (c *call) priority() (n int) {
	if v := c.r.Header["X-Dynamo-Request-Priority"]; len(v) == 1 && integer(v[0], math.MinInt32, math.MaxInt32, &n) {
		return n
	}
	if c.f.hint.said {
		return c.f.hint.n
	}
	if !c.f.priority.said {
		return 0
	}
	switch engineOrder(c.p.fleet.Snapshot(), c.f.model) {
	case fleet.LowFirst:
		return -c.f.priority.n
	case fleet.HighFirst:
		return c.f.priority.n
	}
	return 0
}

// engineOrder returns how the engines of a model take priorities, if they are known to
// agree.
func engineOrder(snap *fleet.Snapshot, model string) fleet.Order {
	g := snap.Group(model)
	if g == nil {
		return fleet.NoOrder
	}
	order := snap.Replica(g.Targets[0]).Priorities
	for _, t := range g.Targets[1:] {
		if snap.Replica(t).Priorities != order {
			return fleet.NoOrder
		}
	}
	return order
}

// keyTenant names the owner of the request's API key: a short hash under a secret of
// this process, so that nobody who reads receipts can try keys. "" without a key.
func (c *call) keyTenant() string {
	key := apiKey(c.r.Header)
	if key == "" {
		return ""
	}
	b := make([]byte, 0, 128)
	sum := sha256.Sum256(append(append(b, c.p.secret[:]...), key...))
	return "key:" + hex.EncodeToString(sum[:6])
}

// apiKey returns the key that a request comes with: OpenAI's way, or Anthropic's.
func apiKey(h http.Header) string {
	v := h.Get("Authorization")
	if scheme, key, ok := strings.Cut(v, " "); ok && strings.EqualFold(scheme, "Bearer") {
		v = strings.TrimSpace(key)
	}
	if v == "" {
		v = h.Get("X-Api-Key")
	}
	return v
}

func tenantName(v string) bool {
	for i := range len(v) {
		if v[i] < '!' || v[i] > '~' {
			return false
		}
	}
	return len(v) >= 1 && len(v) <= maxTenant
}
