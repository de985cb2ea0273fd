package engine

import (
	"context"
	"errors"
	"slices"
	"syscall"
	"time"

	"kvasir/kv"
	"kvasir/zmtp"
)

// A following is a stream with what keeps it going.
type following struct {
	*stream
	source Source
	sub    *zmtp.Sub // nil: a Listener feeds it
	cancel context.CancelFunc
	done   chan struct{}
}

// anyDown reports whether a stream has no connection: its endpoint may have moved.
func (r *Replica) anyDown() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range r.streams {
		if !f.live.Load() {
			return true
		}
	}
	return false
}

// follow makes the streams be those of the sources.
func (r *Replica) follow(i Info) {
	var err error
	if r.cfg.Events != EventsListen { // those come and go with the connections
		err = r.restream(i.Sources)
	}
	r.disownRest(time.Now(), r.cfg.Events != EventsListen && (r.noSource == nil || errors.Is(r.noSource, errNoEvents)))
	why := "the engine doesn't say where this rank publishes its events"
	switch {
	case err != nil:
		why = err.Error()
	case r.cfg.Events == EventsOff:
		why = "events are switched off by configuration"
	case r.cfg.Events == EventsListen:
		why = "the engine has not dialled us yet"
	case r.noSource != nil:
		why = r.noSource.Error()
	}
	r.mu.Lock()
	streamless := make([]bool, len(i.Ranks))
	for n := range streamless {
		streamless[n] = true
	}
	for _, f := range r.streams {
		if n := r.ranks.index(f.rank); n >= 0 && n < len(streamless) {
			streamless[n] = false
		}
	}
	r.mu.Unlock()
	if why == r.blind && slices.Equal(streamless, r.streamless) {
		return
	}
	r.blind, r.streamless = why, streamless
	for rank, alone := range streamless {
		if !alone {
			continue
		}
		r.cfg.Log.Warn("the engine's cache can't be followed", "rank", rank, "reason", why)
		if t := r.hooks.Target(rank); t != kv.NoTarget && r.hooks.Trust != nil {
			r.hooks.Trust(t, kv.Blind, why)
		}
	}
}

// restream stops the streams that no source wants, starts those that are missing,
// and does both where an endpoint has moved. The error is the last one of a start.
func (r *Replica) restream(sources []Source) (err error) {
	want := map[int]Source{}
	for _, s := range sources {
		want[s.Rank] = s
	}
	r.mu.Lock()
	var stop []*following
	for rank, f := range r.streams {
		if w, ok := want[rank]; ok && w == f.source {
			delete(want, rank)
			continue
		}
		stop = append(stop, f)
		delete(r.streams, rank)
	}
	r.mu.Unlock()
	for _, f := range stop {
		r.stop(f)
		f.forget("the engine publishes its events elsewhere, or no more")
	}
	for _, s := range want {
		if e := r.start(s); e != nil {
			err = e
		}
	}
	return err
}

// start follows a source by dialling it.
func (r *Replica) start(src Source) error {
	f := r.newFollowing(src)
	sub, err := zmtp.NewSub(zmtp.SubConfig{
		Config:       r.cfg.ZMTP,
		Message:      func(p *zmtp.Peer, frames [][]byte) { f.message(p.Epoch, frames) },
		Connected:    func(p *zmtp.Peer) { f.connected(p.Epoch) },
		Disconnected: func(p *zmtp.Peer, err error) { f.disconnected(p.Epoch) },
		Retrying: func(endpoint string, err error, wait time.Duration) {
			f.log.Debug("connecting again", "endpoint", endpoint, "error", err, "wait", wait)
			trouble := endpoint + ": " + err.Error()
			if errors.Is(err, syscall.ECONNREFUSED) {
				trouble += " (vLLM binds only an endpoint with * or ::, any other it dials itself; then we have to listen)"
			}
			f.trouble.Store(&trouble)
		},
	})
	if err == nil {
		err = sub.Connect(src.Events)
	}
	if err != nil {
		return err
	}
	f.sub = sub
	if !r.launch(f) {
		sub.Close()
	}
	return nil
}

func (r *Replica) newFollowing(src Source) *following {
	return &following{source: src, done: make(chan struct{}),
		stream: newStream(&r.cfg, &r.hooks, &r.ranks, src.Rank, src.Replay, r.Poll)}
}

// launch starts the applying goroutine. false: Run has ended, or the rank has a
// stream already.
func (r *Replica) launch(f *following) bool {
	r.claims.Lock()
	defer r.claims.Unlock()
	r.mu.Lock()
	if r.run == nil || r.streams[f.source.Rank] != nil {
		r.mu.Unlock()
		return false
	}
	var ctx context.Context
	ctx, f.cancel = context.WithCancel(r.run)
	r.streams[f.source.Rank] = f
	f.tombs = r.tombs.clone()
	k, ok := r.marks[f.source.Rank]
	delete(r.marks, f.source.Rank)
	r.mu.Unlock()
	if ok {
		r.hand(k, f)
	}
	go func() {
		defer close(f.done)
		f.stream.run(ctx)
	}()
	return true
}

// stop ends a stream. Nothing of it runs afterwards.
func (r *Replica) stop(f *following) {
	if f.sub != nil {
		f.sub.Close()
	}
	f.cancel()
	<-f.done
}

func (r *Replica) stopAll() {
	r.mu.Lock()
	streams := r.streams
	r.streams = map[int]*following{}
	r.run = nil
	r.mu.Unlock()
	var ended []StreamMark
	for _, f := range streams {
		r.stop(f)
		if k, ok := f.mark(); ok {
			ended = append(ended, k)
		}
	}
	r.mu.Lock()
	r.ended = ended
	r.mu.Unlock()
	r.client.http.CloseIdleConnections()
}
