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
//	m.Discard(why, now)                         // likewise, but forget at once
//	k, ok := m.Mark(); m.Resume(k)              // a later Machine goes on from a snapshot: before Opened
//
// What is seen and what is done, "replay" meaning that the publisher has a
// replay service and that it answers:
//
//	first connection      replay from 0; live batches wait. Without: from the first live batch on
//	new connection        replay from our last batch: the same batch (by its time) proves the same
//	                      process, the rest is what was missed. Another one, or none: a restart.
//	                      Without: proven once the next number fits and Process says the same start
//	                      time; if that isn't told in time, forgotten
//	number == expected    apply
//	number >  expected    gap: replay from our last batch, live batches wait. Without: forget, go on,
//	                      since nobody will ever tell what was removed in between
//	number <  expected    on a new connection, or younger than our last batch: a restart; else a duplicate
//	restart               forget, then as on the first connection
//	replay too short      forget, go on from where its buffer begins: believed is what can be known
//	replay has a hole     ask again, twice; then as too short
//	replay not answered   live batches go on, stale; a refill (from 0) is tried again with back-off,
//	                      and forgets when its first answer comes, not before
//	replay broken off     continued from where it was, as long as it brings something new
//	live batches too many bounded by number and bytes; what found no room is asked for afterwards
//	resumed               as on a new connection, but what can't be shown is forgotten: a replay that
//	                      fails, a connection that doesn't come; without a replay service, a number
//	                      that doesn't fit, or an engine that doesn't tell when its process began
//	silence               replay from our last batch, now and then: a publisher drops for a slow
//	                      subscriber, and the last batch before a silence has no successor to show it
//
// Trust: exact after a replay from 0, or a first live batch 0, or a clear; filling
// where history is unknown but nothing was lost since, and until what was resumed
// has been confirmed; stale where removals may be missing, while a replay runs that
// decides it, and while the connection is down; blind when it stays down.
//
// The rules on gaps and restarts follow what vLLM's publisher does
// (vllm/distributed/kv_events.py): one counter per process and rank from 0, a buffer of
// the last batches, no sign of its truncation, no epoch on the wire.
//
// Whatever the network does, each sequence number of a publisher process is
// applied at most once and in ascending order, and Exact is reported only while
// every batch since the process's start (or since a clear) has been applied.
package seq
