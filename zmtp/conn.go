package zmtp

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// Peer is one connection, from READY to its end.
type Peer struct {
	Endpoint   string // what we dialled, or the listening endpoint that it came in by
	Remote     string // the peer's address
	Epoch      uint64 // counts the socket's connections from 1: a larger one is newer
	Identity   string // as the peer sent it (libzmq's PUB and SUB send none); a Router invents one for a peer without
	SocketType string // "PUB", "XPUB", …
	Minor      int    // the peer's ZMTP 3.x
	Data       any    // the caller's; see package documentation

	conn *conn
}

// Close drops this connection: after the callback that runs, if any, comes
// Disconnected with ErrDropped. A dialled one is then dialled again. It does not wait.
func (p *Peer) Close() { p.conn.fail(ErrDropped) }

// conn is one connection with its two goroutines: the one that calls
// handshake and serve reads, the other (start) writes, so that a handler that
// blocks the reader doesn't stop heartbeats.
type conn struct {
	cfg  *Config
	kind kind
	nc   net.Conn
	in   *reader
	out  *outbox
	peer Peer

	silence time.Duration // limit for each read, 0 for none; reader's goroutine only
	ready   chan struct{} // closed after the handshake if heartbeats are on
	done    chan struct{} // closed by fail
	writer  sync.WaitGroup

	once sync.Once
	err  error // why it ended; read after done

	subs subscriptions // what a Pub's peer wants
}

func newConn(cfg *Config, k kind, nc net.Conn, endpoint string) *conn {
	c := &conn{cfg: cfg, kind: k, nc: nc, in: newReader(cfg), out: newOutbox(cfg),
		ready: make(chan struct{}), done: make(chan struct{})}
	c.peer = Peer{Endpoint: endpoint, conn: c}
	if a := nc.RemoteAddr(); a != nil {
		c.peer.Remote = a.String()
	}
	return c
}

// fail ends the connection; the first reason stays.
func (c *conn) fail(err error) {
	c.once.Do(func() {
		c.err = err
		close(c.done)
		c.nc.Close()
	})
}

// close ends the connection and waits for its writer. It returns the reason.
func (c *conn) close(err error) error {
	c.fail(err)
	c.writer.Wait()
	return c.err
}

// handshake exchanges greetings and READY and starts the writer. On an error
// the caller still owes close.
func (c *conn) handshake() error {
	c.nc.SetReadDeadline(time.Now().Add(c.cfg.HandshakeTimeout))
	c.out.putControl(appendGreeting)
	c.writer.Go(c.write)
	err := c.shakeHands()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return ErrHandshakeTimeout
	}
	if err != nil {
		return err
	}
	c.nc.SetReadDeadline(time.Time{})
	if c.cfg.Heartbeat > 0 && c.peer.Minor >= 1 {
		c.silence = c.cfg.silence()
		close(c.ready)
	}
	return nil
}

func (c *conn) shakeHands() error {
	for {
		minor, done, err := parseGreeting(c.in.buf[c.in.r:c.in.w])
		if err != nil {
			return err
		}
		if done {
			c.peer.Minor = minor
			c.in.skip(greetingLen)
			break
		}
		c.in.need = greetingLen
		if err := c.fill(); err != nil {
			return err
		}
	}
	c.out.putControl(func(b []byte) []byte { return appendReady(b, c.kind, c.cfg.Identity) })
	for {
		switch ev, err := c.in.parse(); {
		case err != nil:
			return err
		case ev == evMessage:
			return protocolf("message before READY")
		case ev == evMore:
			if err := c.fill(); err != nil {
				return err
			}
			continue
		}
		name, data, err := splitCommand(c.in.command)
		if err != nil {
			return err
		}
		switch string(name) {
		case "ERROR":
			return parseError(data)
		case "READY":
			r, err := parseReady(data)
			if err != nil {
				return err
			}
			if !c.kind.accepts(r.socketType) {
				return protocolf("the peer's socket is a %.16q, which a %s does not talk to", r.socketType, c.kind)
			}
			c.peer.SocketType, c.peer.Identity = r.socketType, r.identity
			return nil
		default:
			return protocolf("command %.16q before READY", name)
		}
	}
}

// fill reads once, or until there is something.
func (c *conn) fill() error {
	for range 100 {
		n, err := c.nc.Read(c.in.space())
		if n > 0 {
			c.in.filled(n)
			return nil // an error comes again with the next read
		}
		if err != nil {
			return err
		}
	}
	return io.ErrNoProgress // as package bufio does it
}

// serve reads until the connection ends. The limit on silence runs only
// inside a read, never while onMessage works.
func (c *conn) serve(onMessage func(frames [][]byte) error, onCommand func(name, data []byte) error) error {
	for {
		select {
		case <-c.done: // dropped or closed: what is still buffered is nobody's
			return c.err
		default:
		}
		ev, err := c.in.parse()
		switch {
		case err != nil:
			return err
		case ev == evMessage:
			err = onMessage(c.in.frames)
		case ev == evCommand:
			err = c.command(onCommand)
		default:
			if c.silence > 0 {
				c.nc.SetReadDeadline(time.Now().Add(c.silence))
			}
			if err = c.fill(); errors.Is(err, os.ErrDeadlineExceeded) {
				err = ErrSilent
			}
		}
		if err != nil {
			return err
		}
	}
}

// command answers heartbeats and hands over the rest; unknown ones are ignored.
func (c *conn) command(other func(name, data []byte) error) error {
	name, data, err := splitCommand(c.in.command)
	if err != nil {
		return err
	}
	switch string(name) {
	case "PING":
		ttl, context, err := parsePing(data)
		if err != nil {
			return err
		}
		if c.cfg.Heartbeat < 0 && ttl > 0 {
			c.silence = ttl // we don't ping, so its own word is all we have
		}
		c.out.putReply(func(b []byte) []byte { return appendCommand(b, "PONG", context) })
	case "PONG":
		c.in.relax()
	case "ERROR":
		return parseError(data)
	default:
		if other != nil {
			return other(name, data)
		}
	}
	return nil
}
