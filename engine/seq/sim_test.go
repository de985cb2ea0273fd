package seq

import (
	"container/heap"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"kvasir/kv"
)

var (
	seeds   = flag.Uint64("seeds", 1000, "how many seeds TestFaults runs")
	oneSeed = flag.Int64("seed", -1, "run this seed of TestFaults only, with a log")
)

// A sim is a publisher, a network and a replay service with faults, around the
// real Machine, in virtual time. The twin of the index is a map of counters.
//
// At every moment: while the Machine says Exact and the connection stands, the
// twin equals what the publisher's process on that connection held after the
// batch before Machine.Next. After quiet, a publisher that can replay all of
// its history is followed exactly.
type sim struct {
	t   *testing.T
	rng *rand.Rand
	m   *Machine
	now time.Time
	q   events
	ids int
	log bool

	// What this world is like, by seed.
	replay      bool
	buffer      int  // batches that the service keeps
	processKnow bool // the engine tells its start time
	lose        float64
	dup         float64
	corrupt     float64
	cutRate     float64
	restartRate float64
	reloads     float64 // chance that the router restarts
	mute        float64 // chance that a replay is not answered
	holes       float64 // chance that the service drops an answer
	quiet       bool    // no faults any more

	// The publisher.
	proc    int
	alive   bool
	clock   float64 // the engine's clock minus ours, seconds
	started float64
	next    uint64
	batches []Batch // of this process
	held    map[byte]int
	history map[int][]map[byte]int // process -> what was held before batch n

	// The connection.
	up       bool
	epoch    uint64
	connProc int
	arrives  time.Time // of the latest message on this connection
	token    int       // of the replay that the Machine waits for
	answers  time.Time

	// The router.
	twin     map[byte]int
	trust    kv.Trust
	why      string
	lastProc int
	lastSeq  uint64
	any      bool
	hold     int
	stopped  bool
	kept     Mark
	keptOK   bool
	keptTwin map[byte]int
	harmed   bool // something was published that nobody can ever know: a corrupt or lost batch
}

type event struct {
	at time.Time
	id int
	do func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at.Before(e[j].at) || e[i].at.Equal(e[j].at) && e[i].id < e[j].id
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	old := *e
	x := old[len(old)-1]
	*e = old[:len(old)-1]
	return x
}

func (s *sim) at(t time.Time, do func()) {
	s.ids++
	heap.Push(&s.q, event{t, s.ids, do})
}

func (s *sim) after(max time.Duration, do func()) {
	s.at(s.now.Add(time.Duration(s.rng.Int64N(int64(max)))), do)
}

func (s *sim) chance(p float64) bool { return !s.quiet && s.rng.Float64() < p }

func (s *sim) logf(format string, args ...any) {
	if s.log {
		s.t.Logf("%8.3f "+format, append([]any{s.now.Sub(time.Unix(1e6, 0)).Seconds()}, args...)...)
	}
}

func newSim(t *testing.T, seed uint64) *sim {
	rng := rand.New(rand.NewPCG(seed, 0))
	s := &sim{t: t, rng: rng, now: time.Unix(1e6, 0), twin: map[byte]int{}, history: map[int][]map[byte]int{}, lastProc: -1}
	s.replay = rng.IntN(3) > 0
	s.buffer = []int{1, 3, 10, 1 << 30, 1 << 30}[rng.IntN(5)]
	s.processKnow = rng.IntN(2) == 0
	some := func(most float64) float64 {
		if rng.IntN(2) == 0 {
			return 0
		}
		return rng.Float64() * most
	}
	s.lose, s.dup, s.corrupt = some(0.2), some(0.2), some(0.05)
	s.cutRate, s.restartRate, s.mute, s.holes = some(0.1), some(0.05), some(0.8), some(0.1)
	s.reloads = some(0.05)
	s.hold = 8192
	if rng.IntN(3) == 0 {
		s.hold = 1 + rng.IntN(4)
	}
	s.m = s.machine()
	return s
}

func (s *sim) machine() *Machine {
	return New(Config{Replay: s.replay, HoldBatches: s.hold, Jitter: s.rng.Float64}, s)
}

// reload restarts the router. What it held is kept if the machine knows where
// it stands, at this moment or some time before, when it was killed.
func (s *sim) reload() {
	mark, ok := s.m.Mark()
	twin := maps.Clone(s.twin)
	if s.rng.IntN(4) == 0 && s.keptOK { // killed: the last snapshot is what there is
		mark, ok, twin = s.kept, true, maps.Clone(s.keptTwin)
	}
	s.logf("the router stops; mark %+v (%v)", mark, ok)
	s.up, s.token, s.any = false, 0, false
	s.epoch++ // what is under way is lost
	down := time.Duration(s.rng.Int64N(int64([]time.Duration{time.Second, time.Minute}[s.rng.IntN(2)])))
	s.m, s.trust, s.why = s.machine(), kv.Unknown, ""
	clear(s.twin)
	s.stopped = true
	s.run(s.now.Add(down / 2))
	if s.rng.IntN(3) == 0 {
		s.publish()
		s.run(s.now.Add(down / 2))
	}
	s.stopped = false
	if ok {
		s.twin = twin
		s.m.Resume(mark)
	}
	s.logf("the router starts")
	s.m.Opened(s.now)
	s.check()
}

// keep writes a snapshot.
func (s *sim) keep() {
	if mark, ok := s.m.Mark(); ok {
		s.kept, s.keptOK, s.keptTwin = mark, true, maps.Clone(s.twin)
	}
}

// The publisher.

func (s *sim) boot() {
	s.proc++
	s.alive = true
	s.started = float64(s.now.UnixNano()) / 1e9
	s.next, s.batches, s.held = 0, nil, map[byte]int{}
	s.history[s.proc] = nil
	if s.rng.IntN(4) == 0 { // on another machine, with another clock
		s.clock = (s.rng.Float64() - 0.5) * 20
	}
	for range s.rng.IntN(12) { // a hidden restart is one that has published before we connect
		s.publish()
	}
	s.logf("process %d boots, at batch %d", s.proc, s.next)
}

// publish sends a batch of up to four changes: +h, -h or clear, as bytes.
func (s *sim) publish() {
	if !s.alive {
		return
	}
	s.history[s.proc] = append(s.history[s.proc], maps.Clone(s.held))
	body := binary.BigEndian.AppendUint32(nil, uint32(s.proc))
	for range 1 + s.rng.IntN(4) {
		h := byte(s.rng.IntN(12))
		switch {
		case s.rng.IntN(60) == 0:
			clear(s.held)
			body = append(body, 'c', 0)
		case s.held[h] > 0 && s.rng.IntN(2) == 0:
			if s.held[h]--; s.held[h] == 0 {
				delete(s.held, h)
			}
			body = append(body, '-', h)
		default:
			s.held[h]++
			body = append(body, '+', h)
		}
	}
	b := Batch{Seq: s.next, Time: float64(s.now.UnixNano())/1e9 + s.clock + float64(s.next)*1e-6, Body: body}
	s.next++
	s.batches = append(s.batches, b)
	if !s.up || s.connProc != s.proc {
		return
	}
	if s.chance(s.lose) {
		s.logf("batch %d is lost", b.Seq)
		return
	}
	s.send(b)
	for s.chance(s.dup) {
		s.send(s.batches[max(0, len(s.batches)-1-s.rng.IntN(3))])
	}
}

// send puts a batch on the wire: in order, with a delay.
func (s *sim) send(b Batch) {
	if s.chance(s.corrupt) {
		b.Body = append([]byte("x"), b.Body...)
	}
	epoch := s.epoch
	at := s.now.Add(time.Duration(s.rng.Int64N(int64(50 * time.Millisecond))))
	if at.Before(s.arrives) {
		at = s.arrives
	}
	s.arrives = at
	s.at(at, func() {
		if epoch != s.epoch && s.rng.IntN(2) == 0 { // the connection broke: usually what was under way is gone
			return
		}
		s.logf("live %d (epoch %d)", b.Seq, epoch)
		s.m.Live(epoch, b, s.now)
	})
}

// The connection.

func (s *sim) connect() {
	if s.up || !s.alive || s.stopped {
		return
	}
	s.epoch++
	s.up, s.connProc = true, s.proc
	s.logf("connected to process %d, epoch %d", s.proc, s.epoch)
	s.m.Connected(s.epoch, s.now)
	if s.processKnow {
		epoch, started := s.epoch, s.started
		s.after(time.Second, func() {
			if epoch == s.epoch && s.up {
				s.logf("process started at %v", started)
				s.m.Process(started, s.now)
			}
		})
	}
}

func (s *sim) cut() {
	if !s.up {
		return
	}
	s.logf("cut")
	s.up = false
	s.m.Disconnected(s.epoch, s.now)
	if s.token != 0 && s.chance(0.5) {
		s.breakReplay("connection reset")
	}
}

func (s *sim) breakReplay(why string) {
	token := s.token
	s.after(10*time.Millisecond, func() { s.m.ReplayFailed(token, errors.New(why), s.now) })
}

// The replay service.

func (s *sim) Replay(token int, from uint64) {
	s.token = token
	s.logf("replay %d from %d", token, from)
	if s.chance(s.mute) {
		if s.rng.IntN(2) == 0 {
			s.breakReplay("refused")
		}
		return
	}
	s.answers = s.now
	s.after(150*time.Millisecond, func() { // the publisher's thread gets to it
		if !s.alive || s.token != token {
			return
		}
		oldest := max(0, len(s.batches)-s.buffer)
		for n := oldest; n < len(s.batches); n++ {
			if s.batches[n].Seq < from || s.chance(s.holes) {
				continue
			}
			b := s.batches[n]
			s.answer(func() { s.m.Replayed(token, b, s.now) })
			if s.chance(0.01) {
				s.answer(func() { s.m.ReplayFailed(token, errors.New("broken off"), s.now) })
				return
			}
		}
		if !s.chance(s.holes) {
			s.answer(func() { s.m.ReplayEnd(token, s.now) })
		}
	})
}

func (s *sim) answer(do func()) {
	at := s.now.Add(time.Duration(s.rng.Int64N(int64(20 * time.Millisecond))))
	if at.Before(s.answers) {
		at = s.answers
	}
	s.answers = at
	s.at(at, do)
}

func (s *sim) Cancel(token int) {
	if s.rng.IntN(2) == 0 && s.token == token { // else the answers come anyway
		s.token = 0
	}
}

// The router.

func (s *sim) Apply(b Batch) Applied {
	var a Applied
	body := b.Body
	if len(body) > 0 && body[0] == 'x' {
		s.harmed = true
		s.logf("apply %d: corrupt", b.Seq)
		return Applied{Bad: true}
	}
	proc := int(binary.BigEndian.Uint32(body))
	s.logf("apply %d of process %d", b.Seq, proc)
	if s.any && proc == s.lastProc && b.Seq <= s.lastSeq {
		s.t.Errorf("batch %d of process %d was applied after %d", b.Seq, proc, s.lastSeq)
	}
	s.any, s.lastProc, s.lastSeq = true, proc, b.Seq
	for body = body[4:]; len(body) > 0; body = body[2:] {
		switch h := body[1]; body[0] {
		case '+':
			s.twin[h]++
		case '-':
			if s.twin[h]--; s.twin[h] <= 0 {
				delete(s.twin, h)
			}
		case 'c':
			clear(s.twin)
			a.Cleared = true
		}
	}
	return a
}

func (s *sim) Forget(why string) {
	s.logf("forget: %s", why)
	clear(s.twin)
	s.any = false
}

func (s *sim) Trust(t kv.Trust, why string) {
	s.logf("trust %v: %s", t, why)
	s.trust, s.why = t, why
	if why == "" {
		s.t.Errorf("%v without a reason", t)
	}
}

// check is the invariant.
func (s *sim) check() {
	if s.trust != kv.Exact || s.stopped {
		return
	}
	if !s.up {
		s.t.Errorf("exact while the connection is down")
		return
	}
	next, _ := s.m.Next()
	hist := s.history[s.connProc]
	truth := s.held
	if int(next) < len(hist) {
		truth = hist[next]
	} else if s.connProc != s.proc || next > s.next {
		s.t.Errorf("exact at batch %d, the process has published %d", next, len(hist))
		return
	}
	if !maps.Equal(s.twin, truth) {
		s.t.Errorf("exact before batch %d of process %d: believed %v, true %v", next, s.connProc, s.twin, truth)
	}
}

// run lets events happen until a time.
func (s *sim) run(until time.Time) {
	for !s.t.Failed() {
		tick := s.m.Deadline()
		next := until
		if len(s.q) > 0 && s.q[0].at.Before(next) {
			next = s.q[0].at
		}
		if !tick.IsZero() && tick.Before(next) {
			if tick.After(s.now) {
				s.now = tick
			}
			s.m.Tick(s.now)
			s.check()
			continue
		}
		s.now = next
		if len(s.q) == 0 || !s.q[0].at.Equal(next) {
			return
		}
		heap.Pop(&s.q).(event).do()
		s.check()
	}
}

func (s *sim) play() {
	s.m.Opened(s.now)
	s.boot()
	for range 150 {
		switch {
		case s.chance(s.restartRate):
			s.logf("process %d dies", s.proc)
			s.alive = false
			s.cut()
			s.at(s.now.Add(600*time.Millisecond+time.Duration(s.rng.Int64N(2e9))), func() {
				if !s.alive {
					s.boot()
				}
			})
		case s.chance(s.cutRate):
			s.cut()
		case s.chance(s.reloads):
			s.reload()
		case s.chance(s.reloads):
			s.keep()
		case s.chance(0.02):
			s.m.Refill("a test says so", s.now)
		case s.chance(0.02) && s.next > 0 && s.up && s.connProc == s.proc:
			s.logf("dropped up to %d", s.next-1)
			s.m.Dropped(s.epoch, s.next-1, s.now)
		case s.rng.IntN(3) == 0:
			s.connect()
		default:
			s.publish()
		}
		step := []time.Duration{time.Millisecond, 20 * time.Millisecond, time.Second, 6 * time.Second}[s.rng.IntN(4)]
		s.run(s.now.Add(time.Duration(s.rng.Int64N(int64(step)) + 1)))
	}
	s.quiet = true
	s.logf("quiet")
	s.run(s.now.Add(10 * time.Second)) // long enough for a process that was about to start
	s.connect()
	n := s.rng.IntN(3)
	if !s.replay {
		n++ // a last batch that was lost shows by the next one only
	}
	for range n {
		s.publish()
	}
	s.run(s.now.Add(10 * time.Minute))
	next, started := s.m.Next()
	switch {
	case s.t.Failed():
	case s.trust == kv.Exact && next != s.next:
		s.t.Errorf("after quiet: exact at batch %d of %d", next, s.next)
	case s.replay && s.buffer > 1<<20 && s.holes == 0 && !s.harmed && s.trust != kv.Exact:
		s.t.Errorf("after quiet: %v (%s), although everything can be replayed; next %d (%v) of %d", s.trust, s.why, next, started, s.next)
	case s.trust == kv.Blind || s.trust == kv.Unknown && s.next > 0 && s.replay:
		s.t.Errorf("after quiet: %v (%s)", s.trust, s.why)
	}
}

// TestFaults plays random faults. A seed that fails goes to testdata/seeds and
// is played first ever after.
func TestFaults(t *testing.T) {
	one := func(seed uint64) kv.Trust {
		var s *sim
		ok := t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			s = newSim(t, seed)
			s.log = *oneSeed >= 0
			s.play()
		})
		if !ok && *oneSeed < 0 {
			t.Fatalf("seed %d failed: put it into testdata/seeds; go test -run TestFaults -seed %d -v shows it", seed, seed)
		}
		return s.trust
	}
	if *oneSeed >= 0 {
		one(uint64(*oneSeed))
		return
	}
	kept, err := os.ReadFile("testdata/seeds")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(kept)) {
		if line, _, _ = strings.Cut(line, "#"); strings.TrimSpace(line) != "" {
			seed, err := strconv.ParseUint(strings.TrimSpace(line), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			one(seed)
		}
	}
	end := map[kv.Trust]int{}
	for seed := range *seeds {
		end[one(seed)]++
	}
	t.Logf("trust after quiet: %v", fmt.Sprint(end))
	if *seeds >= 1000 && (end[kv.Exact] < 300 || end[kv.Filling] < 50 || end[kv.Stale] < 20) {
		t.Errorf("the worlds are too uniform: %v", end)
	}
}
