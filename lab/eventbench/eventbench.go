// Package eventbench measures what an event costs from the wire to whoever
// applies it: ZMTP frames, ring, sequence machine, msgpack, and the apply
// function that it is given (the index, with its hashing). It runs the whole
// production path, an engine.Replica with its discovery, on a network in memory
// that costs a copy, as a kernel's does, but no system calls. The verb `kvasir
// bench events` and this package's benchmark run the same code.
package eventbench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"kvasir/engine"
	"kvasir/kv"
	"kvasir/zmtp"
)

// Dialects are the accepted values of Config.Dialect: vLLM since 0.25, vLLM
// before, SGLang with pages of BlockSize.
var Dialects = []string{"vllm-map", "vllm-array", "sglang-map"}

// Config is a workload: Sequences chains, each stored Blocks blocks at a time and
// removed one block an event when Resident others have come after it.
type Config struct {
	Dialect     string // default vllm-map
	Blocks      int    // of a sequence; default 256
	EventBlocks int    // blocks that an event stores; 0: as many as a sequence has
	BlockSize   int    // tokens; default 16
	Sequences   int    // default 2,000
	Resident    int    // default 200
	Targets     int    // replicas that send at the same time; default 1
}

// Validate names what is out of range.
func (c Config) Validate() error {
	c = c.withDefaults()
	if !slices.Contains(Dialects, c.Dialect) {
		return fmt.Errorf("eventbench: dialect %q: want one of %s", c.Dialect, strings.Join(Dialects, ", "))
	}
	for _, f := range []struct {
		name      string
		v, lo, hi int
	}{
		{"blocks", c.Blocks, 1, 1 << 16}, {"event-blocks", c.EventBlocks, 1, c.Blocks}, {"block-size", c.BlockSize, 1, 1 << 12},
		{"sequences", c.Sequences, 1, 1 << 20}, {"resident", c.Resident, 0, 1 << 20}, {"targets", c.Targets, 1, kv.MaxTargets},
	} {
		if f.v < f.lo || f.v > f.hi {
			return fmt.Errorf("eventbench: %s %d: want %d to %d", f.name, f.v, f.lo, f.hi)
		}
	}
	return nil
}

func (c Config) withDefaults() Config {
	c.Dialect = cmp.Or(c.Dialect, Dialects[0])
	c.Blocks = cmp.Or(c.Blocks, 256)
	c.EventBlocks = cmp.Or(c.EventBlocks, c.Blocks)
	c.BlockSize = cmp.Or(c.BlockSize, 16)
	c.Sequences = cmp.Or(c.Sequences, 2000)
	c.Resident = cmp.Or(c.Resident, 200)
	c.Targets = cmp.Or(c.Targets, 1)
	return c
}

// A Result is what a run measured.
type Result struct {
	Blocks         int     `json:"blocks"` // stored and removed
	Events         int     `json:"events"`
	Bytes          int     `json:"bytes"`
	CPUPerBlock    float64 `json:"cpu_us_per_block"` // of the process, everything included
	BlocksPerCPU   float64 `json:"blocks_per_cpu_s"`
	AllocsPerEvent float64 `json:"allocs_per_event"` // of the process
}

// Run sends the workload through engine.Replicas to apply, which is called
// concurrently for different targets.
func Run(ctx context.Context, c Config, seed kv.Seed, apply func(*kv.Event)) (Result, error) {
	if err := c.Validate(); err != nil {
		return Result{}, err
	}
	c = c.withDefaults()
	var streams []*script
	for t := range c.Targets {
		streams = append(streams, newScript(c, t))
	}
	var res Result
	var wait atomic.Int64 // replicas that have not seen their last block
	wait.Store(int64(len(streams)))
	done := make(chan struct{})
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	for t, s := range streams {
		res.Blocks += s.blocks
		res.Events += s.events
		res.Bytes += len(s.data)
		left := s.blocks
		s := s
		r, err := engine.New(engine.Config{
			URL: fmt.Sprintf("http://engine%d:8000", t), Events: "tcp://engine:5557", Seed: seed, HTTP: &http.Client{Transport: web{}},
			Dial: s.dial, ZMTP: zmtp.Config{Heartbeat: -1},
		}, engine.Hooks{
			Target: func(int) kv.Target { return kv.Target(t) },
			Apply: func(e *kv.Event) {
				apply(e)
				s.took(len(e.Handles))
				if left -= len(e.Handles); left == 0 && wait.Add(-1) == 0 {
					close(done)
				}
			},
		})
		if err != nil {
			return res, err
		}
		running.Go(func() { r.Run(ctx) })
	}
	for _, s := range streams {
		select {
		case <-s.ready:
		case <-ctx.Done():
			return res, context.Cause(ctx)
		}
	}
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	cpu := cpuTime()
	for _, s := range streams {
		close(s.start)
	}
	select {
	case <-done:
	case <-ctx.Done():
		return res, context.Cause(ctx)
	}
	cpu = cpuTime() - cpu
	runtime.ReadMemStats(&after)
	res.CPUPerBlock = float64(cpu.Nanoseconds()) / 1e3 / float64(res.Blocks)
	res.BlocksPerCPU = float64(res.Blocks) / cpu.Seconds()
	res.AllocsPerEvent = float64(after.Mallocs-before.Mallocs) / float64(res.Events)
	return res, nil
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// web is an engine's HTTP: a model, and nothing else.
type web struct{}

func (web) RoundTrip(req *http.Request) (*http.Response, error) {
	body, status := "", http.StatusNotFound
	switch req.URL.Path {
	case "/health":
		status = http.StatusOK
	case "/v1/models":
		body, status = `{"data":[{"id":"m"}]}`, http.StatusOK
	}
	return &http.Response{StatusCode: status, Body: io.NopCloser(strings.NewReader(body)), Request: req}, nil
}

// A script is a connection that says what it has been told, whatever it hears.
type script struct {
	hello []byte // until start is closed, nothing else
	data  []byte
	ready chan struct{} // closed when hello was read
	start chan struct{}
	end   chan struct{}

	blocks, events int

	// A publisher is not faster than its engine: data is sent window bytes ahead of
	// what was applied, so that nothing is dropped and caches are as in real life.
	marks   []mark
	applied atomic.Int64
	room    chan struct{} // has room for one
}

// A mark says how many blocks lie before an offset of data.
type mark struct{ at, blocks int }

const window = 256 << 10

func (s *script) took(blocks int) {
	s.applied.Add(int64(blocks))
	select {
	case s.room <- struct{}{}:
	default:
	}
}

var errOnce = errors.New("eventbench: one connection only")

func (s *script) dial(ctx context.Context, network, address string) (net.Conn, error) {
	select {
	case <-s.ready:
		return nil, errOnce
	default:
	}
	return &scriptConn{script: s}, nil
}

type scriptConn struct {
	*script
	at   int
	mark int // the first that lies behind at-window
}

func (c *scriptConn) Read(p []byte) (int, error) {
	if len(c.hello) > 0 {
		n := copy(p, c.hello)
		if c.hello = c.hello[n:]; len(c.hello) == 0 {
			close(c.ready)
		}
		return n, nil
	}
	select {
	case <-c.start:
	case <-c.end:
		return 0, io.EOF
	}
	if c.at == len(c.data) {
		<-c.end
		return 0, io.EOF
	}
	for c.mark < len(c.marks) && c.marks[c.mark].at <= c.at-window {
		if c.applied.Load() >= int64(c.marks[c.mark].blocks) {
			c.mark++
			continue
		}
		select {
		case <-c.room:
		case <-c.end:
			return 0, io.EOF
		}
	}
	n := copy(p, c.data[c.at:])
	c.at += n
	return n, nil
}

func (c *scriptConn) Write(p []byte) (int, error) { return len(p), nil }
func (c *scriptConn) Close() error {
	select {
	case <-c.end:
	default:
		close(c.end)
	}
	return nil
}
func (c *scriptConn) LocalAddr() net.Addr                { return &net.TCPAddr{} }
func (c *scriptConn) RemoteAddr() net.Addr               { return &net.TCPAddr{} }
func (c *scriptConn) SetDeadline(time.Time) error        { return nil }
func (c *scriptConn) SetReadDeadline(t time.Time) error  { return nil }
func (c *scriptConn) SetWriteDeadline(t time.Time) error { return nil }
