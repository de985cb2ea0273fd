package zmtp

import (
	"encoding/binary"
	"fmt"
	"time"
)

// RouterConfig configures a Router. Message is required.
type RouterConfig struct {
	Config
	// Message gets each request: frames without the identity, which is
	// p.Identity. It runs on the peer's goroutine and may call Send; the
	// frames are valid until it returns.
	Message      func(p *Peer, frames [][]byte)
	Connected    func(p *Peer)
	Disconnected func(p *Peer, err error)
	Retrying     func(endpoint string, err error, wait time.Duration)
}

// Router answers peers by their identity.
type Router struct {
	socket
	byID map[string]*conn // under socket.mu
}

// NewRouter returns a Router without endpoints.
func NewRouter(cfg RouterConfig) (*Router, error) {
	if cfg.Message == nil {
		return nil, fmt.Errorf("zmtp: RouterConfig.Message is nil; a Router needs a receiver")
	}
	r := &Router{byID: map[string]*conn{}}
	if err := r.init(cfg.Config, kindRouter); err != nil {
		return nil, err
	}
	r.admit = func(c *conn) error {
		if c.peer.Identity == "" { // a zero byte first: no peer can choose it
			id := binary.BigEndian.AppendUint64([]byte{0}, c.peer.Epoch)
			c.peer.Identity = string(id)
		}
		if r.byID[c.peer.Identity] != nil { // libzmq, too, keeps the older one
			return protocolf("identity %.32q is connected already", c.peer.Identity)
		}
		r.byID[c.peer.Identity] = c
		return nil
	}
	r.gone = func(c *conn) { delete(r.byID, c.peer.Identity) }
	r.connected = cfg.Connected
	r.lost = cfg.Disconnected
	r.retrying = cfg.Retrying
	r.message = func(c *conn, frames [][]byte) error {
		cfg.Message(&c.peer, frames)
		return nil
	}
	return r, nil
}

// Send queues one message for the peer with this identity; it copies the
// frames and never blocks. ErrNoPeer: not connected (any more). ErrQueueFull: QueueLen
// messages or QueueBytes bytes wait for this peer; this one is lost, unlike in libzmq not silently.
func (r *Router) Send(identity string, frames ...[]byte) error {
	if len(frames) == 0 {
		return errNoFrames
	}
	r.mu.Lock()
	c, closed := r.byID[identity], r.closed
	r.mu.Unlock()
	switch {
	case closed:
		return ErrClosed
	case c == nil:
		return ErrNoPeer
	case !c.out.put(encode(frames)):
		return ErrQueueFull
	}
	return nil
}
