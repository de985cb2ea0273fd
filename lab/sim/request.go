package sim

import (
	"errors"
	"time"

	"kvasir/kv"
	"kvasir/lab/mock"
	"kvasir/sched"
)

// errNowhere says that no replica can take a request now, errShed that the policy
// refuses it.
var (
	errNowhere = errors.New("no replica can take the request")
	errShed    = errors.New("the request is refused")
)

// A request is one prompt's life. Times in seconds of virtual time.
type request struct {
	mock.Request
	arrival float64 // first arrival; a retry doesn't move it
	session uint64  // hash key of the session, as the trace gives it
	conv    int32   // running number of the session in this run
	turn    int32
	think   float64 // s from the end of the answer to the session's next turn; 0: none, or not known
	prompt  int     // leading Blocks that are of the prompt; the others fill with the output

	replica int
	match   int // leading blocks that the view had on the chosen replica
	est     int // prompt tokens that the ledger booked as uncached
	booked  float64
	hit     int // prompt tokens that the engine found
	started bool
	told    int // output tokens that the router knows of
	first   float64
	done    float64

	went int // of receipts: where it went
	said said

	// With the production core:
	gateway  int
	decision *sched.Decision
	mirrors  []*sched.Decision // the same decision as the other gateways book it
	nextTurn time.Duration     // what the client says of think
	believed int               // prompt tokens that the core thought were held there
	exclude  []kv.Target       // where it failed
}

// blocks are the hashes of the full blocks of the prompt.
func (q *request) blocks() []kv.Hash { return q.Blocks[:q.prompt] }

// A source yields the requests of one run.
type source interface {
	// next returns the next open-loop arrival, in order of time.
	next() (q *request, ok bool)
	// begin schedules the first closed-loop arrivals.
	begin(at func(q *request))
	// ended is told each completion (or failure) and may schedule further
	// arrivals.
	ended(q *request, now float64, at func(q *request))
}
