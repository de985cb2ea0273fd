package proxy

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"kvasir/fleet"
	"kvasir/index"
	"kvasir/kv"
	"kvasir/ledger"
	"kvasir/policy"
	"kvasir/sched"
	"kvasir/token"
)

// A pipeNet is a network of net.Pipe connections within the test: it works inside
// of a synctest bubble.
type pipeNet struct {
	mu    sync.Mutex
	hosts map[string]*pipeListener
	dials map[string]int
}

type pipeListener struct {
	n     *pipeNet
	addr  string
	conns chan net.Conn
	gone  chan struct{}
	once  sync.Once
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.gone:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() {
		close(l.gone)
		l.n.mu.Lock()
		delete(l.n.hosts, l.addr)
		l.n.mu.Unlock()
	})
	return nil
}

type pipeAddr string

func (a pipeAddr) Network() string { return "pipe" }
func (a pipeAddr) String() string  { return string(a) }

func (l *pipeListener) Addr() net.Addr { return pipeAddr(l.addr) }

func (n *pipeNet) listen(addr string) net.Listener {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := &pipeListener{n: n, addr: addr, conns: make(chan net.Conn), gone: make(chan struct{})}
	n.hosts[addr] = l
	return l
}

// A pipeConn has an address, as the proxy's clients do.
type pipeConn struct{ net.Conn }

func (pipeConn) RemoteAddr() net.Addr { return pipeAddr("192.0.2.1:1234") }

func (n *pipeNet) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	n.mu.Lock()
	l := n.hosts[addr]
	n.dials[addr]++
	n.mu.Unlock()
	if l == nil {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	}
	ours, theirs := net.Pipe()
	select {
	case l.conns <- pipeConn{theirs}:
		return ours, nil
	case <-l.gone:
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	case <-ctx.Done():
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: ctx.Err()}
	}
}

// A world is a proxy with a real scheduler, engines that follow a script, and a
// client.
type world struct {
	tb        testing.TB
	net       *pipeNet
	table     *fleet.Table
	sched     *sched.Scheduler
	proxy     *Proxy
	transport *http.Transport
	client    *http.Client
	front     *http.Server
	door      *Listener
	servers   []io.Closer
	running   sync.WaitGroup

	mu     sync.Mutex
	change *sync.Cond      // of ended, on mu
	ended  []sched.Receipt // by end
	failed []Reason
	rang   int // alarms of sched
}

func (w *world) alarm(kv.Target, string) { w.mu.Lock(); w.rang++; w.mu.Unlock() }

func (w *world) alarms() int { w.mu.Lock(); defer w.mu.Unlock(); return w.rang }

func fleetModel(id string) kv.Model { return kv.Model{ID: id, MaxLen: 1 << 17} }

type setup struct {
	cfg      func(*Config)
	source   token.Source
	policy   string
	settings func(*policy.Config)
}

func newWorld(tb testing.TB, s setup) *world {
	tb.Helper()
	w := &world{tb: tb, table: new(fleet.Table), net: &pipeNet{hosts: map[string]*pipeListener{}, dials: map[string]int{}}}
	w.change = sync.NewCond(&w.mu)
	cfg := Defaults()
	cfg.Pass = []string{"/v1/other", "/v1/foo", "/v2/thing", "/v1/files"}
	if s.cfg != nil {
		s.cfg(&cfg)
	}
	if s.policy == "" {
		s.policy = "round_robin"
	}
	pc := policy.Defaults()
	pc.Name = s.policy
	if s.settings != nil {
		s.settings(&pc)
	}
	need := policy.Needs(pc)
	pol, err := policy.New(pc, func(int) int { return 0 })
	if err != nil {
		tb.Fatal(err)
	}
	w.sched = sched.New(sched.Config{}, sched.Parts{
		Fleet: w.table, Index: index.New(index.Config{Seed: 5}), Seed: 5,
		Ledger: ledger.New(ledger.Config{OutputBlocks: need.OutputBlocks, Private: need.Private}), Policy: pol, Name: s.policy,
		Hooks: sched.Hooks{Drifted: w.alarm, Short: w.alarm, Ended: func(r *sched.Receipt) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.ended = append(w.ended, *r)
			w.change.Broadcast()
		}},
	})
	w.transport = transport(cfg, w.net.dial)
	w.proxy, err = New(cfg, Parts{
		Fleet: w.table, Sched: w.sched, Token: s.source, Text: need.Text, Between: need.Between, Transport: w.transport,
		Hooks: Hooks{
			Failed: func(_ *fleet.Replica, why Reason, _ error) {
				w.mu.Lock()
				w.failed = append(w.failed, why)
				w.mu.Unlock()
			},
		},
	})
	if err != nil {
		tb.Fatal(err)
	}
	w.door = NewListener(w.net.listen("router:80"), cfg)
	w.front = w.door.Server(w.proxy, nil)
	w.running.Go(func() { w.front.Serve(w.door) })
	w.servers = append(w.servers, w.front)
	w.client = &http.Client{Transport: &http.Transport{DialContext: w.net.dial, DisableCompression: true, ExpectContinueTimeout: time.Minute}}
	return w
}

// serve runs a handler at addr.
func (w *world) serve(addr string, h http.Handler) *http.Server {
	srv := &http.Server{Handler: h, ErrorLog: nil}
	l := w.net.listen(addr)
	w.running.Go(func() { srv.Serve(l) })
	w.servers = append(w.servers, srv)
	return srv
}

// raw runs f on each connection to addr.
func (w *world) raw(addr string, f func(n int, c net.Conn)) {
	l := w.net.listen(addr)
	w.servers = append(w.servers, l)
	w.running.Go(func() {
		for n := 0; ; n++ {
			c, err := l.Accept()
			if err != nil {
				return
			}
			w.running.Go(func() {
				defer c.Close()
				f(n, c)
			})
		}
	})
}

// engine adds a replica at addr to the fleet, up, with models.
func (w *world) engine(addr string, models ...kv.Model) *fleet.Replica {
	w.tb.Helper()
	if len(models) == 0 {
		models = []kv.Model{{ID: "m", MaxLen: 1024}}
	}
	r, err := w.table.Add("http://"+addr, time.Now())
	if err != nil {
		w.tb.Fatal(err)
	}
	if err := w.table.Update(r.ID, func(r *fleet.Replica) {
		r.State, r.Models, r.BlockSize, r.Blocks = fleet.Up, models, 16, 1024
	}); err != nil {
		w.tb.Fatal(err)
	}
	return w.table.Snapshot().Named(r.Name)
}

func (w *world) close() {
	w.client.CloseIdleConnections()
	for _, s := range w.servers {
		s.Close()
	}
	w.transport.CloseIdleConnections()
	w.running.Wait()
}

// do sends one request through the proxy and reads the answer.
func (w *world) do(method, path, body string, headers ...string) (int, http.Header, string) {
	w.tb.Helper()
	resp, err := w.send(context.Background(), method, path, body, headers...)
	if err != nil {
		w.tb.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		b = append(b, fmt.Sprintf("<%v>", err)...)
	}
	return resp.StatusCode, resp.Header, string(b)
}

func (w *world) send(ctx context.Context, method, path, body string, headers ...string) (*http.Response, error) {
	w.tb.Helper()
	req, err := http.NewRequestWithContext(ctx, method, "http://router:80"+path, strings.NewReader(body))
	if err != nil {
		w.tb.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header[headers[i]] = append(req.Header[headers[i]], headers[i+1])
	}
	return w.client.Do(req)
}

// outcomes returns what has become of each decision so far, e.g. "a:failed b:completed".
func (w *world) outcomes() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []string
	for _, r := range w.ended {
		out = append(out, strings.TrimSuffix(r.Replica, ":80")+":"+r.Outcome.String())
	}
	return strings.Join(out, " ")
}

// untilEnded waits until a request has ended.
func (w *world) untilEnded() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.ended) == 0 {
		w.change.Wait()
	}
}

// idle checks that nothing is owed to any target.
func (w *world) idle() {
	w.tb.Helper()
	for t := range w.table.Snapshot().NumTargets() {
		if l := w.sched.Load(kv.Target(t), time.Now()); l.Requests != 0 || l.Prefill != 0 || l.DecodeBlocks != 0 {
			w.tb.Errorf("target %d owes %+v after all requests have ended", t, l)
		}
	}
}

func (w *world) lastReceipt() sched.Receipt {
	w.tb.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.ended) == 0 {
		w.tb.Fatal("no decision has ended")
	}
	return w.ended[len(w.ended)-1]
}

// stream answers with server-sent events, one flushed write each.
func stream(events ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		for _, e := range events {
			io.WriteString(w, e)
			w.(http.Flusher).Flush()
		}
	}
}

// answerJSON answers with one JSON document.
func answerJSON(status int, doc string, headers ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		for i := 0; i+1 < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(status)
		io.WriteString(w, doc)
	}
}

const (
	chatRole  = `data: {"id":"x","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}` + "\n\n"
	chatA     = `data: {"id":"x","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"A"},"finish_reason":null}]}` + "\n\n"
	chatB     = `data: {"id":"x","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"B"},"finish_reason":"stop"}]}` + "\n\n"
	chatUsage = `data: {"id":"x","object":"chat.completion.chunk","choices":[],"usage":{"prompt_tokens":158,"total_tokens":162,"completion_tokens":4,"prompt_tokens_details":{"cached_tokens":128}}}` + "\n\n"
	chatDone  = "data: [DONE]\n\n"
	keepAlive = ": keep-alive\n\n"

	chatBody   = `{"model":"m","messages":[{"role":"user","content":"hi"}],"max_tokens":4}`
	chatStream = `{"model":"m","messages":[{"role":"user","content":"hi"}],"stream":true,"max_tokens":4}`
	chatPath   = "/v1/chat/completions"
)

var quiet = log.New(io.Discard, "", 0)

// readEvent reads one event of a stream.
func readEvent(r *bufio.Reader) (string, error) {
	var ev string
	for {
		line, err := r.ReadString('\n')
		ev += line
		if err != nil {
			return ev, err
		}
		if line == "\n" {
			return ev, nil
		}
	}
}
