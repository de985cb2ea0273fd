package engine

import "sync"

// An entryKind says what an entry of the ring is.
type entryKind uint8

const (
	gotBatch      entryKind = iota // a message with a sequence number
	gotPlain                       // a message without one
	connected                      // of epoch
	disconnected                   // of epoch
	gotUnreadable                  // a message whose frames make no sense
)

// An entry is one thing that happened on a connection, in the order of the wire.
type entry struct {
	kind  entryKind
	epoch uint64
	seq   uint64
	from  int // the payload is buf[from:to]
	to    int
}

// A load is what the ring hands over at once.
type load struct {
	entries []entry
	buf     []byte

	// Messages that found no room, after all entries.
	dropped      uint64
	droppedEpoch uint64
	droppedSeq   uint64 // highest sequence number among them
}

// A ring lies between the goroutine that reads a connection and the one that
// applies. The reader never waits: what finds no room is counted and dropped,
// and the sequence machine asks for it again. Two loads take turns: one is
// filled while the other is worked through, so that a message costs one copy
// and no allocation.
type ring struct {
	maxMessages int
	maxBytes    int
	wake        chan struct{} // has room for one; a token means that there may be something

	mu       sync.Mutex
	front    load
	messages int    // in front
	drops    uint64 // in all
}

func newRing(messages, bytes int) *ring {
	return &ring{maxMessages: messages, maxBytes: bytes, wake: make(chan struct{}, 1)}
}

// put appends an entry; payload is copied. Changes of the connection always find room.
func (r *ring) put(kind entryKind, epoch, seq uint64, payload []byte) {
	r.mu.Lock()
	f := &r.front
	message := kind == gotBatch || kind == gotPlain || kind == gotUnreadable
	if message && (r.messages >= r.maxMessages || len(f.buf)+len(payload) > r.maxBytes) {
		if f.dropped == 0 || f.droppedEpoch != epoch {
			f.droppedSeq = seq
		}
		f.droppedEpoch = epoch
		f.droppedSeq = max(f.droppedSeq, seq)
		f.dropped++
		r.drops++
		r.mu.Unlock()
		return // whoever filled the ring has woken the other side
	}
	from := len(f.buf)
	f.buf = append(f.buf, payload...)
	f.entries = append(f.entries, entry{kind: kind, epoch: epoch, seq: seq, from: from, to: len(f.buf)})
	if message {
		r.messages++
	}
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// idleBytes is the memory that an empty load keeps.
const idleBytes = 4 << 10

// take returns what there is and gives the caller's old load back for filling.
// The result is empty if there is nothing.
func (r *ring) take(old load) load {
	if cap(old.buf) > idleBytes && len(old.buf) < cap(old.buf)/4 {
		old.buf = nil // was needed once
	}
	if cap(old.entries) > 256 && len(old.entries) < cap(old.entries)/4 {
		old.entries = nil
	}
	old.entries, old.buf, old.dropped = old.entries[:0], old.buf[:0], 0
	r.mu.Lock()
	full := r.front
	r.front = old
	r.messages = 0
	r.mu.Unlock()
	return full
}

// dropCount returns how many messages found no room, in all.
func (r *ring) dropCount() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.drops
}
