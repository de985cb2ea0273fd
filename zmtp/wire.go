package zmtp

import (
	"bytes"
	"encoding/binary"
	"time"
)

// Frame flags, RFC 37 "framing".
const (
	flagMore    = 1 << 0
	flagLong    = 1 << 1
	flagCommand = 1 << 2
)

const (
	greetingLen = 64
	// maxCommand bounds a command's body: READY with metadata, a topic, a PING.
	maxCommand = 64 << 10
	// maxPingContext is the protocol's limit; longer contexts are not echoed.
	maxPingContext = 16
)

// kind is a socket type as it stands in READY.
type kind string

const (
	kindSub    kind = "SUB"
	kindDealer kind = "DEALER"
	kindPub    kind = "PUB"
	kindRouter kind = "ROUTER"
)

// accepts tells whether a peer of the given type may talk to us (RFC 37,
// "socket type combinations").
func (k kind) accepts(peer string) bool {
	switch k {
	case kindSub:
		return peer == "PUB" || peer == "XPUB"
	case kindPub:
		return peer == "SUB" || peer == "XSUB"
	case kindDealer:
		return peer == "ROUTER" || peer == "DEALER" || peer == "REP"
	case kindRouter:
		return peer == "DEALER" || peer == "ROUTER" || peer == "REQ"
	}
	return false
}

// appendGreeting writes the 64 bytes that open a connection: signature,
// version 3.1, mechanism NULL, not as server.
func appendGreeting(b []byte) []byte {
	var g [greetingLen]byte
	g[0], g[8], g[9] = 0xff, 1, 0x7f // libzmq writes 1 into the padding, and so do we
	g[10], g[11] = 3, 1
	copy(g[12:32], "NULL")
	return append(b, g[:]...)
}

// parseGreeting judges the greeting as far as b has it, so that a peer of
// another protocol is refused at its first byte. done is set with all 64 bytes.
func parseGreeting(b []byte) (minor int, done bool, err error) {
	if len(b) > 0 && b[0] != 0xff || len(b) > 9 && b[9]&1 == 0 {
		return 0, false, protocolf("the peer's first bytes % x are no ZMTP greeting; is this the event port?", b[:min(len(b), 10)])
	}
	if len(b) > 10 && b[10] < 3 {
		return 0, false, protocolf("the peer speaks ZMTP %d; accepted: 3.0 and later", b[10])
	}
	if len(b) < greetingLen {
		return 0, false, nil
	}
	if mech := bytes.TrimRight(b[12:32], "\x00"); string(mech) != "NULL" {
		return 0, false, protocolf("the peer wants the security mechanism %q; accepted: \"NULL\"", mech)
	}
	if b[10] > 3 {
		return 1, true, nil // a later major version talks down to ours
	}
	return int(b[11]), true, nil
}

// appendFrame writes one frame.
func appendFrame(b []byte, flags byte, body []byte) []byte {
	if len(body) > 255 {
		b = append(b, flags|flagLong)
		b = binary.BigEndian.AppendUint64(b, uint64(len(body)))
	} else {
		b = append(b, flags, byte(len(body)))
	}
	return append(b, body...)
}

// encode returns one multipart message as wire bytes.
func encode(frames [][]byte) []byte {
	n := 0
	for _, f := range frames {
		n += 9 + len(f)
	}
	b := make([]byte, 0, n)
	for i, f := range frames {
		var flags byte
		if i < len(frames)-1 {
			flags = flagMore
		}
		b = appendFrame(b, flags, f)
	}
	return b
}

func appendCommand(b []byte, name string, data ...[]byte) []byte {
	body := make([]byte, 0, 64)
	body = append(body, byte(len(name)))
	body = append(body, name...)
	for _, d := range data {
		body = append(body, d...)
	}
	return appendFrame(b, flagCommand, body)
}

// splitCommand returns a command's name and data.
func splitCommand(body []byte) (name, data []byte, err error) {
	if len(body) == 0 || body[0] == 0 || int(body[0]) > len(body)-1 {
		return nil, nil, protocolf("command without a complete name")
	}
	n := int(body[0])
	return body[1 : 1+n], body[1+n:], nil
}

func appendProperty(b []byte, name, value string) []byte {
	b = append(b, byte(len(name)))
	b = append(b, name...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(value)))
	return append(b, value...)
}

// appendReady writes our READY command.
func appendReady(b []byte, k kind, identity string) []byte {
	props := appendProperty(nil, "Socket-Type", string(k))
	if k == kindDealer || k == kindRouter || identity != "" {
		props = appendProperty(props, "Identity", identity)
	}
	return appendCommand(b, "READY", props)
}

// ready is what we keep of a peer's READY.
type ready struct{ socketType, identity string }

func parseReady(data []byte) (r ready, err error) {
	for len(data) > 0 {
		n := int(data[0])
		if n == 0 || len(data) < 1+n+4 {
			return r, protocolf("READY: property cut short")
		}
		name := data[1 : 1+n]
		size := binary.BigEndian.Uint32(data[1+n:])
		data = data[1+n+4:]
		if uint64(size) > uint64(len(data)) {
			return r, protocolf("READY: property %q claims %d bytes, %d are there", name, size, len(data))
		}
		switch value := data[:size]; {
		case bytes.EqualFold(name, []byte("Socket-Type")):
			r.socketType = string(value)
		case bytes.EqualFold(name, []byte("Identity")):
			if size > 255 || size > 0 && value[0] == 0 {
				return r, protocolf("READY: identity %.16q of %d bytes; accepted: up to 255 bytes, not starting with zero", value, size)
			}
			r.identity = string(value)
		}
		data = data[size:]
	}
	return r, nil
}

// parseError reads the reason of an ERROR command.
func parseError(data []byte) error {
	if len(data) == 0 || int(data[0]) > len(data)-1 {
		return protocolf("the peer sent ERROR without a reason")
	}
	return protocolf("the peer sent ERROR: %q", data[1:1+int(data[0])])
}

// appendPing writes a PING whose TTL is given in time and sent in tenths of a second.
func appendPing(b []byte, ttl time.Duration) []byte {
	var t [2]byte
	tenths := (ttl + 100*time.Millisecond - 1) / (100 * time.Millisecond)
	binary.BigEndian.PutUint16(t[:], uint16(min(tenths, 0xffff)))
	return appendCommand(b, "PING", t[:])
}

// parsePing returns the sender's TTL, 0 for none, and the context to echo.
func parsePing(data []byte) (ttl time.Duration, context []byte, err error) {
	if len(data) < 2 {
		return 0, nil, protocolf("PING with %d bytes; accepted: 2 bytes of TTL and a context", len(data))
	}
	context = data[2:]
	if len(context) > maxPingContext {
		return 0, nil, protocolf("PING context of %d bytes; accepted: up to %d", len(context), maxPingContext)
	}
	return time.Duration(binary.BigEndian.Uint16(data)) * 100 * time.Millisecond, context, nil
}

// appendSubscription writes a subscription, or its cancellation, as the peer
// understands it: a command since 3.1, before that a message of one frame.
func appendSubscription(b []byte, minor int, topic string, on bool) []byte {
	if minor >= 1 {
		if on {
			return appendCommand(b, "SUBSCRIBE", []byte(topic))
		}
		return appendCommand(b, "CANCEL", []byte(topic))
	}
	body := make([]byte, 1, 1+len(topic))
	if on {
		body[0] = 1
	}
	return appendFrame(b, 0, append(body, topic...))
}
