package zmtp

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"
)

// What libzmq 4.3.5 sends, recorded from a socket (pyzmq 27.3.0).
const (
	zmqGreeting      = "ff00000000000000 017f 0301 4e554c4c 00000000000000000000000000000000 00 00000000000000000000000000000000000000000000000000000000000000"
	zmqReadyPub      = "04190552454144590b536f636b65742d5479706500000003505542"
	zmqReadySub      = "04190552454144590b536f636b65742d5479706500000003535542"
	zmqReadyRouter   = "04290552454144590b536f636b65742d5479706500000006524f55544552084964656e7469747900000000"
	zmqReadyDealerID = "04310552454144590b536f636b65742d54797065000000064445414c4552084964656e7469747900000008656e67696e652d61"
	zmqSubscribe31   = "040d095355425343524942456b7640"
	zmqCancel31      = "040a0643414e43454c6b7640"
	zmqSubscribe30   = "0004016b7640"
	zmqCancel30      = "0004006b7640"
	zmqPing1s        = "04070450494e47000a"
	zmqPong          = "040704504f4e476162"
)

func TestGoldenBytes(t *testing.T) {
	for name, c := range map[string]struct {
		got  []byte
		want string
	}{
		"greeting":        {appendGreeting(nil), zmqGreeting},
		"READY PUB":       {appendReady(nil, kindPub, ""), zmqReadyPub},
		"READY SUB":       {appendReady(nil, kindSub, ""), zmqReadySub},
		"READY ROUTER":    {appendReady(nil, kindRouter, ""), zmqReadyRouter},
		"READY DEALER":    {appendReady(nil, kindDealer, "engine-a"), zmqReadyDealerID},
		"SUBSCRIBE 3.1":   {appendSubscription(nil, 1, "kv@", true), zmqSubscribe31},
		"CANCEL 3.1":      {appendSubscription(nil, 1, "kv@", false), zmqCancel31},
		"subscribe 3.0":   {appendSubscription(nil, 0, "kv@", true), zmqSubscribe30},
		"cancel 3.0":      {appendSubscription(nil, 0, "kv@", false), zmqCancel30},
		"PING":            {appendPing(nil, time.Second), zmqPing1s},
		"PONG":            {appendCommand(nil, "PONG", []byte("ab")), zmqPong},
		"PING, TTL of 1h": {appendPing(nil, 2*time.Hour), "04070450494e47ffff"},
		"PING, 30 ms":     {appendPing(nil, 30*time.Millisecond), "04070450494e470001"},
		"message":         {encode([][]byte{[]byte("kv"), nil, {1, 2}}), "01026b76 0100 00020102"},
		"empty message":   {encode([][]byte{nil}), "0000"},
		"255 bytes":       {encode([][]byte{make([]byte, 255)})[:3], "00ff00"},
		"256 bytes":       {encode([][]byte{make([]byte, 256)})[:10], "02000000000000010000"},
	} {
		if want := unhex(c.want); !bytes.Equal(c.got, want) {
			t.Errorf("%s: got % x, want % x", name, c.got, want)
		}
	}
}

func TestGreeting(t *testing.T) {
	good := unhex(zmqGreeting)
	with := func(at int, b ...byte) []byte {
		g := bytes.Clone(good)
		copy(g[at:], b)
		return g
	}
	for name, c := range map[string]struct {
		in    []byte
		minor int
		done  bool
		err   string
	}{
		"libzmq 4.3":            {good, 1, true, ""},
		"3.0":                   {with(11, 0), 0, true, ""},
		"3.2":                   {with(11, 2), 2, true, ""},
		"4.0":                   {with(10, 4, 0), 1, true, ""},
		"identity in the frame": {with(8, 9), 1, true, ""}, // libzmq's DEALER puts 1 + its length
		"as server":             {with(32, 1), 1, true, ""},
		"partial":               {good[:63], 0, false, ""},
		"nothing":               {nil, 0, false, ""},
		"HTTP":                  {[]byte("H"), 0, false, "no ZMTP greeting"},
		"padding":               {with(9, 0x7e)[:10], 0, false, "no ZMTP greeting"},
		"ZMTP 2":                {with(10, 1)[:11], 0, false, "speaks ZMTP 1"},
		"CURVE":                 {with(12, []byte("CURVE")...), 0, false, `"CURVE"`},
		"NULLX":                 {with(16, 'X'), 0, false, `"NULLX"`},
	} {
		minor, done, err := parseGreeting(c.in)
		if minor != c.minor || done != c.done || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %d %v %v", name, minor, done, err)
		}
	}
}

func TestReadyAndCommands(t *testing.T) {
	for name, c := range map[string]struct{ in, socketType, identity, err string }{
		"empty":          {"", "", "", ""},
		"case, unknown":  {"0b 534f434b45542d54595045 00000003 505542 01 58 00000001 59", "PUB", "", ""},
		"identity":       {"08 4964656e74697479 00000002 6162", "", "ab", ""},
		"zero identity":  {"08 4964656e74697479 00000002 0062", "", "", "identity"},
		"long identity":  {"08 4964656e74697479 00000100" + strings.Repeat("61", 256), "", "", "256 bytes"},
		"empty name":     {"00 00000000", "", "", "cut short"},
		"no size":        {"01 58 0000", "", "", "cut short"},
		"size too large": {"01 58 ffffffff 00", "", "", "claims 4294967295"},
	} {
		r, err := parseReady(unhex(c.in))
		if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) ||
			err == nil && (r.socketType != c.socketType || r.identity != c.identity) {
			t.Errorf("%s: %+v %v", name, r, err)
		}
	}
	for _, in := range []string{"", "00", "05 5245", "ff 00"} {
		if _, _, err := splitCommand(unhex(in)); err == nil {
			t.Errorf("command %q accepted", in)
		}
	}
	for in, want := range map[string]string{"04 6e6f7065": `"nope"`, "": "without a reason", "09 61": "without a reason"} {
		if err := parseError(unhex(in)); !strings.Contains(err.Error(), want) {
			t.Errorf("ERROR %q: %v", in, err)
		}
	}
	if ttl, ctx, err := parsePing(unhex("001e 6162")); ttl != 3*time.Second || string(ctx) != "ab" || err != nil {
		t.Errorf("PING: %v %q %v", ttl, ctx, err)
	}
	for _, in := range []string{"", "00", "0000" + strings.Repeat("00", 17)} {
		if _, _, err := parsePing(unhex(in)); err == nil {
			t.Errorf("PING %q accepted", in)
		}
	}
}

func TestSocketTypes(t *testing.T) {
	accepted := map[kind]string{kindSub: "PUB XPUB", kindPub: "SUB XSUB", kindDealer: "ROUTER DEALER REP", kindRouter: "DEALER ROUTER REQ"}
	for ours, list := range accepted {
		for _, theirs := range strings.Fields("PUB SUB XPUB XSUB DEALER ROUTER REQ REP PUSH PULL PAIR STREAM pub") {
			want := strings.Contains(" "+list+" ", " "+theirs+" ")
			if ours.accepts(theirs) != want {
				t.Errorf("%s accepts %s: %v, want %v", ours, theirs, !want, want)
			}
		}
		if ours.accepts("") {
			t.Errorf("%s accepts a peer without a type", ours)
		}
	}
}

func TestSubscriptions(t *testing.T) {
	var s subscriptions
	must := func(topic string, on bool) {
		if err := s.change([]byte(topic), on, 3); err != nil {
			t.Fatal(err)
		}
	}
	must("kv@", true)
	must("kv@", true)
	must("other", true)
	must("unknown", false)
	for topic, want := range map[string]bool{"kv@a": true, "kv@": true, "kv": false, "": false, "others": true} {
		if s.match([]byte(topic)) != want {
			t.Errorf("match %q: %v", topic, !want)
		}
	}
	must("kv@", false)
	if !s.match([]byte("kv@a")) {
		t.Error("subscribed twice, cancelled once: gone")
	}
	must("kv@", false)
	if s.match([]byte("kv@a")) {
		t.Error("cancelled as often as subscribed: still there")
	}
	must("", true)
	must("b", true)
	if err := s.change([]byte("c"), true, 3); err == nil {
		t.Error("4 subscriptions with a limit of 3")
	}
	must("", false)
	if err := s.change(make([]byte, 192), true, 3); err == nil {
		t.Error("bytes of subscriptions beyond the limit")
	}
	if s.size != len("other")+len("b") {
		t.Errorf("size %d", s.size)
	}
}

func TestEndpoints(t *testing.T) {
	for _, c := range []struct {
		in            string
		bind          bool
		network, addr string
	}{
		{"tcp://10.0.0.5:5557", false, "tcp", "10.0.0.5:5557"},
		{"tcp://engine-0.vllm.svc:5557", false, "tcp", "engine-0.vllm.svc:5557"},
		{"tcp://[::1]:5557", false, "tcp", "[::1]:5557"},
		{"tcp://::1:5557", false, "tcp", "[::1]:5557"},
		{"tcp://[::ffff:127.0.0.1]:5557", false, "tcp", "[::ffff:127.0.0.1]:5557"},
		{"tcp://[fe80::1%eth0]:5557", false, "tcp", "[fe80::1%eth0]:5557"},
		{"tcp://*:5557", true, "tcp", ":5557"},
		{"tcp://*:*", true, "tcp", ":0"},
		{"tcp://127.0.0.1:0", true, "tcp", "127.0.0.1:0"},
		{"ipc:///run/kv", false, "unix", "/run/kv"},
		{"ipc://rel", true, "unix", "rel"},
		{"ipc://@kv", false, "unix", "@kv"},
	} {
		ep, err := parseEndpoint(c.in, c.bind)
		if err != nil || ep.network != c.network || ep.address != c.addr {
			t.Errorf("%s: %+v %v", c.in, ep, err)
		}
	}
	for _, in := range []string{"", "tcp://", "tcp://a", "tcp://:1", "tcp://a:", "tcp://a:0", "tcp://a:65536", "tcp://a:-1", "tcp://a:*",
		"tcp://*:1", "tcp://[::1:1", "tcp://[]:1", "tcp://[x]:1", "tcp://a:b:1", "tcp://a b:1", "tcp://a/b:1", "tcp://eth0;a:1",
		"udp://a:1", "inproc://a", "a:1", "ipc://", "ipc://@", "ipc://*", "ipc://a\x00", "ipc://" + strings.Repeat("a", 108)} {
		if ep, err := parseEndpoint(in, false); err == nil {
			t.Errorf("%q accepted: %+v", in, ep)
		} else if !strings.Contains(err.Error(), fmt.Sprintf("%q", in)) {
			t.Errorf("%q: the error does not name it: %v", in, err)
		}
	}
}

func TestConfig(t *testing.T) {
	c, err := Config{}.withDefaults()
	if err != nil || c.Heartbeat != DefaultHeartbeat || c.silence() != 3*DefaultHeartbeat || c.MaxMessage != 2*DefaultMaxFrame {
		t.Fatalf("%+v %v", c, err)
	}
	if c, err := (Config{Heartbeat: -1}).withDefaults(); err != nil || c.silence() != 0 {
		t.Errorf("no heartbeat: %v %v", c.silence(), err)
	}
	for field, c := range map[string]Config{
		"Identity":         {Identity: "\x00a"},
		"Heartbeat":        {Heartbeat: time.Millisecond},
		"HandshakeTimeout": {HandshakeTimeout: -1},
		"MinBackoff":       {MinBackoff: time.Minute, MaxBackoff: time.Second},
		"MaxFrame":         {MaxFrame: 1 << 40},
		"MaxMessage":       {MaxFrame: 1000, MaxMessage: 999},
		"MaxParts":         {MaxParts: -1},
		"MaxPeers":         {MaxPeers: -1},
		"ReadBuffer":       {ReadBuffer: 1},
		"QueueLen":         {QueueLen: -1},
	} {
		if _, err := c.withDefaults(); err == nil || !strings.Contains(err.Error(), "Config."+field) || !strings.Contains(err.Error(), "accepted") {
			t.Errorf("%s: %v", field, err)
		}
	}
}
