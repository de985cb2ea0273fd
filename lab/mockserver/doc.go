// Package mockserver puts a modelled engine (package mock) on real sockets: it
// speaks vLLM's HTTP API and vLLM's KV events over ZeroMQ, with replay, as
// recorded from vLLM 0.32. It stands in for an engine in tests, demos and
// experiments on machines without a GPU; what it can't do, it answers as vLLM
// answers for a feature that is off.
//
//	s, err := modelserver.New(modelserver.Config{Model: "modelled-8b", Profile: model.Profile8B, BlockSize: 16})
//	err = s.Start()                 // binds HTTP, PUB and ROUTER; s.URL(), s.EventsEndpoint(), s.ReplayEndpoint()
//	err = s.Close()
//
// # Parts
//
//	loop.go     the goroutine that owns the model and gives it real time
//	events.go   what the cache did, as vLLM's msgpack (maps since 0.25, arrays before)
//	publish.go  PUB, ROUTER and the replay buffer
//	blocks.go   vLLM's block hashes (sha256_cbor)
//	tokens.go   the built-in tokenizer and chat template
//	http.go, request.go, answer.go, stream.go, metrics.go   the HTTP side
//
// # Output
//
// Output tokens are a function of the prompt (and of the choice's index), so
// equal requests get equal answers, on every engine.
package mockserver
