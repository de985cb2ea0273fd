package router

import (
	"encoding/json"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"kvasir/config"
	"kvasir/engine"
	"kvasir/engine/wire"
	"kvasir/kv"
	"kvasir/sched"
)

// told is a router with one engine that is up, and never dialled; events are given
// to it by hand.
type told struct {
	t   *testing.T
	r   *Router
	f   *follower
	log *logbook
}

func newTold(t *testing.T) *told {
	t.Helper()
	cfg := config.Defaults()
	cfg.Engines = []config.Engine{config.NewEngine("http://127.0.0.1:1")}
	log := &logbook{}
	r, err := New(cfg, slog.New(slog.NewTextHandler(log, nil)), "test")
	if err != nil {
		t.Fatal(err)
	}
	f := r.followers[0]
	f.info(engine.Info{Kind: "vllm", BlockSize: 16, Models: []kv.Model{{ID: "m"}}})
	return &told{t: t, r: r, f: f, log: log}
}

func (w *told) apply(evs ...kv.Event) {
	for i := range evs {
		w.f.apply(&evs[i])
	}
}

// predicted returns how many tokens of the prompt are said to be held.
func (w *told) predicted(prompt []uint32) int {
	w.t.Helper()
	var p kv.Prompt
	w.r.sched.Chains(&p, "m", prompt, kv.Key{}, nil)
	d, err := w.r.sched.Route(&sched.Request{Model: "m", Prompt: p}, time.Now())
	if err != nil {
		w.t.Fatal(err)
	}
	d.Done(time.Now(), sched.Failed) // so that nothing stays predicted
	return d.Cached()
}

func (w *told) want(prompt []uint32, cached, blockSize int) {
	w.t.Helper()
	if got := w.predicted(prompt); got != cached {
		w.t.Errorf("predicted %d of %d tokens, want %d", got, len(prompt), cached)
	}
	if got := w.f.row().BlockSize; got != blockSize {
		w.t.Errorf("block size %d, want %d", got, blockSize)
	}
}

func count(n int) []uint32 {
	out := make([]uint32, n)
	for i := range out {
		out[i] = uint32(i + 1)
	}
	return out
}

func stores(size int, parent kv.Handle, tokens []uint32, handles ...kv.Handle) kv.Event {
	return kv.Event{Kind: kv.Stored, BlockSize: int32(size), Root: parent == 0, Parent: parent, Handles: handles, Tokens: tokens}
}

// TestRestOfHybrid plays what vLLM 0.32's own manager of a hybrid model said.
func TestRestOfHybrid(t *testing.T) {
	const base = "testdata/vllm_hybrid/full64_mamba_align"
	raw, err := os.ReadFile(base + ".bin")
	if err != nil {
		t.Fatal(err)
	}
	var prompt []uint32
	if b, err := os.ReadFile(base + "_next_prompt.json"); err != nil || json.Unmarshal(b, &prompt) != nil || len(prompt) != 377 {
		t.Fatalf("%d tokens, %v", len(prompt), err)
	}
	w := newTold(t)
	dec := new(wire.Decoder)
	batch, err := dec.Decode(raw)
	if err != nil || batch.Missed+batch.Lost > 0 {
		t.Fatalf("%+v %v", batch, err)
	}
	for i := range batch.Events {
		batch.Events[i].Target = 0
	}
	w.apply(batch.Events...)
	w.want(prompt, 320, 64)
}

func TestRestOfPrompt(t *testing.T) {
	w, T := newTold(t), count(4801)
	w.apply(stores(1600, 0, T[:3200], 1, 2))
	w.want(T[:3201], 3200, 1600)
	w.apply(stores(400, 2, T[3200:3600], 77)) // the rest of a prompt of 3,600
	w.want(T[:3201], 3200, 1600)
	w.want(T[:3601], 3200, 1600)
	w.apply(kv.Event{Kind: kv.Removed, Handles: []kv.Handle{77}}, stores(1600, 2, T[3200:4800], 3))
	w.want(T, 4800, 1600)
	for i := range 5 { // rests of other lengths, of several prompts
		w.apply(stores(16, 0, T[4000:4016], kv.Handle(100+i)), stores(800, 3, T[4000:4800], kv.Handle(200+i)))
	}
	w.want(T, 4800, 1600)
	if n := strings.Count(w.log.String(), "another block size"); n != 1 {
		t.Errorf("said %d times that events and configuration differ, want once:\n%s", n, w.log.String())
	}
}

// TestRestComesFirst: nothing is known yet to compare it with.
func TestRestComesFirst(t *testing.T) {
	w, T := newTold(t), count(400)
	w.apply(stores(32, 0, T[100:132], 9))
	w.apply(stores(64, 0, T[:64], 1)) // one block, but longer
	w.apply(stores(64, 1, T[64:320], 2, 3, 4, 5))
	w.want(T[:377], 320, 64)
}

// TestOtherGroups: groups beside the first say nothing of its block size, and a hit needs
// the blocks of all.
func TestOtherGroups(t *testing.T) {
	w, T := newTold(t), count(400)
	w.apply(stores(64, 0, T[:320], 1, 2, 3, 4, 5))
	w.want(T, 320, 64)
	other := stores(256, 0, T[:256], 1)
	other.Group = 1
	w.apply(other)
	w.want(T, 256, 64)
	w.f.info(engine.Info{Kind: "vllm", BlockSize: 16, Models: []kv.Model{{ID: "m"}}}) // the next poll
	w.want(T, 256, 64)
	gone := kv.Event{Kind: kv.Removed, Group: 1, Handles: []kv.Handle{1}}
	w.apply(gone)
	w.want(T, 0, 64)
}

// TestSmallerBlocksAfterRestart: two blocks, or one behind what was taken for a rest,
// are no rests.
func TestSmallerBlocksAfterRestart(t *testing.T) {
	T := count(400)
	anew := kv.Event{Kind: kv.Cleared, AllTiers: true}
	w := newTold(t)
	w.apply(stores(64, 0, T[:320], 1, 2, 3, 4, 5), anew, stores(32, 0, T[:64], 11, 12))
	w.want(T, 64, 32)

	w = newTold(t)
	w.apply(stores(64, 0, T[:320], 1, 2, 3, 4, 5), anew, stores(32, 0, T[:32], 11), stores(32, 11, T[32:64], 12))
	w.want(T, 0, 32) // the first was left out
	w.apply(stores(32, 0, T[:32], 11))
	w.want(T, 64, 32)
}
