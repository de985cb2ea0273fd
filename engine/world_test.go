package engine

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"kvasir/kv"
	"kvasir/zmtp"
)

// A world is a network of pipes with engines on it, for synctest bubbles.
type world struct {
	mu        sync.Mutex
	listeners map[string]*pipeListener
	conns     map[string][]net.Conn // router's ends, by address
	http      map[string]http.Handler
}

func newWorld() *world {
	return &world{listeners: map[string]*pipeListener{}, conns: map[string][]net.Conn{}, http: map[string]http.Handler{}}
}

var errRefused error = syscall.ECONNREFUSED

func (w *world) dial(ctx context.Context, network, address string) (net.Conn, error) {
	w.mu.Lock()
	l := w.listeners[address]
	w.mu.Unlock()
	if l == nil {
		return nil, errRefused
	}
	near, far := net.Pipe()
	select {
	case l.conns <- far:
		w.mu.Lock()
		w.conns[address] = append(w.conns[address], near)
		w.mu.Unlock()
		return near, nil
	case <-l.closed:
		return nil, errRefused
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// cut closes all connections to an address; later ones work.
func (w *world) cut(address string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.conns[address] {
		c.Close()
	}
	w.conns[address] = nil
}

func (w *world) listen(_ context.Context, network, address string) (net.Listener, error) {
	l := &pipeListener{w: w, addr: pipeAddr(address), conns: make(chan net.Conn), closed: make(chan struct{})}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.listeners[address] != nil {
		return nil, errors.New("address in use")
	}
	w.listeners[address] = l
	return l, nil
}

type pipeListener struct {
	w      *world
	addr   pipeAddr
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

type pipeAddr string

func (pipeAddr) Network() string  { return "tcp" }
func (a pipeAddr) String() string { return string(a) }

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() {
		close(l.closed)
		l.w.mu.Lock()
		delete(l.w.listeners, string(l.addr))
		l.w.mu.Unlock()
	})
	return nil
}

func (l *pipeListener) Addr() net.Addr { return l.addr }

// RoundTrip makes the world an http.RoundTripper.
func (w *world) RoundTrip(req *http.Request) (*http.Response, error) {
	w.mu.Lock()
	h := w.http[req.URL.Host]
	w.mu.Unlock()
	if h == nil {
		return nil, errRefused
	}
	rec := &recorder{header: http.Header{}, status: 200}
	h.ServeHTTP(rec, req)
	if err := req.Context().Err(); err != nil {
		return nil, err
	}
	if rec.status == 0 {
		return nil, errRefused
	}
	return &http.Response{StatusCode: rec.status, Header: rec.header, Body: io.NopCloser(&rec.body), Request: req}, nil
}

type recorder struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (r *recorder) Header() http.Header         { return r.header }
func (r *recorder) WriteHeader(status int)      { r.status = status }
func (r *recorder) Write(p []byte) (int, error) { return r.body.Write(p) }

// A fakeEngine publishes batches and answers replays on a world's network. Each
// batch stores or removes blocks of one token.
type fakeEngine struct {
	w       *world
	host    string
	rank    int
	replay  bool
	mute    bool // the replay service doesn't answer
	started float64
	asleep  bool
	loras   []string // name=path
	running int      // 0: 3
	asked   map[string]int
	pub     *zmtp.Pub
	router  *zmtp.Router

	mu     sync.Mutex
	first  uint64 // of the buffer
	buffer [][]byte
	held   map[kv.Handle]int
}

func (w *world) engine(t *testing.T, host string, rank int, replay bool) *fakeEngine {
	e := &fakeEngine{w: w, host: host, rank: rank, replay: replay}
	e.start(t)
	return e
}

func (e *fakeEngine) start(t *testing.T) {
	t.Helper()
	e.mu.Lock()
	e.buffer, e.first, e.held = nil, 0, map[kv.Handle]int{}
	e.started = float64(time.Now().UnixNano()) / 1e9
	e.mu.Unlock()
	cfg := zmtp.Config{Dial: e.w.dial, Listen: e.w.listen, Jitter: func() float64 { return 0.5 }}
	var err error
	if e.pub, err = zmtp.NewPub(zmtp.PubConfig{Config: cfg}); err != nil {
		t.Fatal(err)
	}
	if _, err := e.pub.Bind(fmt.Sprintf("tcp://%s:%d", e.host, 5557+e.rank)); err != nil {
		t.Fatal(err)
	}
	if !e.replay {
		return
	}
	routerCfg := cfg
	routerCfg.QueueLen = 100_000
	e.router, err = zmtp.NewRouter(zmtp.RouterConfig{Config: routerCfg, Message: func(p *zmtp.Peer, frames [][]byte) {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.mute || len(frames) != 2 {
			return
		}
		from := binary.BigEndian.Uint64(frames[1])
		for i, b := range e.buffer {
			if n := e.first + uint64(i); n >= from {
				e.router.Send(p.Identity, nil, []byte("kv"), binary.BigEndian.AppendUint64(nil, n), b)
			}
		}
		e.router.Send(p.Identity, nil, nil, endOfReplay, nil)
	}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.router.Bind(fmt.Sprintf("tcp://%s:%d", e.host, 6557+e.rank)); err != nil {
		t.Fatal(err)
	}
}

func (e *fakeEngine) stop() {
	e.pub.Close()
	if e.router != nil {
		e.router.Close()
	}
}

// store publishes a chain of one block from the root per handle.
func (e *fakeEngine) store(handles ...kv.Handle) {
	for _, h := range handles {
		e.held[h]++
		e.publish(true, h)
	}
}

func (e *fakeEngine) remove(h kv.Handle) {
	if e.held[h]--; e.held[h] == 0 {
		delete(e.held, h)
	}
	e.publish(false, h)
}

func (e *fakeEngine) publish(store bool, h kv.Handle) {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := e.first + uint64(len(e.buffer))
	b := payload(float64(time.Now().UnixNano())/1e9, e.rank, store, uint64(h))
	e.buffer = append(e.buffer, b)
	e.pub.Send([]byte("kv"), binary.BigEndian.AppendUint64(nil, n), b)
}

// storeLora publishes a block of an adapter.
func (e *fakeEngine) storeLora(name string, h kv.Handle) {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := e.first + uint64(len(e.buffer))
	b := payload(float64(time.Now().UnixNano())/1e9, e.rank, true, uint64(h))
	b[11], b = 0x98, b[:len(b)-1] // of 8 items
	b = append(b, "\xc0\xa3GPU"...)
	b = append(append(b, 0xa0|byte(len(name))), name...)
	b = append(b, byte(e.rank))
	e.buffer = append(e.buffer, b)
	e.pub.Send([]byte("kv"), binary.BigEndian.AppendUint64(nil, n), b)
}

// payload is a batch of one event in vLLM's array form.
func payload(ts float64, rank int, store bool, h uint64) []byte {
	b := binary.BigEndian.AppendUint64([]byte{0x93, 0xcb}, math.Float64bits(ts))
	b = append(b, 0x91)
	if store {
		b = append(b, 0x95)
		b = append(b, "\xabBlockStored\x91\xcf"...)
		b = binary.BigEndian.AppendUint64(b, h)
		b = append(b, 0xc0, 0x91, 1, 1) // no parent, token 1, block size 1
	} else {
		b = append(b, 0x92)
		b = append(b, "\xacBlockRemoved\x91\xcf"...)
		b = binary.BigEndian.AppendUint64(b, h)
	}
	return append(b, byte(rank))
}

// call gives the engine's rank another number.
func (e *fakeEngine) call(rank int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.rank = rank
}

// ServeHTTP answers as vLLM does, for one rank.
func (e *fakeEngine) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.asked == nil {
		e.asked = map[string]int{}
	}
	e.asked[req.URL.Path]++
	switch req.URL.Path {
	case "/health":
	case "/v1/models":
		io.WriteString(w, `{"data":[{"id":"m","owned_by":"vllm","max_model_len":1024}`)
		for _, l := range e.loras {
			name, path, _ := strings.Cut(l, "=")
			fmt.Fprintf(w, `,{"id":%q,"root":%q,"parent":"m"}`, name, path)
		}
		io.WriteString(w, `]}`)
	case "/version":
		io.WriteString(w, `{"version":"0.32.0"}`)
	case "/metrics":
		fmt.Fprintf(w, "process_start_time_seconds %f\nvllm:num_requests_running{engine=\"%d\"} %d\n"+
			"vllm:cache_config_info{block_size=\"1\",num_gpu_blocks=\"48\",engine=\"%[2]d\"} 1.0\n", e.started, e.rank, cmp.Or(e.running, 3))
		if e.asleep {
			fmt.Fprintf(w, "vllm:engine_sleep_state{engine=\"%d\",sleep_state=\"weights_offloaded\"} 1\n", e.rank)
		}
	case "/kv_event_sources":
		replay := "null"
		if e.replay {
			replay = fmt.Sprintf(`"tcp://*:%d"`, 6557+e.rank)
		}
		fmt.Fprintf(w, `{"%d":{"publisher":"zmq","endpoint":"tcp://*:%d","replay_endpoint":%s,"topic":"kv"}}`, e.rank, 5557+e.rank, replay)
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

// A router is what the hooks of a Replica tell: a set of handles per target as
// index, trust, and a log.
type router struct {
	mu    sync.Mutex
	held  map[kv.Target]map[kv.Handle]int
	trust map[kv.Target]kv.Trust
	why   map[kv.Target]string
	info  Info
	up    int
	down  int
	err   error
	block chan struct{} // Apply waits for it while not nil

	missed []miss
}

// A miss is a look that failed.
type miss struct {
	err   error
	n     int
	began time.Time
	told  time.Time
}

func newRouter() *router {
	return &router{held: map[kv.Target]map[kv.Handle]int{}, trust: map[kv.Target]kv.Trust{}, why: map[kv.Target]string{}}
}

func (r *router) hooks() Hooks {
	return Hooks{
		Target: func(rank int) kv.Target { return kv.Target(rank) },
		Missed: func(err error, n int, began time.Time) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.missed = append(r.missed, miss{err, n, began, time.Now()})
		},
		Apply: func(e *kv.Event) {
			r.mu.Lock()
			block := r.block
			r.mu.Unlock()
			if block != nil {
				<-block
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			held := r.held[e.Target]
			if held == nil {
				held = map[kv.Handle]int{}
				r.held[e.Target] = held
			}
			switch e.Kind {
			case kv.Stored:
				for _, h := range e.Handles {
					held[h]++
				}
			case kv.Removed:
				for _, h := range e.Handles {
					if held[h]--; held[h] <= 0 {
						delete(held, h)
					}
				}
			case kv.Cleared:
				clear(held)
			}
		},
		Trust: func(t kv.Target, s kv.Trust, why string) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.trust[t], r.why[t] = s, why
		},
		Info: func(i Info) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.info = i
		},
		Up: func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.up++
		},
		Down: func(err error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.down++
			r.err = err
		},
	}
}

func (r *router) want(t *testing.T, target kv.Target, trust kv.Trust, held map[kv.Handle]int) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.trust[target] != trust {
		t.Errorf("target %d is %v (%s), want %v", target, r.trust[target], r.why[target], trust)
	}
	same := len(held) == len(r.held[target])
	for h, n := range held {
		same = same && r.held[target][h] == n
	}
	if !same {
		t.Errorf("target %d: believed %v, true %v", target, r.held[target], held)
	}
}
