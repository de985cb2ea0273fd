package eventbench

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"kvasir/engine"
	"kvasir/kv"
	"kvasir/zmtp"
)

// BenchmarkBlocked: what it costs to take a small message from the socket while the
// index stands still: msg/cpu-s of this process; the engine is another one.
func BenchmarkBlocked(b *testing.B) {
	engineProcess := exec.Command(os.Args[0], "-test.run", "^TestBlaster$")
	engineProcess.Env = append(os.Environ(), fmt.Sprint("EVENTBENCH_BLAST=", b.N))
	out, err := engineProcess.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := engineProcess.Start(); err != nil {
		b.Fatal(err)
	}
	defer engineProcess.Wait()
	defer engineProcess.Process.Kill()
	said := bufio.NewScanner(out)
	said.Scan()
	address, total := "", int64(0)
	if _, err := fmt.Sscan(said.Text(), &address, &total); err != nil {
		b.Fatalf("%q: %v", said.Text(), err)
	}
	p := &publisher{takes: map[string]*taking{}}
	p.moved.L = &p.mu
	gate := make(chan struct{})
	r, err := engine.New(engine.Config{
		URL: "http://engine:8000", Events: "tcp://" + address, HTTP: &http.Client{Transport: web{}},
		Dial: p.dial, ZMTP: zmtp.Config{Heartbeat: -1}, Poll: time.Hour,
	}, engine.Hooks{Target: func(int) kv.Target { return 0 }, Apply: func(*kv.Event) { <-gate }})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	var running sync.WaitGroup
	b.ReportAllocs()
	b.ResetTimer()
	cpu := cpuTime()
	running.Go(func() { r.Run(ctx) })
	p.mu.Lock()
	for taken := int64(0); taken < total; {
		p.moved.Wait()
		taken = 0
		for _, k := range p.takes {
			taken += k.bytes
		}
	}
	p.mu.Unlock()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/(cpuTime()-cpu).Seconds(), "msg/cpu-s")
	b.ReportMetric(float64(total)/float64(b.N), "bytes/msg")
	cancel()
	close(gate)
	running.Wait()
}

// TestBlaster is the engine of BenchmarkBlocked when run as a child: it says
// where it listens and how many bytes it will send.
func TestBlaster(t *testing.T) {
	var n uint64
	if _, err := fmt.Sscan(os.Getenv("EVENTBENCH_BLAST"), &n); err != nil {
		return
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var p publisher
	next := func(dst []byte, n uint64) []byte {
		return appendMessage(dst, topic, binary.BigEndian.AppendUint64(nil, n), p.message(nil, n))
	}
	total := len(hello())
	var buf []byte
	for i := range n {
		buf = next(buf[:0], i)
		total += len(buf)
	}
	fmt.Println(l.Addr(), total)
	nc, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	buf = append(buf[:0], hello()...)
	for i := range n {
		if buf = next(buf, i); len(buf) > 64<<10 {
			if _, err := nc.Write(buf); err != nil {
				return
			}
			buf = buf[:0]
		}
	}
	nc.Write(buf)
	for err == nil { // until the other side has had enough
		_, err = nc.Read(buf[:1])
	}
}
