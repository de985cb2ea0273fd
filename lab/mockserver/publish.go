package mockserver

import (
	"encoding/binary"
	"sync"

	"kvasir/zmtp"
)

// A publisher sends batches and keeps the last ones for replay, as vLLM's
// ZmqEventPublisher does: three frames (topic, sequence, payload); a replay is
// asked for with ["", seq] and answered by ["", topic, seq, payload]... and
// ["", "", -1, ""].
type publisher struct {
	topic []byte
	pub   *zmtp.Pub
	reply *zmtp.Router

	mu   sync.Mutex
	seq  uint64   // guarded by mu; of the next batch
	keep [][]byte // guarded by mu; ring of payloads, batch s at s % len
	old  bool     // replays without topic, as before 0.28
}

const endOfReplay = ^uint64(0)

func newPublisher(topic string, keep int, oldReplay bool) (*publisher, error) {
	p := &publisher{topic: []byte(topic), keep: make([][]byte, keep), old: oldReplay}
	var err error
	// vLLM's sockets send no heartbeats.
	if p.pub, err = zmtp.NewPub(zmtp.PubConfig{Config: zmtp.Config{QueueLen: 100_000, Heartbeat: -1}}); err != nil {
		return nil, err
	}
	p.reply, err = zmtp.NewRouter(zmtp.RouterConfig{
		Config:  zmtp.Config{QueueLen: keep + 16, Heartbeat: -1},
		Message: p.replay,
	})
	if err != nil {
		p.pub.Close()
		return nil, err
	}
	return p, nil
}

// send publishes one payload and takes it. With lose it uses up its number and
// is kept for replay, but is not sent.
func (p *publisher) send(payload []byte, lose bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var seq [8]byte
	binary.BigEndian.PutUint64(seq[:], p.seq)
	if len(p.keep) > 0 {
		p.keep[p.seq%uint64(len(p.keep))] = payload
	}
	p.seq++
	if !lose {
		_ = p.pub.Send(p.topic, seq[:], payload) // a slow subscriber loses it, as with libzmq
	}
}

// replay answers one peer. Requests of another shape are not answered, as in vLLM.
func (p *publisher) replay(peer *zmtp.Peer, frames [][]byte) {
	if len(frames) != 2 || len(frames[0]) != 0 || len(frames[1]) > 8 {
		return
	}
	var from uint64
	for _, c := range frames[1] {
		from = from<<8 | uint64(c)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if oldest := p.seq - min(p.seq, uint64(len(p.keep))); from < oldest {
		from = oldest
	}
	var seq [8]byte
	for ; from < p.seq; from++ {
		binary.BigEndian.PutUint64(seq[:], from)
		p.answer(peer.Identity, p.topic, seq[:], p.keep[from%uint64(len(p.keep))])
	}
	binary.BigEndian.PutUint64(seq[:], endOfReplay)
	p.answer(peer.Identity, nil, seq[:], nil)
}

func (p *publisher) answer(to string, topic, seq, payload []byte) {
	if p.old {
		_ = p.reply.Send(to, nil, seq, payload) // a peer that has gone needs none
		return
	}
	_ = p.reply.Send(to, nil, topic, seq, payload)
}

func (p *publisher) close() {
	p.pub.Close()
	p.reply.Close()
}
