package eventbench

import (
	"context"
	"encoding/binary"
	"math"
	"net"
	"sync"
	"testing"

	"kvasir/kv"
	"kvasir/zmtp"
)

// heldBlocks is how many blocks a publisher's engine holds: message n stores
// block n and removes block n-heldBlocks.
const heldBlocks = 64

// A publisher is an engine on real sockets, whose message n is known without
// keeping it, so that it can replay any number of them. It publishes as fast as
// its subscriber takes the bytes from the socket, whatever becomes of them.
type publisher struct {
	t      *testing.T
	pub    *zmtp.Pub
	router *zmtp.Router
	events string // endpoints
	replay string
	buffer uint64 // how many of the latest messages can be replayed, 0: all
	clears uint64 // this message says that the cache was cleared, 0: none does

	subscribed chan struct{}

	mu    sync.Mutex
	moved sync.Cond
	next  uint64             // number of the next message
	sent  int64              // bytes of all messages
	base  int64              // bytes that the subscriber had taken before the first
	takes map[string]*taking // by the subscriber's local address
	live  *taking            // of the subscription
	over  bool
}

// A taking is what a subscriber has taken from one connection.
type taking struct {
	bytes int64
	ended bool
}

// ahead is how many bytes may lie between publisher and subscriber.
const ahead = 1 << 20

func newPublisher(t *testing.T) *publisher {
	p := &publisher{t: t, subscribed: make(chan struct{}, 1), takes: map[string]*taking{}}
	p.moved.L = &p.mu
	// Silence and its limits are real time, which a busy machine hasn't got.
	cfg := zmtp.Config{Heartbeat: -1, QueueLen: 1 << 20}
	var err error
	if p.pub, err = zmtp.NewPub(zmtp.PubConfig{Config: cfg, Subscribed: func(peer *zmtp.Peer, topic string, on bool) {
		p.mu.Lock()
		p.live = p.takes[peer.Remote]
		p.mu.Unlock()
		p.subscribed <- struct{}{}
	}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.pub.Close() })
	if p.events, err = p.pub.Bind("tcp://127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	if p.router, err = zmtp.NewRouter(zmtp.RouterConfig{Config: cfg, Message: p.answer}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.router.Close() })
	if p.replay, err = p.router.Bind("tcp://127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	return p
}

// stop makes whoever waits give up.
func (p *publisher) stop() {
	p.mu.Lock()
	p.over = true
	p.mu.Unlock()
	p.moved.Broadcast()
}

// dial is the subscriber's, and counts what it reads.
func (p *publisher) dial(ctx context.Context, network, address string) (net.Conn, error) {
	nc, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	k := new(taking)
	p.mu.Lock()
	p.takes[nc.LocalAddr().String()] = k
	p.mu.Unlock()
	return &counted{nc, p, k}, nil
}

type counted struct {
	net.Conn
	p *publisher
	*taking
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.p.mu.Lock()
	c.bytes += int64(n)
	c.p.mu.Unlock()
	c.p.moved.Broadcast()
	return n, err
}

func (c *counted) Close() error {
	c.p.mu.Lock()
	c.ended = true
	c.p.mu.Unlock()
	c.p.moved.Broadcast()
	return c.Conn.Close()
}

// wait waits until k has taken n bytes. false: it never will.
func (p *publisher) wait(k *taking, n int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for k.bytes < n && !k.ended && !p.over {
		p.moved.Wait()
	}
	return k.bytes >= n
}

var topic = []byte("kv")

// publish sends n messages.
func (p *publisher) publish(n int) {
	var frames [2][]byte
	for range n {
		p.mu.Lock()
		if p.next == 0 {
			p.base = p.live.bytes // greeting and READY
		}
		number, base, live := p.next, p.base, p.live
		p.next++
		p.mu.Unlock()
		frames[0] = binary.BigEndian.AppendUint64(frames[0][:0], number)
		frames[1] = p.message(frames[1][:0], number)
		if err := p.pub.Send(topic, frames[0], frames[1]); err != nil {
			p.t.Error(err)
			return
		}
		p.sent += int64(wireSize(topic, frames[0], frames[1]))
		if number%256 == 0 && !p.wait(live, base+p.sent-ahead) {
			p.t.Error("the subscriber has gone")
			return
		}
	}
}

// taken waits until the subscriber has taken everything.
func (p *publisher) taken() bool { return p.wait(p.live, p.base+p.sent) }

// answer is the replay service.
func (p *publisher) answer(peer *zmtp.Peer, request [][]byte) {
	if len(request) != 2 || len(request[1]) != 8 {
		p.t.Errorf("replay request %x", request)
		return
	}
	n := binary.BigEndian.Uint64(request[1])
	p.mu.Lock()
	k, end := p.takes[peer.Remote], p.next
	due := k.bytes
	p.mu.Unlock()
	if p.buffer > 0 && end > p.buffer {
		n = max(n, end-p.buffer)
	}
	send := func(frames ...[]byte) bool {
		due += int64(wireSize(frames...))
		return p.router.Send(peer.Identity, frames...) == nil
	}
	var frames [2][]byte
	for ; n < end; n++ {
		frames[0] = binary.BigEndian.AppendUint64(frames[0][:0], n)
		frames[1] = p.message(frames[1][:0], n)
		if !send(nil, topic, frames[0], frames[1]) || n%256 == 0 && !p.wait(k, due-ahead) {
			return // not wanted any more
		}
	}
	send(nil, nil, binary.BigEndian.AppendUint64(nil, math.MaxUint64), nil)
}

func wireSize(frames ...[]byte) (n int) {
	for _, f := range frames {
		n += 2 + len(f)
		if len(f) > 255 {
			n += 7
		}
	}
	return n
}

// message appends the payload of message n: small, in vLLM's array form.
func (p *publisher) message(dst []byte, n uint64) []byte {
	dst = binary.BigEndian.AppendUint64(append(dst, 0x93, 0xcb), math.Float64bits(1.7e9+float64(n)*1e-5))
	if n == p.clears && n > 0 {
		dst = append(dst, 0x91, 0x91, 0xa0|16)
		return append(append(dst, "AllBlocksCleared"...), 0)
	}
	removes := n >= heldBlocks && (p.clears == 0 || n < p.clears || n-heldBlocks > p.clears)
	dst = append(dst, 0x91)
	if removes {
		dst[len(dst)-1]++
		dst = append(dst, 0x93, 0xa0|12)
		dst = append(append(dst, "BlockRemoved"...), 0x91, 0xcf)
		dst = append(binary.BigEndian.AppendUint64(dst, uint64(handleOf(n-heldBlocks))), 0xa3, 'G', 'P', 'U')
	}
	dst = append(dst, 0x97, 0xa0|11)
	dst = append(append(dst, "BlockStored"...), 0x91, 0xcf)
	dst = append(binary.BigEndian.AppendUint64(dst, uint64(handleOf(n))), 0xc0, 0xdc, 0, 16)
	for _, t := range tokensOf(n) {
		dst = binary.BigEndian.AppendUint16(append(dst, 0xcd), uint16(t))
	}
	return append(dst, 16, 0xc0, 0xa3, 'G', 'P', 'U', 0)
}

func handleOf(n uint64) kv.Handle { return kv.Handle(n + 1) }

// tokensOf are the tokens of block n, a chain of its own.
func tokensOf(n uint64) (t [16]uint32) {
	for i := range t {
		t[i] = 1000 + uint32(i)
	}
	t[0], t[1] = uint32(n&0xffff), uint32(n>>16)
	return t
}
