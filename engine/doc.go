// Package engine follows the replicas of LLM engines (vLLM, SGLang,
// TensorRT-LLM, llm-d's simulator): what they are, how busy they are, and what
// is in their caches. It emits kv.Event; it knows neither index nor scheduler,
// it is handed functions.
//
//	r, err := engine.New(engine.Config{URL: "http://10.0.0.1:8000"}, engine.Hooks{
//		Target: func(rank int) kv.Target { … },                 // the number of a rank, once it is known
//		Apply:  func(e *kv.Event) { … },                        // in order per target; e is ours again on return
//		Trust:  func(t kv.Target, s kv.Trust, why string) { … },
//		Info:   func(i engine.Info) { … },                      // models, block size, load of each rank, …
//		Up:     func() { … },
//		Down:   func(err error) { … },
//	})
//	r.Run(ctx)                 // until ctx ends: polls, subscribes, replays, retries for ever
//	r.Refill(rank, "drift")    // forget the rank and fill it again by replay
//	r.Poll()                   // look at models and sources now (after a 404 for a model)
//
// "Forget everything about this target" is an ordinary event on the same
// ordered path: kv.Event{Kind: Cleared, AllTiers: true}.
//
// # Parts
//
//	engine/wire   bytes -> kv.Event, every dialect, detected per event
//	engine/seq    the sequence machine of one publisher: attach, gap, duplicate, restart, replay; pure
//	ring.go       between the socket and the index: bounded, so that the socket is always drained
//	stream.go     one publisher: ring -> seq -> wire -> Apply, and its replays (sink.go, replay.go)
//	info.go       HTTP: models, version, load (metrics.go), where the events are (sources.go)
//	resume.go     where the streams stand, for a warm restart
//	adapter.go    an adapter that an engine has no more
//	replica.go    the supervisor of one replica, and its streams (follow.go)
//	listen.go     the other topology: engines dial us
//	eventbench    what an event costs, from the wire on
//
// # Goroutines
//
// A Replica has one goroutine that polls and, per rank, one that applies;
// package zmtp has those that read. A replay has one more while it lasts.
package engine
