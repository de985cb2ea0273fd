package proxy

import (
	"crypto/rand"
	"net"
	"net/http"
	"net/textproto"
	"strings"
)

// hopByHop are the headers of one connection; RFC 9110, section 7.6.1. Content-Length
// belongs to the message, but net/http writes it.
var hopByHop = [...]string{
	"Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization",
	"Te", "Trailer", "Transfer-Encoding", "Upgrade",
}

// dropHop deletes from h what must not go further.
func dropHop(h http.Header) {
	for _, line := range h["Connection"] {
		for name := range strings.SplitSeq(line, ",") {
			if name = textproto.TrimString(name); name != "" {
				h.Del(name)
			}
		}
	}
	for _, name := range hopByHop {
		delete(h, name)
	}
}

// upstreamHeader returns what an engine gets of the client's headers. The lists of
// values are shared with the request: they may be replaced, not written to.
func (c *call) upstreamHeader() http.Header {
	r, cfg := c.r, &c.p.cfg
	h := make(http.Header, len(r.Header)+3)
	strip := headerNames(cfg.Strip)
	for k, v := range r.Header {
		if !strip.has(k) {
			h[k] = v
		}
	}
	dropHop(h)
	delete(h, "Content-Length")
	delete(h, "Expect") // the body is here already
	if _, ok := h["User-Agent"]; !ok {
		h["User-Agent"] = nil // or net/http would add its own
	}
	if cfg.ForwardedFor {
		if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
			if prior, ok := h["X-Forwarded-For"]; ok && len(prior) > 0 {
				host = strings.Join(prior, ", ") + ", " + host
			}
			h["X-Forwarded-For"] = []string{host}
		}
	}
	if h.Get("X-Request-Id") == "" && c.id != "" {
		h["X-Request-Id"] = []string{c.id}
	}
	return h
}

// requestID returns the request's id: the client's, cut to maxID bytes, or one of
// ours. "" if it has none and Config.RequestID is off.
func (c *call) requestID() string {
	if id := c.r.Header.Get("X-Request-Id"); id != "" {
		return id[:min(len(id), maxID)]
	}
	if c.p.cfg.RequestID && c.id == "" {
		c.id = rand.Text()
	}
	return c.id
}

// maxID bounds a request's id in receipts, in bytes.
const maxID = 128

// clientHeader copies what the client gets of an engine's headers.
func clientHeader(dst, src http.Header) {
	if _, ok := src["Connection"]; ok {
		src = src.Clone()
		dropHop(src)
	}
next:
	for k, v := range src {
		for _, name := range hopByHop {
			if k == name {
				continue next
			}
		}
		dst[k] = v
	}
}
