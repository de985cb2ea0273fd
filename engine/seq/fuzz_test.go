package seq

import (
	"errors"
	"math"
	"testing"
	"time"

	"kvasir/kv"
)

// A judge is a Sink that only checks order.
type judge struct {
	t       *testing.T
	any     bool
	last    uint64
	token   int
	replays int
}

func (j *judge) Apply(b Batch) Applied {
	if b.Seq == End || j.any && b.Seq <= j.last && j.last != End-1 {
		j.t.Errorf("batch %d was applied after %d", b.Seq, j.last)
	}
	j.any, j.last = true, b.Seq
	n := len(b.Body)
	return Applied{Cleared: n == 1, Lost: n / 2 % 2, Missed: n / 3 % 2, Bad: n == 7}
}
func (j *judge) Forget(string) { j.any = false }
func (j *judge) Replay(token int, from uint64) {
	j.token = token
	j.replays++
}
func (j *judge) Cancel(int) {}
func (j *judge) Trust(t kv.Trust, why string) {
	if why == "" {
		j.t.Errorf("%v without a reason", t)
	}
}

// FuzzMachine lets a publisher, a replay service and a network do what they
// like: any numbers, any times, any order. Each number is applied once and in
// order, nothing runs away, and Tick at a Deadline always gets something done.
func FuzzMachine(f *testing.F) {
	f.Add([]byte("\x00\x10\x20\x21\x22\x30\x40"))
	f.Add([]byte{1, 0, 0x35, 0x40, 0x41, 0x50, 0x22, 0x24, 0x70, 0x10, 0x00, 0x60, 0x42})
	f.Add([]byte{3, 0, 0x21, 0x41, 0x44, 0x58, 0xb0, 0xb1, 0xb2, 0x90, 0xa3, 0xc1, 0xd2})
	f.Fuzz(func(t *testing.T, steps []byte) {
		if len(steps) == 0 || len(steps) > 4096 {
			return
		}
		j := &judge{t: t}
		cfg := Config{Replay: steps[0]&1 != 0, HoldBatches: 1 + int(steps[0]>>4), HoldBytes: 64}
		m := New(cfg, j)
		if steps[0]&2 != 0 {
			m.Resume(Mark{Next: uint64(steps[0] >> 2), Time: 1, Process: 100, Exact: steps[0]&4 != 0, Why: "x"})
		}
		now := time.Unix(1e6, 0)
		epoch := uint64(1)
		clock := 0.0
		for _, b := range steps[1:] {
			v := uint64(b & 15)
			next, _ := m.Next()
			numbers := [...]uint64{next, next + 1, next - 1, 0, 1, next + 5, next - 2, End - 1, End, 3}
			batch := Batch{Seq: numbers[v%10], Time: clock, Body: make([]byte, v)}
			switch clock += 0.5; v {
			case 3:
				clock -= 5
			case 5:
				batch.Time = 0
			case 9:
				batch.Time = math.Inf(1)
			}
			switch b >> 4 {
			case 0:
				epoch++
				m.Connected(epoch, now)
			case 1:
				m.Disconnected(epoch-v%2, now)
			case 2, 3, 11:
				m.Live(epoch, batch, now)
			case 4, 12, 13:
				m.Replayed(j.token-int(v/12), batch, now)
			case 5:
				m.ReplayEnd(j.token, now)
			case 6:
				m.ReplayFailed(j.token, errors.New("x"), now)
			case 7:
				now = now.Add(time.Duration(v) * time.Second)
				for n := 0; ; n++ {
					d := m.Deadline()
					if d.IsZero() || d.After(now) {
						break
					}
					if n > 100 {
						t.Fatalf("the deadline stays at %v", d)
					}
					m.Tick(now)
				}
			case 8:
				m.Process(float64(100*v), now)
			case 9:
				m.Dropped(epoch, next+v, now)
			case 10:
				if v%2 == 0 {
					m.Discard("x", now)
				} else {
					m.Refill("x", now)
				}
			case 14:
				j.any = false
				m.Unsequenced(epoch, batch, now)
				j.any = false
			case 15:
				m.Emptied("x", now)
			}
			if k, ok := m.Mark(); ok && (k.Next == 0 || k.Time == 0 || k.Why == "") {
				t.Fatalf("a mark of no use: %+v", k)
			}
			if len(m.hold) > m.cfg.HoldBatches+1 || m.holdBytes > 64+16 {
				t.Fatalf("%d batches and %d bytes held", len(m.hold), m.holdBytes)
			}
		}
		if j.replays > 2*len(steps)+200 {
			t.Errorf("%d replays after %d steps", j.replays, len(steps))
		}
	})
}
