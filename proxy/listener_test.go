package proxy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Clients that open connections and say nothing, or a byte, take no place from one that
// has a request; clients at work keep theirs, and a new one is told.
func TestConnectionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{cfg: func(c *Config) { c.MaxConns = 3 }})
		defer w.close()
		w.engine("a:80")
		work := make(chan struct{})
		open := sync.OnceFunc(func() { close(work) })
		defer open()
		w.serve("a:80", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			<-work
			answerJSON(200, goodDoc)(rw, r)
		}))
		w.client.Transport.(*http.Transport).DisableKeepAlives = true
		var idle []net.Conn
		for range 3 {
			c := w.dial("P")
			defer c.Close()
			idle = append(idle, c)
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(2 * time.Second)
		if code, _, _ := w.do("GET", "/health", ""); code != 200 {
			t.Errorf("beside three idle connections: %d, want 200", code)
		}
		idle[0].SetReadDeadline(time.Now().Add(time.Second))
		if _, err := idle[0].Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("the idlest connection: %v, want it closed", err)
		}
		answers := make(chan string, 3)
		for range 3 { // take every place
			time.Sleep(2 * time.Second)
			go func() {
				code, _, body := w.do("POST", chatPath, chatBody)
				answers <- fmt.Sprint(code, body)
			}()
			synctest.Wait()
		}
		code, h, body := w.do("GET", "/health", "")
		if code != 503 || h.Get("Retry-After") != "1" || !strings.Contains(body, `"code":"connections"`) {
			t.Errorf("beside three at work: %d %v %s; want 503", code, h, body)
		}
		if n, refused, evicted := w.door.Conns(); n != 3 || refused != 1 || evicted != 3 {
			t.Errorf("open %d, refused %d, evicted %d; want 3, 1, 3", n, refused, evicted)
		}
		open()
		for range 3 {
			if a := <-answers; a != "200"+goodDoc {
				t.Errorf("at work: %s", a)
			}
		}
		synctest.Wait()
		if open, _, _ := w.door.Conns(); open != 0 {
			t.Errorf("%d connections are counted after all have gone", open)
		}
	})
}

// One address has its bound; another one doesn't feel it.
func TestConnectionsOfAnAddressAreBounded(t *testing.T) {
	cfg := Defaults()
	cfg.MaxConnsPerAddress = 2
	inner := make(addressed, 8)
	l := NewListener(inner, cfg)
	from := func(ip string) (ours net.Conn) {
		ours, theirs := net.Pipe()
		inner <- addressedConn{theirs, &net.TCPAddr{IP: net.ParseIP(ip), Port: 1}}
		return ours
	}
	for _, ip := range []string{"10.0.0.1", "10.0.0.1", "10.0.0.2", "::ffff:10.0.0.2"} {
		from(ip)
		if _, err := l.Accept(); err != nil {
			t.Fatal(err)
		}
	}
	third := from("10.0.0.1")
	go io.WriteString(third, "GET / HTTP/1.1\r\n\r\n")
	from("10.0.0.3")
	c, err := l.Accept()
	if err != nil || c.RemoteAddr().(*net.TCPAddr).IP.String() != "10.0.0.3" {
		t.Fatalf("%v, %v; want the other address's", c, err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(third), nil)
	if err != nil || resp.StatusCode != 429 || resp.Header.Get("Retry-After") != "1" {
		t.Fatalf("%v, %v; want 429", resp, err)
	}
	if b, err := io.ReadAll(resp.Body); err != nil || !strings.Contains(string(b), "connections_of_address") {
		t.Errorf("%s, %v", b, err)
	}
	c.Close()
	c.Close() // again: counted once
	if open, refused, _ := l.Conns(); open != 4 || refused != 1 {
		t.Errorf("open %d, refused %d; want 4, 1", open, refused)
	}
}

type addressed chan net.Conn

func (a addressed) Accept() (net.Conn, error) { return <-a, nil }
func (a addressed) Close() error              { return nil }
func (a addressed) Addr() net.Addr            { return pipeAddr("door") }

type addressedConn struct {
	net.Conn
	addr net.Addr
}

func (c addressedConn) RemoteAddr() net.Addr { return c.addr }

// Whatever writes to a client that takes nothing ends: here net/http itself, with answers
// to requests that came one after the other without a read between.
func TestEveryWriteToAClientEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{cfg: func(c *Config) { c.Idle = 20 * time.Second }})
		defer w.close()
		c := w.dial("GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
		defer c.Close()
		time.Sleep(41 * time.Second)
		if open, _, _ := w.door.Conns(); open != 0 {
			t.Error("the connection is still there, twice Idle after its answer was not taken")
		}
	})
}

// A deadline that somebody sets stays; net/http's "none" leaves ours.
func TestWriteDeadlineOfOthersStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := Defaults()
		inner := make(addressed, 1)
		l := NewListener(inner, cfg)
		_, theirs := net.Pipe()
		inner <- theirs
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		start := time.Now()
		c.SetWriteDeadline(start.Add(time.Second))
		if _, err := c.Write([]byte("x")); err == nil || time.Since(start) != time.Second {
			t.Errorf("%v after %v, want a time-out after 1 s", err, time.Since(start))
		}
		if _, err := c.Write([]byte("x")); err == nil || time.Since(start) != time.Second {
			t.Errorf("again: %v after %v, want it at once", err, time.Since(start))
		}
		c.SetWriteDeadline(time.Time{})
		start = time.Now()
		if _, err := c.Write([]byte("x")); err == nil || time.Since(start) != 2*cfg.Idle {
			t.Errorf("%v after %v, want a time-out after twice Idle", err, time.Since(start))
		}
	})
}

// Bodies that are under way share a budget: what is over gets 503 at once, small requests
// don't feel it, and when all have ended nothing is taken from it.
func TestBodiesShareABudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const mib = 1 << 20
		w := newWorld(t, setup{cfg: func(c *Config) { c.MaxBody, c.MaxBodies = 4*mib, 16*mib }})
		defer w.close()
		w.engine("a:80")
		w.serve("a:80", answerJSON(200, goodDoc))
		whole := `{"model":"m","prompt":"` + strings.Repeat("x", 4*mib-100) + `"}`
		big := post("/v1/completions", "", whole)
		var under []net.Conn
		for range 3 { // three quarters: all but the last byte has come
			c := w.dial(big[:len(big)-1])
			defer c.Close()
			under = append(under, c)
		}
		synctest.Wait()
		if used := w.proxy.bodies.used.Load(); used < 11*mib || used > 12*mib {
			t.Errorf("%d bytes are taken by three bodies of %d", used, 4*mib)
		}
		fourth := w.dial("")
		defer fourth.Close()
		go io.WriteString(fourth, big) // it isn't read to its end
		if got, took := answerOf(fourth); !strings.HasPrefix(got, "503 ") || !strings.Contains(got, `"code":"bodies"`) || took != 0 {
			t.Errorf("a fourth large one: %s after %v; want 503 at once", got, took)
		}
		if code, _, body := w.do("POST", chatPath, chatBody); code != 200 || body != goodDoc {
			t.Errorf("a small one: %d %s", code, body)
		}
		for _, c := range under {
			go io.WriteString(c, big[len(big)-1:])
			if got, _ := answerOf(c); got != "200 "+goodDoc {
				t.Errorf("one of the three: %s", got)
			}
		}
		time.Sleep(time.Second) // of net/http's, after a request that it has not read
		if used := w.proxy.bodies.used.Load(); used != 0 {
			t.Errorf("%d bytes are still taken", used)
		}
	})
}

// A body in chunks, too, takes what it holds and no more than there is; a client that
// leaves gives it back.
func TestBodyInChunksIsInTheBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const mib = 1 << 20
		w := newWorld(t, setup{cfg: func(c *Config) { c.MaxBody, c.MaxBodies = 8*mib, 12*mib }})
		defer w.close()
		w.engine("a:80")
		chunk := fmt.Sprintf("%x\r\n%s\r\n", mib, strings.Repeat("x", mib))
		first := w.dial(post(chatPath, "Transfer-Encoding: chunked", "") + strings.Repeat(chunk, 5))
		synctest.Wait()
		second := w.dial(post(chatPath, "Transfer-Encoding: chunked", ""))
		defer second.Close()
		go io.WriteString(second, strings.Repeat(chunk, 5))
		if got, _ := answerOf(second); !strings.HasPrefix(got, "503 ") {
			t.Errorf("the second: %s, want 503", got)
		}
		synctest.Wait() // until the second has given back what it took
		if used := w.proxy.bodies.used.Load(); used < 5*mib || used > 8*mib {
			t.Errorf("%d bytes are taken by one body of %d, want its buffer, of at most the %d of a body", used, 5*mib, 8*mib)
		}
		first.Close()
		time.Sleep(time.Second) // of net/http's, after a request that it has not read
		if used := w.proxy.bodies.used.Load(); used != 0 {
			t.Errorf("%d bytes are still taken after the client has left", used)
		}
	})
}
