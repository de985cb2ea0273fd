package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"kvasir/kv"
	"kvasir/zmtp"
)

// Values of Config.Events that are no endpoint.
const (
	EventsAsk    = ""       // ask the engine
	EventsOff    = "off"    // don't follow the cache
	EventsListen = "listen" // the engine dials us: see Listener
)

// Config says what one replica is and how it is followed. URL is required; each
// zero field means its default.
type Config struct {
	Name string // for people and logs; default: host:port of URL
	URL  string // http://host:port

	Events string // tcp://host:port of rank 0 (rank r is at port+r), or one of the constants
	Replay string // likewise, of the replay service; "" for none, or as the engine says
	Ranks  int    // data-parallel ranks; 0: as the engine says

	APIKey string // sent as a bearer token

	Poll        time.Duration // between two looks at health and models; default 2 s
	MetricsPoll time.Duration // between two looks at the metrics, also while nothing else is due; default 5 s
	SourcesPoll time.Duration // between two looks for where the events are; default 30 s
	Timeout     time.Duration // of one HTTP request; default 5 s
	Probe       time.Duration // of a health check, and of the metrics of an engine that is up; default 1 s
	BlindAfter  time.Duration // see seq.Config; default 30 s

	Seed     kv.Seed // of the digests of extra content
	Model    string  // name space of the base model: see kv.Key
	ClearAll bool    // see wire.Decoder

	RingMessages int // live messages waiting to be applied, per rank; default 65536
	RingBytes    int // and their bytes; default 32 MiB

	// The world. Package time is used as it is: under testing/synctest it is virtual.
	HTTP   *http.Client                                                         // default: one without redirects and proxies
	Dial   func(ctx context.Context, network, address string) (net.Conn, error) // for HTTP (unless HTTP is set) and ZMTP
	ZMTP   zmtp.Config                                                          // heartbeats, limits
	Jitter func() float64                                                       // 0 to 1, called concurrently; default rand.Float64
	Log    *slog.Logger                                                         // default: nowhere
}

// Hooks are called by a Replica when something happens. Target and Apply are required. Those of one
// replica may be called from several goroutines at a time, but for one target in
// order. None may block for long: events wait in a bounded ring meanwhile.
type Hooks struct {
	// Target returns the number of a rank, kv.NoTarget if it has none. It is asked
	// once an Info with that many ranks was told, and again after each forgetting.
	Target func(rank int) kv.Target
	// Apply takes an event. Cleared with AllTiers means: forget all about the target.
	Apply func(e *kv.Event)
	// Trust takes a change of trust, or of its reason.
	Trust func(t kv.Target, s kv.Trust, why string)
	// Info takes what was found out, after each look.
	Info func(i Info)
	// Missed is told each look that fails, the n-th in a row, and when it began.
	Missed func(err error, n int, began time.Time)
	// Up and Down say that the replica answers, or not any more. Down is told
	// once, also if it never answered.
	Up   func()
	Down func(err error)
}

func (c Config) withDefaults() (Config, *url.URL, error) {
	u, err := url.Parse(c.URL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return c, nil, fmt.Errorf("engine: URL %q: want http://host:port or https://host:port", c.URL)
	}
	u.Path = strings.TrimRight(u.Path, "/")
	c.Name = cmp.Or(c.Name, u.Host)
	if c.Ranks < 0 || c.Ranks > kv.MaxTargets {
		return c, nil, fmt.Errorf("engine: Ranks %d: want 0 (as the engine says) to %d", c.Ranks, kv.MaxTargets)
	}
	switch c.Events {
	case EventsAsk, EventsOff, EventsListen:
		if c.Replay != "" && c.Events != EventsListen {
			return c, nil, fmt.Errorf("engine: Replay %q without the endpoint of the events: give both, or neither to ask the engine", c.Replay)
		}
	default:
		if _, err := endpointOfRank(c.Events, 0); err != nil {
			return c, nil, fmt.Errorf("engine: Events: %w", err)
		}
	}
	if c.Replay != "" {
		if _, err := endpointOfRank(c.Replay, 0); err != nil {
			return c, nil, fmt.Errorf("engine: Replay: %w", err)
		}
	}
	for _, d := range []struct {
		name string
		v    *time.Duration
		def  time.Duration
	}{
		{"Poll", &c.Poll, 2 * time.Second}, {"MetricsPoll", &c.MetricsPoll, 5 * time.Second},
		{"SourcesPoll", &c.SourcesPoll, 30 * time.Second}, {"Timeout", &c.Timeout, 5 * time.Second}, {"Probe", &c.Probe, time.Second}, {"BlindAfter", &c.BlindAfter, 30 * time.Second},
	} {
		if *d.v < 0 {
			return c, nil, fmt.Errorf("engine: %s is %v: want more than 0, or 0 for %v", d.name, *d.v, d.def)
		}
		*d.v = cmp.Or(*d.v, d.def)
	}
	if c.RingMessages < 0 || c.RingBytes < 0 {
		return c, nil, errors.New("engine: RingMessages and RingBytes must not be negative")
	}
	c.RingMessages = cmp.Or(c.RingMessages, 1<<16)
	c.RingBytes = cmp.Or(c.RingBytes, 32<<20)
	if c.Jitter == nil {
		c.Jitter = rand.Float64
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	c.Log = c.Log.With("replica", c.Name)
	if c.Dial != nil && c.ZMTP.Dial == nil {
		c.ZMTP.Dial = c.Dial
	}
	if c.ZMTP.Jitter == nil {
		c.ZMTP.Jitter = c.Jitter
	}
	if c.HTTP == nil {
		c.HTTP = &http.Client{
			Transport: &http.Transport{DialContext: c.Dial, MaxIdleConns: 2, MaxConnsPerHost: 4,
				IdleConnTimeout: 4 * time.Second}, // uvicorn closes idle connections after 5 s
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
	}
	return c, u, nil
}
