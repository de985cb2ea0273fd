package zmtp

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// Dealer is one connection to a Router, for requests with any number of replies.
type Dealer struct {
	conn *conn

	recv sync.Mutex // one Recv at a time
}

// DialDealer dials, shakes hands and returns the connection; ctx limits only that.
func DialDealer(ctx context.Context, cfg Config, endpoint string) (*Dealer, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	ep, err := parseEndpoint(endpoint, false)
	if err != nil {
		return nil, err
	}
	dctx, cancel := context.WithTimeout(ctx, cfg.HandshakeTimeout)
	defer cancel()
	nc, err := cfg.Dial(dctx, ep.network, ep.address)
	if err != nil {
		return nil, fmt.Errorf("zmtp: dial %q: %w", endpoint, err)
	}
	c := newConn(&cfg, kindDealer, nc, endpoint)
	stop := context.AfterFunc(ctx, func() { c.fail(context.Cause(ctx)) })
	if err := c.handshake(); err != nil {
		stop()
		return nil, fmt.Errorf("zmtp: dial %q: %w", endpoint, c.close(err))
	}
	if !stop() { // ctx ended and fail runs
		return nil, fmt.Errorf("zmtp: dial %q: %w", endpoint, c.close(context.Cause(ctx)))
	}
	c.peer.Epoch = 1
	return &Dealer{conn: c}, nil
}

// Peer tells about the other side.
func (d *Dealer) Peer() *Peer { return &d.conn.peer }

// Send queues one message; it copies the frames. ErrQueueFull: the peer has
// not taken the QueueLen messages before it. After the connection's end, the reason for it.
func (d *Dealer) Send(frames ...[]byte) error {
	if len(frames) == 0 {
		return errNoFrames
	}
	select {
	case <-d.conn.done:
		return d.conn.err
	default:
	}
	if !d.conn.out.put(encode(frames)) {
		return ErrQueueFull
	}
	return nil
}

// Recv waits for the next message. Its frames are valid until the next Recv.
// When ctx ends first, the error is ctx's and the Dealer remains usable; every other
// error is the connection's end. Only a Recv in progress reads: a
// Dealer whose owner is busy makes the peer wait, and its silence doesn't count.
func (d *Dealer) Recv(ctx context.Context) ([][]byte, error) {
	d.recv.Lock()
	defer d.recv.Unlock()
	c := d.conn
	watching := false
	for {
		switch ev, err := c.in.parse(); {
		case err != nil:
			return nil, c.close(err)
		case ev == evMessage:
			return c.in.frames, nil
		case ev == evCommand:
			if err := c.command(nil); err != nil {
				return nil, c.close(err)
			}
			continue
		}
		if !watching && ctx.Done() != nil {
			watching = true
			finished := make(chan struct{})
			stop := context.AfterFunc(ctx, func() {
				c.nc.SetReadDeadline(time.Unix(1, 0))
				close(finished)
			})
			defer func() {
				if !stop() {
					<-finished // or its deadline would end the next Recv
				}
			}()
		}
		var deadline time.Time
		if c.silence > 0 {
			deadline = time.Now().Add(c.silence)
		}
		c.nc.SetReadDeadline(deadline)
		if ctx.Err() != nil { // asked after the deadline was set: if ctx ends later, so is its deadline
			return nil, context.Cause(ctx)
		}
		err := c.fill()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			err = ErrSilent
		}
		if err != nil {
			return nil, c.close(err)
		}
	}
}

// Close ends the connection. What is queued may be lost; a Recv in progress returns ErrClosed.
func (d *Dealer) Close() error {
	d.conn.close(ErrClosed)
	return nil
}
