package sim

import (
	"sync"

	"kvasir/kv"
	"kvasir/lab/mock"
)

// A Workload makes the requests of any number of runs. It is read-only once it
// is made, so that runs share it. Load and Generate make one.
type Workload struct {
	name string
	size int // tokens per block

	recorded *Recorded     // what a receipt log says of itself, nil for others
	open     []openArrival // an open loop: fixed arrivals, in order of time
	speed    float64       // factor on their rate

	closed        func(paged bool) source // a closed loop
	chats         []chat                  // its sessions, if it is made of sessions
	total         int                     // requests that it will make, 0 unknown
	crowdReplicas int                     // fleet that its start times are for, 0 any
	chains        func(yield func([]kv.Hash))
	warm          []kv.Hash // a prompt that every cache holds from the start

	once sync.Once
	memo *names
}

// Name says what the workload is, for tables.
func (w *Workload) Name() string { return w.name }

// BlockSize returns the tokens per block.
func (w *Workload) BlockSize() int { return w.size }

// requests returns how many requests a run will have, 0 if that isn't known.
func (w *Workload) requests() int { return max(w.total, len(w.open)) }

// An openArrival is a request with a fixed arrival time.
type openArrival struct {
	at          float64
	prompt, out int
	session     uint64
	conv        int32
	blocks      []kv.Hash

	// Of receipts:
	went int // the replica, by its number in Recorded.targets
	said said
}

// prepare computes once what all runs share.
func (w *Workload) prepare() {
	w.once.Do(func() {
		w.memo = newNames(w.size, nil)
		var scratch []kv.Hash
		add := func(b []kv.Hash) { scratch = w.memo.chain(scratch[:0], b) }
		for i := range w.open {
			add(w.open[i].blocks)
		}
		if w.chains != nil {
			w.chains(add)
		}
	})
}

// start returns the source of one run. With paged engines the blocks that output
// fills are announced, where the trace knows them.
func (w *Workload) start(paged bool) source {
	var s source
	if w.closed != nil {
		s = w.closed(paged)
	} else {
		s = &openSource{w: w}
	}
	return named{s, w.memo}
}

// named is a source that knows the hashes of its block ids.
type named struct {
	source
	memo *names
}

func (n named) names() *names { return n.memo }

type openSource struct {
	w *Workload
	n int
}

func (s *openSource) next() (*request, bool) {
	if s.n >= len(s.w.open) {
		return nil, false
	}
	a := &s.w.open[s.n]
	q := &request{Request: mock.Request{ID: uint64(s.n), Prompt: a.prompt, Output: a.out, Blocks: a.blocks},
		arrival: a.at / s.w.speed, session: a.session, conv: a.conv, prompt: len(a.blocks), went: a.went, said: a.said, nextTurn: a.said.nextTurn}
	s.n++
	return q, true
}

func (s *openSource) begin(func(*request)) {}

func (s *openSource) ended(*request, float64, func(*request)) {}
