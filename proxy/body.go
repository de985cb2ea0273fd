package proxy

import (
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
)

var (
	errTooLarge = errors.New("the request's body is too large")
	errClosed   = errors.New("proxy: body is closed")
)

// A body is a request's body as the client sent it. Engines' connections read from
// it while, and shortly after, the handler runs: the last holder gives the
// memory back.
type body struct {
	b    []byte
	refs atomic.Int32
}

// keepBody bounds the memory that one idle body keeps.
const keepBody = 1 << 20

// proven is how much of an announced body must have come, in bytes, before memory
// for all of it is taken.
const proven = 256 << 10

var bodies = sync.Pool{New: func() any { return new(body) }}

// readBody reads the whole body of r, at most limit bytes, else errTooLarge. The
// caller holds it until release.
func readBody(r *http.Request, limit int64) (*body, error) {
	if r.ContentLength > limit {
		return nil, errTooLarge
	}
	b := bodies.Get().(*body)
	b.b = b.b[:0]
	b.refs.Store(1)
	if r.Body == nil || r.Body == http.NoBody {
		return b, nil
	}
	// What the client announces is believed up to a point; the rest must come first.
	if want := min(r.ContentLength, proven); int64(cap(b.b)) < want {
		b.b = make([]byte, 0, want)
	}
	for {
		if len(b.b) == cap(b.b) {
			if int64(len(b.b)) == r.ContentLength {
				break // net/http has checked that nothing follows
			}
			next := max(2*cap(b.b), 4<<10)
			if len(b.b) >= proven && r.ContentLength > 0 {
				next = int(r.ContentLength)
			}
			grown := make([]byte, len(b.b), next)
			copy(grown, b.b)
			b.b = grown
		}
		n, err := r.Body.Read(b.b[len(b.b):cap(b.b)])
		b.b = b.b[:len(b.b)+n]
		if int64(len(b.b)) > limit {
			b.release()
			return nil, errTooLarge
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			b.release()
			return nil, err
		}
	}
	return b, nil
}

func (b *body) release() {
	if b.refs.Add(-1) == 0 && cap(b.b) <= keepBody {
		bodies.Put(b)
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
