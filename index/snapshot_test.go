package index

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"kvasir/kv"
)

// played returns an index after a random tape, and the player with its paths.
func played(seed uint64, n int) (*Index, *player) {
	p := &player{tape: tape{randomTape(seed, n)}, targets: 6, handles: 30}
	p.sizes = [][]int{{16}, {16, 32}, {4}, {1, 16}, {1}, {2, 5}}[seed%6]
	p.hybrid, p.tiers = seed%3 == 1, seed%2 == 1
	ix := New(Config{Seed: testSeed, MaxCopies: 5})
	for len(p.b) > 0 {
		ix.Apply(p.event())
	}
	return ix, p
}

func snapshot(t testing.TB, ix *Index) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := ix.Snapshot(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestSnapshot: what was loaded answers like what was written, predictions
// apart, and goes on like it under the same events.
func TestSnapshot(t *testing.T) {
	for seed := range uint64(40) {
		a, p := played(seed, 5000)
		b, err := Load(bytes.NewReader(snapshot(t, a)), Config{Seed: testSeed, MaxCopies: 5}, same)
		if err != nil {
			t.Fatal(err)
		}
		b.mustHold(t)
		for id := range p.targets { // what a snapshot leaves out
			a.Apply(&kv.Event{Kind: kv.Cleared, Source: kv.Dispatch, Target: kv.Target(id)})
			tt := &a.targets[id]
			a.dropOrphans(&tt.orphans, func(*orphan) bool { return true }, &Result{})
		}
		over, want := make([]kv.Overlap, p.targets), make([]kv.Overlap, p.targets)
		compare := func(what string) {
			t.Helper()
			for _, path := range p.paths {
				q := p.prompt(path)
				a.Match(q, want)
				b.Match(q, over)
				if !slices.Equal(over, want) {
					t.Fatalf("seed %d, %s: loaded says %v, original %v", seed, what, over, want)
				}
			}
		}
		compare("loaded")
		p.b = randomTape(seed+100, 3000)
		for len(p.b) > 0 {
			ev := p.event()
			if x, y := a.Apply(ev), b.Apply(ev); x != y {
				t.Fatalf("seed %d, %s: loaded does %+v, original %+v", seed, show(ev), y, x)
			}
		}
		compare("after more events")
		b.mustHold(t)
		for id := range p.targets {
			b.Forget(kv.Target(id))
		}
		if b.blocks != 0 || b.pageMemory != 0 || b.slidNames != 0 {
			t.Fatalf("seed %d: %d blocks, %d bytes of pages, %d sliding names left after forgetting all", seed, b.blocks, b.pageMemory, b.slidNames)
		}
	}
}

// TestSnapshotIsCompact: an unshared block takes its hash, its name and a byte.
func TestSnapshotIsCompact(t *testing.T) {
	ix := New(Config{Seed: testSeed})
	const n = 20000
	ev := &kv.Event{BlockSize: 16, Root: true, Tokens: make([]uint32, 16*n)}
	for i := range n {
		ev.Handles = append(ev.Handles, kv.Handle(i+1))
	}
	ix.Apply(ev)
	if got := len(snapshot(t, ix)); got > 19*n {
		t.Errorf("%d bytes for %d blocks", got, n)
	}
}

// writerFunc is an io.Writer.
type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// TestSnapshotLetsGo: while a snapshot is written, dispatches go on, also where
// they evict; engines' events wait, so that what is written is of one moment.
func TestSnapshotLetsGo(t *testing.T) {
	ix := New(Config{Seed: testSeed, MaxBytes: 2 << 20})
	const n = 20000
	ev := &kv.Event{BlockSize: 16, Root: true, Tokens: make([]uint32, 16*n)}
	for i := range n {
		ev.Handles = append(ev.Handles, kv.Handle(i+1))
	}
	ix.Apply(ev)
	var b bytes.Buffer
	writes, done := 0, make(chan Result, 1)
	err := ix.Snapshot(writerFunc(func(p []byte) (int, error) {
		if writes++; writes == 1 {
			go func() { done <- ix.Apply(&kv.Event{Kind: kv.Removed, Handles: []kv.Handle{1}}) }()
		}
		hs := make([]kv.Hash, 1500)
		for i := range hs {
			hs[i] = kv.Hash(writes*10000 + i + 1)
		}
		ix.Apply(&kv.Event{Source: kv.Dispatch, Target: 7, Hashes: hs})
		select {
		case <-done:
			t.Error("an engine's event was applied meanwhile")
		default:
		}
		return b.Write(p)
	}))
	if err != nil || writes < 8 {
		t.Fatalf("%v after %d writes", err, writes)
	}
	if r := <-done; r.Removed+r.Unknown != 1 { // unknown: evicted
		t.Errorf("afterwards: %+v", r)
	}
	if ix.Stats().Evicted == 0 {
		t.Error("nothing was evicted: the test is too small")
	}
	moved, err := Load(&b, Config{Seed: testSeed}, func(t kv.Target) kv.Target { return t + 3 })
	if err != nil {
		t.Fatal(err)
	}
	moved.mustHold(t)
	q := &kv.Prompt{Tokens: 16*n + 1, Chains: []kv.Chain{{BlockSize: 16, Hashes: testSeed.Extend(nil, testSeed.Root(kv.Key{}, 16), ev.Tokens, 16, nil)}}}
	over := make([]kv.Overlap, 8)
	moved.Match(q, over)
	if over[3].GPU < 16*n/2 || over[0].GPU != 0 || over[7].GPU != 0 || over[7].Predicted != 0 {
		t.Errorf("%+v", over)
	}
	if s := moved.TargetStats(3); s.Blocks[kv.GPU] < n/2 || s.Blocks[kv.GPU] > n {
		t.Errorf("%+v", s)
	}
	if _, err := Load(bytes.NewReader(snapshot(t, ix)), Config{Seed: testSeed}, func(kv.Target) kv.Target { return kv.NoTarget }); err == nil {
		t.Error("a target without a number: no error")
	}
	broken := ix.Snapshot(writerFunc(func([]byte) (int, error) { return 0, io.ErrShortWrite }))
	if !errors.Is(broken, io.ErrShortWrite) {
		t.Errorf("%v", broken)
	}
}

func TestLoadErrors(t *testing.T) {
	ix, _ := played(5, 3000)
	good := snapshot(t, ix)
	c := Config{Seed: testSeed}
	if _, err := Load(bytes.NewReader(good), Config{Seed: 1}, same); err == nil || !strings.Contains(err.Error(), "seed") {
		t.Errorf("another seed: %v", err)
	}
	for _, cut := range []int{0, 5, 8, 20, len(good) / 2, len(good) - 1} {
		if _, err := Load(bytes.NewReader(good[:cut]), c, same); err == nil {
			t.Errorf("cut at %d: no error", cut)
		}
	}
	for i := 8; i < len(good); i += 37 {
		bad := slices.Clone(good)
		bad[i] ^= 0x10
		if _, err := Load(bytes.NewReader(bad), c, same); err == nil {
			t.Errorf("a flipped bit at %d: no error", i)
		}
	}
}

// TestLoadInPart: a snapshot that is larger than the bound is loaded in part.
func TestLoadInPart(t *testing.T) {
	ix := New(Config{Seed: testSeed})
	const n = 60000
	ev := &kv.Event{BlockSize: 16, Root: true, Tokens: make([]uint32, 16*n)}
	for i := range n {
		ev.Handles = append(ev.Handles, kv.Handle(i+1))
	}
	ix.Apply(ev)
	part, err := Load(bytes.NewReader(snapshot(t, ix)), Config{Seed: testSeed, MaxBytes: minBytes}, same)
	if err != nil {
		t.Fatal(err)
	}
	if s := part.Stats(); s.Blocks == 0 || s.Blocks >= n || s.Bytes > minBytes+64<<10 {
		t.Errorf("%d of %d blocks in %d bytes; want a part in %d", s.Blocks, n, s.Bytes, minBytes)
	}
	part.mustHold(t)
}

// FuzzLoad: frames with right checksums and any content load or fail, without a
// panic and without memory that wasn't paid for in input; what loads, works.
func FuzzLoad(f *testing.F) {
	for seed := range uint64(8) {
		ix, _ := played(seed, 600)
		f.Add(unframe(snapshot(f, ix)))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 1<<16 {
			return
		}
		ix, err := Load(bytes.NewReader(reframe(data)), Config{Seed: testSeed, MaxBytes: 4 << 20}, same)
		if err != nil {
			return
		}
		ix.Stats()
		for range ix.dump() {
		}
		p := &player{tape: tape{data}, targets: 6, handles: 30, sizes: []int{1, 16}, hybrid: true, tiers: true}
		for range 50 {
			ix.Apply(p.event())
		}
		for id := range p.targets {
			ix.Forget(kv.Target(id))
		}
	})
}

// unframe turns a snapshot into frames of kind, length (2 bytes), payload;
// reframe makes a snapshot of them with good checksums.
func unframe(snap []byte) (out []byte) {
	r := bytes.NewReader(snap[len(snapshotMagic):])
	s := &snapshotReader{r: bufio.NewReader(r)}
	for {
		kind, err := s.next()
		if err != nil {
			return out
		}
		out = append(out, kind, byte(len(s.b)>>8), byte(len(s.b)))
		out = append(out, s.b...)
	}
}

func reframe(data []byte) []byte {
	w := &snapshotWriter{out: []byte(snapshotMagic)}
	for len(data) >= 3 {
		n := min(int(data[1])<<8|int(data[2]), len(data)-3)
		w.b = append(w.b[:0], data[3:3+n]...)
		w.flush(data[0])
		data = data[3+n:]
	}
	return w.out
}
