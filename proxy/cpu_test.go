package proxy

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"kvasir/fleet"
	"kvasir/index"
	"kvasir/kv"
	"kvasir/ledger"
	"kvasir/policy"
	"kvasir/sched"
)

// The CPU of one proxied request, beside httputil.ReverseProxy: each proxy is a
// process of its own, which tells its own getrusage; clients and engine are this
// process. All sockets are on loopback.
//
//	go test ./proxy -run - -bench CPU -benchtime 20000x
func BenchmarkCPU(b *testing.B) {
	for _, cell := range []struct {
		size, chunks int
		paced        bool // a chunk is sent when the client has the one before; else several come with one read
	}{{2 << 10, 8, false}, {2 << 10, 64, false}, {2 << 10, 64, true}, {2 << 10, 0, false}, {32 << 10, 8, false}, {256 << 10, 8, false}} {
		name := fmt.Sprintf("%dKB_%dchunks", cell.size>>10, cell.chunks)
		var pace lanes
		if cell.paced {
			pace = newLanes()
			name += "_paced"
		}
		if cell.chunks == 0 {
			name = fmt.Sprintf("%dKB_whole", cell.size>>10)
		}
		b.Run(name, func(b *testing.B) {
			engine := listenTCP(b)
			go http.Serve(engine, benchEngine(cell.chunks, pace))
			ours, theirs := child(b, "kvasir", engine.Addr()), child(b, "reverse", engine.Addr())
			for _, c := range []*proc{ours, theirs} { // warm up
				drive(b, c, cell.size, pace, 500)
			}
			b.ResetTimer()
			const rounds = 6
			var us [2]float64
			for range rounds {
				for i, c := range []*proc{ours, theirs} {
					before := c.cpu(b)
					drive(b, c, cell.size, pace, max(b.N/rounds, 1))
					us[i] += float64((c.cpu(b) - before).Microseconds()) / float64(max(b.N/rounds, 1)) / rounds
				}
			}
			b.ReportMetric(us[0], "µs-cpu/req")
			b.ReportMetric(us[1], "reverse-µs/req")
			b.ReportMetric(us[0]/us[1], "ratio")
			b.ReportMetric(0, "ns/op")
		})
	}
}

func listenTCP(tb testing.TB) net.Listener {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { l.Close() })
	return l
}

// clients is how many connections are driven at a time.
const clients = 32

// lanes tell the engine, for each client, that a chunk has come. nil: it doesn't wait.
type lanes []chan struct{}

func newLanes() lanes {
	l := make(lanes, clients)
	for i := range l {
		l[i] = make(chan struct{}, 1)
	}
	return l
}

// wait returns when the client of r has the latest chunk, or is gone.
func (l lanes) wait(r *http.Request) {
	if i, err := strconv.Atoi(r.Header.Get("X-Lane")); err == nil && i < len(l) {
		select {
		case <-l[i]:
		case <-r.Context().Done():
		}
	}
}

// A counting reader tells lane of each event that it has read to its end, but for the
// end mark, for whose word nobody waits.
type counting struct {
	io.Reader
	lane  chan struct{}
	event []byte // read of it so far
}

func (c *counting) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.event = append(c.event, p[:n]...)
	if bytes.HasSuffix(c.event, []byte("\n\n")) {
		if !bytes.Contains(c.event, []byte("[DONE]")) {
			c.lane <- struct{}{}
		}
		c.event = c.event[:0]
	}
	return n, err
}

func benchEngine(chunks int, pace lanes) http.Handler {
	head := `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"m","choices":[{"index":0,"delta":{"content":" tok`
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		if chunks == 0 {
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, `{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"tok tok"},"finish_reason":"stop"}],"usage":{"prompt_tokens":500,"completion_tokens":2,"total_tokens":502,"prompt_tokens_details":{"cached_tokens":480}}}`)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		for i := range chunks {
			io.WriteString(w, head+strconv.Itoa(i)+`"},"logprobs":null,"finish_reason":null}]}`+"\n\n")
			w.(http.Flusher).Flush()
			pace.wait(r)
		}
		io.WriteString(w, "data: [DONE]\n\n")
	})
}

// drive sends n requests over as many connections as there are clients.
func drive(tb testing.TB, p *proc, size int, pace lanes, n int) {
	body := `{"model":"m","messages":[{"role":"user","content":"` + strings.Repeat("word ", (size-100)/5) + `"}],"stream":true,"max_tokens":8}`
	head := "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nAccept: */*\r\nUser-Agent: bench\r\nAuthorization: Bearer x\r\nContent-Length: " +
		strconv.Itoa(len(body)) + "\r\n"
	var left, broken atomic.Int64
	left.Store(int64(n))
	var wg sync.WaitGroup
	for lane := range clients {
		wg.Go(func() {
			c, err := net.Dial("tcp", p.addr)
			if err != nil {
				tb.Error(err)
				return
			}
			defer c.Close()
			in := bufio.NewReader(c)
			req := head + "\r\n" + body
			if pace != nil {
				req = head + "X-Lane: " + strconv.Itoa(lane) + "\r\n\r\n" + body
			}
			var got bytes.Buffer
			for left.Add(-1) >= 0 {
				if _, err := io.WriteString(c, req); err != nil {
					tb.Error(err)
					return
				}
				resp, err := http.ReadResponse(in, nil)
				if err != nil {
					tb.Error(err)
					return
				}
				got.Reset()
				answer := io.Reader(resp.Body)
				if pace != nil {
					answer = &counting{Reader: answer, lane: pace[lane]}
				}
				_, err = got.ReadFrom(answer)
				if err != nil || resp.StatusCode != 200 || bytes.Contains(got.Bytes(), []byte(`"error"`)) {
					tb.Logf("%s: status %d, %v, %d bytes", p.kind, resp.StatusCode, err, got.Len())
					broken.Add(1)
					return
				}
			}
		})
	}
	wg.Wait()
	if lost := broken.Load(); lost > 0 {
		tb.Errorf("%s: %d of %d requests failed", p.kind, lost, n)
	}
}

// A proc is a proxy in a process of its own.
type proc struct {
	kind, addr string
	in         io.Writer
	out        *bufio.Reader
}

func child(tb testing.TB, kind string, engine net.Addr) *proc {
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), "PROXY_CHILD="+kind, "PROXY_ENGINE="+engine.String())
	in, err := cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { in.Close(); cmd.Wait() }) // it ends with its input
	c := &proc{kind: kind, in: in, out: bufio.NewReader(out)}
	c.addr = c.line(tb)
	return c
}

func (c *proc) line(tb testing.TB) string {
	s, err := c.out.ReadString('\n')
	if err != nil {
		tb.Fatal(err)
	}
	return strings.TrimSpace(s)
}

// cpu asks for the process's user and system time.
func (c *proc) cpu(tb testing.TB) time.Duration {
	io.WriteString(c.in, "\n")
	n, err := strconv.ParseInt(c.line(tb), 10, 64)
	if err != nil {
		tb.Fatal(err)
	}
	return time.Duration(n)
}

func TestMain(m *testing.M) {
	if kind := os.Getenv("PROXY_CHILD"); kind != "" {
		runChild(kind, os.Getenv("PROXY_ENGINE"))
		return
	}
	os.Exit(m.Run())
}

func runChild(kind, engine string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	var h http.Handler
	switch kind {
	case "kvasir":
		h = childProxy(engine)
	case "reverse":
		target, _ := url.Parse("http://" + engine)
		reverse := &httputil.ReverseProxy{
			Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
			Transport:     Transport(Defaults()),
			FlushInterval: -1,
		}
		// Without full duplex the server closes the request's body with the first byte
		// of the answer, which can be before the transport has seen the body's end: it
		// then cuts the answer (a few in 10,000 of these streams with Go 1.26.8).
		h = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			http.NewResponseController(w).EnableFullDuplex()
			reverse.ServeHTTP(w, r)
		})
	}
	go http.Serve(l, h)
	fmt.Println(l.Addr())
	for in := bufio.NewReader(os.Stdin); ; {
		if _, err := in.ReadString('\n'); err != nil {
			return
		}
		var ru syscall.Rusage
		syscall.Getrusage(syscall.RUSAGE_SELF, &ru)
		fmt.Println(ru.Utime.Nano() + ru.Stime.Nano())
	}
}

func childProxy(engine string) *Proxy {
	table := new(fleet.Table)
	r, err := table.Add("http://"+engine, time.Now())
	if err != nil {
		panic(err)
	}
	table.Update(r.ID, func(r *fleet.Replica) {
		r.State, r.Models, r.BlockSize, r.Blocks = fleet.Up, []kv.Model{{ID: "m"}}, 16, 1024
	})
	pc := policy.Defaults()
	pc.Name = "round_robin"
	pol, err := policy.New(pc, func(int) int { return 0 })
	if err != nil {
		panic(err)
	}
	s := sched.New(sched.Config{}, sched.Parts{
		Fleet: table, Index: index.New(index.Config{Seed: 5}), Seed: 5, Ledger: ledger.New(ledger.Config{}), Policy: pol, Name: "round_robin",
	})
	p, err := New(Defaults(), Parts{Fleet: table, Sched: s})
	if err != nil {
		panic(err)
	}
	runtime.GC()
	return p
}
