package zmtp

import (
	"sync/atomic"
	"time"
)

// DefaultMaxSubscriptions bounds the different topics of one subscriber.
const DefaultMaxSubscriptions = 1024

// PubConfig configures a Pub. Config.QueueLen is the high-water mark per subscriber.
type PubConfig struct {
	Config
	// MaxSubscriptions bounds the different topics of one subscriber; beyond it
	// the subscriber is disconnected.
	MaxSubscriptions int
	Connected        func(p *Peer)
	Disconnected     func(p *Peer, err error)
	Retrying         func(endpoint string, err error, wait time.Duration)
	// Subscribed, if set, is told each subscription (on) and cancellation, after it counts.
	Subscribed func(p *Peer, topic string, on bool)
	// Dropping, if set, is told each message dropped for a slow subscriber. It runs inside Send.
	Dropping func(p *Peer)
}

// Pub publishes to every subscriber whose subscriptions match the first frame.
type Pub struct {
	socket
	config  PubConfig
	dropped atomic.Uint64
}

// NewPub returns a Pub without endpoints.
func NewPub(cfg PubConfig) (*Pub, error) {
	p := &Pub{config: cfg}
	def(&p.config.MaxSubscriptions, DefaultMaxSubscriptions)
	if err := p.init(cfg.Config, kindPub); err != nil {
		return nil, err
	}
	p.connected = cfg.Connected
	p.lost = cfg.Disconnected
	p.retrying = cfg.Retrying
	p.message = func(c *conn, frames [][]byte) error { // subscriptions before 3.1
		if f := frames[0]; len(frames) == 1 && len(f) > 0 && f[0] <= 1 {
			return p.subscribe(c, f[1:], f[0] == 1)
		}
		return nil // what a subscriber says otherwise is for XPUB
	}
	p.command = func(c *conn, name, data []byte) error {
		switch string(name) {
		case "SUBSCRIBE":
			return p.subscribe(c, data, true)
		case "CANCEL":
			return p.subscribe(c, data, false)
		}
		return nil
	}
	return p, nil
}

func (p *Pub) subscribe(c *conn, topic []byte, on bool) error {
	p.mu.Lock()
	err := c.subs.change(topic, on, p.config.MaxSubscriptions)
	p.mu.Unlock()
	if err == nil && p.config.Subscribed != nil {
		p.config.Subscribed(&c.peer, string(topic), on)
	}
	return err
}

// Send publishes one message; the first frame is the topic. It copies the
// frames once if any subscriber wants them, and never blocks: a subscriber with
// QueueLen messages or QueueBytes bytes waiting loses this one. All subscribers see concurrent Sends in
// the same order.
func (p *Pub) Send(frames ...[]byte) error {
	if len(frames) == 0 {
		return errNoFrames
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return ErrClosed
	}
	var wire []byte
	for c := range p.conns {
		if !c.subs.match(frames[0]) {
			continue
		}
		if wire == nil {
			wire = encode(frames)
		}
		if !c.out.put(wire) {
			p.dropped.Add(1)
			if p.config.Dropping != nil {
				p.config.Dropping(&c.peer)
			}
		}
	}
	return nil
}

// Dropped counts messages dropped for slow subscribers: one message dropped for two counts twice.
func (p *Pub) Dropped() uint64 { return p.dropped.Load() }
