package engine

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync/atomic"

	"kvasir/engine/seq"
	"kvasir/engine/wire"
	"kvasir/zmtp"
)

// Replay is seq.Sink's: it asks for a replay on a connection of its own.
func (s *stream) Replay(token int, from uint64) {
	s.stopReplay()
	ctx, cancel := context.WithCancel(s.ctx)
	s.cancel = cancel
	s.replies = newReplies()
	s.log.Debug("replay", "from", from)
	go replay(ctx, s.cfg.ZMTP, s.replay, token, from, s.replies)
}

// Cancel is seq.Sink's.
func (s *stream) Cancel(token int) { s.stopReplay() }

// replies are the answers of one replay on their way to the stream, bounded in
// number and bytes: whoever reads the socket waits when the stream is slow.
type replies struct {
	c     chan reply
	bytes atomic.Int64
	room  chan struct{} // has room for one
}

const (
	maxReplies    = 1024
	maxReplyBytes = 32 << 20 // one answer may be larger if it is alone
)

func newReplies() *replies {
	return &replies{c: make(chan reply, maxReplies), room: make(chan struct{}, 1)}
}

func (q *replies) put(ctx context.Context, r reply) bool {
	n := int64(len(r.batch.Body))
	for q.bytes.Load() > 0 && q.bytes.Load()+n > maxReplyBytes {
		select {
		case <-q.room:
		case <-ctx.Done():
			return false
		}
	}
	q.bytes.Add(n)
	select {
	case q.c <- r:
		return true
	case <-ctx.Done():
		return false
	}
}

// took returns the room of an answer that was received from c.
func (q *replies) took(r reply) {
	q.bytes.Add(-int64(len(r.batch.Body)))
	select {
	case q.room <- struct{}{}:
	default:
	}
}

// channel is c, nil for no replay.
func (q *replies) channel() chan reply {
	if q == nil {
		return nil
	}
	return q.c
}

func (s *stream) stopReplay() {
	if s.cancel != nil {
		s.cancel()
		s.cancel, s.replies = nil, nil
	}
}

// replay asks the service at endpoint for the batches from one number on and
// passes the answers to out, then their end or an error. It has no time-out of its
// own, but ends with ctx. A slow receiver makes the service wait.
//
// Protocol: vLLM's ROUTER takes ["", 8 bytes big-endian] and answers
// ["", topic, seq, payload] (without topic before 0.28) for each batch that it still has,
// then ["", "", ff*8, ""]. A malformed request is not answered at all.
func replay(ctx context.Context, cfg zmtp.Config, endpoint string, token int, from uint64, out *replies) {
	send := func(r reply) bool {
		r.token = token
		return out.put(ctx, r)
	}
	d, err := zmtp.DialDealer(ctx, cfg, endpoint)
	if err != nil {
		send(reply{err: err})
		return
	}
	defer d.Close()
	if err := d.Send(nil, binary.BigEndian.AppendUint64(nil, from)); err != nil {
		send(reply{err: err})
		return
	}
	for {
		frames, err := d.Recv(ctx)
		if err != nil {
			send(reply{err: err})
			return
		}
		n, payload, end, ok := replayFrames(frames)
		switch {
		case end:
			send(reply{end: true})
			return
		case !ok:
			send(reply{err: fmt.Errorf("%d frames without a sequence number", len(frames))})
			return
		}
		body := append([]byte(nil), payload...)
		if !send(reply{batch: seq.Batch{Seq: n, Time: wire.PeekTime(body), Body: body}}) {
			return
		}
	}
}
