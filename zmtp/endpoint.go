package zmtp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// keepAlive notices a dead host within about 15 + 3*5 s where heartbeats can't.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3}

// endpoint is a parsed address: network and address as package net takes them.
type endpoint struct {
	network string // "tcp" or "unix"
	address string // "host:port", "[::1]:port", "/path", "@abstract"
}

const endpointForms = "accepted: tcp://host:port, tcp://[::1]:port, ipc:///path, ipc://@abstract (Linux); to bind also tcp://*:port and port 0"

// parseEndpoint reads a ZeroMQ endpoint. With bind, the host may be "*" and the
// port "*" or 0.
func parseEndpoint(s string, bind bool) (endpoint, error) {
	fail := func(why string) (endpoint, error) {
		return endpoint{}, fmt.Errorf("zmtp: endpoint %q: %s; %s", s, why, endpointForms)
	}
	if path, ok := strings.CutPrefix(s, "ipc://"); ok {
		switch {
		case path == "" || path == "@":
			return fail("no path")
		case path == "*":
			return fail("a wildcard path can't be found by anyone")
		case len(path) > 107:
			return fail(fmt.Sprintf("path has %d bytes, sockets take 107", len(path)))
		case strings.ContainsRune(path, 0):
			return fail("zero byte in the path")
		case path[0] == '@' && runtime.GOOS != "linux":
			return fail("abstract names exist on Linux only")
		}
		return endpoint{"unix", path}, nil
	}
	rest, ok := strings.CutPrefix(s, "tcp://")
	if !ok {
		return fail("unknown transport")
	}
	colon := strings.LastIndexByte(rest, ':')
	if colon < 0 {
		return fail("no port")
	}
	host, port := rest[:colon], rest[colon+1:]
	if h, ok := strings.CutPrefix(host, "["); ok {
		if h, ok = strings.CutSuffix(h, "]"); !ok {
			return fail("'[' without ']'")
		}
		if _, err := netip.ParseAddr(h); err != nil {
			return fail("no IPv6 address between the brackets")
		}
		host = h
	} else if strings.ContainsRune(host, ':') { // libzmq takes the last colon as the port's
		if _, err := netip.ParseAddr(host); err != nil {
			return fail("host has a colon but is no IPv6 address")
		}
	}
	if strings.ContainsAny(host, "[];/@ \x00") {
		return fail("unexpected character in the host")
	}
	if bind && port == "*" {
		port = "0"
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 && !bind {
		return fail(fmt.Sprintf("port %q is not in 1 to 65535", port))
	}
	switch {
	case host == "*" && !bind, host == "":
		return fail("a host is needed")
	case host == "*":
		host = ""
	}
	return endpoint{"tcp", net.JoinHostPort(host, strconv.FormatUint(n, 10))}, nil
}

// endpointOf names a listener's real address as an endpoint.
func endpointOf(a net.Addr) string {
	if a.Network() == "unix" {
		return "ipc://" + a.String()
	}
	return "tcp://" + a.String()
}

// listen is the default of Config.Listen. As libzmq, it replaces the socket
// file of a process that is gone; unlike libzmq, not that of a living one.
func listen(ctx context.Context, network, address string) (net.Listener, error) {
	lc := net.ListenConfig{KeepAliveConfig: keepAlive}
	l, err := lc.Listen(ctx, network, address)
	if network != "unix" || address[0] == '@' || !errors.Is(err, syscall.EADDRINUSE) {
		return l, err
	}
	fi, statErr := os.Lstat(address)
	if statErr != nil || fi.Mode()&os.ModeSocket == 0 {
		return nil, err
	}
	c, dialErr := (&net.Dialer{}).DialContext(ctx, network, address)
	if dialErr == nil {
		c.Close()
		return nil, err
	}
	if !errors.Is(dialErr, syscall.ECONNREFUSED) {
		return nil, err
	}
	if err := os.Remove(address); err != nil {
		return nil, err
	}
	return lc.Listen(ctx, network, address)
}
