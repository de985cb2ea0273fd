// Package zmtp speaks ZMTP 3.1 (and accepts 3.0 peers) with the NULL mechanism
// over tcp and ipc, in pure Go: the four socket types that a KV event stream
// needs. Wire format: https://rfc.zeromq.org/spec/37/ (3.1) and /spec/23/ (3.0).
//
//	Sub     receives an engine's events: dials engines, or lets engines dial it
//	Dealer  asks an engine for a replay: one connection, request and replies
//	Pub     publishes events (modelled engine): bounded queue per subscriber
//	Router  answers replay requests (modelled engine)
//
// # Sub
//
//	sub, err := zmtp.NewSub(zmtp.SubConfig{
//		Topics:       []string{""},                                   // byte prefixes; none means everything
//		Message:      func(p *zmtp.Peer, frames [][]byte) { … },      // frames: valid during the call only
//		Connected:    func(p *zmtp.Peer) { … },                       // p.Epoch is new for every connection
//		Disconnected: func(p *zmtp.Peer, err error) { … },            // once for each Connected
//		Retrying:     func(endpoint string, err error, wait time.Duration) { … },
//	})
//	err = sub.Connect("tcp://10.0.0.5:5557")      // any number of engines; reconnects for ever
//	err = sub.Disconnect("tcp://10.0.0.5:5557")
//	at, err := sub.Bind("tcp://*:5557")           // engines dial us; at = the address really bound
//	err = sub.Subscribe("kv@")                    // also while connected
//	err = sub.Close()                             // waits: no callback runs after it returned
//
// Message runs on the connection's own goroutine, in the order of the wire;
// Connected comes before the first Message of that connection and Disconnected
// after the last. Different connections call concurrently. A Message that
// blocks stalls that connection only (heartbeats go on being sent, and the
// silence limit does not run), but the publisher then drops at its high-water
// mark: hand over to a bounded ring and return.
//
// The frames alias the connection's read buffer. They are valid until Message
// returns and may be changed in place; copy what must live longer.
//
// A Peer is one connection, not one address. Peer.Data belongs to the caller:
// set it in Connected, read it in Message, without a map or a lock. With one
// Sub per engine the closure does the same. Do not call Close, Disconnect from
// inside a callback: they wait for it. Peer.Close is fine anywhere: it drops
// this connection (a dialled one is then dialled again).
//
// # Dealer
//
//	d, err := zmtp.DialDealer(ctx, zmtp.Config{}, "tcp://10.0.0.5:5558")
//	err = d.Send(nil, seq8)                       // never blocks; a leading nil frame is the empty delimiter
//	frames, err := d.Recv(ctx)                    // valid until the next Recv; without identity, with delimiter
//	err = d.Close()
//
// A Dealer is one connection and never reconnects: a broken replay is asked
// for again on a new one. A Recv that ends by ctx loses nothing, the next Recv
// goes on in the middle of the message.
//
// # Pub and Router
//
//	pub, err := zmtp.NewPub(zmtp.PubConfig{QueueLen: 100_000})
//	at, err := pub.Bind("tcp://127.0.0.1:0")      // at = "tcp://127.0.0.1:41733"
//	err = pub.Connect("tcp://router:5557")        // the engine dials in
//	err = pub.Send(topic, seq8, payload)          // copies; never blocks; drops for a subscriber whose queue is full
//	pub.Dropped()                                 // messages dropped, all subscribers
//	pub.Close()
//
//	rt, err := zmtp.NewRouter(zmtp.RouterConfig{
//		Message: func(p *zmtp.Peer, frames [][]byte) { rt.Send(p.Identity, nil, seq8, payload) },
//	})
//	at, err := rt.Bind("tcp://127.0.0.1:0")
//	err = rt.Send(identity, frames...)            // ErrNoPeer, ErrQueueFull; frames without the identity
//	rt.Close()
//
// # Time, chance, sockets
//
// Config.Dial and Config.Listen replace the network (net.Pipe under
// testing/synctest), Config.Jitter the chance. Time is package time, so a
// synctest bubble is the fake clock.
//
// # Limits
//
// Everything that a peer says is bounded before it is stored: Config.MaxFrame,
// MaxMessage, MaxParts, MaxPeers, PubConfig.MaxSubscriptions. Memory grows with the
// bytes that arrived, never with a length that was claimed. A peer that breaks
// the protocol costs its own connection, with a *ProtocolError; nothing panics.
// A connection has two goroutines and a read buffer that starts at 2 KB, is
// normally 28 KB, and grows and shrinks back with large messages.
package zmtp
