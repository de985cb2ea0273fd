package proxy

import (
	"context"
	"errors"
	"net"
	"net/http"
	"syscall"
)

// A Reason says why an engine did not serve a request.
type Reason uint8

// The reasons.
const (
	None        Reason = iota
	Unreachable        // no connection: the engine never saw the request
	Broken             // the connection broke before the end of the answer
	Silent             // no content within FirstToken or Answer
	Stalled            // silence, for longer than Idle, after the first content
	Overloaded         // 429 or 503: it is alive, and says that it can't now. That may hold for this client only
	Gateway            // 502 or 504: something in front of the engine
	ServerError        // 500, or an error object under a 200
	Aborting           // nothing but finish_reason "abort": it is shutting down
	Gone               // its replica was taken out of the fleet
	Local              // this machine has no file or port left for a connection: nothing is known of the engine
	Leaving            // this router is shutting down; nothing is wrong with the engine
	Elsewhere          // 404: it doesn't store the answer that the request is about; nothing is wrong with it
	numReasons
)

var reasonNames = [numReasons]string{
	"none", "unreachable", "broken", "silent", "stalled", "overloaded", "gateway", "server_error", "aborting", "gone", "local", "leaving", "elsewhere",
}

func (r Reason) String() string { return reasonNames[r] }

// fatal reports whether the engine had the request and may have died of it. A
// request is given to no third engine after two of those, if they were well before: a
// prompt that kills engines must not walk through the fleet.
func (r Reason) fatal() bool { return r == Broken || r == Silent || r == ServerError }

// maxFatal is how many engines may fail fatally at one request.
const maxFatal = 2

// Causes by which an attempt is ended from our side.
var (
	errSilent  = errors.New("the engine sent nothing in time")
	errStalled = errors.New("the engine fell silent in the middle of its answer")
	errSlow    = errors.New("the client does not take the answer")
	errGone    = errors.New("the engine was taken out of the fleet")
	errLeaving = errors.New("this router is shutting down")
	errOver    = errors.New("the request is over")
)

// reasonOf says why a round trip, or a read of its answer, failed.
func reasonOf(ctx context.Context, err error) Reason {
	switch context.Cause(ctx) {
	case errSilent:
		return Silent
	case errStalled:
		return Stalled
	case errGone:
		return Gone
	case errLeaving:
		return Leaving
	}
	for _, none := range []error{syscall.EMFILE, syscall.ENFILE, syscall.EADDRNOTAVAIL, syscall.ENOBUFS} {
		if errors.Is(err, none) {
			return Local
		}
	}
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return Unreachable
	}
	return Broken
}

// reasonOfStatus says whether an engine's status asks for another engine.
func (p *Proxy) reasonOfStatus(status int, rt route) Reason {
	switch status {
	case http.StatusTooManyRequests:
		if p.cfg.Retry429 {
			return Overloaded
		}
	case http.StatusServiceUnavailable:
		return Overloaded
	case http.StatusBadGateway, http.StatusGatewayTimeout:
		return Gateway
	case http.StatusInternalServerError:
		if rt.generate { // vLLM's words for a dead engine core vary
			return ServerError
		}
	}
	return None
}
