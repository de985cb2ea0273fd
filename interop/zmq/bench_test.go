//go:build interop

package zmq

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"kvasir/zmtp"
)

// BenchmarkFromLibzmq receives bursts of a pyzmq PUB, which is the bottleneck: look at
// msg/cpu-s, our own CPU alone, not at ns/op. Run without -race:
// KVASIR_ZMQ_PYTHON=… go test -tags interop -run - -bench . -benchtime 200000x
func BenchmarkFromLibzmq(b *testing.B) {
	for _, size := range []int{1000, 64 << 10} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			n := min(b.N, 10<<30/size) // the publisher holds all of it
			p := start(b, "pub", "bind", "tcp://127.0.0.1:*", "hwm=0")
			hello, done := make(chan struct{}, 1), make(chan struct{})
			got := 0
			s, err := zmtp.NewSub(zmtp.SubConfig{Message: func(_ *zmtp.Peer, f [][]byte) {
				if len(f) == 3 {
					select {
					case hello <- struct{}{}:
					default:
					}
				} else if got++; got == n {
					close(done)
				}
			}})
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			s.Connect(p.at)
			for waiting := true; waiting; {
				p.tell("hello x")
				select {
				case <-hello:
					waiting = false
				case <-time.After(20 * time.Millisecond):
				}
			}
			b.ResetTimer()
			before := cpu()
			p.tell("burst %d %d", n, size)
			<-done
			used := (cpu() - before).Seconds()
			b.ReportMetric(float64(n)/used, "msg/cpu-s")
			b.ReportMetric(float64(n)*float64(size)/1e6/used, "MB/cpu-s")
		})
	}
}

func cpu() time.Duration {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
