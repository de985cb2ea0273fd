//go:build interop

package zmq

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// peer is a running peer.py.
type peer struct {
	t    testing.TB
	cmd  *exec.Cmd
	in   io.Writer
	said chan string // every line but events
	gone chan struct{}

	at          string
	disconnects atomic.Int32 // as libzmq's monitor reports them
}

func start(t testing.TB, role, mode, endpoint string, opts ...string) *peer {
	t.Helper()
	python := os.Getenv("KVASIR_ZMQ_PYTHON")
	if python == "" {
		t.Skip("KVASIR_ZMQ_PYTHON is not set; use run.sh")
	}
	p := &peer{t: t, said: make(chan string, 100), gone: make(chan struct{})}
	p.cmd = exec.Command(python, append([]string{"peer.py", role, mode, endpoint}, opts...)...)
	p.cmd.Stderr = os.Stderr
	in, _ := p.cmd.StdinPipe()
	out, _ := p.cmd.StdoutPipe()
	p.in = in
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.gone)
		for s := bufio.NewScanner(out); s.Scan(); {
			if e, ok := strings.CutPrefix(s.Text(), "event "); ok {
				if e == "DISCONNECTED" {
					p.disconnects.Add(1)
				}
				continue
			}
			p.said <- s.Text()
		}
	}()
	t.Cleanup(p.kill)
	p.at = p.want("at ")
	return p
}

func (p *peer) kill() {
	p.cmd.Process.Kill()
	<-p.gone
	p.cmd.Wait()
}

func (p *peer) tell(format string, args ...any) { fmt.Fprintf(p.in, format+"\n", args...) }

// want returns the rest of the next line, which must start with prefix.
func (p *peer) want(prefix string) string {
	p.t.Helper()
	select {
	case line := <-p.said:
		rest, ok := strings.CutPrefix(line, prefix)
		if !ok {
			p.t.Fatalf("peer said %q, want %q", line, prefix)
		}
		return rest
	case <-time.After(30 * time.Second):
		p.t.Fatalf("peer did not say %q", prefix)
	}
	return ""
}

// await receives or fails the test.
func await[T any](t *testing.T, c <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(30 * time.Second):
		t.Fatalf("waited 30 s for %s", what)
		panic("unreachable")
	}
}

// numbered is the message of peer.py's burst.
func numbered(topic string, seq uint64, size int) [][]byte {
	body := make([]byte, size)
	for i := range body {
		body[i] = byte(seq)
	}
	return [][]byte{[]byte(topic), binary.BigEndian.AppendUint64(nil, seq), body,
		binary.BigEndian.AppendUint32(nil, crc32.ChecksumIEEE(body))}
}

// sequence returns a numbered message's number, and whether its sum is right.
func sequence(frames [][]byte) (uint64, bool) {
	f := frames[len(frames)-3:]
	return binary.BigEndian.Uint64(f[0]), crc32.ChecksumIEEE(f[1]) == binary.BigEndian.Uint32(f[2])
}
