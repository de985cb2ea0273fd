package zmtp

import (
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
