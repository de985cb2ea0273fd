package mockserver

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"kvasir/lab/mock"
)

var errStopped = errors.New("the engine has stopped")

// Config says what to stand in for. Model is needed; see Defaults for the rest.
type Config struct {
	Model     string       // served model name
	Listen    string       // HTTP address
	Events    string       // ZMQ endpoint to bind; "off" for none
	Replay    string       // ZMQ endpoint to bind; "off" for none
	Connect   string       // ZMQ endpoint to dial with PUB instead of binding Events
	Topic     string       // of the events
	Buffer    int          // batches kept for replay (vLLM: buffer_steps)
	Dialect   Dialect      // of the events
	Profile   mock.Profile // speed and size
	BlockSize int          // tokens
	Blocks    int          // usable blocks; 0: as the profile says
	MaxLen    int          // prompt + output, tokens
	Version   string       // what GET /version says
	HashSeed  string       // PYTHONHASHSEED of the engine that we stand in for
	NoRender  bool         // no render endpoints (vLLM without --enable-scale-out)
	NoDetails bool         // no cached_tokens (vLLM without --enable-prompt-tokens-details)
	Faults    Faults
}

// Faults are things that go wrong on purpose. The zero value is health.
type Faults struct {
	LoseEvents  float64       // share of the event batches that are not sent (but kept for replay), 0 to 1
	DelayEvents time.Duration // of each batch
	Refuse      float64       // share of requests answered 503, 0 to 1
	Hang        float64       // share of streams that stop after the first token and stay open, 0 to 1
	Slow        float64       // factor on every step's time; 0 and 1: none
}

func (f Faults) validate() error {
	for _, x := range []struct {
		name string
		v    float64
	}{{"lose-events", f.LoseEvents}, {"refuse", f.Refuse}, {"hang", f.Hang}} {
		if !(x.v >= 0 && x.v <= 1) {
			return fmt.Errorf("fault %s: %v, want 0 to 1 (a share)", x.name, x.v)
		}
	}
	if f.DelayEvents < 0 {
		return fmt.Errorf("fault delay-events: %v, want 0s or more", f.DelayEvents)
	}
	if f.Slow != 0 && !(f.Slow >= 0.001 && f.Slow <= 1000) {
		return fmt.Errorf("fault slow: %v, want 0.001 to 1000 (a factor)", f.Slow)
	}
	return nil
}

// Defaults returns an engine on free loopback ports.
func Defaults() Config {
	return Config{
		Model: "modelled-8b", Listen: "127.0.0.1:0", Events: "tcp://127.0.0.1:0", Replay: "tcp://127.0.0.1:0",
		Topic: "kv-events", Buffer: 10_000, Dialect: Maps, Profile: mock.Profile8B, BlockSize: 16,
		MaxLen: 131_072, Version: "0.32.0",
	}
}

// Validate names the first field that is out of range.
func (c *Config) Validate() error {
	if c.Model == "" {
		return errors.New("model: empty, want the name to serve")
	}
	if c.BlockSize < 1 || c.BlockSize > 4096 {
		return fmt.Errorf("block-size: %d, want 1 to 4096 tokens", c.BlockSize)
	}
	if c.MaxLen < 1 {
		return fmt.Errorf("max-model-len: %d, want at least 1 token", c.MaxLen)
	}
	if c.Buffer < 0 || c.Buffer > 1_000_000 {
		return fmt.Errorf("buffer-steps: %d, want 0 to 1000000", c.Buffer)
	}
	if err := c.Dialect.validate(); err != nil {
		return err
	}
	return c.Faults.validate()
}

// A Server is a running modelled engine.
type Server struct {
	cfg     Config
	loop    *loop
	hash    *hasher // guarded by hashing
	hashing chan struct{}
	pub     *publisher
	http    *http.Server
	ln      net.Listener

	events, replay string // as bound
	started        time.Time
	requests       atomic.Int64 // in flight
	counts         counts
}

// New checks cfg and builds the engine; it binds nothing yet.
func New(cfg Config) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	p := cfg.Profile
	if cfg.Faults.Slow != 0 {
		p = p.Faster(1 / cfg.Faults.Slow)
	}
	e, err := mock.New(mock.Config{Profile: p, BlockSize: cfg.BlockSize, Blocks: cfg.Blocks, Stream: true})
	if err != nil {
		return nil, err
	}
	cfg.Blocks = e.Config().Blocks
	s := &Server{cfg: cfg, hash: newHasher(cfg.HashSeed), hashing: make(chan struct{}, 1), started: time.Now()}
	if cfg.Events != "off" || cfg.Connect != "" {
		if s.pub, err = newPublisher(cfg.Topic, cfg.Buffer, cfg.Dialect == Arrays); err != nil {
			return nil, err
		}
	}
	s.loop = newLoop(&s.cfg, e, s.pub)
	return s, nil
}

// Start binds the sockets and begins to serve.
func (s *Server) Start() (err error) {
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	if s.ln, err = net.Listen("tcp", s.cfg.Listen); err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	if s.pub != nil {
		if s.cfg.Connect != "" {
			s.events = s.cfg.Connect
			if err = s.pub.pub.Connect(s.cfg.Connect); err != nil {
				return fmt.Errorf("events: %w", err)
			}
		} else if s.events, err = s.pub.pub.Bind(s.cfg.Events); err != nil {
			return fmt.Errorf("events: %w", err)
		}
		if s.cfg.Replay != "off" {
			if s.replay, err = s.pub.reply.Bind(s.cfg.Replay); err != nil {
				return fmt.Errorf("replay: %w", err)
			}
		}
	}
	s.loop.done.Add(1)
	go s.loop.run()
	s.http = &http.Server{Handler: s.Handler(), ReadHeaderTimeout: 30 * time.Second}
	go s.http.Serve(s.ln)
	return nil
}

// URL returns the base URL, once started.
func (s *Server) URL() string { return "http://" + s.ln.Addr().String() }

// EventsEndpoint returns where KV events are published, or "".
func (s *Server) EventsEndpoint() string { return s.events }

// ReplayEndpoint returns where replays are asked for, or "".
func (s *Server) ReplayEndpoint() string { return s.replay }

// Stats returns the model's figures.
func (s *Server) Stats() mock.Stats {
	var st mock.Stats
	s.loop.call(func() { st = s.loop.engine.Stats() })
	return st
}

// Close stops at once, as a process that is killed: open requests break off.
func (s *Server) Close() error {
	select {
	case <-s.loop.quit:
		return nil
	default:
		close(s.loop.quit)
	}
	if s.http != nil {
		s.http.Close()
	} else if s.ln != nil {
		s.ln.Close()
	}
	s.loop.done.Wait()
	if s.pub != nil {
		s.pub.close()
	}
	return nil
}

// share is true for about this share of calls.
func share(p float64) bool { return p > 0 && rand.Float64() < p }
