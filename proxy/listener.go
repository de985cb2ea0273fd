package proxy

import (
	"fmt"
	"io"
	"log"
	"math"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// A Listener keeps the front door's connections within bounds: how many there are, in all
// and by address, and how long a client may leave a write hanging, whoever writes. Its
// State belongs into http.Server.ConnState.
type Listener struct {
	net.Listener
	max, perAddress int
	patience        time.Duration // of a write
	first           time.Duration // until a request's head, and the first of its body, must have come
	again           time.Duration // when who is turned away may come again

	mu     sync.Mutex
	conns  map[*clientConn]struct{} // guarded by mu
	byAddr map[netip.Addr]int       // guarded by mu
	byes   chan struct{}            // has room for as many refusals as may be told at a time

	refused, evicted atomic.Uint64
}

// NewListener wraps ln by the bounds of cfg.
func NewListener(ln net.Listener, cfg Config) *Listener {
	limit := cfg.MaxConns
	if limit == 0 {
		limit = openFiles()
	}
	return &Listener{
		Listener: ln, max: limit, perAddress: cfg.MaxConnsPerAddress, patience: 2 * cfg.Idle, first: min(headTime, cfg.Body), again: cfg.RetryAfter,
		conns: map[*clientConn]struct{}{}, byAddr: map[netip.Addr]int{}, byes: make(chan struct{}, 64),
	}
}

// Bounds of a request's head, and of a connection between two requests. uvicorn takes
// heads of 64 KiB, too.
const (
	headTime  = 30 * time.Second
	headBytes = 64 << 10
	idleTime  = 10 * time.Minute
)

// Server returns a server of h, a Proxy, for l. Head and body have one deadline to begin with,
// which net/http sets once; the proxy moves it while a body comes, and takes it away.
func (l *Listener) Server(h http.Handler, errors *log.Logger) *http.Server {
	return &http.Server{
		Handler: h, ConnState: l.State, ErrorLog: errors,
		ReadHeaderTimeout: l.first, ReadTimeout: l.first, MaxHeaderBytes: headBytes, IdleTimeout: idleTime,
	}
}

// maxAutoConns bounds the connections where only the limit of open files would.
const maxAutoConns = 1 << 16

// Accept waits for the next connection that may come in. Where there are too many, one
// that asks for nothing makes room; if all are at work the new one is told to come again.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		cc := &clientConn{Conn: c, l: l, addr: addressOf(c)}
		cc.since.Store(time.Now().UnixNano())
		victim, full := l.admit(cc)
		switch {
		case full == 0 && victim == nil:
			return cc, nil
		case full == 0:
			l.evicted.Add(1)
			victim.Close()
			return cc, nil
		}
		l.refused.Add(1)
		l.turnAway(c, full)
	}
}

// admit counts c in. full is the status to refuse it with, 0 for none; victim, if not
// nil, is to be closed for it.
func (l *Listener) admit(c *clientConn) (victim *clientConn, full int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.perAddress > 0 && l.byAddr[c.addr] >= l.perAddress {
		return nil, http.StatusTooManyRequests
	}
	if len(l.conns) >= l.max {
		if victim = l.idlest(); victim == nil {
			return nil, http.StatusServiceUnavailable
		}
		l.forget(victim)
	}
	l.conns[c] = struct{}{}
	l.byAddr[c.addr]++
	return victim, 0
}

// fresh is how long a connection without a request is left alone, even where every
// place is taken.
const fresh = time.Second

// idlest returns, of some connections, the one that has asked for nothing for longest,
// nil if none has. The caller holds mu.
func (l *Listener) idlest() (victim *clientConn) {
	seen, oldest := 0, time.Now().Add(-fresh).UnixNano()
	for c := range l.conns {
		if since := c.since.Load(); since != 0 && since < oldest {
			victim, oldest = c, since
		}
		if seen++; seen >= 256 && victim != nil {
			break
		}
	}
	return victim
}

// forget counts c out, once; the caller holds mu.
func (l *Listener) forget(c *clientConn) {
	if _, ok := l.conns[c]; !ok {
		return
	}
	delete(l.conns, c)
	if l.byAddr[c.addr]--; l.byAddr[c.addr] == 0 {
		delete(l.byAddr, c.addr)
	}
}

// State notes whether a connection has a request.
func (l *Listener) State(c net.Conn, s http.ConnState) {
	cc, ok := c.(*clientConn)
	if !ok {
		return
	}
	switch s {
	case http.StateActive:
		cc.since.Store(0)
	case http.StateIdle:
		cc.since.Store(time.Now().UnixNano())
	}
}

// Conns returns how many connections there are, how many were refused for want of a
// place, and how many without a request were closed to make one.
func (l *Listener) Conns() (open int, refused, evicted uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.conns), l.refused.Load(), l.evicted.Load()
}

// turnedAway has an answer by its status, in which the seconds of Retry-After are to be set.
var turnedAway = map[int]string{
	http.StatusServiceUnavailable: "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: %d\r\nConnection: close\r\nContent-Length: 135\r\n\r\n" +
		`{"error":{"message":"all connections that this router may have are at work","type":"server_error","param":null,"code":"connections"}}` + "\r\n",
	http.StatusTooManyRequests: "HTTP/1.1 429 Too Many Requests\r\nContent-Type: application/json\r\nRetry-After: %d\r\nConnection: close\r\nContent-Length: 134\r\n\r\n" +
		`{"error":{"message":"too many connections from this address","type":"rate_limit_error","param":null,"code":"connections_of_address"}}` + "\r\n",
}

// turnAway tells a client why it is not let in, unless too many are being told.
func (l *Listener) turnAway(c net.Conn, status int) {
	select {
	case l.byes <- struct{}{}:
	default:
		c.Close()
		return
	}
	go func() {
		defer func() { c.Close(); <-l.byes }()
		c.SetDeadline(time.Now().Add(time.Second))
		c.Read(make([]byte, 4<<10)) // an answer to no request would surprise; an error shows in the write
		if _, err := fmt.Fprintf(c, turnedAway[status], wholeSeconds(l.again)); err != nil {
			return
		}
		// A close before its request is read would be a reset, and take the answer with it.
		if half, ok := c.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
			io.CopyN(io.Discard, c, 64<<10)
		}
	}()
}

// A clientConn is a connection of a client's.
type clientConn struct {
	net.Conn
	l     *Listener
	addr  netip.Addr
	since atomic.Int64 // Unix nanoseconds since when it has no request, 0: it has one
	until atomic.Int64 // Unix nanoseconds of the write deadline, 0: none of ours
}

// Write gives the client some time to take p: every write ends, also those of net/http's
// own. The deadline is moved now and then, not for each write.
func (c *clientConn) Write(p []byte) (int, error) {
	now := time.Now()
	if c.until.Load()-now.UnixNano() < int64(c.l.patience*3/4) {
		until := now.Add(c.l.patience)
		c.Conn.SetWriteDeadline(until) // an error shows in the write
		c.until.Store(until.UnixNano())
	}
	return c.Conn.Write(p)
}

// SetWriteDeadline sets a deadline that is not moved any more. None, which is what net/http
// asks for after each request, means that of Write.
func (c *clientConn) SetWriteDeadline(t time.Time) error {
	switch {
	case !t.IsZero():
		c.until.Store(math.MaxInt64)
	case c.until.Load() == math.MaxInt64:
		c.until.Store(0)
	default:
		return nil
	}
	return c.Conn.SetWriteDeadline(t)
}

// Close closes the connection and gives its place up.
func (c *clientConn) Close() error {
	c.l.mu.Lock()
	c.l.forget(c)
	c.l.mu.Unlock()
	return c.Conn.Close()
}

// CloseWrite is what net/http says good-bye with.
func (c *clientConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

func addressOf(c net.Conn) netip.Addr {
	if a, ok := c.RemoteAddr().(*net.TCPAddr); ok {
		return a.AddrPort().Addr().Unmap().WithZone("")
	}
	return netip.Addr{}
}
