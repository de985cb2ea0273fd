package zmtp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestDealer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memnet{raw: make(chan net.Conn)}
		peers := make(chan raw, 1)
		go func() {
			r := raw{t, <-m.raw}
			r.meet(1, "ROUTER", readyDealer)
			peers <- r
		}()
		d, err := DialDealer(context.Background(), Config{Dial: m.dial, Heartbeat: time.Second}, "tcp://h:1")
		if err != nil {
			t.Fatal(err)
		}
		peer := <-peers
		start := time.Now()
		if err := d.Send(nil, []byte("42")); err != nil {
			t.Fatal(err)
		}
		peer.expect(unhex("0100 0002 3432"))
		go io.Copy(io.Discard, peer.nc)
		// Half a message, then ctx ends; the other half comes for the next Recv.
		go peer.nc.Write(unhex("0100 01"))
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		if _, err := d.Recv(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 2*time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		go peer.nc.Write(unhex("01 61 0001 62 0000"))
		if f, err := d.Recv(context.Background()); fmt.Sprintf("%q %v", f, err) != `["" "a" "b"] <nil>` {
			t.Errorf("%q %v", f, err)
		}
		if f, err := d.Recv(ctx); fmt.Sprintf("%q %v", f, err) != `[""] <nil>` { // it is there already
			t.Errorf("%q %v", f, err)
		}
		time.Sleep(time.Minute) // its owner is busy: no silence, PINGs go on
		if _, err := d.Recv(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		start = time.Now()
		if _, err := d.Recv(context.Background()); err != ErrSilent || time.Since(start) != 3*time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		if err := d.Send(nil); err != ErrSilent {
			t.Errorf("Send after the end: %v", err)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestDealerEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memnet{}
		if _, err := DialDealer(context.Background(), Config{Dial: m.dial}, "tcp://h:1"); err == nil || !strings.Contains(err.Error(), `"tcp://h:1"`) {
			t.Error(err)
		}
		m.raw = make(chan net.Conn, 1)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if _, err := DialDealer(ctx, Config{Dial: m.dial}, "tcp://h:1"); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		<-m.raw
		go func() {
			r := raw{t, <-m.raw}
			r.meet(1, "ROUTER", readyDealer)
			io.Copy(io.Discard, r.nc)
		}()
		d, err := DialDealer(context.Background(), Config{Dial: m.dial}, "tcp://h:1")
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Second, func() { d.Close() })
		if _, err := d.Recv(context.Background()); err != ErrClosed {
			t.Errorf("closed while receiving: %v", err)
		}
		if err := d.Send(nil); err != ErrClosed {
			t.Errorf("Send after Close: %v", err)
		}
	})
}
