package engine

import (
	"bytes"
	"encoding/binary"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"kvasir/kv"
)

func TestRing(t *testing.T) {
	r := newRing(3, 10)
	r.put(connected, 1, 0, nil)
	for n := range uint64(5) {
		r.put(gotBatch, 1, n, []byte{byte(n), byte(n)})
	}
	r.put(disconnected, 1, 0, nil)
	r.put(connected, 2, 0, nil)
	r.put(gotBatch, 2, 1, nil)
	r.put(gotBatch, 2, 0, nil)
	ld := r.take(load{})
	if len(ld.entries) != 6 || ld.entries[0].kind != connected || ld.entries[5].kind != connected || ld.entries[5].epoch != 2 {
		t.Errorf("%+v", ld.entries)
	}
	if e := ld.entries[3]; e.seq != 2 || !bytes.Equal(ld.buf[e.from:e.to], []byte{2, 2}) {
		t.Errorf("%+v %x", e, ld.buf)
	}
	if ld.dropped != 4 || ld.droppedEpoch != 2 || ld.droppedSeq != 1 || r.dropCount() != 4 {
		t.Errorf("dropped %d, epoch %d, up to %d", ld.dropped, ld.droppedEpoch, ld.droppedSeq)
	}
	r.put(gotBatch, 2, 2, make([]byte, 10))
	r.put(gotBatch, 2, 3, []byte{1})
	ld = r.take(ld)
	if len(ld.entries) != 1 || ld.dropped != 1 || ld.droppedSeq != 3 {
		t.Errorf("by bytes: %+v", ld)
	}
	if ld = r.take(ld); len(ld.entries) != 0 || ld.dropped != 0 {
		t.Errorf("empty: %+v", ld)
	}
}

// TestRingAllocs: once both loads have their size, a message costs nothing.
func TestRingAllocs(t *testing.T) {
	r := newRing(1000, 1<<20)
	var ld load
	msg := make([]byte, 500)
	round := func() {
		for n := range uint64(100) {
			r.put(gotBatch, 1, n, msg)
		}
		ld = r.take(ld)
	}
	round()
	round()
	if n := testing.AllocsPerRun(100, round); n != 0 {
		t.Errorf("%v allocations in 100 messages", n)
	}
	round()
	for range 3 {
		ld = r.take(ld)
	}
	if cap(ld.buf) > idleBytes || cap(r.front.buf) > idleBytes {
		t.Errorf("an idle ring keeps %d and %d bytes", cap(ld.buf), cap(r.front.buf))
	}
}

// TestBlocked: F20. The index stands still for 30 s while the engine publishes
// far more than the ring holds; the socket is drained all the time, memory stays
// bounded, and afterwards everything heals.
func TestBlocked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 50_000
		w := newWorld()
		e := w.engine(t, "10.0.0.1", 0, true)
		defer func() { e.stop() }()
		w.http["10.0.0.1:8000"] = e
		r, rt := start(t, w, Config{RingMessages: 5000})
		settle(3 * time.Second)
		e.store(1)
		settle(time.Second)
		rt.mu.Lock()
		rt.block = make(chan struct{})
		rt.mu.Unlock()
		before := heap()
		for i := range n {
			e.mu.Lock()
			e.buffer = append(e.buffer, nil) // no time for maps
			seq := uint64(len(e.buffer) - 1)
			b := payload(float64(time.Now().UnixNano())/1e9, 0, true, 1000+seq%50)
			e.buffer[seq] = b
			e.held[kv.Handle(1000+seq%50)]++
			e.pub.Send([]byte("kv"), binary.BigEndian.AppendUint64(nil, seq), b)
			e.mu.Unlock()
			if i%500 == 499 {
				synctest.Wait() // all goroutines rest: what was sent was read
			}
		}
		if d := e.pub.Dropped(); d != 0 {
			t.Errorf("the publisher had to drop %d: the socket was not drained", d)
		}
		settle(30 * time.Second)
		if now := heap(); now > before+64<<20 { // the engine's own buffer is a part of it
			t.Errorf("%d MB more while the index stands still", (now-before)>>20)
		}
		rt.mu.Lock()
		close(rt.block)
		rt.block = nil
		rt.mu.Unlock()
		settle(20 * time.Second)
		rt.want(t, 0, kv.Exact, e.held)
		if s := r.Stats()[0]; s.Dropped < n-6000 || s.Seq.Applied < n {
			t.Errorf("%+v", s)
		}
	})
}

func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
