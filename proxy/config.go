package proxy

import (
	"fmt"
	"strconv"
	"time"

	"kvasir/setting"
)

// Config says how a Proxy behaves. Start from Defaults: the zero Config is not valid.
type Config struct {
	// MaxBody bounds a request's body, in bytes. More is answered 413.
	MaxBody int64 `yaml:"max_body" default:"128Mi" range:"1..1Gi" unit:"bytes"`

	// MaxBodies bounds the memory of all requests' bodies together, from their first byte
	// until an engine has begun to answer. More is answered 503, with Retry-After. A quarter
	// is kept for bodies of at most 256 KiB, so that large ones can't crowd them out.
	MaxBodies int64 `yaml:"max_bodies" default:"512Mi" range:"2..1Ti" unit:"bytes"`
	// MaxConns bounds the connections of clients. Where all are taken, one without a
	// request makes room for a new one; if all have one, the new one is answered 503.
	MaxConns int `yaml:"max_conns" default:"0" range:"1..10000000" or:"0: half of the limit of open files (engines need the other half), at most 65536"`
	// MaxConnsPerAddress bounds the connections from one IP address; more are answered
	// 429. Behind a load balancer all clients have its address.
	MaxConnsPerAddress int `yaml:"max_conns_per_address" default:"0" range:"1..10000000" or:"0: no bound"`

	// Body bounds the time in which a request's body must have come. The first of it must
	// come within 30 s of the request's first byte, and then 10 KiB every 10 s. Else the
	// client gets 408.
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
	// EjectShare bounds the share of a model's targets that get no requests because theirs
	// fail: three in a row, or eight of sixteen. After 5 s, and twice as long each time, up
	// to a minute, one request finds out whether a target has recovered. One may always be
	// avoided, the last never. A 4xx, 429 or 503 is no failure.
	EjectShare float64 `yaml:"eject_share" default:"0.7" range:"0..1" or:"0: none is avoided"`
	// RetryAfter is what clients are told with a 503 of ours, and with a 429 of ours that
	// has no time of its own.
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

	// Strip has the headers of clients that no engine gets, in any case; a * stands for any
	// text. By default they are those by which other routers tell an engine, or a
	// proxy before it, where to send the request on: a client must not choose that. With
	// X-Data-Parallel-Rank in it clients can't pin a rank either.
	Strip []string `yaml:"strip" default:"x-*-host-port,x-*-hosts-ports,x-gateway-destination-*,x-*-dp-rank,x-dynamo-*-instance-id" want:"names of headers such as x-*-dp-rank, with at most one *" example:"[x-*-dp-rank, x-data-parallel-rank]"`

	// Pass has paths whose requests are passed to an engine, with all that is below them,
	// beside those of the API for generation, embeddings, ranking, audio, images, tokens and
	// stored answers. Their requests are not repeated on another engine. Engines'
	// administration (load_lora_adapter, sleep, flush_cache, metrics, ...) is never reached.
	Pass []string `yaml:"pass" want:"paths such as /v1/files, and not / itself" example:"[/v1/files]"`
}

// Defaults returns the configuration that needs no thought.
func Defaults() Config { return setting.Defaults[Config]() }

// Validate returns an error that names the first field that is out of range.
func (c *Config) Validate() error { return setting.Check("proxy.", c) }

// Check accepts what the tags can't say.
func (c *Config) Check() error {
	if least := c.MaxBody + c.MaxBody/2; c.MaxBodies < least {
		return &setting.Error{Key: "max_bodies", Value: strconv.FormatInt(c.MaxBodies, 10), Want: fmt.Sprintf("at least max_body and a half, %d", least)}
	}
	if name, bad := badHeaderName(c.Strip); bad {
		return &setting.Error{Key: "strip", Value: strconv.Quote(name), Want: "names of headers such as x-*-dp-rank, with at most one *"}
	}
	for _, p := range c.Pass {
		if len(p) < 2 || p[0] != '/' {
			return &setting.Error{Key: "pass", Value: strconv.Quote(p), Want: "paths such as /v1/files, and not / itself"}
		}
	}
	return nil
}
