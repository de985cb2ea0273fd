package eventbench

import (
	"context"
	"net/http"
	"runtime"
	"sync"
	"testing"
	"time"

	"kvasir/engine"
	"kvasir/index"
	"kvasir/kv"
	"kvasir/zmtp"
)

// A gated is an index behind a gate.
type gated struct {
	ix *index.Index

	mu      sync.Mutex
	changed sync.Cond
	open    bool
	waiting bool // Apply waits at the gate
	over    bool
	next    uint64 // the message whose block comes next
	skipped uint64 // messages that were never applied
	bad     uint64 // blocks that came twice or out of order
	forgets int
	trust   kv.Trust
	why     string
}

func newGated() *gated {
	g := &gated{ix: index.New(index.Config{Seed: 7}), open: true}
	g.changed.L = &g.mu
	return g
}

func (g *gated) hooks() engine.Hooks {
	return engine.Hooks{
		Target: func(int) kv.Target { return 3 },
		Apply: func(e *kv.Event) {
			g.mu.Lock()
			for !g.open && !g.over {
				g.waiting = true
				g.changed.Broadcast()
				g.changed.Wait()
			}
			g.waiting = false
			g.mu.Unlock()
			g.ix.Apply(e)
			g.mu.Lock()
			switch {
			case e.Kind == kv.Cleared && e.AllTiers:
				g.forgets++
			case e.Kind == kv.Cleared:
				g.next++
			case e.Kind == kv.Stored:
				n := uint64(e.Handles[0]) - 1
				if n < g.next {
					g.bad++
				}
				g.skipped += n - min(n, g.next)
				g.next = n + 1
			}
			g.mu.Unlock()
			g.changed.Broadcast()
		},
		Trust: func(_ kv.Target, s kv.Trust, why string) {
			g.mu.Lock()
			g.trust, g.why = s, why
			g.mu.Unlock()
			g.changed.Broadcast()
		},
	}
}

func (g *gated) set(open bool) {
	g.mu.Lock()
	g.open = open
	g.mu.Unlock()
	g.changed.Broadcast()
}

func (g *gated) wait(until func() bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for !until() && !g.over {
		g.changed.Wait()
	}
}

// wantHeld compares what the index believes with blocks from to before end.
func (g *gated) wantHeld(t *testing.T, from, end uint64) {
	t.Helper()
	if n := g.ix.TargetStats(3).Blocks[kv.GPU]; n != int64(end-from) {
		t.Errorf("%d blocks are believed, %d are held", n, end-from)
	}
	var over [kv.MaxTargets]kv.Overlap
	for n := from; n < end; n++ {
		tokens := tokensOf(n)
		p := kv.Prompt{Tokens: 17, Chains: []kv.Chain{{BlockSize: 16,
			Hashes: kv.Seed(7).Extend(nil, kv.Seed(7).Root(kv.Key{}, 16), tokens[:], 16, nil)}}}
		clear(over[:])
		if g.ix.Match(&p, over[:]); over[3].GPU != 16 {
			t.Errorf("block %d is held, and %+v believed", n, over[3])
		}
	}
}

// follow runs a Replica of p, with room for ring messages, until the test ends.
func follow(t *testing.T, p *publisher, g *gated, ring int) *engine.Replica {
	r, err := engine.New(engine.Config{
		URL: "http://engine:8000", Events: p.events, Replay: p.replay, Seed: 7, HTTP: &http.Client{Transport: web{}},
		Dial: p.dial, ZMTP: zmtp.Config{Heartbeat: -1}, Poll: time.Hour, RingMessages: ring,
	}, g.hooks())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { r.Run(ctx) })
	giveUp := func() {
		g.mu.Lock()
		g.over = true
		g.mu.Unlock()
		g.changed.Broadcast()
		p.stop()
	}
	t.Cleanup(func() {
		giveUp()
		cancel()
		running.Wait()
	})
	if at, ok := t.Deadline(); ok { // say what hangs rather than be killed
		timer := time.AfterFunc(time.Until(at)*9/10, func() {
			t.Errorf("hangs: %+v", r.Stats())
			giveUp()
		})
		t.Cleanup(func() { timer.Stop() })
	}
	<-p.subscribed
	return r
}

// TestBlockedSocket: the index stands still while an engine publishes as much as
// 100,000 messages a second are in 30 s, over real sockets. Every byte is taken from
// the socket, so the engine never has to drop one; memory stays bounded; and
// when the index moves again, a replay makes belief equal truth, with nothing
// applied twice, left out or out of order.
func TestBlockedSocket(t *testing.T) {
	messages, ring := 3_000_000, 1<<16
	if testing.Short() || raceEnabled {
		messages, ring = 30_000, 1<<12
	}
	p, g := newPublisher(t), newGated()
	r := follow(t, p, g, ring)
	p.publish(1)
	g.wait(func() bool { return g.next == 1 && g.trust == kv.Exact })

	g.set(false)
	before, most := liveHeap(), uint64(0)
	p.publish(1)
	g.wait(func() bool { return g.waiting }) // whatever comes now meets a blocked index
	for done := 2; done < messages; {
		n := min(messages/10, messages-done)
		p.publish(n)
		done += n
		most = max(most, liveHeap())
	}
	if !p.taken() {
		t.Fatal("the socket is not drained")
	}
	g.mu.Lock()
	if g.next != 1 || !g.waiting {
		t.Errorf("the index was to stand still, and has taken %d messages", g.next)
	}
	g.mu.Unlock()
	if n := p.pub.Dropped(); n != 0 {
		t.Errorf("the publisher had to drop %d messages", n)
	}
	grown := int64(most) - int64(before)
	t.Logf("%d messages, %d MB, taken from the socket while the index stood still; the heap grew by %.1f MB", messages, p.sent>>20, float64(grown)/(1<<20))
	if grown > 40<<20 { // the ring: 65,536 messages of 120 bytes, and what appending leaves
		t.Errorf("the heap grew by %d MB", grown>>20)
	}

	g.set(true)
	p.publish(10_000) // the engine doesn't wait for us to catch up
	end := p.next
	g.wait(func() bool { return g.next == end && g.trust == kv.Exact })
	g.wantHeld(t, end-heldBlocks, end)
	if g.bad+g.skipped > 0 || g.forgets > 0 {
		t.Errorf("%d blocks again or out of order, %d left out, %d times forgotten", g.bad, g.skipped, g.forgets)
	}
	settled(t, r, func(s engine.StreamStats) bool {
		return s.Dropped > uint64(messages-ring-1000) && s.Seq.Applied == end && s.Seq.Gaps > 0 && s.Seq.Restarts == 0
	})
}

// TestBlockedTruncated: the same, but the engine's buffer is that of a default
// vLLM, far shorter than what was missed. What was between is lost, so what was
// known is forgotten and the target is not exact, until the engine clears its cache.
func TestBlockedTruncated(t *testing.T) {
	p, g := newPublisher(t), newGated()
	p.buffer, p.clears = 10_000, 40_000
	r := follow(t, p, g, 1<<12)
	p.publish(1)
	g.wait(func() bool { return g.next == 1 && g.trust == kv.Exact })
	g.set(false)
	p.publish(int(p.clears) - 1)
	if !p.taken() || p.pub.Dropped() > 0 {
		t.Fatal("the socket is not drained")
	}
	g.set(true)
	end := p.next
	g.wait(func() bool { return g.next == end && g.trust == kv.Filling && g.forgets > 0 })
	g.wantHeld(t, end-heldBlocks, end)
	if g.bad > 0 || g.skipped < 10_000 {
		t.Errorf("%d blocks again or out of order, %d left out", g.bad, g.skipped)
	}
	p.publish(101) // the first clears
	end = p.next
	g.wait(func() bool { return g.next == end && g.trust == kv.Exact })
	g.wantHeld(t, end-heldBlocks, end)
	settled(t, r, func(s engine.StreamStats) bool { return s.Seq.Restarts == 0 })
}

// settled checks the stream's counters once its step is over.
func settled(t *testing.T, r *engine.Replica, ok func(engine.StreamStats) bool) {
	t.Helper()
	for range 1_000_000 {
		if ok(r.Stats()[0]) {
			return
		}
		runtime.Gosched()
	}
	t.Errorf("%+v", r.Stats()[0])
}

func liveHeap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
