package router

import (
	"context"
	"net"
	"runtime"
)

// listen opens the front door. Requests that come at once, each on a connection of its
// own, are decided about in the order in which they came. Go's network poller wakes
// those who wait for data in the opposite order: of a burst the first to come would be
// the last in an engine's queue, and on two real engines the placements were worse, too
// (docs/benchmarks.md). So connections are accepted when their first bytes
// are there (dataFirst), and each is served before the next is taken.
//
// Later requests of a connection come as the poller has it.
func listen(address string) (net.Listener, error) {
	c := net.ListenConfig{Control: dataFirst}
	l, err := c.Listen(context.Background(), "tcp", address)
	if err != nil {
		return nil, err
	}
	return inOrder{l}, nil
}

// inOrder lets the goroutine of the connection that was accepted last go first.
type inOrder struct{ net.Listener }

func (l inOrder) Accept() (net.Conn, error) {
	runtime.Gosched()
	return l.Listener.Accept()
}
