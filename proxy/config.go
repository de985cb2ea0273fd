package proxy

import (
	"strconv"
	"time"

	"kvasir/setting"
)

// Config says how a Proxy behaves. Start from Defaults: the zero Config is not valid.
type Config struct {
	// MaxBody bounds a request's body, in bytes. More is answered 413.
	MaxBody int64 `yaml:"max_body" default:"32Mi" range:"1..1Gi" unit:"bytes"`

	// Body bounds the time in which a request's body must have come.
	Body time.Duration `yaml:"body" default:"2m" range:"10ms..1h"`
	// Dial bounds the connecting to an engine.
	Dial time.Duration `yaml:"dial" default:"2s" range:"1ms..1m"`
	// FirstToken bounds the wait of a streaming request, from its dispatch to the
	// first content. An engine may queue a request for minutes.
	FirstToken time.Duration `yaml:"first_token" default:"10m" range:"10ms..24h"`
	// Answer bounds the wait of any other request, from its dispatch to the first
	// byte of the answer's body: the whole of the generation.
	Answer time.Duration `yaml:"answer" default:"30m" range:"10ms..24h"`
	// Idle bounds the silence after the first content, between two reads from the
	// engine, and how long a client may refuse to take what there is. vLLM, on
	// SIGTERM, neither sends more nor closes.
	Idle time.Duration `yaml:"idle" default:"2m" range:"10ms..24h"`
	// IdleConn is how long an unused connection to an engine is kept. uvicorn
	// closes its side after 5 s, so it must be less.
	IdleConn time.Duration `yaml:"idle_conn" default:"4s" range:"1ms..1h"`

	// HoldFor bounds how long an answer is held back while another engine may still take
	// the request: until the first content, but no longer than this after the engine's
	// headers.
	HoldFor time.Duration `yaml:"hold_for" default:"10s" range:"0s..1h"`
	// HoldBytes bounds how much of an answer is held back, see HoldFor.
	HoldBytes int `yaml:"hold_bytes" default:"256Ki" range:"0..16Mi" unit:"bytes"`

	// Attempts is how many engines may be tried for one request, the first included.
	Attempts int `yaml:"attempts" default:"3" range:"1..16"`
	// RetryFor is how long after its arrival a request may still be given to
	// another engine.
	RetryFor time.Duration `yaml:"retry_for" default:"10m" range:"0s..24h"`
	// Retry429 gives a request that an engine answers 429 to another one, if
	// there is any; else the engine's answer is passed on.
	Retry429 bool `yaml:"retry_429" default:"true"`
	// RetryAfter is what clients are told with a 503 of ours.
	RetryAfter time.Duration `yaml:"retry_after" default:"1s" range:"1s..1h"`

	// Tokens bounds the wait for a request's token ids. What comes later is
	// not waited for: the request is routed by load.
	Tokens time.Duration `yaml:"tokens" default:"500ms" range:"1ms..1m"`

	// Explain adds x-kvasir-replica, x-kvasir-cached-tokens and
	// x-kvasir-decision-us to answers.
	Explain bool `yaml:"explain" default:"true"`
	// ForwardedFor appends the client's address to X-Forwarded-For.
	ForwardedFor bool `yaml:"forwarded_for" default:"true"`
	// RequestID gives requests without X-Request-Id one of ours.
	RequestID bool `yaml:"request_id"`

	// AskUsage asks engines for the usage of streams whose client did not: what
	// was cached is then known of every request. It adds stream_options to the
	// body, which is otherwise never changed, and takes the extra chunk out again.
	AskUsage bool `yaml:"ask_usage"`

	// Pass has path prefixes, beside those of the OpenAI API, whose requests are
	// passed to an engine. Engines' administrative paths must not be in it.
	Pass []string `yaml:"pass" want:"path prefixes such as /generate, and not / itself" example:"[/generate]"`
}

// Defaults returns the configuration that needs no thought.
func Defaults() Config { return setting.Defaults[Config]() }

// Validate returns an error that names the first field that is out of range.
func (c *Config) Validate() error { return setting.Check("proxy.", c) }

// Check accepts what the tags can't say.
func (c *Config) Check() error {
	for _, p := range c.Pass {
		if len(p) < 2 || p[0] != '/' {
			return &setting.Error{Key: "pass", Value: strconv.Quote(p), Want: "path prefixes such as /generate, and not / itself"}
		}
	}
	return nil
}
