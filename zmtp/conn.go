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

// alwaysReady is a closed channel.
var alwaysReady = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// write is the writer's goroutine. It sends a PING each interval whatever the
// reader does.
func (c *conn) write() {
	var (
		control, scratch []byte
		batch            [][]byte
		ticks            <-chan time.Time
		ready            = c.ready
	)
	for {
		control, batch = c.out.take(control[:0], batch[:0])
		var busy chan struct{} // nil: nothing to write, so the select waits
		if len(control)+len(batch) > 0 {
			busy = alwaysReady
		}
		select {
		case <-c.done:
			return
		case <-busy:
		case <-c.out.wake:
		case <-ready:
			ready = nil
			t := time.NewTicker(c.cfg.Heartbeat)
			defer t.Stop()
			ticks = t.C
		case <-ticks:
			control = appendPing(control, c.cfg.silence())
		}
		var err error
		if scratch, err = writeAll(c.nc, scratch, control, batch); err != nil {
			c.fail(err)
			return
		}
		c.out.written(batch)
		clear(batch)
	}
}

// writeAll writes control and then the batch, small messages together. It
// returns the scratch buffer for the next time.
func writeAll(w io.Writer, scratch, control []byte, batch [][]byte) ([]byte, error) {
	switch {
	case len(batch) == 0 && len(control) == 0:
		return scratch, nil
	case len(batch) == 0: // an idle connection needs no scratch
		_, err := w.Write(control)
		return scratch, err
	}
	scratch = append(scratch[:0], control...)
	for _, m := range batch {
		if len(scratch)+len(m) > writeBatch && len(scratch) > 0 {
			if _, err := w.Write(scratch); err != nil {
				return scratch, err
			}
			scratch = scratch[:0]
		}
		if len(m) >= writeBatch/2 {
			if len(scratch) > 0 {
				if _, err := w.Write(scratch); err != nil {
					return scratch, err
				}
				scratch = scratch[:0]
			}
			if _, err := w.Write(m); err != nil {
				return scratch, err
			}
			continue
		}
		scratch = append(scratch, m...)
	}
	if len(scratch) > 0 {
		if _, err := w.Write(scratch); err != nil {
			return scratch, err
		}
	}
	return scratch, nil
}
