package zmtp

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"time"
)

// Defaults of Config, chosen for a few hundred engines behind one router.
const (
	DefaultHeartbeat        = 2 * time.Second
	DefaultHandshakeTimeout = 10 * time.Second
	DefaultMinBackoff       = 100 * time.Millisecond
	DefaultMaxBackoff       = 5 * time.Second
	DefaultMaxFrame         = 64 << 20
	DefaultMaxParts         = 64
	DefaultMaxPeers         = 4096
	DefaultReadBuffer       = 28 << 10 // with stacks and the rest 1,000 connections stay below 40 MB
	DefaultQueueLen         = 1000     // libzmq's SNDHWM
	DefaultQueueBytes       = 256 << 20
)

// Config is what all four socket types share. The zero value is usable: each
// zero field means its default.
type Config struct {
	// Dial opens a connection; network is "tcp" or "unix". It must honour ctx.
	// Default: net.Dialer with TCP keep-alive, which is all that notices a
	// half-open connection to a 3.0 peer (they know no heartbeat).
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Listen opens a listener; network is "tcp" or "unix". Default: net.ListenConfig;
	// for an ipc path a socket file left behind by a dead process is replaced.
	Listen func(ctx context.Context, network, address string) (net.Listener, error)
	// Jitter returns a number in [0,1) and may be called concurrently. Default: rand.Float64.
	Jitter func() float64

	// Identity is sent to the peer; a Router replies to it. Up to 255 bytes,
	// not starting with a zero byte. Default: empty, so the peer invents one.
	Identity string

	// Heartbeat is the interval between PINGs. A 3.1 peer from which nothing
	// came for 3 intervals is disconnected, and is told to think the same of us
	// (TTL = 3 x interval). Negative: no heartbeats; then only the TTL in
	// the peer's PINGs, if any, limits its silence, and a peer that pings may give us up
	// while a handler blocks, because only our own PINGs go on then. Accepted: >= 10 ms.
	Heartbeat time.Duration
	// HandshakeTimeout limits dialling, and then greeting plus READY.
	HandshakeTimeout time.Duration
	// MinBackoff and MaxBackoff bound the wait before dialling again. It doubles
	// from MinBackoff; of each wait the upper half is chance (Jitter).
	MinBackoff, MaxBackoff time.Duration

	// MaxFrame bounds one frame, in bytes. MaxMessage bounds all frames of one
	// message together with their headers, default 2 x MaxFrame. MaxParts bounds their number.
	MaxFrame, MaxMessage int64
	MaxParts             int
	// MaxPeers bounds the connections that a bound socket holds at a time;
	// beyond it new ones are closed at once.
	MaxPeers int
	// ReadBuffer is the normal size of a connection's buffer, in bytes. Larger messages
	// grow it for as long as they keep coming.
	ReadBuffer int

	// QueueLen and QueueBytes bound what waits for one peer, in messages and
	// in bytes (whichever comes first). What a full queue means is told at Send.
	QueueLen, QueueBytes int
}

// withDefaults validates c and fills in what is zero.
func (c Config) withDefaults() (Config, error) {
	if c.Dial == nil {
		d := &net.Dialer{KeepAliveConfig: keepAlive}
		c.Dial = d.DialContext
	}
	if c.Listen == nil {
		c.Listen = listen
	}
	if c.Jitter == nil {
		c.Jitter = rand.Float64
	}
	def(&c.Heartbeat, DefaultHeartbeat)
	def(&c.HandshakeTimeout, DefaultHandshakeTimeout)
	def(&c.MinBackoff, DefaultMinBackoff)
	def(&c.MaxBackoff, max(DefaultMaxBackoff, c.MinBackoff))
	def(&c.MaxFrame, DefaultMaxFrame)
	def(&c.MaxMessage, 2*c.MaxFrame)
	def(&c.MaxParts, DefaultMaxParts)
	def(&c.MaxPeers, DefaultMaxPeers)
	def(&c.ReadBuffer, DefaultReadBuffer)
	def(&c.QueueLen, DefaultQueueLen)
	def(&c.QueueBytes, DefaultQueueBytes)

	const fix = "; leave it 0 for the default"
	switch {
	case len(c.Identity) > 255 || c.Identity != "" && c.Identity[0] == 0:
		return c, fmt.Errorf("zmtp: Config.Identity is %q; accepted: 0 to 255 bytes, not starting with a zero byte", c.Identity)
	case c.Heartbeat > 0 && c.Heartbeat < 10*time.Millisecond:
		return c, fmt.Errorf("zmtp: Config.Heartbeat is %v; accepted: 10ms or more, or negative to switch it off%s", c.Heartbeat, fix)
	case c.HandshakeTimeout < 0:
		return c, fmt.Errorf("zmtp: Config.HandshakeTimeout is %v; accepted: > 0%s", c.HandshakeTimeout, fix)
	case c.MinBackoff < 0 || c.MaxBackoff < c.MinBackoff:
		return c, fmt.Errorf("zmtp: Config.MinBackoff is %v and MaxBackoff %v; accepted: 0 < MinBackoff <= MaxBackoff%s", c.MinBackoff, c.MaxBackoff, fix)
	case c.MaxFrame < 512 || c.MaxFrame > 1<<30:
		return c, fmt.Errorf("zmtp: Config.MaxFrame is %d; accepted: 512 to 1073741824 bytes%s", c.MaxFrame, fix)
	case c.MaxMessage < c.MaxFrame || c.MaxMessage > 2<<30:
		return c, fmt.Errorf("zmtp: Config.MaxMessage is %d; accepted: MaxFrame (%d) to 2147483648 bytes%s", c.MaxMessage, c.MaxFrame, fix)
	case c.MaxParts < 1 || c.MaxParts > 1<<16:
		return c, fmt.Errorf("zmtp: Config.MaxParts is %d; accepted: 1 to 65536%s", c.MaxParts, fix)
	case c.MaxPeers < 1:
		return c, fmt.Errorf("zmtp: Config.MaxPeers is %d; accepted: 1 or more%s", c.MaxPeers, fix)
	case c.ReadBuffer < 512 || c.ReadBuffer > 16<<20:
		return c, fmt.Errorf("zmtp: Config.ReadBuffer is %d; accepted: 512 to 16777216 bytes%s", c.ReadBuffer, fix)
	case c.QueueLen < 1 || c.QueueBytes < 1:
		return c, fmt.Errorf("zmtp: Config.QueueLen is %d and QueueBytes %d; accepted: 1 or more%s", c.QueueLen, c.QueueBytes, fix)
	}
	return c, nil
}

func def[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// silence is how long a peer may say nothing: 3 heartbeats, 0 for ever.
func (c *Config) silence() time.Duration { return max(0, 3*c.Heartbeat) }

// backoff returns how long to wait before attempt n+1, n >= 0 failures in a row.
func (c *Config) backoff(n int) time.Duration {
	wait := c.MinBackoff
	for ; n > 0 && wait < c.MaxBackoff; n-- {
		wait = min(2*wait, c.MaxBackoff)
	}
	return wait/2 + time.Duration(c.Jitter()*float64(wait-wait/2))
}
