package zmtp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// decode feeds wire bytes in pieces of the given size and renders what comes out.
func decode(cfg Config, wire []byte, piece int) (out []string, d *reader, err error) {
	cfg, err = cfg.withDefaults()
	if err != nil {
		panic(err)
	}
	d = newReader(&cfg)
	for {
		ev, err := d.parse()
		if err != nil {
			return out, d, err
		}
		switch ev {
		case evMessage:
			s := "msg"
			for _, f := range d.frames {
				if len(f) > 8 {
					s += fmt.Sprintf(" %d*%x", len(f), f[len(f)-1])
				} else {
					s += fmt.Sprintf(" %q", f)
				}
			}
			out = append(out, s)
		case evCommand:
			out = append(out, fmt.Sprintf("cmd %q", d.command))
		case evMore:
			if len(wire) == 0 {
				return out, d, nil
			}
			n := copy(d.space(), wire[:min(piece, len(wire))])
			d.filled(n)
			wire = wire[n:]
		}
	}
}

func TestFrames(t *testing.T) {
	long := func(n int, b byte) string { return strings.Repeat(fmt.Sprintf("%02x", b), n) }
	for name, c := range map[string]struct{ in, want, err string }{
		"one frame":              {"0001 61", `msg "a"`, ""},
		"empty frame":            {"0000", `msg ""`, ""},
		"three frames":           {"0100 0102 6162 0001 63", `msg "" "ab" "c"`, ""},
		"two messages":           {"0001 61 0001 62", `msg "a"; msg "b"`, ""},
		"long form, short frame": {"02 0000000000000001 61", `msg "a"`, ""},
		"255":                    {"00ff" + long(255, 7), `msg 255*7`, ""},
		"256":                    {"02 0000000000000100" + long(256, 7), `msg 256*7`, ""},
		"100 KB in two frames":   {"03 0000000000011170" + long(70000, 7) + "02 0000000000007530" + long(30000, 8), `msg 70000*7 30000*8`, ""},
		"command":                {"0405 0450494e47", `cmd "\x04PING"`, ""},
		"long command":           {"06 0000000000000005 0450494e47", `cmd "\x04PING"`, ""},
		"command between parts":  {"0101 61 0402 0158 0001 62", `cmd "\x01X"; msg "a" "b"`, ""},
		"incomplete":             {"0101 61 0005 61", ``, ""},
		"incomplete size":        {"02 00000000000000", ``, ""},
		"reserved flag":          {"0800", ``, "flags are 0x08"},
		"reserved flag later":    {"0000 8000", `msg ""`, "flags are 0x80"},
		"command with more":      {"0500", ``, "MORE"},
		"2^63-1 bytes":           {"02 7fffffffffffffff 6161", ``, "claims 9223372036854775807 bytes"},
		"2^64-1 bytes":           {"02 ffffffffffffffff", ``, "claims 18446744073709551615 bytes"},
		"frame limit":            {"02 0000000000020001", ``, "claims 131073 bytes; accepted: up to 131072"},
		"message limit":          {"03 0000000000020000" + long(131072, 1) + "02 0000000000010000", ``, "MaxMessage"},
		"command limit":          {"06 0000000000010001", ``, "accepted: up to 65536"},
		"part limit":             {"0100 0100 0100 0100 0000", ``, "more than 4 parts"},
		"at the part limit":      {"0100 0100 0100 0000", `msg "" "" "" ""`, ""},
	} {
		for _, piece := range []int{1, 2, 7, 1000, 1 << 20} {
			cfg := Config{MaxFrame: 128 << 10, MaxMessage: 160 << 10, MaxParts: 4, ReadBuffer: 4096}
			wire := unhex(c.in)
			out, d, err := decode(cfg, wire, piece)
			if got := strings.Join(out, "; "); got != c.want {
				t.Errorf("%s in pieces of %d: %s, want %s", name, piece, got, c.want)
			}
			if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s in pieces of %d: error %v, want %q", name, piece, err, c.err)
			}
			if pe := new(ProtocolError); err != nil && !errors.As(err, &pe) {
				t.Errorf("%s: %T", name, err)
			}
			if limit := max(4096, 4*len(wire)); cap(d.buf) > limit {
				t.Errorf("%s in pieces of %d: buffer of %d for %d bytes that came", name, piece, cap(d.buf), len(wire))
			}
		}
	}
}

// The buffer starts small, grows with what comes, and goes back.
func TestBufferSize(t *testing.T) {
	small, medium, large := encode([][]byte{make([]byte, 100)}), encode([][]byte{make([]byte, 100_000)}), encode([][]byte{make([]byte, 3_000_000)})
	for _, c := range []struct {
		name   string
		wire   []byte
		lo, hi int
	}{
		{"nothing", nil, firstBuffer, firstBuffer},
		{"one small", small, firstBuffer, firstBuffer},
		{"many small", bytes.Repeat(small, 1000), DefaultReadBuffer, DefaultReadBuffer},
		{"medium stays", bytes.Repeat(medium, 10), 100_000, keepBuffers * DefaultReadBuffer},
		{"medium, then small for long", append(bytes.Repeat(medium, 10), bytes.Repeat(small, 1000)...), DefaultReadBuffer, DefaultReadBuffer},
		{"large goes at once", append(bytes.Clone(large), small...), DefaultReadBuffer, DefaultReadBuffer},
	} {
		cfg, _ := Config{}.withDefaults()
		d := newReader(&cfg)
		in := bytes.NewReader(c.wire)
		for {
			ev, err := d.parse()
			if err != nil {
				t.Fatal(err)
			}
			if ev == evMore {
				n, err := in.Read(d.space())
				if err == io.EOF {
					break
				}
				d.filled(n)
			}
		}
		if n := len(d.buf); n < c.lo || n > c.hi {
			t.Errorf("%s: buffer of %d, want %d to %d", c.name, n, c.lo, c.hi)
		}
	}
}

// After a large message, heartbeats alone give the buffer back.
func TestBufferRelaxes(t *testing.T) {
	cfg, _ := Config{}.withDefaults()
	in := &endless{}
	c := newConn(&cfg, kindSub, in, "")
	serve := func(wire []byte) int {
		in.wire, in.at, in.total = wire, 0, len(wire)
		if err := c.serve(func([][]byte) error { return nil }, nil); err != io.EOF {
			t.Fatal(err)
		}
		return len(c.in.buf)
	}
	pong := appendCommand(nil, "PONG")
	large := encode([][]byte{make([]byte, 100_000)})
	for range 10 { // large messages with heartbeats between them keep it
		serve(large)
		if n := serve(pong); n < 100_000 {
			t.Fatalf("buffer of %d while large messages come", n)
		}
	}
	if n := serve(pong); n != DefaultReadBuffer {
		t.Errorf("buffer of %d after two calm heartbeats", n)
	}
}

// endless is a connection that repeats wire for total bytes, then ends.
type endless struct {
	wire      []byte
	at, total int
}

func (e *endless) Read(b []byte) (int, error) {
	if e.total <= 0 {
		return 0, io.EOF
	}
	n := copy(b, e.wire[e.at:])
	if e.at += n; e.at == len(e.wire) {
		e.at = 0
	}
	e.total -= n
	return n, nil
}
func (e *endless) Write(b []byte) (int, error)      { return len(b), nil }
func (e *endless) Close() error                     { return nil }
func (e *endless) LocalAddr() net.Addr              { return memAddr("local") }
func (e *endless) RemoteAddr() net.Addr             { return memAddr("remote") }
func (e *endless) SetDeadline(time.Time) error      { return nil }
func (e *endless) SetReadDeadline(time.Time) error  { return nil }
func (e *endless) SetWriteDeadline(time.Time) error { return nil }

// From bytes to the caller's Message: nothing is allocated per message.
func TestReceiveAllocs(t *testing.T) {
	for _, size := range []int{100, 1 << 10, 64 << 10} {
		const count = 2000
		got := 0
		s, err := NewSub(SubConfig{Topics: []string{"none", "kv-"}, Message: func(p *Peer, frames [][]byte) {
			if len(frames) != 3 || len(frames[2]) != size {
				t.Fatalf("%d frames", len(frames))
			}
			got++
		}})
		if err != nil {
			t.Fatal(err)
		}
		wire := encode([][]byte{[]byte("kv-events"), make([]byte, 8), make([]byte, size)})
		in := &endless{wire: wire}
		c := newConn(&s.cfg, kindSub, in, "tcp://test:1")
		c.silence = time.Minute
		deliver := func(f [][]byte) error { return s.deliver(c, f) }
		allocs := testing.AllocsPerRun(3, func() {
			in.total = count * len(wire)
			if err := c.serve(deliver, nil); err != io.EOF {
				t.Fatal(err)
			}
		})
		if got != 4*count { // AllocsPerRun warms up with one run more
			t.Errorf("%d bytes: %d messages, want %d", size, got, 4*count)
		}
		if allocs > 0 {
			t.Errorf("%d bytes: %v allocations per %d messages", size, allocs, count)
		}
		s.Close()
	}
}

// parked is a peer that says its words and then nothing, without a goroutine of its own.
type parked struct {
	endless
	words  bytes.Reader
	closed chan struct{}
	idle   func() // everything was read
}

func (p *parked) Read(b []byte) (int, error) {
	if n, _ := p.words.Read(b); n > 0 {
		return n, nil
	}
	p.idle()
	<-p.closed
	return 0, net.ErrClosed
}

func (p *parked) Close() error { close(p.closed); return nil }

// A thousand connections: two goroutines each, and at most 40 MB in all.
func TestThousandConnections(t *testing.T) {
	const count = 1000
	idle := make(chan struct{}, count)
	words := append(appendGreeting(nil), appendReady(nil, kindPub, "")...)
	words = append(words, bytes.Repeat(encode([][]byte{[]byte("kv"), make([]byte, 8), make([]byte, 1000)}), 200)...)
	got := 0
	var mu sync.Mutex
	s, err := NewSub(SubConfig{
		Config: Config{Dial: func(context.Context, string, string) (net.Conn, error) {
			p := &parked{closed: make(chan struct{}), idle: func() { idle <- struct{}{} }}
			p.words.Reset(words)
			return p, nil
		}},
		Message: func(*Peer, [][]byte) { mu.Lock(); got++; mu.Unlock() },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	before, goroutines := memory(), runtime.NumGoroutine()
	for i := range count {
		if err := s.Connect(fmt.Sprintf("tcp://10.0.0.1:%d", i+1)); err != nil {
			t.Fatal(err)
		}
	}
	for range count {
		<-idle
	}
	if got != 200*count {
		t.Errorf("%d messages", got)
	}
	if per := float64(runtime.NumGoroutine()-goroutines) / count; per > 2.01 {
		t.Errorf("%.2f goroutines per connection", per)
	}
	mb := float64(memory()-before) / 1e6
	t.Logf("%.1f MB of heap and stacks for %d connections", mb, count)
	if mb > 43 && !raceEnabled {
		t.Errorf("%.1f MB, want about 40", mb)
	}
}

func memory() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse + m.StackInuse
}

func TestSpuriousReadErrors(t *testing.T) {
	cfg, _ := Config{}.withDefaults()
	c := newConn(&cfg, kindSub, &broken{}, "")
	if err := c.serve(nil, nil); !errors.Is(err, io.ErrNoProgress) {
		t.Errorf("a Read of 0 bytes without an error: %v", err)
	}
	c = newConn(&cfg, kindSub, &broken{err: os.ErrDeadlineExceeded}, "")
	if err := c.serve(nil, nil); err != ErrSilent {
		t.Errorf("deadline: %v", err)
	}
}

type broken struct {
	endless
	err error
}

func (b *broken) Read([]byte) (int, error) { return 0, b.err }
