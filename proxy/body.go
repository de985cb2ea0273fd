package proxy

import (
	"errors"
	"io"
	"math/bits"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

var (
	errTooLarge = errors.New("the request's body is too large")
	errClosed   = errors.New("proxy: body is closed")
	errNoRoom   = errors.New("no memory is left for the request's body")
)

// A body is a request's body as the client sent it. Engines' connections read from
// it while, and shortly after, the handler runs: the last holder gives the
// memory back.
type body struct {
	b      []byte
	refs   atomic.Int32
	budget *budget
	cost   int64 // taken from the budget
}

// keepBody bounds the memory that one idle body keeps. Those of up to smallBody are kept
// apart: a small request must not pay for the memory of a large one.
const keepBody, smallBody = 1 << 20, 64 << 10

// proven is how much of an announced body must have come, in bytes, before memory
// for all of it is taken.
const proven = 256 << 10

var (
	bodies      = sync.Pool{New: func() any { return new(body) }}
	largeBodies = sync.Pool{New: func() any { return new(body) }}
)

// bodyPace is how many bytes must come within each bodyWindow.
const bodyPace, bodyWindow = 10 << 10, 10 * time.Second

// A budget bounds the memory of all bodies.
type budget struct {
	max  int64
	used atomic.Int64
}

// take reports whether n bytes more are within the budget. Large bodies leave a quarter
// to the others.
func (g *budget) take(n int64, large bool) bool {
	limit := g.max
	if large {
		limit -= limit / 4
	}
	if g.used.Add(n) <= limit {
		return true
	}
	g.used.Add(-n)
	return false
}

// readBody reads the whole body of r, at most MaxBody bytes, else errTooLarge; in time,
// else os.ErrDeadlineExceeded; within the budget for all, else errNoRoom. The server has
// set a deadline for the first of it. The caller holds the body until release.
func (p *Proxy) readBody(w http.ResponseWriter, r *http.Request) (_ *body, err error) {
	limit := p.cfg.MaxBody
	if r.ContentLength > limit {
		return nil, errTooLarge
	}
	pool := &bodies
	if r.ContentLength > smallBody {
		pool = &largeBodies
	}
	b := pool.Get().(*body)
	b.b, b.budget, b.cost = b.b[:0], &p.bodies, 0
	b.refs.Store(1)
	if r.ContentLength == 0 || r.Body == nil || r.Body == http.NoBody {
		setReadDeadline(w, time.Time{})
		return b, nil
	}
	defer func() {
		if err != nil {
			b.release()
		}
	}()
	// What the client announces is believed up to a point; the rest must come first.
	if want := min(r.ContentLength, proven); int64(cap(b.b)) < want {
		b.b = make([]byte, 0, want)
	}
	if b.cost = int64(cap(b.b)); !b.budget.take(b.cost, false) {
		b.cost = 0
		return nil, errNoRoom
	}
	pace := pace{begun: time.Now()}
	for {
		if len(b.b) == cap(b.b) {
			if int64(len(b.b)) == r.ContentLength {
				break // net/http has checked that nothing follows
			}
			if err := b.grow(r.ContentLength); err != nil {
				return nil, err
			}
		}
		n, err := r.Body.Read(b.b[len(b.b):cap(b.b)])
		b.b = b.b[:len(b.b)+n]
		if int64(len(b.b)) > limit {
			return nil, errTooLarge
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		pace.keep(w, len(b.b), p.cfg.Body)
	}
	setReadDeadline(w, time.Time{}) // from here on a read only finds out whether the client leaves
	return b, nil
}

// grow makes room for more, all of it if enough of the announced length has come.
func (b *body) grow(announced int64) error {
	next := max(1<<bits.Len(uint(cap(b.b))), 4<<10)
	if len(b.b) >= proven && announced > 0 {
		next = int(announced)
	}
	old := b.b
	b.b = nil
	if !b.budget.take(int64(next)-b.cost, next > proven) {
		return errNoRoom
	}
	b.cost = int64(next)
	b.b = make([]byte, len(old), next)
	copy(b.b, old)
	return nil
}

// A pace is how fast a body comes.
type pace struct {
	begun time.Time
	since time.Duration // when the window began, since begun
	had   int           // bytes, by then
}

// keep moves the deadline once enough has come, seldom rather than for each read.
func (x *pace) keep(w http.ResponseWriter, have int, limit time.Duration) {
	if have-x.had < bodyPace {
		return
	}
	now := time.Since(x.begun)
	if now-x.since < bodyWindow/10 {
		return
	}
	x.since, x.had = now, have
	setReadDeadline(w, x.begun.Add(min(now+bodyWindow, limit)))
}

// setReadDeadline bounds reads from the client. A writer that some wrapper has robbed of
// it has none.
func setReadDeadline(w http.ResponseWriter, t time.Time) {
	http.NewResponseController(w).SetReadDeadline(t)
}

func (b *body) release() {
	if b.refs.Add(-1) > 0 {
		return
	}
	b.budget.used.Add(-b.cost)
	switch n := cap(b.b); {
	case n <= smallBody:
		bodies.Put(b)
	case n <= keepBody:
		largeBodies.Put(b)
	}
}

// An upload is one sending of a body. net/http may read it, and close it, after
// the round trip has failed and another engine has the request.
type upload struct {
	mu   sync.Mutex
	body *body // guarded by mu; nil when closed
	off  int   // guarded by mu
}

func (b *body) upload() *upload {
	b.refs.Add(1)
	return &upload{body: b}
}

// Read copies the next bytes of the body.
func (u *upload) Read(p []byte) (int, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.body == nil {
		return 0, errClosed
	}
	n := copy(p, u.body.b[u.off:])
	u.off += n
	if u.off == len(u.body.b) {
		return n, io.EOF
	}
	return n, nil
}

// Close gives the body up.
func (u *upload) Close() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.body != nil {
		u.body.release()
		u.body = nil
	}
	return nil
}
