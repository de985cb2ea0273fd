package zmtp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// All of this file runs in virtual time: net.Pipe, synctest, no sockets.

type diary struct {
	t     *testing.T
	start time.Time
	lines chan string
}

func newDiary(t *testing.T) *diary { return &diary{t, time.Now(), make(chan string, 1000)} }

func (d *diary) write(format string, args ...any) {
	d.lines <- fmt.Sprintf("%v ", time.Since(d.start)) + fmt.Sprintf(format, args...)
}

// want compares what was written since the last call, at rest.
func (d *diary) want(lines ...string) {
	d.t.Helper()
	synctest.Wait()
	var got []string
	for len(d.lines) > 0 {
		got = append(got, <-d.lines)
	}
	if g, w := strings.Join(got, "\n"), strings.Join(lines, "\n"); g != w {
		d.t.Fatalf("got:\n%s\nwant:\n%s", g, w)
	}
}

// diarySub is a Sub that dials raw peers and writes down its life.
func diarySub(t *testing.T, d *diary, cfg Config, topics ...string) (*Sub, *memnet) {
	net := &memnet{raw: make(chan net.Conn)}
	cfg.Dial, cfg.Listen = net.dial, net.listen
	if cfg.Jitter == nil {
		cfg.Jitter = func() float64 { return 0.5 }
	}
	s, err := NewSub(SubConfig{
		Config: cfg, Topics: topics,
		Message:      func(p *Peer, f [][]byte) { d.write("message %d %q", p.Epoch, f) },
		Connected:    func(p *Peer) { d.write("connected %d %s", p.Epoch, p.SocketType) },
		Disconnected: func(p *Peer, err error) { d.write("disconnected %d %v", p.Epoch, err) },
		Retrying:     func(ep string, err error, wait time.Duration) { d.write("retrying %s in %v", ep, wait) },
	})
	if err != nil {
		t.Fatal(err)
	}
	return s, net
}

func TestHeartbeatAndSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDiary(t)
		s, net := diarySub(t, d, Config{Heartbeat: time.Second}, "kv@")
		s.Connect("tcp://engine:5557")
		peer := raw{t, <-net.raw}
		peer.meet(1, "PUB", readySub)
		peer.expect(unhex(subscribe31))
		d.want("0s connected 1 PUB")
		for range 3 { // answered: the connection lives
			peer.expect(unhex("0407 0450494e47 001e")) // TTL 3.0 s
			peer.send(unhex("0405 04504f4e47"))
		}
		if at := time.Since(d.start); at != 3*time.Second {
			t.Errorf("third PING after %v", at)
		}
		peer.send(unhex("0409 0450494e47 0000 6162")) // theirs, with a context
		peer.expect(unhex("0407 04504f4e47 6162"))
		go io.Copy(io.Discard, peer.nc) // from now on it takes bytes and says nothing
		time.Sleep(3*time.Second - 1)
		d.want()
		time.Sleep(1 * time.Nanosecond)
		d.want("6s disconnected 1 "+ErrSilent.Error(), "6s retrying tcp://engine:5557 in 75ms")
		s.Close()
	})
}

// The other kind of half-open: nothing is read, so that our writer is stuck.
func TestSilenceWithStuckWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDiary(t)
		s, net := diarySub(t, d, Config{Heartbeat: time.Second})
		s.Connect("tcp://engine:5557")
		peer := raw{t, <-net.raw}
		peer.meet(1, "PUB", readySub)
		time.Sleep(10 * time.Second)
		d.want("0s connected 1 PUB", "3s disconnected 1 "+ErrSilent.Error(), "3s retrying tcp://engine:5557 in 75ms")
		s.Close()
	})
}

// A stuck handler stalls its connection, but doesn't lose it: PINGs go out,
// the silence limit doesn't run. This is the defect of the prototype.
func TestStuckHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDiary(t)
		net := &memnet{raw: make(chan net.Conn)}
		release := make(chan struct{})
		s, _ := NewSub(SubConfig{
			Config:       Config{Dial: net.dial, Heartbeat: time.Second},
			Message:      func(p *Peer, f [][]byte) { d.write("message %q", f); <-release },
			Disconnected: func(p *Peer, err error) { d.write("disconnected %v", err) },
		})
		s.Connect("tcp://engine:5557")
		peer := raw{t, <-net.raw}
		peer.meet(1, "PUB", readySub)
		peer.expect(unhex("040a 095355425343524942 45"))
		go func() {
			peer.nc.Write(unhex("0001 61 0001 62"))
		}()
		for i := range 30 {
			peer.expect(unhex("0407 0450494e47 001e"))
			if at := time.Since(d.start); at != time.Duration(i+1)*time.Second {
				t.Fatalf("PING %d after %v", i, at)
			}
		}
		d.want(`0s message ["a"]`)
		close(release)
		d.want(`30s message ["b"]`)
		go io.Copy(io.Discard, peer.nc)
		time.Sleep(time.Hour)
		d.want("33s disconnected " + ErrSilent.Error())
		s.Close()
	})
}

func TestPeerWithoutHeartbeats(t *testing.T) {
	t.Run("3.0: no PING, legacy subscriptions, no silence limit", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			d := newDiary(t)
			s, net := diarySub(t, d, Config{Heartbeat: time.Second}, "kv@")
			s.Connect("tcp://engine:5557")
			peer := raw{t, <-net.raw}
			peer.meet(0, "PUB", readySub)
			peer.expect(unhex(subscribe30))
			time.Sleep(time.Hour)
			d.want("0s connected 1 PUB")
			s.Unsubscribe("kv@")
			peer.expect(unhex(cancel30))
			s.Close()
			d.want("1h0m0s disconnected 1 " + ErrClosed.Error())
		})
	})
	t.Run("heartbeats off: the peer's TTL counts", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			d := newDiary(t)
			s, net := diarySub(t, d, Config{Heartbeat: -1}, "kv@")
			s.Connect("tcp://engine:5557")
			peer := raw{t, <-net.raw}
			peer.meet(1, "PUB", readySub)
			peer.expect(unhex(subscribe31))
			time.Sleep(time.Hour)
			peer.send(unhex("0407 0450494e47 0014"))
			peer.expect(unhex("0405 04504f4e47"))
			time.Sleep(2 * time.Second)
			d.want("0s connected 1 PUB", "1h0m2s disconnected 1 "+ErrSilent.Error(), "1h0m2s retrying tcp://engine:5557 in 75ms")
			s.Close()
		})
	})
}

func TestReconnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDiary(t)
		s, net := diarySub(t, d, Config{}, "kv@")
		s.Connect("tcp://engine:5557")
		peer := raw{t, <-net.raw}
		peer.meet(1, "PUB", readySub)
		peer.expect(unhex(subscribe31))
		peer.send(unhex("0104 6b764061 0001 31"))
		d.want("0s connected 1 PUB", `0s message 1 ["kv@a" "1"]`)
		s.Subscribe("x")
		peer.expect(unhex("040b 09535542534352494245 78"))
		s.Unsubscribe("kv@")
		peer.expect(unhex(cancel31))
		peer.send(unhex("0104 6b764061 0001 32 0101 78 0001 33")) // the first was on its way
		d.want(`0s message 1 ["x" "3"]`)
		peer.nc.Close()
		peer = raw{t, <-net.raw} // the subscriptions of now, on the new connection
		peer.meet(1, "PUB", readySub)
		peer.expect(unhex("040b 09535542534352494245 78"))
		d.want("0s disconnected 1 EOF", "0s retrying tcp://engine:5557 in 75ms", "75ms connected 2 PUB")
		peer.send(unhex("0001 78"))
		d.want(`75ms message 2 ["x"]`)
		if err := s.Connect("tcp://engine:5557"); err == nil {
			t.Error("connected twice")
		}
		if err := s.Disconnect("tcp://engine:5557"); err != nil {
			t.Error(err)
		}
		d.want("75ms disconnected 2 " + ErrClosed.Error())
		if err := s.Disconnect("tcp://engine:5557"); err == nil {
			t.Error("disconnected twice")
		}
		time.Sleep(time.Hour)
		d.want()
		s.Close()
		for _, err := range []error{s.Close(), s.Connect("tcp://a:1"), s.Subscribe("y")} {
			if err != ErrClosed {
				t.Errorf("after Close: %v", err)
			}
		}
	})
}

// Waits double up to the limit, their upper half is chance; a peer that only takes
// connections to drop them counts as failing, one that lasted or spoke does not.
func TestBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var permille atomic.Int32
		d := newDiary(t)
		s, net := diarySub(t, d, Config{MinBackoff: time.Second, MaxBackoff: 10 * time.Second, Jitter: func() float64 { return float64(permille.Load()) / 1000 }})
		far := net.raw
		net.raw = nil // refused
		s.Connect("tcp://e:1")
		time.Sleep(20 * time.Second)
		line := func(at, wait string) string { return at + " retrying tcp://e:1 in " + wait }
		d.want(line("0s", "500ms"), line("500ms", "1s"), line("1.5s", "2s"), line("3.5s", "4s"), line("7.5s", "5s"), line("12.5s", "5s"), line("17.5s", "5s"))
		permille.Store(999)
		time.Sleep(5 * time.Second)
		d.want(line("22.5s", "9.995s"))
		permille.Store(0)
		net.mu.Lock()
		net.raw = far
		net.mu.Unlock()
		for i, c := range []struct {
			lasts   time.Duration
			message bool
			wait    string
		}{{0, false, "5s"}, {9 * time.Second, false, "5s"}, {10 * time.Second, false, "500ms"}, {0, false, "1s"}, {0, false, "2s"}, {0, true, "500ms"}} {
			peer := raw{t, <-far}
			at := func() time.Duration { return time.Since(d.start) }
			peer.meet(0, "PUB", readySub)
			peer.expect(unhex("0001 01"))
			want := []string{fmt.Sprintf("%v connected %d PUB", at(), i+1)}
			if c.message {
				peer.send(unhex("0000"))
				want = append(want, fmt.Sprintf(`%v message %d [""]`, at(), i+1))
			}
			time.Sleep(c.lasts)
			peer.nc.Close()
			d.want(append(want, fmt.Sprintf("%v disconnected %d EOF", at(), i+1), line(at().String(), c.wait))...)
		}
		s.Close()
	})
}

func TestHandshakeFails(t *testing.T) {
	for name, c := range map[string]struct {
		say  string // after the greeting, if it starts with "g"
		want string
		at   time.Duration
	}{
		"says nothing":      {"", ErrHandshakeTimeout.Error(), 10 * time.Second},
		"greeting only":     {"g", ErrHandshakeTimeout.Error(), 10 * time.Second},
		"HTTP":              {"485454502f312e31", "no ZMTP greeting", 0},
		"message first":     {"g 0000", "message before READY", 0},
		"PING first":        {"g 0407 0450494e47 0000", `"PING" before READY`, 0},
		"ERROR":             {"g 0409 054552524f52 026e6f", `the peer sent ERROR: "no"`, 0},
		"another type":      {"g" + readyRouter, `"ROUTER", which a SUB does not talk to`, 0},
		"no type":           {"g 0406 055245414459", `"", which a SUB does not talk to`, 0},
		"2^63-1 byte frame": {"g 06 7fffffffffffffff", "claims 9223372036854775807 bytes", 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				net := &memnet{raw: make(chan net.Conn)}
				errs := make(chan error)
				s, _ := NewSub(SubConfig{Config: Config{Dial: net.dial}, Message: func(*Peer, [][]byte) {},
					Connected: func(*Peer) { t.Error("connected") },
					Retrying:  func(_ string, err error, _ time.Duration) { errs <- err }})
				s.Connect("tcp://e:1")
				far := <-net.raw
				go io.Copy(io.Discard, far)
				say, greet := strings.CutPrefix(c.say, "g")
				go func() {
					if greet {
						far.Write(appendGreeting(nil))
					}
					far.Write(unhex(say))
				}()
				if err := <-errs; !strings.Contains(err.Error(), c.want) {
					t.Errorf("got %v, want %s", err, c.want)
				}
				if at := time.Since(start); at != c.at {
					t.Errorf("after %v, want %v", at, c.at)
				}
				s.Close()
			})
		})
	}
}

// memPair binds a server socket and returns a function that dials it raw.
func memDial(t *testing.T, m *memnet) raw {
	nc, err := m.dial(context.Background(), "tcp", "h:1")
	if err != nil {
		t.Fatal(err)
	}
	return raw{t, nc}
}

func TestSlowSubscriber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDiary(t)
		m := &memnet{}
		pub, err := NewPub(PubConfig{
			Config:     Config{Listen: m.listen, Heartbeat: -1, QueueLen: 10},
			Subscribed: func(p *Peer, topic string, on bool) { d.write("%d %q %v", p.Epoch, topic, on) },
			Dropping:   func(p *Peer) { d.write("drop %d", p.Epoch) },
		})
		if err != nil {
			t.Fatal(err)
		}
		at, err := pub.Bind("tcp://h:1")
		if err != nil || at != "tcp://h:1" {
			t.Fatal(at, err)
		}
		slow, fast := memDial(t, m), memDial(t, m)
		slow.meet(1, "SUB", readyPub)
		slow.send(unhex(subscribe31))
		d.want(`0s 1 "kv@" true`)
		fast.meet(0, "SUB", readyPub)
		fast.send(unhex(subscribe30))
		d.want(`0s 2 "kv@" true`)
		for i := range byte(13) {
			pub.Send([]byte("other"), []byte{i})
			pub.Send([]byte("kv@"), []byte{i})
			fast.expect([]byte{1, 3, 'k', 'v', '@', 0, 1, i})
		}
		d.want("0s drop 1", "0s drop 1", "0s drop 1")
		if n := pub.Dropped(); n != 3 {
			t.Errorf("%d dropped", n)
		}
		for i := range byte(10) { // what was queued is there, in order
			slow.expect([]byte{1, 3, 'k', 'v', '@', 0, 1, i})
		}
		synctest.Wait()
		pub.Send([]byte("kv@"), []byte{99}) // and there is room again
		slow.expect([]byte{1, 3, 'k', 'v', '@', 0, 1, 99})
		fast.expect([]byte{1, 3, 'k', 'v', '@', 0, 1, 99})
		slow.send(unhex(cancel31))
		d.want(`0s 1 "kv@" false`)
		pub.Send([]byte("kv@"), []byte{100})
		fast.expect([]byte{1, 3, 'k', 'v', '@', 0, 1, 100})
		pub.Close()
		if n, err := slow.nc.Read(make([]byte, 1)); n != 0 || err != io.EOF {
			t.Errorf("after the cancel and Close: %d bytes, %v", n, err)
		}
		if err := pub.Send(nil); err != ErrClosed {
			t.Errorf("Send after Close: %v", err)
		}
	})
}

func TestQueueBytes(t *testing.T) {
	o := newOutbox(&Config{QueueLen: 100, QueueBytes: 1000})
	if !o.put(make([]byte, 5000)) {
		t.Error("a large message into an empty queue")
	}
	if o.put(nil) {
		t.Error("a second one beside it")
	}
	_, batch := o.take(nil, nil)
	if o.put(nil) {
		t.Error("still being written")
	}
	o.written(batch)
	for i := range 100 {
		if !o.put([]byte{byte(i)}) {
			t.Fatalf("message %d", i)
		}
	}
	if o.put(nil) {
		t.Error("message 101")
	}
	_, batch = o.take(nil, nil)
	if len(batch) != batchLen || batch[63][0] != 63 {
		t.Errorf("batch of %d", len(batch))
	}
	// PONGs to a peer that never reads are bounded, too.
	for range 10000 {
		o.putReply(func(b []byte) []byte { return append(b, make([]byte, 24)...) })
	}
	if len(o.control) > maxReplies+24 {
		t.Errorf("%d bytes of PONGs", len(o.control))
	}
}

func TestRouterIdentities(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDiary(t)
		m := &memnet{}
		rt, err := NewRouter(RouterConfig{
			Config:       Config{Listen: m.listen, Heartbeat: -1, QueueLen: 2},
			Message:      func(p *Peer, f [][]byte) { d.write("%x %q", p.Identity, f) },
			Connected:    func(p *Peer) { d.write("connected %x %s", p.Identity, p.SocketType) },
			Disconnected: func(p *Peer, err error) { d.write("disconnected %x %v", p.Identity, err != nil) },
		})
		if err != nil {
			t.Fatal(err)
		}
		rt.Bind("tcp://h:1")
		ready := func(identity string) []byte {
			return appendReady(nil, kindDealer, identity)
		}
		join := func(identity string) raw {
			r := memDial(t, m)
			r.send(appendGreeting(nil))
			r.expect(appendGreeting(nil))
			r.expect(unhex(readyRouter))
			r.send(ready(identity))
			return r
		}
		a := join("a")
		d.want("0s connected 61 DEALER")
		anon := join("")
		d.want("0s connected 000000000000000002 DEALER")
		again := join("a")
		if _, err := again.nc.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("a second peer with the same identity: %v", err)
		}
		anon.send(unhex("0100 0001 37"))
		d.want(`0s 000000000000000002 ["" "7"]`)
		if err := rt.Send("\x00\x00\x00\x00\x00\x00\x00\x00\x02", nil, []byte("8")); err != nil {
			t.Error(err)
		}
		anon.expect(unhex("0100 0001 38"))
		for i, want := range []error{nil, nil, ErrQueueFull} {
			if err := rt.Send("a", []byte("x")); err != want {
				t.Errorf("send %d: %v, want %v", i, err, want)
			}
		}
		a.nc.Close()
		d.want("0s disconnected 61 true")
		if err := rt.Send("a", nil); err != ErrNoPeer {
			t.Errorf("to one that left: %v", err)
		}
		join("a")
		d.want("0s connected 61 DEALER")
		rt.Close()
		synctest.Wait()
		if len(d.lines) != 2 {
			t.Errorf("%d of 2 peers were told off at Close", len(d.lines))
		}
		if err := rt.Send("a", nil); err != ErrClosed {
			t.Errorf("after Close: %v", err)
		}
	})
}

func TestMaxPeersAndSubscriptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memnet{}
		lost := make(chan error, 9)
		pub, _ := NewPub(PubConfig{Config: Config{Listen: m.listen, MaxPeers: 2}, MaxSubscriptions: 3,
			Disconnected: func(_ *Peer, err error) { lost <- err }})
		pub.Bind("tcp://h:1")
		one, _ := memDial(t, m), memDial(t, m)
		three := memDial(t, m)
		if _, err := three.nc.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("peer 3 of 2: %v", err)
		}
		one.meet(1, "SUB", readyPub)
		go io.Copy(io.Discard, one.nc)
		for i := range byte(4) {
			one.send(appendSubscription(nil, 1, string('a'+rune(i)), true))
		}
		if err := <-lost; !strings.Contains(err.Error(), "more than 3 subscriptions") {
			t.Error(err)
		}
		synctest.Wait()
		four := memDial(t, m) // its place is free again
		four.meet(1, "SUB", readyPub)
		pub.Close()
	})
}

func TestDealer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memnet{raw: make(chan net.Conn)}
		peers := make(chan raw, 1)
		go func() {
			r := raw{t, <-m.raw}
			r.meet(1, "ROUTER", readyDealer)
			peers <- r
		}()
		d, err := DialDealer(context.Background(), Config{Dial: m.dial, Heartbeat: time.Second}, "tcp://h:1")
		if err != nil {
			t.Fatal(err)
		}
		peer := <-peers
		start := time.Now()
		if err := d.Send(nil, []byte("42")); err != nil {
			t.Fatal(err)
		}
		peer.expect(unhex("0100 0002 3432"))
		go io.Copy(io.Discard, peer.nc)
		// Half a message, then ctx ends; the other half comes for the next Recv.
		go peer.nc.Write(unhex("0100 01"))
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		if _, err := d.Recv(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 2*time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		go peer.nc.Write(unhex("01 61 0001 62 0000"))
		if f, err := d.Recv(context.Background()); fmt.Sprintf("%q %v", f, err) != `["" "a" "b"] <nil>` {
			t.Errorf("%q %v", f, err)
		}
		if f, err := d.Recv(ctx); fmt.Sprintf("%q %v", f, err) != `[""] <nil>` { // it is there already
			t.Errorf("%q %v", f, err)
		}
		time.Sleep(time.Minute) // its owner is busy: no silence, PINGs go on
		if _, err := d.Recv(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		start = time.Now()
		if _, err := d.Recv(context.Background()); err != ErrSilent || time.Since(start) != 3*time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		if err := d.Send(nil); err != ErrSilent {
			t.Errorf("Send after the end: %v", err)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestDealerEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memnet{}
		if _, err := DialDealer(context.Background(), Config{Dial: m.dial}, "tcp://h:1"); err == nil || !strings.Contains(err.Error(), `"tcp://h:1"`) {
			t.Error(err)
		}
		m.raw = make(chan net.Conn, 1)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if _, err := DialDealer(ctx, Config{Dial: m.dial}, "tcp://h:1"); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		<-m.raw
		go func() {
			r := raw{t, <-m.raw}
			r.meet(1, "ROUTER", readyDealer)
			io.Copy(io.Discard, r.nc)
		}()
		d, err := DialDealer(context.Background(), Config{Dial: m.dial}, "tcp://h:1")
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Second, func() { d.Close() })
		if _, err := d.Recv(context.Background()); err != ErrClosed {
			t.Errorf("closed while receiving: %v", err)
		}
		if err := d.Send(nil); err != ErrClosed {
			t.Errorf("Send after Close: %v", err)
		}
	})
}

// Peer.Close inside Message: what was read with that message is not delivered.
func TestPeerCloseStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDiary(t)
		net := &memnet{raw: make(chan net.Conn)}
		s, _ := NewSub(SubConfig{
			Config:       Config{Dial: net.dial},
			Message:      func(p *Peer, f [][]byte) { d.write("%q", f); p.Close() },
			Disconnected: func(p *Peer, err error) { d.write("%v", err) },
		})
		s.Connect("tcp://e:1")
		peer := raw{t, <-net.raw}
		peer.meet(0, "PUB", readySub)
		peer.expect(unhex("0001 01"))
		peer.send(unhex("0001 61 0001 62"))
		d.want(`0s ["a"]`, "0s "+ErrDropped.Error())
		s.Close()
	})
}

// Two engines dial a bound Sub; Peer.Close drops one, which dials again as a new epoch.
func TestSubBindPeers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDiary(t)
		m := &memnet{}
		s, err := NewSub(SubConfig{
			Config:    Config{Listen: m.listen},
			Connected: func(p *Peer) { p.Data = p.Identity + "!" },
			Message: func(p *Peer, f [][]byte) {
				d.write("%s %d %s %q", p.Data, p.Epoch, p.Endpoint, f)
				if string(f[1]) == "bye" {
					p.Close()
				}
			},
			Disconnected: func(p *Peer, err error) { d.write("%s %v", p.Data, err) },
		})
		if err != nil {
			t.Fatal(err)
		}
		s.Bind("tcp://h:1")
		var pubs []*Pub
		for _, id := range []string{"a", "b"} {
			p, err := NewPub(PubConfig{Config: Config{Dial: m.dial, Identity: id, Jitter: func() float64 { return 0 }}})
			if err != nil {
				t.Fatal(err)
			}
			p.Connect("tcp://h:1")
			synctest.Wait()
			pubs = append(pubs, p)
		}
		pubs[0].Send(nil, []byte("1"))
		d.want(`0s a! 1 tcp://h:1 ["" "1"]`)
		pubs[1].Send(nil, []byte("2"))
		d.want(`0s b! 2 tcp://h:1 ["" "2"]`)
		pubs[0].Send(nil, []byte("bye"))
		d.want(`0s a! 1 tcp://h:1 ["" "bye"]`, "0s a! "+ErrDropped.Error())
		time.Sleep(time.Second)
		pubs[0].Send(nil, []byte("3"))
		d.want(`1s a! 3 tcp://h:1 ["" "3"]`)
		for _, p := range pubs {
			p.Close()
		}
		s.Close()
	})
}
