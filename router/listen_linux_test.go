package router

import (
	"io"
	"net"
	"testing"
)

// A connection is accepted when its first bytes are there: a client that says nothing
// yet doesn't come before one that has sent its request.
func TestAcceptsByFirstBytes(t *testing.T) {
	l, err := listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dial := func(send string) net.Conn {
		t.Helper()
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		if _, err := io.WriteString(c, send); err != nil {
			t.Fatal(err)
		}
		return c
	}
	accept := func(want string) {
		t.Helper()
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		got := make([]byte, len(want))
		if _, err := io.ReadFull(c, got); err != nil || string(got) != want {
			t.Errorf("accepted the one that sent %q, %v; want %q", got, err, want)
		}
	}
	silent := dial("")
	dial("first")
	dial("second")
	accept("first")
	accept("second")
	if _, err := io.WriteString(silent, "silent"); err != nil {
		t.Fatal(err)
	}
	accept("silent")
}
