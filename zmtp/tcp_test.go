package zmtp

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// Real sockets: each transport and form of address, events and replay.
func TestTransports(t *testing.T) {
	endpoints := []string{"tcp://127.0.0.1:0", "tcp://[::1]:0", "tcp://[::ffff:127.0.0.1]:0", "tcp://*:0", "tcp://*:*", "ipc://" + filepath.Join(t.TempDir(), "s")}
	if runtime.GOOS == "linux" {
		endpoints = append(endpoints, fmt.Sprintf("ipc://@kvasir-zmtp-%d", time.Now().UnixNano()))
	}
	for _, ep := range endpoints {
		t.Run(ep, func(t *testing.T) {
			subscribed := make(chan struct{})
			pub, err := NewPub(PubConfig{Subscribed: func(*Peer, string, bool) { close(subscribed) }})
			if err != nil {
				t.Fatal(err)
			}
			at, err := pub.Bind(ep)
			if err != nil && strings.Contains(ep, "::1") {
				t.Skipf("no IPv6 here: %v", err)
			}
			if err != nil {
				t.Fatal(err)
			}
			defer pub.Close()
			got := make(chan string, 8)
			sub, err := NewSub(SubConfig{Message: func(p *Peer, frames [][]byte) {
				got <- fmt.Sprintf("%d %q", p.Epoch, frames)
			}})
			if err != nil {
				t.Fatal(err)
			}
			defer sub.Close()
			if err := sub.Connect(strings.Replace(at, "[::]", "127.0.0.1", 1)); err != nil {
				t.Fatal(err)
			}
			<-subscribed
			pub.Send([]byte("kv"), []byte{0, 1}, make([]byte, 0))
			if g, want := <-got, `1 ["kv" "\x00\x01" ""]`; g != want {
				t.Fatalf("got %s, want %s", g, want)
			}
		})
	}
}

// The subscriber binds and two engines dial in: each is its own Peer.
func TestSubBind(t *testing.T) {
	got := make(chan string, 8)
	sub, _ := NewSub(SubConfig{Message: func(p *Peer, frames [][]byte) {
		got <- fmt.Sprintf("%s %s", p.Identity, frames[1])
	}})
	defer sub.Close()
	at, err := sub.Bind("tcp://127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]bool{"engine-a hi": true, "engine-b hi": true}
	for _, id := range []string{"engine-a", "engine-b"} {
		subscribed := make(chan struct{})
		pub, err := NewPub(PubConfig{Config: Config{Identity: id}, Subscribed: func(*Peer, string, bool) { close(subscribed) }})
		if err != nil {
			t.Fatal(err)
		}
		defer pub.Close()
		if err := pub.Connect(at); err != nil {
			t.Fatal(err)
		}
		<-subscribed
		pub.Send([]byte("kv"), []byte("hi"))
	}
	for range 2 {
		if g := <-got; !want[g] {
			t.Errorf("got %q", g)
		} else {
			delete(want, g)
		}
	}
}

func TestReplay(t *testing.T) {
	var rt *Router
	rt, err := NewRouter(RouterConfig{Config: Config{QueueLen: 2000}, Message: func(p *Peer, frames [][]byte) {
		for i := range 1000 {
			if err := rt.Send(p.Identity, nil, fmt.Appendf(nil, "%s-%d", frames[1], i), make([]byte, i*100)); err != nil {
				t.Error(err)
			}
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close()
	at, err := rt.Bind("tcp://127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d, err := DialDealer(context.Background(), Config{}, at)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := d.Send(nil, []byte("from7")); err != nil {
		t.Fatal(err)
	}
	for i := range 1000 {
		frames, err := d.Recv(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if len(frames) != 3 || len(frames[0]) != 0 || string(frames[1]) != fmt.Sprintf("from7-%d", i) || len(frames[2]) != i*100 {
			t.Fatalf("message %d: %d frames, %.40q", i, len(frames), frames)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := d.Recv(ctx); err != context.Canceled {
		t.Fatalf("Recv of a cancelled context: %v", err)
	}
	d.Send(nil, []byte("again"))
	for i := range 1000 {
		if f, err := d.Recv(context.Background()); err != nil || string(f[1]) != fmt.Sprintf("again-%d", i) {
			t.Fatalf("after a cancelled Recv: %.40q %v", f, err)
		}
	}
	if err := rt.Send("nobody", nil); err != ErrNoPeer {
		t.Fatalf("Send to nobody: %v", err)
	}
}

// The socket file of a dead process is replaced; that of a living one, and a
// file that is no socket, are not.
func TestStaleSocketFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "s")
	dead, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	dead.(*net.UnixListener).SetUnlinkOnClose(false)
	dead.Close()
	bind := func(path string) (*Pub, error) {
		pub, err := NewPub(PubConfig{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { pub.Close() })
		_, err = pub.Bind("ipc://" + path)
		return pub, err
	}
	pub, err := bind(path)
	if err != nil {
		t.Fatalf("stale file: %v", err)
	}
	if _, err := bind(path); err == nil {
		t.Error("took a living publisher's path")
	}
	pub.Close()
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("the socket file stays after Close: %v", err)
	}
	other := filepath.Join(dir, "file")
	if err := os.WriteFile(other, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := bind(other); err == nil {
		t.Error("took the path of a file")
	}
	if b, err := os.ReadFile(other); string(b) != "precious" {
		t.Errorf("the file: %q %v", b, err)
	}
}
