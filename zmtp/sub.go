package zmtp

import (
	"bytes"
	"fmt"
	"slices"
	"sync/atomic"
	"time"
)

// SubConfig configures a Sub. Message is required.
type SubConfig struct {
	Config
	// Topics are byte prefixes of the first frame; none means every message.
	Topics []string
	// Message gets each message that matches a topic. See the package
	// documentation for whose the frames are and how long it may take.
	Message func(p *Peer, frames [][]byte)
	// Connected, if set, is told each new connection before its first message.
	Connected func(p *Peer)
	// Disconnected, if set, is told the end of each such connection, and why.
	Disconnected func(p *Peer, err error)
	// Retrying, if set, is told each failure of a dialled endpoint (dial, handshake or
	// a connection's end; the error is also Disconnected's) and the wait before the next attempt.
	Retrying func(endpoint string, err error, wait time.Duration)
}

// Sub receives published messages from any number of publishers.
type Sub struct {
	socket
	config SubConfig
	topics atomic.Pointer[[]string] // replaced under socket.mu, never changed in place
}

// NewSub returns a Sub without connections.
func NewSub(cfg SubConfig) (*Sub, error) {
	if cfg.Message == nil {
		return nil, fmt.Errorf("zmtp: SubConfig.Message is nil; a Sub needs a receiver")
	}
	s := &Sub{config: cfg}
	topics := slices.Clone(cfg.Topics)
	if len(topics) == 0 {
		topics = []string{""}
	}
	s.topics.Store(&topics)
	if err := s.init(cfg.Config, kindSub); err != nil {
		return nil, err
	}
	s.admit = s.subscribeAll
	s.connected = cfg.Connected
	s.lost = cfg.Disconnected
	s.retrying = cfg.Retrying
	s.message = s.deliver
	return s, nil
}

func (s *Sub) subscribeAll(c *conn) error {
	c.out.putControl(func(b []byte) []byte {
		for _, t := range *s.topics.Load() {
			b = appendSubscription(b, c.peer.Minor, t, true)
		}
		return b
	})
	return nil
}

// deliver filters as libzmq does: the publisher's filter is late by one trip.
func (s *Sub) deliver(c *conn, frames [][]byte) error {
	for _, t := range *s.topics.Load() {
		if len(frames[0]) >= len(t) && string(frames[0][:len(t)]) == t {
			s.config.Message(&c.peer, frames)
			return nil
		}
	}
	return nil
}

// Subscribe adds a topic, on all connections and those to come. Adding one
// that is there changes nothing.
func (s *Sub) Subscribe(topic string) error { return s.change(topic, true) }

// Unsubscribe removes a topic. Messages on their way are not delivered.
func (s *Sub) Unsubscribe(topic string) error { return s.change(topic, false) }

func (s *Sub) change(topic string, on bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	topics := slices.Clone(*s.topics.Load())
	at := slices.Index(topics, topic)
	switch {
	case on == (at >= 0):
		return nil
	case on:
		topics = append(topics, topic)
	default:
		topics = slices.Delete(topics, at, at+1)
	}
	s.topics.Store(&topics)
	for c := range s.conns {
		c.out.putControl(func(b []byte) []byte { return appendSubscription(b, c.peer.Minor, topic, on) })
	}
	return nil
}

// subscriptions are the prefixes that a publisher's peer asked for, each as
// often as it asked.
type subscriptions struct {
	prefixes []prefix
	size     int // bytes of all prefixes
}

type prefix struct {
	topic []byte
	count int
}

// change adds or cancels one subscription; cancelling an unknown one is nothing.
func (s *subscriptions) change(topic []byte, on bool, limit int) error {
	for i := range s.prefixes {
		p := &s.prefixes[i]
		if !bytes.Equal(p.topic, topic) {
			continue
		}
		if on {
			p.count++
		} else if p.count--; p.count == 0 {
			s.size -= len(topic)
			s.prefixes = slices.Delete(s.prefixes, i, i+1)
		}
		return nil
	}
	if !on {
		return nil
	}
	if len(s.prefixes) >= limit || s.size+len(topic) > 64*limit {
		return protocolf("more than %d subscriptions (or %d bytes of them)", limit, 64*limit)
	}
	s.prefixes = append(s.prefixes, prefix{bytes.Clone(topic), 1})
	s.size += len(topic)
	return nil
}

func (s *subscriptions) match(topic []byte) bool {
	for i := range s.prefixes {
		if bytes.HasPrefix(topic, s.prefixes[i].topic) {
			return true
		}
	}
	return false
}
