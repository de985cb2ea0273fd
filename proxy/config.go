package proxy

import (
	"fmt"
	"time"
)

// Config says how a Proxy behaves. Start from Default: the zero Config is not valid.
type Config struct {
	// MaxBody bounds a request's body, in bytes. More is answered 413.
	MaxBody int64 `yaml:"max_body"`

	// Body bounds the time in which a request's body must have come.
	Body time.Duration `yaml:"body"`
	// Dial bounds the connecting to an engine.
	Dial time.Duration `yaml:"dial"`
	// FirstToken bounds the wait of a streaming request, from its dispatch to the
	// first content. An engine may queue a request for minutes.
	FirstToken time.Duration `yaml:"first_token"`
	// Answer bounds the wait of any other request, from its dispatch to the first
	// byte of the answer's body: the whole of the generation.
	Answer time.Duration `yaml:"answer"`
	// Idle bounds the silence after the first content, between two reads from the
	// engine, and how long a client may refuse to take what there is. vLLM, on
	// SIGTERM, neither sends more nor closes.
	Idle time.Duration `yaml:"idle"`
	// IdleConn is how long an unused connection to an engine is kept. uvicorn
	// closes its side after 5 s, so it must be less.
	IdleConn time.Duration `yaml:"idle_conn"`

	// HoldFor and HoldBytes bound how much of an answer is held back while
	// another engine may still take the request: until the first content, but
	// no longer than HoldFor after the engine's headers, no more than HoldBytes.
	HoldFor   time.Duration `yaml:"hold_for"`
	HoldBytes int           `yaml:"hold_bytes"`

	// Attempts is how many engines may be tried for one request, the first included.
	Attempts int `yaml:"attempts"`
	// RetryFor is how long after its arrival a request may still be given to
	// another engine.
	RetryFor time.Duration `yaml:"retry_for"`
	// Retry429 gives a request that an engine answers 429 to another one, if
	// there is any; else the engine's answer is passed on.
	Retry429 bool `yaml:"retry_429"`
	// RetryAfter is what clients are told with a 503 of ours.
	RetryAfter time.Duration `yaml:"retry_after"`

	// Tokens bounds the wait for a request's token ids. What comes later is
	// not waited for: the request is routed by load.
	Tokens time.Duration `yaml:"tokens"`

	// Explain adds x-kvasir-replica, x-kvasir-cached-tokens and
	// x-kvasir-decision-us to answers.
	Explain bool `yaml:"explain"`
	// ForwardedFor appends the client's address to X-Forwarded-For.
	ForwardedFor bool `yaml:"forwarded_for"`
	// RequestID gives requests without X-Request-Id one of ours.
	RequestID bool `yaml:"request_id"`

	// AskUsage asks engines for the usage of streams whose client did not: what
	// was cached is then known of every request. It adds stream_options to the
	// body, which is otherwise never changed, and takes the extra chunk out again.
	AskUsage bool `yaml:"ask_usage"`

	// Pass has path prefixes, beside those of the OpenAI API, whose requests are
	// passed to an engine. Engines' administrative paths must not be in it.
	Pass []string `yaml:"pass"`
}

// Default returns the configuration that needs no thought.
func Default() Config {
	return Config{
		MaxBody: 32 << 20,

		Body:       2 * time.Minute,
		Dial:       2 * time.Second,
		FirstToken: 10 * time.Minute,
		Answer:     30 * time.Minute,
		Idle:       2 * time.Minute,
		IdleConn:   4 * time.Second,

		HoldFor:   10 * time.Second,
		HoldBytes: 256 << 10,

		Attempts:   3,
		RetryFor:   10 * time.Minute,
		Retry429:   true,
		RetryAfter: time.Second,

		Tokens: 500 * time.Millisecond,

		Explain:      true,
		ForwardedFor: true,
	}
}

// Validate returns an error that names the first field that is out of range.
func (c *Config) Validate() error {
	type bound struct {
		name   string
		v      time.Duration
		lo, hi time.Duration
	}
	for _, b := range []bound{
		{"body", c.Body, 10 * time.Millisecond, time.Hour},
		{"dial", c.Dial, time.Millisecond, time.Minute},
		{"first_token", c.FirstToken, 10 * time.Millisecond, 24 * time.Hour},
		{"answer", c.Answer, 10 * time.Millisecond, 24 * time.Hour},
		{"idle", c.Idle, 10 * time.Millisecond, 24 * time.Hour},
		{"idle_conn", c.IdleConn, time.Millisecond, time.Hour},
		{"hold_for", c.HoldFor, 0, time.Hour},
		{"retry_for", c.RetryFor, 0, 24 * time.Hour},
		{"retry_after", c.RetryAfter, time.Second, time.Hour},
		{"tokens", c.Tokens, time.Millisecond, time.Minute},
	} {
		if b.v < b.lo || b.v > b.hi {
			return fmt.Errorf("proxy.%s: %v, want a duration from %v to %v", b.name, b.v, b.lo, b.hi)
		}
	}
	if c.MaxBody < 1 || c.MaxBody > 1<<30 {
		return fmt.Errorf("proxy.max_body: %d, want bytes from 1 to %d", c.MaxBody, 1<<30)
	}
	if c.HoldBytes < 0 || c.HoldBytes > 16<<20 {
		return fmt.Errorf("proxy.hold_bytes: %d, want bytes from 0 to %d", c.HoldBytes, 16<<20)
	}
	if c.Attempts < 1 || c.Attempts > 16 {
		return fmt.Errorf("proxy.attempts: %d, want a number from 1 to 16", c.Attempts)
	}
	for _, p := range c.Pass {
		if len(p) < 2 || p[0] != '/' {
			return fmt.Errorf("proxy.pass: %q, want a path prefix such as /generate, and not / itself", p)
		}
	}
	return nil
}
