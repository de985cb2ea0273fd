package engine

import (
	"encoding/binary"
	"testing"
	"testing/synctest"
	"time"

	"kvasir/kv"
	"kvasir/zmtp"
)

// TestListen: engines dial us, one connection a rank; one breaks and comes again.
func TestListen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		e := w.engine(t, "10.0.0.1", 0, false) // HTTP only
		defer e.stop()
		w.http["10.0.0.1:8000"] = e
		r, rt := start(t, w, Config{Events: EventsListen, Ranks: 2})
		strangers := 0
		l, err := Listen(ListenConfig{Bind: "tcp://10.9.9.9:5557", ZMTP: zmtp.Config{Listen: w.listen},
			Identify: func(remote, topic string) *Replica {
				if topic != "kv@10.0.0.1:8000@m" {
					strangers++
					return nil
				}
				return r
			}})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		dialIn := func(topic string, rank int) func(store bool, h uint64) {
			pub, err := zmtp.NewPub(zmtp.PubConfig{Config: zmtp.Config{Dial: w.dial}})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { pub.Close() })
			if err := pub.Connect(l.Addr); err != nil {
				t.Fatal(err)
			}
			n := uint64(0)
			return func(store bool, h uint64) {
				pub.Send([]byte(topic), binary.BigEndian.AppendUint64(nil, n), payload(float64(time.Now().UnixNano())/1e9, rank, store, h))
				n++
			}
		}
		zero, one := dialIn("kv@10.0.0.1:8000@m", 0), dialIn("kv@10.0.0.1:8000@m", 1)
		stranger := dialIn("kv@10.0.0.7:8000@m", 0)
		settle(3 * time.Second)
		rt.want(t, 1, kv.Blind, nil)
		zero(true, 1)
		zero(true, 2)
		one(true, 3)
		zero(false, 1)
		stranger(true, 9)
		settle(time.Second)
		rt.want(t, 0, kv.Exact, map[kv.Handle]int{2: 1})
		rt.want(t, 1, kv.Exact, map[kv.Handle]int{3: 1})
		if strangers == 0 {
			t.Error("nobody asked about the stranger")
		}
		w.cut("10.9.9.9:5557")
		settle(10 * time.Second)
		if rt.trust[0] != kv.Stale {
			t.Errorf("trust %v while the connection is down", rt.trust[0])
		}
		zero(true, 4)
		one(true, 5)
		settle(10 * time.Second) // the number fits; the process's start time is the same
		rt.want(t, 0, kv.Exact, map[kv.Handle]int{2: 1, 4: 1})
		rt.want(t, 1, kv.Exact, map[kv.Handle]int{3: 1, 5: 1})
	})
}

func TestAmong(t *testing.T) {
	replica := func(name, url string) *Replica {
		r, err := New(Config{Name: name, URL: url}, newRouter().hooks())
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	all := []*Replica{replica("", "http://10.0.0.1:8000"), replica("", "http://10.0.0.2:8000"), replica("", "http://10.0.0.2:8001"),
		replica("pod-x", "http://vllm.svc:8000"), replica("", "http://[2001:db8::1]:8000"), replica("", "http://localhost:8000")}
	who := Among(func() []*Replica { return all })
	for _, c := range []struct{ remote, topic, want string }{
		{"10.0.0.1:41000", "kv-events", "10.0.0.1:8000"}, // the connection says it
		{"[::ffff:10.0.0.1]:41000", "", "10.0.0.1:8000"},
		{"10.0.0.2:41000", "kv@10.0.0.2:8001@org/model@v2", "10.0.0.2:8001"}, // H16: two on a host, the topic says it
		{"10.0.0.2:41000", "kv-events", ""},
		{"10.0.0.2:41000", "kv@10.0.0.1:8000@m", ""}, // a lie
		{"[2001:db8::1]:41000", "", "[2001:db8::1]:8000"},
		{"192.0.2.1:41000", "kv@10.0.0.2:8000@m", "10.0.0.2:8000"},
		{"192.0.2.1:41000", "pod-x", "pod-x"},
		{"192.0.2.1:41000", "kv@pod-x@m", "pod-x"},
		{"127.0.0.1:41000", "", "localhost:8000"},
		{"192.0.2.1:41000", "", ""},
	} {
		got := ""
		if r := who(c.remote, c.topic); r != nil {
			got = r.Name()
		}
		if got != c.want {
			t.Errorf("%s %q: %q, want %q", c.remote, c.topic, got, c.want)
		}
	}
}
