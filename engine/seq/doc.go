// Package seq is the sequence machine of one publisher of KV events (one rank of
// one replica): a pure state machine without clock, goroutine or socket. It
// takes what arrived and what time it is, and says through a Sink what to
// apply, what to forget, what to ask the replay service for, and how far the
// result can be trusted.
//
//	m := seq.New(seq.Config{Replay: true}, sink)
//	m.Connected(epoch, now)                     // the subscription stands; a new epoch for each connection
//	m.Live(epoch, seq.Batch{Seq: 7, Time: ts, Body: payload}, now)
//	m.Disconnected(epoch, now)
//	m.Replayed(token, batch, now)               // answers to Sink.Replay(token, from)
//	m.ReplayEnd(token, now); m.ReplayFailed(token, err, now)
//	m.Tick(now); m.Deadline()                   // time-outs and back-off
//	m.Process(start, now)                       // when the publisher's process began, by its metrics
//	m.Emptied(why, now)                         // the cache is known to be empty
//	m.Dropped(epoch, seq, now)                  // the ring overflowed up to seq
//	m.Refill(why, now)                          // forget, and fill again
//
// Whatever the network does, each sequence number of a publisher process is
// applied at most once and in ascending order, and Exact is reported only while
// every batch since the process's start (or since a clear) has been applied.
package seq
