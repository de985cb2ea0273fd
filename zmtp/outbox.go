package zmtp

import "sync"

const (
	// maxReplies bounds PONGs that wait for a peer which pings and doesn't read.
	maxReplies = 4 << 10
	// writeBatch is how many bytes of small messages go out in one write.
	writeBatch = 32 << 10
	batchLen   = 64
)

// outbox is what waits to be written to one peer: control bytes first, then
// whole encoded messages, which may be shared with other outboxes.
type outbox struct {
	maxLen, maxBytes int
	wake             chan struct{} // cap 1: something was put

	mu      sync.Mutex
	control []byte
	ring    [][]byte // len is a power of two, or 0
	head, n int
	pending int // messages not yet written: n and what the writer holds
	bytes   int // of pending
}

func newOutbox(c *Config) *outbox {
	return &outbox{maxLen: c.QueueLen, maxBytes: c.QueueBytes, wake: make(chan struct{}, 1)}
}

func (o *outbox) signal() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// putControl appends bytes that go before the next message.
func (o *outbox) putControl(write func(b []byte) []byte) {
	o.mu.Lock()
	o.control = write(o.control)
	o.mu.Unlock()
	o.signal()
}

// putReply is putControl for answers that the peer provokes: bounded.
func (o *outbox) putReply(write func(b []byte) []byte) {
	o.mu.Lock()
	if len(o.control) < maxReplies {
		o.control = write(o.control)
	}
	o.mu.Unlock()
	o.signal()
}

// put queues one encoded message, or returns false if the queue is full. A
// single message larger than maxBytes passes when nothing else waits.
func (o *outbox) put(wire []byte) bool {
	o.mu.Lock()
	if o.pending >= o.maxLen || o.pending > 0 && o.bytes+len(wire) > o.maxBytes {
		o.mu.Unlock()
		return false
	}
	if o.n == len(o.ring) {
		bigger := make([][]byte, max(8, 2*len(o.ring)))
		for i := range o.n {
			bigger[i] = o.ring[(o.head+i)&(len(o.ring)-1)]
		}
		o.ring, o.head = bigger, 0
	}
	o.ring[(o.head+o.n)&(len(o.ring)-1)] = wire
	o.n++
	o.pending++
	o.bytes += len(wire)
	o.mu.Unlock()
	o.signal()
	return true
}

// take moves the control bytes and up to batchLen messages to the writer.
func (o *outbox) take(control []byte, batch [][]byte) ([]byte, [][]byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	control = append(control, o.control...)
	o.control = o.control[:0]
	if cap(o.control) > maxReplies {
		o.control = nil
	}
	for o.n > 0 && len(batch) < batchLen {
		batch = append(batch, o.ring[o.head])
		o.ring[o.head] = nil
		o.head = (o.head + 1) & (len(o.ring) - 1)
		o.n--
	}
	if o.n == 0 && len(o.ring) > 1024 {
		o.ring, o.head = nil, 0
	}
	return control, batch
}

// written gives room back for the messages of a batch.
func (o *outbox) written(batch [][]byte) {
	o.mu.Lock()
	o.pending -= len(batch)
	for _, m := range batch {
		o.bytes -= len(m)
	}
	o.mu.Unlock()
}
