package wire

import (
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"

	"kvasir/kv"
)

// TestLiberal is what engines, forks and attackers send, and what we make of it.
func TestLiberal(t *testing.T) {
	good := store(list{9}, nil, tokens(1, 2), 2)
	const goodShown = "stored(gpu/0 root<-[9] tokens=[1 2] bs=2)"
	for _, c := range []struct {
		name    string
		payload []byte
		want    string
	}{
		{"F16: one block under three spellings", batch(
			store(list{uint64(17080687294271316042), -5, make([]byte, 32)}, make([]byte, 32), tokens(1, 3), 1),
			kvs{"type", "BlockRemoved", "block_hashes", list{uint64(0xfffffffffffffffb), make([]byte, 32)}, "medium", "GPU"}),
			"time=1.5 rank=0 stored(gpu/0 root<-[ed0aca98c691e04a fffffffffffffffb 0] tokens=[1 2 3] bs=1) removed(gpu/0 [fffffffffffffffb 0])"},
		{"negative of every width", batch(kvs{"type", "BlockRemoved", "block_hashes", list{-1, raw{0xd0, 0xff}, raw{0xd1, 0xff, 0xff}, raw{0xd2, 0xff, 0xff, 0xff, 0xff}, uint64(1<<64 - 1)}}),
			"time=1.5 rank=0 removed(gpu/0 [ffffffffffffffff ffffffffffffffff ffffffffffffffff ffffffffffffffff ffffffffffffffff])"},
		{"a hash of 3 bytes", batch(kvs{"type", "BlockRemoved", "block_hashes", list{[]byte{1, 2, 3}}}), "time=1.5 rank=0 removed(gpu/0 [10203])"},
		{"an unknown event costs itself", batch(kvs{"type", "BlockInactive", "block_hashes", kvs{}}, good, list{"LoadStat", 1, 2}, 7),
			"time=1.5 rank=0 " + goodShown + " unknown=3 malformed=0 misaligned=0 opaque=0 badrank=0"},
		{"the type comes last, and keys that we don't know", batch(kvs{"lookahead_token_ids", list{1}, 5, 6, "block_hashes", list{9}, "parent_block_hash", nil, "token_ids", tokens(1, 2), "block_size", 2, "type", "BlockStored"}),
			"time=1.5 rank=0 " + goodShown},
		{"a longer array", batch(list{"BlockStored", list{9}, nil, tokens(1, 2), 2, nil, "GPU", nil, nil, 0, nil, nil, "new", list{1}}), "time=1.5 rank=0 " + goodShown},
		{"SGLang's metadata where vLLM has the adapter", batch(list{"BlockStored", list{9}, nil, tokens(1, 2), 2, nil, "GPU", kvs{"cache_salt", "s", "session_id", "x"}}),
			`time=1.5 rank=0 stored(gpu/0 root<-[9] tokens=[1 2] bs=2 key=""/""/"s")`},
		{"nested metadata in a map", batch(append(good, "metadata", kvs{"x", list{}, "cache_salt", "s"})), `time=1.5 rank=0 stored(gpu/0 root<-[9] tokens=[1 2] bs=2 key=""/""/"s")`},
		{"llm-d: no parent is 0", batch(list{"BlockStored", list{9}, 0, tokens(1, 2), 2}), "time=1.5 rank=0 " + goodShown},
		{"lora_id without a name", batch(list{"BlockStored", list{9}, nil, tokens(1, 2), 2, 3}), `time=1.5 rank=0 stored(gpu/0 root<-[9] tokens=[1 2] bs=2 key=""/"\x00lora_id=3"/"")`},
		{"F34: adapter and salt of the same name", batch(store(list{9}, nil, tokens(1, 2), 2, "lora_name", "abc", "extra_keys", list{list{"abc", "abc"}})),
			`time=1.5 rank=0 stored(gpu/0 root<-[9] tokens=[1 2] bs=2 key=""/"abc"/"abc")`},
		{"a salt only", batch(store(list{9, 10}, nil, tokens(1, 4), 2, "extra_keys", list{list{"abc"}, nil})), `time=1.5 rank=0 stored(gpu/0 root<-[9 a] tokens=[1 2 3 4] bs=2 key=""/""/"abc")`},
		{"tagged keys", batch(store(list{9}, nil, tokens(1, 2), 2, "lora_name", "abc", "extra_keys", list{list{list{"lora", "abc", "/path"}, list{"mm", "h1", 1}, list{"cache_salt", "s"}}})),
			`time=1.5 rank=0 stored(gpu/0 root<-[9] tokens=[1 2] bs=2 key=""/"abc"/"s" extra=0:"h1"@1)`},
		{"F35: images; a bare hash is no salt behind the first block", batch(store(list{9, 10, 11}, 8, tokens(1, 6), 2, "extra_keys", list{list{list{"h1", -3}, list{"h2", 1}}, nil, list{"h2"}})),
			`time=1.5 rank=0 stored(gpu/0 8<-[9 a b] tokens=[1 2 3 4 5 6] bs=2 extra=0:"h1"@-3 extra=0:"h2"@1 extra=2:"h2"@0)`},
		{"a bare hash before the salt", batch(store(list{9}, nil, tokens(1, 2), 2, "extra_keys", list{list{"h1", "s"}})),
			`time=1.5 rank=0 stored(gpu/0 root<-[9] tokens=[1 2] bs=2 key=""/""/"s" extra=0:"h1"@0)`},
		{"embeddings, and a key that we don't know", batch(store(list{9}, nil, tokens(1, 2), 2, "extra_keys", list{list{[]byte{1, 2}, 7}})),
			`time=1.5 rank=0 stored(gpu/0 root<-[9] tokens=[1 2] bs=2 extra=0:"embeds:\x01\x02"@0 extra=0:"unknown:\a"@0)`},
		{"extra keys that fit no block", batch(store(list{9, 10}, nil, tokens(1, 4), 2, "extra_keys", list{list{"s"}})),
			"time=1.5 rank=0 missed=1 lost=0 stored(gpu/0 root<-[9 a] tokens=[] bs=2) unknown=0 malformed=0 misaligned=1 opaque=0 badrank=0"},
		{"TensorRT-LLM: tokens that are strings, and where an item continues", batch(store(list{9, 10}, nil, list{1, "h2", 3, 4}, 2, "mm_keys", list{nil, list{kvs{"type", "mm_key", "hash", "h1", "start_offset", 2, "uuid", "u"}}})),
			`time=1.5 rank=0 stored(gpu/0 root<-[9 a] tokens=[1 4294967295 3 4] bs=2 extra=0:"h2"@1 extra=1:"h1"@-2)`},
		{"F06: a partial block has no content for us", batch(store(list{9}, nil, tokens(1, 3), 4)),
			"time=1.5 rank=0 missed=1 lost=0 stored(gpu/0 root<-[9] tokens=[] bs=4) unknown=0 malformed=0 misaligned=1 opaque=0 badrank=0"},
		{"F22: no token ids", batch(store(list{9, 10}, nil, nil, 4)),
			"time=1.5 rank=0 missed=1 lost=0 stored(gpu/0 root<-[9 a] tokens=[] bs=4) unknown=0 malformed=0 misaligned=0 opaque=1 badrank=0"},
		{"F08: a chunk of a lower tier with all hashes in it", batch(kvs{"type", "BlockStored", "block_hashes", list{9, 10}, "parent_block_hash", 8, "token_ids", tokens(1, 4), "block_size", 4, "medium", "cpu"}),
			"time=1.5 rank=0 stored(host/0 8<-[9 a] tokens=[] bs=4) unknown=0 malformed=0 misaligned=1 opaque=0 badrank=0"},
		{"F02: sparse groups keep their tokens to themselves", batch(
			store(list{9, 10}, nil, tokens(1, 4), 1, "group_idx", 2, "kv_cache_spec_kind", "mamba"),
			kvs{"type", "BlockRemoved", "block_hashes", list{9}, "medium", "GPU", "group_idx", 2},
			kvs{"type", "BlockRemoved", "block_hashes", list{9}, "medium", "GPU", "group_idx", 0}),
			"time=1.5 rank=0 stored(gpu/2/sparse root<-[9 a] tokens=[1 2 3 4] bs=1) removed(gpu/2/sparse [9]) removed(gpu/0 [9])"},
		{"removals of one kind are one event", batch(
			kvs{"type", "BlockRemoved", "block_hashes", list{1}, "medium", "GPU", "group_idx", 0},
			kvs{"type", "BlockRemoved", "block_hashes", list{2, 3}, "medium", nil},
			kvs{"type", "BlockRemoved", "block_hashes", list{4}, "medium", "CPU"},
			good,
			list{"BlockRemoved", list{5}, "CPU", 0}),
			"time=1.5 rank=0 removed(gpu/0 [1 2 3]) removed(host/0 [4]) " + goodShown + " removed(host/0 [5])"},
		{"remaining copies", batch(kvs{"type", "BlockRemoved", "block_hashes", list{1, 2}, "remaining_copy_counts", list{3, 0}}, kvs{"type", "BlockRemoved", "block_hashes", list{1, 2}, "remaining_copy_counts", list{3}}),
			"time=1.5 rank=0 removed(gpu/0 [1 2] copies=[3 0]) removed(gpu/0 [1 2])"},
		{"reused", batch(append(good, "origin", "REUSED")), "time=1.5 rank=0 stored(gpu/0 root<-[9] tokens=[1 2] bs=2 reused)"},
		{"mediums", batch(
			kvs{"type", "AllBlocksCleared", "medium", "SHARED_STORAGE"}, kvs{"type", "AllBlocksCleared", "medium", "cuda:0"}, kvs{"type", "AllBlocksCleared", "medium", "external"}, list{"AllBlocksCleared", "cpu_pinned"}),
			"time=1.5 rank=0 cleared(disk) cleared(gpu) cleared(disk) cleared(host)"},
		{"SGLang: CPU_TIER1 is memory, CPU_TIER2 storage", batch(list{"AllBlocksCleared", "CPU_TIER1"}, list{"AllBlocksCleared", "CPU_TIER2"}), "time=1.5 rank=0 cleared(host) cleared(disk)"},
		{"ATOM: blocks move, by name", batch(list{"BlockTransferred", list{8, 9}, "GPU", "CPU"}, kvs{"type", "BlockTransferred", "block_hashes", list{9}, "from_medium", "DISK", "to_medium", "REMOTE"}, good),
			"time=1.5 rank=0 stored(host/0 root<-[8 9] tokens=[] bs=0) removed(gpu/0 [8 9]) " + goodShown + " unknown=0 malformed=0 misaligned=0 opaque=1 badrank=0"},
		{"ATOM: content that we may not know is on the GPU again", batch(kvs{"type", "BlockTransferred", "block_hashes", list{9}, "from_medium", "CPU", "to_medium", "GPU"}),
			"time=1.5 rank=0 missed=1 lost=0 stored(gpu/0 root<-[9] tokens=[] bs=0) removed(host/0 [9]) unknown=0 malformed=0 misaligned=0 opaque=1 badrank=0"},
		{"ATOM: moved to nowhere", batch(list{"BlockTransferred", list{8, 9}, "GPU"}, good), "time=1.5 rank=0 missed=0 lost=1 " + goodShown + " unknown=0 malformed=1 misaligned=0 opaque=0 badrank=0"},
		{"ATOM: where a run begins, behind all that we know", batch(list{"BlockStored", list{9}, nil, tokens(1, 2), 2, nil, "GPU", nil, nil, 0, nil, nil, 32}), "time=1.5 rank=0 " + goodShown},
		{"SGLang: only a window has come back", batch(append(slices.Clone(good), "component_types", list{"swa", "mamba"}), append(slices.Clone(good), "component_types", list{"full", "swa"})), "time=1.5 rank=0 " + goodShown},
		{"vLLM #44488: what was skipped", batch(append(slices.Clone(good), "skipped_parent_block_hash", 3, "skipped_token_ids", tokens(1, 9), "skipped_extra_keys", nil, "ownership", "x", "locality", "LOCAL")), "time=1.5 rank=0 " + goodShown},
		{"a malformed store is missed", batch(store(list{9}, nil, list{1, -2}, 2), store(list{9}, nil, tokens(1, 2), -1), store(list{"x"}, nil, tokens(1, 2), 2), store(list{9}, nil, list{1, uint64(1) << 40}, 2), good),
			"time=1.5 rank=0 missed=4 lost=0 " + goodShown + " unknown=0 malformed=4 misaligned=0 opaque=0 badrank=0"},
		{"a malformed removal is lost", batch(kvs{"type", "BlockRemoved", "block_hashes", 3}, list{"BlockRemoved", list{1.5}}, kvs{}, list{}, good),
			"time=1.5 rank=0 missed=0 lost=4 " + goodShown + " unknown=0 malformed=4 misaligned=0 opaque=0 badrank=0"},
		{"H15: the time is an int, the rank a string", pack(nil, list{7, list{good}, "0"}), "time=7 rank=-1 " + goodShown + " unknown=0 malformed=0 misaligned=0 opaque=0 badrank=1"},
		{"H15: the time is not a number", append(append(raw{0x93, 0xcb, 0x7f, 0xf8, 0, 0, 0, 0, 0, 0}, pack(nil, list{good})...), 0x00), "time=0 rank=0 " + goodShown},
		{"the batch is a map in another order", pack(nil, kvs{"new", 1, "data_parallel_rank", 3, "events", list{good}, "ts", 2.5}), "time=2.5 rank=3 " + goodShown},
		{"no events", pack(nil, list{1.5, list{}, 2}), "time=1.5 rank=2"},
	} {
		d := Decoder{Seed: seed}
		b, err := d.Decode(c.payload)
		if got := show(b, err, d.Stats); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, c.want)
		}
		if PeekRank(c.payload) != b.Rank || PeekTime(c.payload) != b.Time {
			t.Errorf("%s: peeked time %v rank %v", c.name, PeekTime(c.payload), PeekRank(c.payload))
		}
	}
}

func TestClearAll(t *testing.T) {
	d := Decoder{ClearAll: true}
	b, _ := d.Decode(batch(kvs{"type", "AllBlocksCleared"}, kvs{"type", "AllBlocksCleared", "medium", "GPU"}))
	if len(b.Events) != 2 || !b.Events[0].AllTiers || b.Events[1].AllTiers {
		t.Errorf("got %s", show(b, nil, Stats{}))
	}
}

// TestNoBatch is about payloads that are no batch. The error names the place.
func TestNoBatch(t *testing.T) {
	whole := batch(store(list{9}, nil, tokens(1, 2), 2))
	for _, c := range []struct {
		payload []byte
		want    string
	}{
		{nil, "0 bytes"},
		{[]byte("hello"), "begins with byte 0x68"},
		{[]byte{0xc1}, "byte 0xc1"},
		{pack(nil, list{1.5}), "an array of 1"},
		{pack(nil, kvs{"ts", 1.5}), "without the key events"},
		{pack(nil, list{1.5, "no"}), "element 1 of 2 has an unexpected type (byte 0xa2)"},
		{append([]byte{0x92, 0xcb, 0, 0, 0, 0, 0, 0, 0, 0}, 0xdd, 0xee, 0xff, 0xff, 0xff), "ends at byte"}, // H15: 4e9 items in 15 bytes
		{append([]byte{0x93, 1, 0x91, 0x82, 0xa9}, "token_ids\xdd\xff\xff\xff\xff"...), "ends at byte"},
	} {
		var d Decoder
		b, err := d.Decode(c.payload)
		if err == nil || !errors.Is(err, ErrBatch) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%x: error %v, want %q", c.payload, err, c.want)
		}
		if len(b.Events) != 0 || d.Stats.Bad != 1 {
			t.Errorf("%x: %d events, %+v", c.payload, len(b.Events), d.Stats)
		}
	}
	for n := range whole { // every truncation
		var d Decoder
		if _, err := d.Decode(whole[:n]); err == nil {
			t.Errorf("the first %d of %d bytes passed for a batch", n, len(whole))
		}
	}
}

// TestNesting decodes what a recursive decoder would die of.
func TestNesting(t *testing.T) {
	deep := append([]byte{0x92, 1}, make([]byte, 10<<20)...)
	for i := 2; i < len(deep); i++ {
		deep[i] = 0x91
	}
	var d Decoder
	if _, err := d.Decode(deep); err == nil {
		t.Error("no end, no error")
	}
}

// TestBounded measures that a hostile payload takes memory in proportion to its
// size only, whatever its headers claim.
func TestBounded(t *testing.T) {
	payload := append([]byte{0x93, 1}, 0xdd, 0x00, 0x10, 0x00, 0x00) // 2^20 events, each of one byte
	for range 1 << 20 {
		payload = append(payload, 0x90)
	}
	payload = append(payload, 0)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	var d Decoder
	b, err := d.Decode(payload)
	runtime.ReadMemStats(&after)
	if err != nil || b.Lost != 1<<20 {
		t.Fatalf("%v, lost %d", err, b.Lost)
	}
	if got := after.TotalAlloc - before.TotalAlloc; got > 512*uint64(len(payload)) {
		t.Errorf("%d bytes for a payload of %d", got, len(payload))
	}
}

// TestAllocs: after the first batch, decoding allocates nothing.
func TestAllocs(t *testing.T) {
	for name, payload := range payloads() {
		d := Decoder{Seed: seed}
		for range 2 {
			if _, err := d.Decode(payload); err != nil {
				t.Fatal(err)
			}
		}
		if n := testing.AllocsPerRun(100, func() { d.Decode(payload) }); n != 0 {
			t.Errorf("%s: %v allocations a batch", name, n)
		}
	}
}

// TestRelease: memory of idle decoders goes back, and giants are let go.
func TestRelease(t *testing.T) {
	var d Decoder
	d.Release() // nothing to give
	big := batch(store(list{9}, nil, tokens(0, 3), 3))
	if b, err := d.Decode(big); err != nil || len(b.Events) != 1 {
		t.Fatal(err)
	}
	d.s.tokens = make([]uint32, 0, 2*hoard)
	d.Release()
	if d.s != nil {
		t.Error("scratch kept")
	}
	if b, err := d.Decode(big); err != nil || len(b.Events) != 1 || b.Events[0].Kind != kv.Stored {
		t.Error("not usable after Release")
	}
	if cap(d.s.tokens) > hoard {
		t.Error("a giant came back")
	}
}
