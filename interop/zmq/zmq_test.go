//go:build interop

package zmq

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"kvasir/zmtp"
)

const sizes = "0,1,100,255,256,1000,8192,65535,65536,300000"

var sizeList = []int{0, 1, 100, 255, 256, 1000, 8192, 65535, 65536, 300000}

// events is a Sub's life as channels.
type events struct {
	up    chan uint64 // epochs
	down  chan error
	hello chan string
	full  chan string // "" when a burst of n came complete and in order
}

func newSub(t *testing.T, cfg zmtp.Config, n uint64, slow func()) (*zmtp.Sub, *events) {
	ev := &events{make(chan uint64, 100), make(chan error, 100), make(chan string, 10000), make(chan string, 100)}
	s, err := zmtp.NewSub(zmtp.SubConfig{
		Config: cfg,
		Topics: []string{"kv-"},
		Message: func(p *zmtp.Peer, f [][]byte) {
			if len(f) == 3 {
				ev.hello <- string(f[2])
				return
			}
			seq, ok := sequence(f)
			want, _ := p.Data.(uint64)
			if seq != want || !ok || string(f[0]) != "kv-events" {
				ev.full <- fmt.Sprintf("message %d, want %d, sum %v, topic %q", seq, want, ok, f[0])
			}
			if slow != nil && seq == 10 {
				slow()
			}
			p.Data = seq + 1
			if seq+1 == n {
				ev.full <- ""
			}
		},
		Connected:    func(p *zmtp.Peer) { ev.up <- p.Epoch },
		Disconnected: func(p *zmtp.Peer, err error) { ev.down <- err },
		Retrying:     func(ep string, err error, wait time.Duration) { t.Logf("retrying %s in %v: %v", ep, wait, err) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s, ev
}

// untilHello publishes hellos until one arrives: PUB can't see subscriptions.
func untilHello(t *testing.T, p *peer, ev *events, text string) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for limit := time.After(20 * time.Second); ; {
		select {
		case got := <-ev.hello:
			if got == text {
				return
			}
		case <-tick.C:
			p.tell("hello %s", text)
		case <-limit:
			t.Fatalf("no hello %q in 20 s", text)
		}
	}
}

func TestSubFromPub(t *testing.T) {
	for _, ep := range []string{"tcp://127.0.0.1:*", "tcp://[::1]:*", "tcp://[::ffff:127.0.0.1]:*", "ipc://" + filepath.Join(t.TempDir(), "pub"), fmt.Sprintf("ipc://@kvasir-%d", os.Getpid())} {
		t.Run("connect "+ep, func(t *testing.T) {
			p := start(t, "pub", "bind", ep, "hwm=0")
			s, ev := newSub(t, zmtp.Config{}, 2000, nil)
			if err := s.Connect(p.at); err != nil {
				t.Fatal(err)
			}
			untilHello(t, p, ev, "a")
			p.tell("burst 2000 %s", sizes)
			if bad := await(t, ev.full, "the burst"); bad != "" {
				t.Fatal(bad)
			}
		})
	}
	t.Run("bind", func(t *testing.T) {
		s, ev := newSub(t, zmtp.Config{}, 2000, nil)
		at, err := s.Bind("tcp://127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		a, b := start(t, "pub", "connect", at, "hwm=0"), start(t, "pub", "connect", at, "hwm=0")
		untilHello(t, a, ev, "a")
		untilHello(t, b, ev, "b")
		a.tell("burst 2000 %s", sizes)
		b.tell("burst 2000 %s", sizes)
		for range 2 {
			if bad := await(t, ev.full, "a burst"); bad != "" {
				t.Fatal(bad)
			}
		}
	})
}

func TestUnsubscribe(t *testing.T) {
	p := start(t, "pub", "bind", "tcp://127.0.0.1:*")
	s, ev := newSub(t, zmtp.Config{}, 1, nil)
	s.Connect(p.at)
	untilHello(t, p, ev, "a")
	s.Unsubscribe("kv-")
	s.Subscribe("other")
	p.tell("hello no")
	s.Subscribe("kv-ev")
	untilHello(t, p, ev, "b")
}

func TestDealerToRouter(t *testing.T) {
	p := start(t, "router", "bind", "tcp://127.0.0.1:*", "hwm=0")
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	d, err := zmtp.DialDealer(ctx, zmtp.Config{}, p.at)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for range 2 { // the same connection twice
		d.Send(nil, binary.BigEndian.AppendUint64(nil, 10000))
		for i := uint64(0); ; i++ {
			f, err := d.Recv(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if len(f[2]) == 8 && binary.BigEndian.Uint64(f[2]) == 1<<64-1 {
				if i != 10000 {
					t.Fatalf("end marker after %d", i)
				}
				break
			}
			if seq, ok := sequence(f); len(f[0]) != 0 || seq != i || !ok {
				t.Fatalf("reply %d has number %d", i, seq)
			}
		}
	}
}

func TestPubToSub(t *testing.T) {
	for _, mode := range []string{"connect", "bind"} {
		t.Run(mode, func(t *testing.T) {
			subscribed := make(chan string, 10)
			pub, err := zmtp.NewPub(zmtp.PubConfig{
				Config:     zmtp.Config{QueueLen: 100_000},
				Subscribed: func(p *zmtp.Peer, topic string, on bool) { subscribed <- topic },
			})
			if err != nil {
				t.Fatal(err)
			}
			defer pub.Close()
			var p *peer
			if mode == "connect" {
				at, err := pub.Bind("tcp://127.0.0.1:0")
				if err != nil {
					t.Fatal(err)
				}
				p = start(t, "sub", "connect", at, "rcvhwm=0")
			} else {
				p = start(t, "sub", "bind", "tcp://127.0.0.1:*", "rcvhwm=0")
				if err := pub.Connect(p.at); err != nil {
					t.Fatal(err)
				}
			}
			p.tell("count 2000") // a bound libzmq SUB subscribes only once its thread calls in
			if topic := await(t, subscribed, "the subscription"); topic != "kv-events" {
				t.Fatalf("subscribed to %q", topic)
			}
			for i := range 2000 {
				pub.Send([]byte("unwanted"), nil)
				pub.Send(numbered("kv-events", uint64(i), sizeList[i%len(sizeList)])...)
			}
			if got := p.want("counted "); got != "2000 bad=0" {
				t.Fatal(got)
			}
			if pub.Dropped() != 0 {
				t.Fatalf("%d dropped", pub.Dropped())
			}
		})
	}
}

func TestRouterFromDealerAndReq(t *testing.T) {
	ids := make(chan string, 10)
	var rt *zmtp.Router
	rt, err := zmtp.NewRouter(zmtp.RouterConfig{
		Config: zmtp.Config{QueueLen: 20_000},
		Message: func(p *zmtp.Peer, f [][]byte) {
			ids <- p.SocketType + " " + p.Identity
			for i := range binary.BigEndian.Uint64(f[1]) {
				rt.Send(p.Identity, append([][]byte{nil}, numbered("kv-events", i, int(i%5000))...)...)
			}
			rt.Send(p.Identity, nil, nil, []byte("\xff\xff\xff\xff\xff\xff\xff\xff"), nil)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close()
	at, err := rt.Bind("tcp://127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d := start(t, "dealer", "connect", at, "identity=router-1")
	for range 2 {
		d.tell("ask 10000")
		if got := d.want("replied "); got != "10000 bad=0" {
			t.Fatal(got)
		}
		if id := await(t, ids, "the request"); id != "DEALER router-1" {
			t.Fatal(id)
		}
	}
	r := start(t, "req", "connect", at)
	r.tell("ask 3")
	if got := r.want("replied "); got != "1 bad=0" { // a REQ reads one reply
		t.Fatal(got)
	}
}

// The peers stay connected while idle, whoever sends heartbeats, and while our handler is stuck.
func TestHeartbeatsKeepAlive(t *testing.T) {
	for name, c := range map[string]struct {
		ours   time.Duration
		theirs []string
	}{
		"ours":        {beat, nil},
		"theirs":      {-1, []string{"ivl=1500", "timeout=4500", "ttl=4500"}},
		"both":        {beat, []string{"ivl=1500", "timeout=4500", "ttl=4500"}},
		"theirs, TTL": {-1, []string{"ivl=1500", "ttl=4500"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := start(t, "pub", "bind", "tcp://127.0.0.1:*", c.theirs...)
			busy, free := context.WithCancel(t.Context())
			defer free()
			stuck := func() { <-busy.Done() }
			if c.ours < 0 {
				stuck = nil // nobody answers their PING then: theirs to drop us
			}
			s, ev := newSub(t, zmtp.Config{Heartbeat: c.ours}, 100, stuck)
			s.Connect(p.at)
			untilHello(t, p, ev, "a")
			staysUp(t, p, ev.down)
			p.tell("burst 100 1000")
			if stuck != nil {
				staysUp(t, p, ev.down)
				free()
			}
			if bad := await(t, ev.full, "the burst"); bad != "" {
				t.Fatal(bad)
			}
			if len(ev.down) > 0 || p.disconnects.Load() > 0 {
				t.Fatalf("disconnected: ours %d, theirs %d", len(ev.down), p.disconnects.Load())
			}
		})
	}
	t.Run("our pub, their sub", func(t *testing.T) {
		t.Parallel()
		subscribed := make(chan bool, 10)
		down := make(chan error, 10)
		pub, _ := zmtp.NewPub(zmtp.PubConfig{Config: zmtp.Config{Heartbeat: beat},
			Subscribed:   func(*zmtp.Peer, string, bool) { subscribed <- true },
			Disconnected: func(p *zmtp.Peer, err error) { down <- err }})
		defer pub.Close()
		at, _ := pub.Bind("tcp://127.0.0.1:0")
		p := start(t, "sub", "connect", at, "ivl=1500", "timeout=4500", "ttl=4500")
		await(t, subscribed, "the subscription")
		staysUp(t, p, down)
	})
}

// beat is the time between heartbeats here. After three of them a side that hears
// nothing ends the connection: long enough for a peer that a busy machine doesn't run.
const beat = 1500 * time.Millisecond

// staysUp watches a connection for four heartbeats, in which neither side may end it:
// longer than either waits for the other. What must not happen has no event to wait for.
func staysUp(t *testing.T, p *peer, down <-chan error) {
	t.Helper()
	select {
	case err := <-down:
		t.Fatalf("we disconnected: %v", err)
	case <-time.After(4 * beat):
	}
	if n := p.disconnects.Load(); n > 0 {
		t.Fatalf("libzmq disconnected %d times", n)
	}
}

// A stopped process keeps its TCP connection open and says nothing.
func TestSilentPeer(t *testing.T) {
	p := start(t, "pub", "bind", "tcp://127.0.0.1:*")
	s, ev := newSub(t, zmtp.Config{Heartbeat: 200 * time.Millisecond, HandshakeTimeout: 500 * time.Millisecond, MaxBackoff: 500 * time.Millisecond}, 1, nil)
	s.Connect(p.at)
	untilHello(t, p, ev, "a")
	await(t, ev.up, "the connection")
	p.cmd.Process.Signal(syscall.SIGSTOP)
	stopped := time.Now()
	err := await(t, ev.down, "the end")
	if !errors.Is(err, zmtp.ErrSilent) {
		t.Fatal(err)
	}
	t.Logf("noticed after %v", time.Since(stopped))
	p.cmd.Process.Signal(syscall.SIGCONT)
	if e := await(t, ev.up, "the next connection"); e != 2 {
		t.Fatalf("epoch %d", e)
	}
	untilHello(t, p, ev, "b")
}

// An engine killed and started again on the same port, three times.
func TestPeerRestarts(t *testing.T) {
	p := start(t, "pub", "bind", "tcp://127.0.0.1:*")
	s, ev := newSub(t, zmtp.Config{}, 100, nil)
	s.Connect(p.at)
	at := p.at
	for i := range 4 {
		text := fmt.Sprint("life", i)
		untilHello(t, p, ev, text)
		if e := await(t, ev.up, "the connection"); e != uint64(i+1) {
			t.Fatalf("epoch %d in life %d", e, i)
		}
		p.tell("burst 100 1000")
		if bad := await(t, ev.full, "the burst"); bad != "" {
			t.Fatal(bad)
		}
		if i == 3 {
			break
		}
		p.kill()
		await(t, ev.down, "the end")
		p = start(t, "pub", "bind", at)
	}
}

// libzmq refuses an incompatible socket, and so do we.
func TestIncompatible(t *testing.T) {
	p := start(t, "router", "bind", "tcp://127.0.0.1:*")
	errs := make(chan error, 100)
	s, err := zmtp.NewSub(zmtp.SubConfig{Message: func(*zmtp.Peer, [][]byte) {},
		Retrying: func(_ string, err error, _ time.Duration) { errs <- err }})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	s.Connect(p.at)
	t.Log(await(t, errs, "the refusal"))
}

// A Dealer that waits between two replays keeps its connection, with heartbeats from both sides.
func TestDealerIdle(t *testing.T) {
	p := start(t, "router", "bind", "tcp://127.0.0.1:*", "ivl=200", "timeout=600", "ttl=600")
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	d, err := zmtp.DialDealer(ctx, zmtp.Config{Heartbeat: 200 * time.Millisecond}, p.at)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for range 2 {
		d.Send(nil, binary.BigEndian.AppendUint64(nil, 0))
		if f, err := d.Recv(ctx); err != nil || len(f) != 4 {
			t.Fatalf("%q %v", f, err)
		}
		staysUp(t, p, nil)
	}
}

// Our publisher goes and comes back on its port: libzmq's SUB dials and subscribes again.
func TestOurRestart(t *testing.T) {
	at := "tcp://127.0.0.1:0"
	var p *peer
	for life := range 3 {
		subscribed := make(chan string, 10)
		pub, err := zmtp.NewPub(zmtp.PubConfig{Subscribed: func(_ *zmtp.Peer, topic string, on bool) { subscribed <- topic }})
		if err != nil {
			t.Fatal(err)
		}
		if at, err = pub.Bind(at); err != nil {
			t.Fatal(err)
		}
		if p == nil {
			p = start(t, "sub", "connect", at)
		}
		p.tell("take") // libzmq subscribes again only when its thread calls in
		await(t, subscribed, "the subscription")
		pub.Send([]byte("kv-events"), []byte{byte(life)})
		if got := p.want("took "); got != fmt.Sprintf("6b762d6576656e7473 %02x", life) {
			t.Fatal(got)
		}
		pub.Close()
	}
}

// A stopped subscriber makes us drop at the queue's limit; Send never blocks, and after
// it goes on, so do we, on the same connection.
func TestStoppedSubscriber(t *testing.T) {
	subscribed, down := make(chan bool, 10), make(chan error, 10)
	pub, err := zmtp.NewPub(zmtp.PubConfig{Config: zmtp.Config{QueueLen: 100, Heartbeat: -1},
		Subscribed:   func(*zmtp.Peer, string, bool) { subscribed <- true },
		Disconnected: func(_ *zmtp.Peer, err error) { down <- err }})
	if err != nil {
		t.Fatal(err)
	}
	defer pub.Close()
	at, err := pub.Bind("tcp://127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := start(t, "sub", "connect", at, "rcvhwm=0")
	await(t, subscribed, "the subscription")
	p.cmd.Process.Signal(syscall.SIGSTOP)
	sent := 0
	for ; pub.Dropped() < 50; sent++ { // what the kernel takes comes on top of the queue
		if sent > 100_000 {
			t.Fatal("6 GB sent to a stopped process, and nothing dropped")
		}
		pub.Send(numbered("kv-events", uint64(sent), 64<<10)...)
	}
	t.Logf("%d messages of 64 KB sent, %d dropped", sent, pub.Dropped())
	p.cmd.Process.Signal(syscall.SIGCONT)
	kept := sent - int(pub.Dropped()) // drops need not be the last ones, so order is not checked
	for range kept {
		p.tell("take")
		if got := p.want("took "); !strings.Contains(got, " 65536* ") {
			t.Fatalf("took %s", got)
		}
	}
	if len(down) > 0 {
		t.Fatal(<-down)
	}
}
