package engine

import (
	"context"
	"encoding/binary"
	"fmt"

	"kvasir/engine/seq"
	"kvasir/engine/wire"
	"kvasir/zmtp"
)

// Replay is seq.Sink's: it asks for a replay on a connection of its own.
func (s *stream) Replay(token int, from uint64) {
	s.stopReplay()
	ctx, cancel := context.WithCancel(s.ctx)
	s.cancel = cancel
	s.replies = make(chan reply, 1024)
	s.log.Debug("replay", "from", from)
	go replay(ctx, s.cfg.ZMTP, s.replay, token, from, s.replies)
}

// Cancel is seq.Sink's.
func (s *stream) Cancel(token int) { s.stopReplay() }

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
func replay(ctx context.Context, cfg zmtp.Config, endpoint string, token int, from uint64, out chan<- reply) {
	send := func(r reply) bool {
		r.token = token
		select {
		case out <- r:
			return true
		case <-ctx.Done():
			return false
		}
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
