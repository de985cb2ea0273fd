package zmtp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// socket is what Sub, Pub and Router have in common: endpoints that are dialled
// again and again, listeners, and the connections of both.
type socket struct {
	cfg  Config
	kind kind

	// Hooks, set before the first endpoint. All but retrying run on the
	// connection's goroutine: admit and connected once after the handshake (an error
	// from admit ends the connection), gone once for each connected.
	admit     func(*conn) error
	connected func(*Peer)
	message   func(*conn, [][]byte) error
	command   func(c *conn, name, data []byte) error
	gone      func(*conn)
	lost      func(*Peer, error)
	retrying  func(endpoint string, err error, wait time.Duration)

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	slots  chan struct{} // MaxPeers accepted connections

	mu     sync.Mutex
	closed bool
	dials  map[string]*dialling
	bound  []net.Listener
	epoch  uint64
	conns  map[*conn]struct{} // admitted
}

type dialling struct {
	cancel context.CancelFunc
	done   chan struct{}
}

func (s *socket) init(cfg Config, k kind) error {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return err
	}
	s.cfg, s.kind = cfg, k
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.slots = make(chan struct{}, cfg.MaxPeers)
	s.dials, s.conns = map[string]*dialling{}, map[*conn]struct{}{}
	return nil
}

// Connect dials the endpoint, in the background and for ever, until
// Disconnect or Close. It fails for an endpoint that can't be or already is dialled.
func (s *socket) Connect(endpoint string) error {
	ep, err := parseEndpoint(endpoint, false)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	if s.dials[endpoint] != nil {
		return fmt.Errorf("zmtp: endpoint %q is connected already; Disconnect it first", endpoint)
	}
	ctx, cancel := context.WithCancel(s.ctx)
	d := &dialling{cancel, make(chan struct{})}
	s.dials[endpoint] = d
	s.wg.Go(func() {
		defer close(d.done)
		s.keepDialling(ctx, endpoint, ep)
	})
	return nil
}

// Disconnect undoes Connect and waits until no callback of this endpoint runs.
func (s *socket) Disconnect(endpoint string) error {
	s.mu.Lock()
	d := s.dials[endpoint]
	delete(s.dials, endpoint)
	s.mu.Unlock()
	if d == nil {
		return fmt.Errorf("zmtp: endpoint %q is not connected", endpoint)
	}
	d.cancel()
	<-d.done
	return nil
}

// Bind listens on the endpoint and returns it with the real address, which
// differs for port 0 and "*". Close undoes it.
func (s *socket) Bind(endpoint string) (string, error) {
	ep, err := parseEndpoint(endpoint, true)
	if err != nil {
		return "", err
	}
	l, err := s.cfg.Listen(s.ctx, ep.network, ep.address)
	if err != nil {
		return "", fmt.Errorf("zmtp: bind %q: %w", endpoint, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		l.Close()
		return "", ErrClosed
	}
	s.bound = append(s.bound, l)
	at := endpointOf(l.Addr())
	s.wg.Go(func() { s.accept(l, at) })
	return at, nil
}

// Close ends all connections and waits for their callbacks. What is still
// queued for sending is lost.
func (s *socket) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return ErrClosed
	}
	s.closed = true
	s.cancel()
	for _, l := range s.bound {
		l.Close()
	}
	s.mu.Unlock()
	s.wg.Wait()
	return nil
}

// keepDialling is the goroutine of one Connect, and the reader of its connections.
func (s *socket) keepDialling(ctx context.Context, endpoint string, ep endpoint) {
	for failures := 0; ; failures++ {
		worked, err := s.dial(ctx, endpoint, ep)
		if ctx.Err() != nil {
			return
		}
		if worked {
			failures = 0
		}
		wait := s.cfg.backoff(failures)
		if s.retrying != nil {
			s.retrying(endpoint, err, wait)
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return
		}
	}
}

// dial makes one connection and serves it to its end. It worked if it brought
// a message or lasted for MaxBackoff: a peer that takes connections only
// to drop them is dialled ever more slowly.
func (s *socket) dial(ctx context.Context, endpoint string, ep endpoint) (worked bool, err error) {
	dctx, cancel := context.WithTimeout(ctx, s.cfg.HandshakeTimeout)
	nc, err := s.cfg.Dial(dctx, ep.network, ep.address)
	cancel()
	if err != nil {
		return false, err
	}
	start := time.Now()
	messages, err := s.run(ctx, nc, endpoint)
	return messages || time.Since(start) >= s.cfg.MaxBackoff, err
}

// accept is the goroutine of one Bind.
func (s *socket) accept(l net.Listener, endpoint string) {
	for failures := 0; ; {
		nc, err := l.Accept()
		if s.ctx.Err() != nil {
			if err == nil {
				nc.Close()
			}
			return
		}
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			wait := s.cfg.backoff(failures) // out of file descriptors, most likely
			failures++
			if s.retrying != nil {
				s.retrying(endpoint, err, wait)
			}
			select {
			case <-time.After(wait):
				continue
			case <-s.ctx.Done():
				return
			}
		}
		failures = 0
		select {
		case s.slots <- struct{}{}:
		default: // MaxPeers
			nc.Close()
			continue
		}
		s.wg.Go(func() {
			defer func() { <-s.slots }()
			s.run(s.ctx, nc, endpoint)
		})
	}
}

// run serves one connection from greeting to end.
func (s *socket) run(ctx context.Context, nc net.Conn, endpoint string) (messages bool, err error) {
	c := newConn(&s.cfg, s.kind, nc, endpoint)
	stop := context.AfterFunc(ctx, func() { c.fail(ErrClosed) })
	defer stop()
	if err := c.handshake(); err != nil {
		return false, c.close(err)
	}
	if err := s.enter(c); err != nil {
		return false, c.close(err)
	}
	if s.connected != nil {
		s.connected(&c.peer)
	}
	err = c.serve(func(frames [][]byte) error {
		messages = true
		return s.message(c, frames)
	}, func(name, data []byte) error {
		if s.command == nil {
			return nil
		}
		return s.command(c, name, data)
	})
	err = c.close(err)
	s.mu.Lock()
	delete(s.conns, c)
	if s.gone != nil {
		s.gone(c)
	}
	s.mu.Unlock()
	if s.lost != nil {
		s.lost(&c.peer, err)
	}
	return messages, err
}

// enter numbers the connection and makes it one of conns.
func (s *socket) enter(c *conn) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	s.epoch++
	c.peer.Epoch = s.epoch
	if s.admit != nil {
		if err := s.admit(c); err != nil {
			return err
		}
	}
	s.conns[c] = struct{}{}
	return nil
}
