//go:build unix

package zmtp

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// BenchmarkReceive is the receive path over a real TCP loopback, from the socket to the
// caller's Message. The publisher is another process, so that msg/cpu-s and
// MB/cpu-s count the receiver's CPU (user and system) alone.
func BenchmarkReceive(b *testing.B) {
	for _, size := range []int{1 << 10, 64 << 10} {
		b.Run(fmt.Sprintf("%dKB", size>>10), func(b *testing.B) {
			done := make(chan struct{})
			n := 0
			s, err := NewSub(SubConfig{Message: func(p *Peer, f [][]byte) {
				if n++; n == b.N {
					p.Close()
					close(done)
				}
			}})
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			at, err := s.Bind("tcp://127.0.0.1:0")
			if err != nil {
				b.Fatal(err)
			}
			cmd := exec.Command(os.Args[0], "-test.run", "^TestBlaster$")
			cmd.Env = append(os.Environ(), "ZMTP_BLAST="+at[len("tcp://"):], fmt.Sprint("ZMTP_SIZE=", size))
			b.ReportAllocs()
			b.ResetTimer()
			before := cpu(b)
			if err := cmd.Start(); err != nil {
				b.Fatal(err)
			}
			defer cmd.Wait()
			<-done
			b.StopTimer()
			used := (cpu(b) - before).Seconds()
			b.ReportMetric(float64(b.N)/used, "msg/cpu-s")
			b.ReportMetric(float64(b.N)*float64(size)/1e6/used, "MB/cpu-s")
		})
	}
}

func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// TestBlaster is the publisher of BenchmarkReceive when run as a child.
func TestBlaster(t *testing.T) {
	addr := os.Getenv("ZMTP_BLAST")
	if addr == "" {
		return
	}
	var size int
	fmt.Sscan(os.Getenv("ZMTP_SIZE"), &size)
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	nc.Write(appendReady(appendGreeting(nil), kindPub, ""))
	go io.Copy(io.Discard, nc)
	one := encode([][]byte{[]byte("kv-events"), make([]byte, 8), make([]byte, size)})
	many := bytes.Repeat(one, max(1, 256<<10/size))
	for {
		if _, err := nc.Write(many); err != nil {
			return
		}
	}
}

// BenchmarkDecode is the same without a socket: the cost of the framing itself.
func BenchmarkDecode(b *testing.B) {
	for _, size := range []int{100, 1 << 10, 64 << 10} {
		b.Run(fmt.Sprintf("%dB", size), func(b *testing.B) {
			s, err := NewSub(SubConfig{Message: func(*Peer, [][]byte) {}})
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			wire := encode([][]byte{[]byte("kv-events"), make([]byte, 8), make([]byte, size)})
			in := &endless{wire: bytes.Repeat(wire, 64), total: b.N * len(wire)}
			c := newConn(&s.cfg, kindSub, in, "")
			b.SetBytes(int64(size))
			b.ReportAllocs()
			b.ResetTimer()
			if err := c.serve(func(f [][]byte) error { return s.deliver(c, f) }, nil); err != io.EOF {
				b.Fatal(err)
			}
		})
	}
}

// BenchmarkPublish sends to one subscriber that only reads.
func BenchmarkPublish(b *testing.B) {
	for _, size := range []int{1 << 10, 64 << 10} {
		b.Run(fmt.Sprintf("%dKB", size>>10), func(b *testing.B) {
			subscribed := make(chan struct{})
			pub, err := NewPub(PubConfig{Config: Config{QueueLen: 1 << 20}, Subscribed: func(*Peer, string, bool) { close(subscribed) }})
			if err != nil {
				b.Fatal(err)
			}
			defer pub.Close()
			at, err := pub.Bind("tcp://127.0.0.1:0")
			if err != nil {
				b.Fatal(err)
			}
			nc, err := net.Dial("tcp", at[len("tcp://"):])
			if err != nil {
				b.Fatal(err)
			}
			defer nc.Close()
			nc.Write(appendSubscription(appendReady(appendGreeting(nil), kindSub, ""), 1, "", true))
			go io.Copy(io.Discard, nc)
			<-subscribed
			topic, seq, payload := []byte("kv-events"), make([]byte, 8), make([]byte, size)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				pub.Send(topic, seq, payload)
			}
			b.ReportMetric(float64(pub.Dropped())/float64(b.N), "dropped/op")
		})
	}
}
