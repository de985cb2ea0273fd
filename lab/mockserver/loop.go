package mockserver

import (
	"sync"
	"time"

	"kvasir/kv"
	"kvasir/lab/mock"
)

// A job is one prompt in the model's hands: one choice of a request.
type job struct {
	req       mock.Request
	tokens    []uint32 // prompt and output
	salt      string
	session   string
	cached    int
	progress  chan piece // has room for every piece: the loop never waits for a client
	cancelled bool
}

// A piece is what a job got from one step.
type piece struct {
	tokens int
	cached int  // with first
	first  bool //
	done   bool //
	failed bool // the engine stopped
}

// A loop owns the model. All its fields but the channels belong to its goroutine.
type loop struct {
	engine *mock.Engine
	pub    *publisher
	cfg    *Config
	start  time.Time

	do   chan func()
	quit chan struct{}
	done sync.WaitGroup

	jobs   map[uint64]*job
	nextID uint64
	// aborted are kept until the step in progress has announced their blocks.
	aborted []uint64
	out     mock.Outcome
	batch   batch
	lost    float64 // share of batches to lose, carried from batch to batch
}

func newLoop(cfg *Config, e *mock.Engine, p *publisher) *loop {
	return &loop{
		engine: e, pub: p, cfg: cfg, start: time.Now(),
		do: make(chan func()), quit: make(chan struct{}), jobs: map[uint64]*job{},
		batch: batch{dialect: cfg.Dialect},
	}
}

func (l *loop) now() time.Duration { return time.Since(l.start) }

// run gives the model real time until quit is closed.
func (l *loop) run() {
	defer l.done.Done()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		var due <-chan time.Time
		if at, busy := l.engine.Next(); busy {
			timer.Reset(max(at-l.now(), 0))
			due = timer.C
		}
		select {
		case f := <-l.do:
			f()
		case <-due:
			at, _ := l.engine.Next()
			l.engine.Advance(at, &l.out)
			l.publish()
			l.report()
			for _, id := range l.aborted {
				delete(l.jobs, id)
			}
			l.aborted = l.aborted[:0]
		case <-l.quit:
			for _, j := range l.jobs {
				if !j.cancelled {
					j.progress <- piece{failed: true}
				}
			}
			return
		}
	}
}

// call runs f on the loop's goroutine; false if the loop has ended.
func (l *loop) call(f func()) bool {
	done := make(chan struct{})
	select {
	case l.do <- func() { f(); close(done) }:
		<-done
		return true
	case <-l.quit:
		return false
	}
}

// submit hands j to the model.
func (l *loop) submit(j *job) (err error) {
	ok := l.call(func() {
		l.nextID++
		j.req.ID = l.nextID
		if err = l.engine.Submit(&j.req, l.now()); err == nil {
			l.jobs[j.req.ID] = j
		}
	})
	if !ok {
		return errStopped
	}
	return err
}

// abort takes j back, because its client has gone.
func (l *loop) abort(j *job) {
	l.call(func() {
		if _, ok := l.jobs[j.req.ID]; ok && !j.cancelled {
			j.cancelled = true
			l.engine.Abort(j.req.ID, l.now())
			l.aborted = append(l.aborted, j.req.ID)
		}
	})
}

// report passes the step's progress on.
func (l *loop) report() {
	for _, p := range l.out.Progress {
		j := l.jobs[p.ID]
		if j == nil || j.cancelled {
			continue
		}
		if p.First {
			j.cached = p.Cached
		}
		if p.Done {
			delete(l.jobs, p.ID)
		}
		j.progress <- piece{tokens: p.Tokens, first: p.First, cached: j.cached, done: p.Done}
	}
}

// publish sends the step's events as one batch.
func (l *loop) publish() {
	if len(l.out.Events) == 0 || l.pub == nil {
		return
	}
	l.batch.reset()
	for i := range l.out.Events {
		l.event(&l.out.Events[i])
	}
	lose := false
	if l.lost += l.cfg.Faults.LoseEvents; l.lost >= 1 {
		l.lost--
		lose = true
	}
	ts := float64(time.Now().UnixNano()) / 1e9
	payload := l.batch.payload(nil, ts, 0)
	if d := l.cfg.Faults.DelayEvents; d > 0 {
		time.AfterFunc(d, func() { l.pub.send(payload, lose) })
		return
	}
	l.pub.send(payload, lose)
}

func (l *loop) event(e *mock.Event) {
	switch e.Kind {
	case kv.Removed:
		l.batch.removed(e.Hash)
	case kv.Cleared:
		l.batch.cleared()
	case kv.Stored:
		j := l.jobs[e.ID]
		bs := l.cfg.BlockSize
		s := stored{
			hashes: e.Hashes, root: e.First == 0, tokens: j.tokens[e.First*bs : (e.First+e.N)*bs],
			blockSize: bs, salt: j.salt, session: j.session,
		}
		if !s.root {
			s.parent = j.req.Blocks[e.First-1]
		}
		l.batch.stored(&s)
	}
}
