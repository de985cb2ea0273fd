// Package wire turns the payload of a KV event message into kv.Events.
//
//	d := wire.Decoder{Seed: seed}
//	b, err := d.Decode(payload)   // b.Time, b.Rank, b.Events; valid until the next Decode
//	for i := range b.Events {
//		b.Events[i].Target = target(b.Rank)
//		apply(&b.Events[i])
//	}
//	d.Release()                   // when idle: gives the scratch memory back
//
// A payload is one msgpack value, the batch: an array [time, events, rank] or a
// map with the keys ts, events, data_parallel_rank. Each event is an array
// (tag first, fields by position) or a map (key "type"); the form is detected
// for each event by its first byte, never by a version. Arrays may be shorter
// or longer than we know them, maps may have keys that we don't know.
//
// Layouts: vLLM vllm/distributed/kv_events.py since 0.9, SGLang
// disaggregation/kv_events.py, TensorRT-LLM _torch/pyexecutor/kv_cache_events.py
// and llm-d-inference-sim (docs/engines.md, "Events"), and recordings of vLLM 0.32; AMD ATOM (BlockTransferred).
//
// Most events look like one before but for their lists. Those are compared with
// it, not parsed (shape.go): 22 instead of 47 ns a block, or half of what an event of
// one block costs.
//
// # What costs what
//
// An event that can't be understood costs itself only, and is counted. Which
// kind it was matters to the trust in what we know, so a Batch says it: a store
// that was not understood means that we know less than there is (Missed), a
// removal that was not understood means that we may believe too much (Lost).
// Only a payload that is no batch, or that ends too early, is an error.
//
// A removal doesn't say of which kind its group is; the Decoder remembers it from
// the group's stores, so one Decoder has to see all of a publisher. A dense store
// whose content nobody can know (no token ids, tokens that don't fill the blocks,
// extra keys that fit no block) comes without Tokens: it names its blocks only.
//
// Memory is bounded by the payload's size: a header that claims more elements
// than bytes are left is malformed. Nothing recurses.
package wire
