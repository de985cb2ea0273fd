package zmtp

import (
	"errors"
	"fmt"
)

var (
	// ErrClosed is returned by every method of a closed socket.
	ErrClosed = errors.New("zmtp: socket closed")
	// ErrSilent: nothing came from the peer for 3 heartbeats (or its own TTL).
	ErrSilent = errors.New("zmtp: peer silent for longer than 3 heartbeats")
	// ErrHandshakeTimeout: connected, but no complete greeting and READY came in time.
	ErrHandshakeTimeout = errors.New("zmtp: no complete handshake in time")
	// ErrNoPeer: a Router has no connection with that identity.
	ErrNoPeer = errors.New("zmtp: no connected peer has this identity")
	// ErrQueueFull: the peer's queue is full and the message was dropped.
	ErrQueueFull = errors.New("zmtp: the peer's queue is full, message dropped")
	errNoFrames  = errors.New("zmtp: a message needs at least one frame")
	// ErrDropped: Peer.Close was called.
	ErrDropped = errors.New("zmtp: connection dropped by its owner")
)

// ProtocolError is a peer that does not speak ZMTP as we accept it. The
// connection is closed; a dialled one is dialled again.
type ProtocolError struct{ Reason string }

func (e *ProtocolError) Error() string { return "zmtp: protocol: " + e.Reason }

func protocolf(format string, args ...any) error {
	return &ProtocolError{fmt.Sprintf(format, args...)}
}
