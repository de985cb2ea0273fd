package seq

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"kvasir/kv"
)

// A printer is a Sink for scripts.
type printer struct {
	strings.Builder
	token int
}

func (p *printer) Apply(b Batch) Applied {
	fmt.Fprintf(p, "apply %d", b.Seq)
	var a Applied
	switch string(b.Body) {
	case "clear":
		a.Cleared = true
	case "missed":
		a.Missed = 1
	case "lost":
		a.Lost = 1
	case "bad":
		a.Bad = true
	}
	if len(b.Body) > 0 {
		fmt.Fprintf(p, " (%s)", b.Body)
	}
	p.WriteByte('\n')
	return a
}
func (p *printer) Forget(why string) { fmt.Fprintf(p, "forget: %s\n", why) }
func (p *printer) Replay(token int, from uint64) {
	p.token = token
	fmt.Fprintf(p, "replay from %d\n", from)
}
func (p *printer) Cancel(token int)             { fmt.Fprintln(p, "cancel") }
func (p *printer) Trust(t kv.Trust, why string) { fmt.Fprintf(p, "trust %v: %s\n", t, why) }

// TestScripts runs each named transition. The language, a line a step:
//
//	new [replay] [hold=N] [bytes=N] [jitter=F]   a machine
//	open                       the subscription was asked for
//	up | down                  the connection, with a new epoch each time
//	live SEQ [@TIME] [BODY]    a batch from the subscription; BODY: clear, missed, lost or bad
//	old SEQ                    a batch of the connection before
//	replay SEQ [@TIME]         an answer to the running replay; late-replay: to one that is over
//	end | fail                 of the replay
//	process START              the start time of the engine's process
//	dropped SEQ                the ring overflowed
//	emptied                    the cache is known to be empty
//	discard                    forget now, and fill again
//	refill | plain             ask for a refill; a batch without a number
//	wait DURATION              time goes by, up to the next deadline and over it
//	mark                       where it stands, for a snapshot
//	load                       a new machine of the same kind goes on from the last mark
//	old-plain, old-down, old-dropped SEQ, late-end, late-fail   of the connection, or the replay, before
//	tick                       time is looked at, though nothing is due
//	stats | where | when       the counters; the next number; the next deadline, from now
//
// TIME is SEQ unless given, so batches age with their numbers.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, path string) {
		var m *Machine
		var c Config
		var kept Mark
		p := &printer{}
		now := time.Unix(1_000_000, 0)
		epoch := uint64(0)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			p.Reset()
			for line := range strings.Lines(d.Input) {
				f := strings.Fields(line)
				if len(f) == 0 {
					continue
				}
				number := func(i int) uint64 {
					if i >= len(f) {
						d.Fatalf(t, "%q: too short", line)
					}
					v, err := strconv.ParseUint(f[i], 10, 64)
					if err != nil {
						d.Fatalf(t, "%q: %v", line, err)
					}
					return v
				}
				batch := func() Batch {
					b := Batch{Seq: number(1)}
					b.Time = float64(b.Seq)
					for _, x := range f[2:] {
						if v, ok := strings.CutPrefix(x, "@"); ok {
							b.Time, _ = strconv.ParseFloat(v, 64)
						} else {
							b.Body = []byte(x)
						}
					}
					return b
				}
				fmt.Fprintf(p, "> %s\n", strings.TrimSpace(line))
				switch f[0] {
				case "new":
					c = Config{}
					for _, x := range f[1:] {
						if v, ok := strings.CutPrefix(x, "hold="); ok {
							c.HoldBatches, _ = strconv.Atoi(v)
						} else if v, ok := strings.CutPrefix(x, "bytes="); ok {
							c.HoldBytes, _ = strconv.Atoi(v)
						} else if v, ok := strings.CutPrefix(x, "jitter="); ok {
							j, _ := strconv.ParseFloat(v, 64)
							c.Jitter = func() float64 { return j }
						} else if x == "replay" {
							c.Replay = true
						}
					}
					m = New(c, p)
				case "up":
					epoch++
					m.Connected(epoch, now)
				case "down":
					m.Disconnected(epoch, now)
				case "live":
					m.Live(epoch, batch(), now)
				case "plain":
					b := Batch{}
					if len(f) > 1 {
						b.Body = []byte(f[1])
					}
					m.Unsequenced(epoch, b, now)
				case "old-down":
					m.Disconnected(epoch-1, now)
				case "old-dropped":
					m.Dropped(epoch-1, number(1), now)
				case "late-end":
					m.ReplayEnd(p.token-1, now)
				case "late-fail":
					m.ReplayFailed(p.token-1, errors.New("broken"), now)
				case "tick":
					m.Tick(now)
				case "old-plain":
					m.Unsequenced(epoch-1, Batch{}, now)
				case "old":
					m.Live(epoch-1, batch(), now)
				case "replay":
					m.Replayed(p.token, batch(), now)
				case "late-replay":
					m.Replayed(p.token-1, batch(), now)
				case "end":
					m.ReplayEnd(p.token, now)
				case "fail":
					m.ReplayFailed(p.token, errors.New("broken"), now)
				case "process":
					start, _ := strconv.ParseFloat(f[1], 64)
					m.Process(start, now)
				case "emptied":
					m.Emptied("the engine sleeps", now)
				case "dropped":
					m.Dropped(epoch, number(1), now)
				case "discard":
					m.Discard("an adapter has gone", now)
				case "refill":
					m.Refill("drift", now)
				case "wait":
					w, err := time.ParseDuration(f[1])
					if err != nil {
						d.Fatalf(t, "%q: %v", line, err)
					}
					until := now.Add(w)
					for {
						at := m.Deadline()
						if at.IsZero() || at.After(until) {
							break
						}
						if !at.After(now) && at != now {
							at = now
						}
						now = at
						m.Tick(now)
						if next := m.Deadline(); next.Equal(at) {
							d.Fatalf(t, "%q: Tick at the deadline %v did nothing", line, at)
						}
					}
					now = until
				case "when":
					if at := m.Deadline(); at.IsZero() {
						fmt.Fprintln(p, "never")
					} else {
						fmt.Fprintf(p, "in %v\n", at.Sub(now))
					}
				case "where":
					next, started := m.Next()
					fmt.Fprintf(p, "next %d, started %v, replaying %v, last time %v\n", next, started, m.mode != none, m.LastTime())
				case "open":
					m.Opened(now)
				case "mark":
					k, ok := m.Mark()
					fmt.Fprintf(p, "%+v %v\n", k, ok)
					kept = k
				case "load":
					m = New(c, p)
					m.Resume(kept)
					m.Opened(now)
				case "stats":
					fmt.Fprintf(p, "%+v\n", m.Stats())
				default:
					d.Fatalf(t, "%q: unknown step", line)
				}
			}
			return p.String()
		})
	})
}
