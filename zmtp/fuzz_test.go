package zmtp

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// FuzzFrames: whatever the bytes and however they are cut, the reader gives
// the same messages, takes memory in proportion to them, and what it accepts
// can be written again and read back.
func FuzzFrames(f *testing.F) {
	for _, s := range []string{"", "0000", "0100 0102 6162 0001 63", "0101 61 0402 0158 0001 62", "02 7fffffffffffffff", "03 0000000000000100",
		"0405 0450494e47 0001 61", "0800", "06 0000000000000005 0450494e47", zmqSubscribe31 + zmqCancel30} {
		f.Add(unhex(s), uint8(3))
	}
	f.Add(encode([][]byte{nil, make([]byte, 300), make([]byte, 3000)}), uint8(200))
	cfg := Config{MaxFrame: 4096, MaxMessage: 6000, MaxParts: 8, ReadBuffer: 512}
	f.Fuzz(func(t *testing.T, wire []byte, piece uint8) {
		whole, d, err := decode(cfg, wire, 1<<20)
		if limit := max(4096, 4*len(wire)); cap(d.buf) > limit {
			t.Fatalf("buffer of %d for %d bytes", cap(d.buf), len(wire))
		}
		cut, _, cutErr := decode(cfg, wire, int(piece)+1)
		if len(whole) != len(cut) || (err == nil) != (cutErr == nil) {
			t.Fatalf("at once: %q %v; in pieces of %d: %q %v", whole, err, int(piece)+1, cut, cutErr)
		}
		for i := range whole {
			if whole[i] != cut[i] {
				t.Fatalf("message %d: at once %s, in pieces %s", i, whole[i], cut[i])
			}
		}
		if pe := new(ProtocolError); err != nil && !errors.As(err, &pe) {
			t.Fatalf("%T %v", err, err)
		}
	})
}

// stranger is a peer that says the given bytes in pieces and hangs up.
type stranger struct {
	endless
	mu    sync.Mutex
	say   []byte
	piece int
	heard bytes.Buffer
	gone  bool
}

func (s *stranger) Read(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.say) == 0 || s.gone {
		return 0, io.EOF
	}
	n := copy(b, s.say[:min(s.piece, len(s.say))])
	s.say = s.say[n:]
	return n, nil
}

func (s *stranger) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone {
		return 0, net.ErrClosed
	}
	return s.heard.Write(b)
}

func (s *stranger) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone = true
	return nil
}

// FuzzPeer puts any bytes, with or without a good handshake before them,
// in front of each of the four sockets in both directions.
func FuzzPeer(f *testing.F) {
	greeting, greeting30 := appendGreeting(nil), appendGreeting(nil)
	greeting30[11] = 0
	for _, ready := range []string{zmqReadyPub, zmqReadySub, zmqReadyRouter, zmqReadyDealerID, "0400", "0406 055245414459", "0406 054552524f52", "06 ffffffffffffffff"} {
		for _, after := range []string{"", zmqSubscribe31 + zmqCancel31, zmqSubscribe30 + zmqCancel30 + "0100 0001 61", zmqPing1s + zmqPong, "02 7fffffffffffffff", "0400", "0405 ff50494e47", "0407 054552524f52 00"} {
			f.Add(append(append(bytes.Clone(greeting), unhex(ready)...), unhex(after)...), uint8(255), uint8(0))
			f.Add(append(append(bytes.Clone(greeting30), unhex(ready)...), unhex(after)...), uint8(5), uint8(1))
		}
	}
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"), uint8(0), uint8(2))
	f.Add(unhex(zmqPing1s+zmqSubscribe31+"0100 0001 61"), uint8(9), uint8(3)) // after a good handshake
	f.Fuzz(func(t *testing.T, say []byte, piece, which uint8) {
		kinds := []kind{kindSub, kindPub, kindRouter, kindDealer}
		k := kinds[which%4]
		if which&4 != 0 {
			partner := map[kind]kind{kindSub: kindPub, kindPub: kindSub, kindRouter: kindDealer, kindDealer: kindRouter}
			say = append(appendReady(bytes.Clone(greeting), partner[k], ""), say...)
		}
		peer := &stranger{say: say, piece: int(piece) + 1}
		cfg := Config{MaxFrame: 4096, MaxMessage: 8192, MaxParts: 8, QueueLen: 4, Heartbeat: -1, HandshakeTimeout: time.Hour,
			Dial: func(context.Context, string, string) (net.Conn, error) { return peer, nil }}
		if which&8 != 0 {
			cfg.Heartbeat = time.Hour
		}
		up, down := 0, 0
		connected := func(*Peer) { up++ }
		lost := func(p *Peer, err error) {
			if down++; err == nil {
				t.Error("disconnected without a reason")
			}
		}
		ended := make(chan *socket, 1)
		serve := func(s *socket, err error) {
			if err != nil {
				t.Fatal(err)
			}
			ended <- s
		}
		switch k {
		case kindSub:
			s, err := NewSub(SubConfig{Config: cfg, Connected: connected, Disconnected: lost, Message: func(_ *Peer, f [][]byte) { _ = f[0] }})
			serve(&s.socket, err)
		case kindPub:
			s, err := NewPub(PubConfig{Config: cfg, MaxSubscriptions: 4, Connected: connected, Disconnected: lost})
			if err == nil {
				s.config.Subscribed = func(*Peer, string, bool) { s.Send([]byte("kv@1"), say) }
			}
			serve(&s.socket, err)
		case kindRouter:
			var s *Router
			s, err := NewRouter(RouterConfig{Config: cfg, Connected: connected, Disconnected: lost, Message: func(p *Peer, f [][]byte) { s.Send(p.Identity, f...) }})
			serve(&s.socket, err)
		case kindDealer:
			d, err := DialDealer(context.Background(), cfg, "tcp://h:1")
			if err != nil {
				return
			}
			for {
				f, err := d.Recv(context.Background())
				if err != nil {
					break
				}
				d.Send(f...)
			}
			d.Close()
			return
		}
		s := <-ended
		s.run(s.ctx, peer, "tcp://h:1")
		if up != down {
			t.Errorf("%d connected, %d disconnected", up, down)
		}
		if len(s.conns) != 0 {
			t.Error("a connection is left behind")
		}
		s.Close()
	})
}

// FuzzEndpoint: what is accepted is an address that package net takes apart.
func FuzzEndpoint(f *testing.F) {
	for _, s := range []string{"tcp://10.0.0.1:5557", "tcp://[::1]:1", "tcp://*:*", "ipc:///a", "ipc://@a", "tcp://[fe80::1%eth0]:1", "inproc://x", "tcp://a:b:1"} {
		f.Add(s, true)
		f.Add(s, false)
	}
	f.Fuzz(func(t *testing.T, s string, bind bool) {
		ep, err := parseEndpoint(s, bind)
		if err != nil {
			return
		}
		if ep.network == "tcp" {
			host, port, err := net.SplitHostPort(ep.address)
			if err != nil || !bind && (host == "" || port == "0") {
				t.Errorf("%q: %+v %v", s, ep, err)
			}
		}
	})
}
