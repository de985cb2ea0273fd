package zmtp

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// In virtual time, as life_test.go: the sockets that are dialled.

// memDial is a raw peer that dials the socket bound to tcp://h:1.
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

// A listener that fails for a while (no file descriptors) is asked again, ever more slowly.
func TestAcceptFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDiary(t)
		m := &memnet{}
		failures := 3
		s, err := NewSub(SubConfig{
			Config: Config{Jitter: func() float64 { return 0 }, Listen: func(ctx context.Context, network, address string) (net.Listener, error) {
				l, err := m.listen(ctx, network, address)
				return &flaky{l, &failures}, err
			}},
			Message:   func(*Peer, [][]byte) {},
			Connected: func(p *Peer) { d.write("connected %s", p.Remote) },
			Retrying:  func(ep string, err error, wait time.Duration) { d.write("%s %v %v", ep, err, wait) },
		})
		if err != nil {
			t.Fatal(err)
		}
		s.Bind("tcp://h:1")
		peer := memDial(t, m)
		peer.meet(1, "PUB", readySub)
		d.want("0s tcp://h:1 too many open files 50ms", "50ms tcp://h:1 too many open files 100ms", "150ms tcp://h:1 too many open files 200ms", "350ms connected pipe")
		s.Close()
	})
}

type flaky struct {
	net.Listener
	failures *int
}

func (f *flaky) Accept() (net.Conn, error) {
	if *f.failures > 0 {
		*f.failures--
		return nil, errors.New("too many open files")
	}
	return f.Listener.Accept()
}
