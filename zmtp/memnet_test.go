package zmtp

import (
	"context"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
)

// memnet is a network of net.Pipes: usable inside a synctest bubble, with no
// buffering at all between the two ends.
type memnet struct {
	mu        sync.Mutex
	listeners map[string]*memListener
	raw       chan net.Conn // when set, takes the far end of each dial
	dials     int
}

func (m *memnet) dial(ctx context.Context, network, address string) (net.Conn, error) {
	m.mu.Lock()
	m.dials++
	l, raw := m.listeners[address], m.raw
	m.mu.Unlock()
	near, far := net.Pipe()
	to := raw
	var closed chan struct{}
	if l != nil {
		to, closed = l.conns, l.closed
	}
	if to == nil {
		return nil, errors.New("connection refused")
	}
	select {
	case to <- far:
		return near, nil
	case <-closed:
		return nil, errors.New("connection refused")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

type memListener struct {
	net    *memnet
	addr   memAddr
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

type memAddr string

func (memAddr) Network() string  { return "tcp" }
func (a memAddr) String() string { return string(a) }

func (m *memnet) listen(_ context.Context, network, address string) (net.Listener, error) {
	l := &memListener{net: m, addr: memAddr(address), conns: make(chan net.Conn), closed: make(chan struct{})}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.listeners == nil {
		m.listeners = map[string]*memListener{}
	}
	m.listeners[address] = l
	return l, nil
}

func (l *memListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *memListener) Close() error {
	l.once.Do(func() {
		close(l.closed)
		l.net.mu.Lock()
		delete(l.net.listeners, string(l.addr))
		l.net.mu.Unlock()
	})
	return nil
}

func (l *memListener) Addr() net.Addr { return l.addr }

// raw is a scripted peer: it writes and expects bytes.
type raw struct {
	t  *testing.T
	nc net.Conn
}

func unhex(s string) []byte {
	b, err := hex.DecodeString(strings.NewReplacer(" ", "", "\n", "", "\t", "").Replace(s))
	if err != nil {
		panic(err)
	}
	return b
}

func (r raw) send(b []byte) {
	r.t.Helper()
	if _, err := r.nc.Write(b); err != nil {
		r.t.Fatalf("raw peer: write: %v", err)
	}
}

func (r raw) expect(want []byte) {
	r.t.Helper()
	got := make([]byte, len(want))
	if n, err := io.ReadFull(r.nc, got); err != nil {
		r.t.Fatalf("raw peer: read: %v; got % x, want % x", err, got[:n], want)
	}
	if string(got) != string(want) {
		r.t.Fatalf("raw peer: got % x\nwant % x", got, want)
	}
}

// meet shakes hands as the given socket type, and checks our greeting.
func (r raw) meet(minor byte, socketType, ours string) {
	r.t.Helper()
	g := appendGreeting(nil)
	g[11] = minor
	r.send(g)
	r.expect(appendGreeting(nil))
	r.expect(unhex(ours))
	r.send(appendCommand(nil, "READY", appendProperty(nil, "Socket-Type", socketType)))
}

const (
	readySub    = "0419 0552454144590b536f636b65742d54797065 00000003 535542"
	readyPub    = "0419 0552454144590b536f636b65742d54797065 00000003 505542"
	readyDealer = "0429 0552454144590b536f636b65742d54797065 00000006 4445414c4552 084964656e74697479 00000000"
	readyRouter = "0429 0552454144590b536f636b65742d54797065 00000006 524f55544552 084964656e74697479 00000000"
	subscribe31 = "040d 09535542534352494245 6b7640" // topic kv@
	cancel31    = "040a 0643414e43454c 6b7640"
	subscribe30 = "0004 01 6b7640"
	cancel30    = "0004 00 6b7640"
)
