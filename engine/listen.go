package engine

import (
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"strings"

	"kvasir/engine/wire"
	"kvasir/zmtp"
)

// ListenConfig is a Listener's. Bind and Identify are required.
type ListenConfig struct {
	Bind string // tcp://*:5557
	// Identify says whose connection it is, from the peer's address (ip:port) and
	// the topic of its first message; nil: nobody's. See Among.
	Identify func(remote, topic string) *Replica
	ZMTP     zmtp.Config
	Log      *slog.Logger // default: nowhere
}

// A Listener is the other topology: engines whose event endpoint is ours dial
// us (vLLM does when the endpoint has no wildcard). Its replicas have
// EventsListen. Each connection belongs to one rank, which its first batch tells;
// identity comes from the connection, then from the topic.
type Listener struct {
	Addr string // the endpoint that was really bound

	cfg ListenConfig
	sub *zmtp.Sub
}

// Listen binds. A replica must not be fed by more than one Listener.
func Listen(cfg ListenConfig) (*Listener, error) {
	if cfg.Identify == nil {
		return nil, errors.New("engine: ListenConfig.Identify is required")
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	l := &Listener{cfg: cfg}
	var err error
	l.sub, err = zmtp.NewSub(zmtp.SubConfig{
		Config:  cfg.ZMTP,
		Message: l.message,
		Disconnected: func(p *zmtp.Peer, err error) {
			if f, ok := p.Data.(*following); ok {
				f.disconnected(p.Epoch)
			}
		},
	})
	if err != nil {
		return nil, err
	}
	if l.Addr, err = l.sub.Bind(cfg.Bind); err != nil {
		return nil, err
	}
	return l, nil
}

// Close ends all connections.
func (l *Listener) Close() error { return l.sub.Close() }

func (l *Listener) message(p *zmtp.Peer, frames [][]byte) {
	f, ok := p.Data.(*following)
	if !ok {
		if f = l.identify(p, frames); f == nil {
			p.Close() // it dials again, and may be known by then
			return
		}
		p.Data = f
		f.connected(p.Epoch)
	}
	f.message(p.Epoch, frames)
}

// identify finds the stream that a new connection feeds.
func (l *Listener) identify(p *zmtp.Peer, frames [][]byte) *following {
	_, topic, _, payload := liveFrames(frames)
	r := l.cfg.Identify(p.Remote, string(topic))
	if r == nil {
		l.cfg.Log.Warn("events of an unknown engine", "remote", p.Remote, "topic", string(topic))
		return nil
	}
	rank := wire.PeekRank(payload)
	if rank == wire.NoRank {
		rank = 0
	}
	f, err := r.admit(rank)
	if err != nil {
		l.cfg.Log.Warn("events refused", "replica", r.Name(), "rank", rank, "remote", p.Remote, "error", err)
		return nil
	}
	return f
}

var (
	errNotListening = errors.New("this replica's events are configured otherwise")
	errNotUp        = errors.New("the replica does not answer yet")
)

// admit returns the stream of a rank for a connection that came in.
func (r *Replica) admit(rank int) (*following, error) {
	if r.cfg.Events != EventsListen {
		return nil, errNotListening
	}
	if !r.upNow.Load() {
		return nil, errNotUp
	}
	src := Source{Rank: rank}
	for _, s := range r.Info().Sources {
		if s.Rank == rank {
			src.Replay = s.Replay
		}
	}
	if r.cfg.Replay != "" {
		var err error
		if src.Replay, err = endpointOfRank(r.cfg.Replay, max(0, r.ranks.index(rank))); err != nil {
			return nil, err
		}
	}
	r.mu.Lock()
	f := r.streams[rank]
	r.mu.Unlock()
	if f != nil {
		return f, nil
	}
	f = r.newFollowing(src)
	if !r.launch(f) {
		return nil, errNotUp
	}
	return f, nil
}

// Among identifies connections among replicas: by the peer's address if one
// replica only is there, else by the topic, which then names host:port of the
// replica's URL, or its name, between its first two @ (llm-d: kv@host:port@model).
func Among(replicas func() []*Replica) func(remote, topic string) *Replica {
	return func(remote, topic string) *Replica {
		all := replicas()
		var here []*Replica
		for _, r := range all {
			if sameHost(r.url.Hostname(), remote) {
				here = append(here, r)
			}
		}
		if len(here) == 1 {
			return here[0]
		}
		if len(here) == 0 {
			here = all // behind a translation of addresses
		}
		source, _, _ := SplitTopic(topic)
		for _, r := range here {
			if source == r.url.Host || source == r.cfg.Name || topic == r.cfg.Name {
				return r
			}
		}
		return nil
	}
}

// SplitTopic takes a topic of llm-d's form kv@source@model apart. The model may
// have an @ itself.
func SplitTopic(topic string) (source, model string, ok bool) {
	rest, ok := strings.CutPrefix(topic, "kv@")
	if !ok {
		return "", "", false
	}
	return strings.Cut(rest, "@")
}

// sameHost compares the host of a URL with ip:port.
func sameHost(host, remote string) bool {
	h, _, err := net.SplitHostPort(remote)
	if err != nil {
		h = remote
	}
	a, err := netip.ParseAddr(h)
	if err != nil {
		return h == host
	}
	if host == "localhost" {
		return a.Unmap().IsLoopback()
	}
	b, err := netip.ParseAddr(host)
	return err == nil && a.Unmap().WithZone("") == b.Unmap().WithZone("")
}
