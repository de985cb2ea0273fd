package sim

import (
	"slices"

	"kvasir/kv"
	"kvasir/lab/mock"
)

// The published parameters of the RL rollout benchmark (docs/mock.md, "Rollouts").
const (
	pubSystem    = 2048 // tokens that all share
	pubStep      = 512  // tokens that a step's rollouts share
	pubBrief     = 1024 // tokens of the rollout's own
	pubFeedback  = 64   // tokens of instruction per later turn
	pubOutput    = 1024
	pubStraggler = 8192 // output of the last turn of rollouts 0 and 4 of each step
	pubTurns     = 10
	pubBlock     = 16
	pubPerStep   = 8
)

// creditSource keeps a number of turns in flight: one pool over all rollouts, no
// barrier between steps. A freed credit goes to a turn that is ready.
type creditSource struct {
	steps, credits int
	fifo           bool

	waiting []creditTurn // rollouts, by start
	ready   []creditTurn // continuations, in the order in which they became ready
	blocks  [][]kv.Hash  // by rollout
	fresh   kv.Hash
	nextID  uint64
}

// A creditTurn is a turn and when it is (or will be) ready.
type creditTurn struct {
	at            float64
	rollout, turn int
}

func genPublished(p *params) (*Workload, error) {
	steps, credits, fifo := p.n("steps"), p.n("credits"), p.n("fifo") == 1
	return &Workload{size: pubBlock, speed: 1, total: steps * pubPerStep * pubTurns,
		warm:   pubPrompt(pubSystem/pubBlock, 0),
		closed: func(bool) source { return newCreditSource(steps, credits, fifo) }}, nil
}

// pubPrompt returns n block ids from the given one on.
func pubPrompt(n int, from kv.Hash) []kv.Hash {
	b := make([]kv.Hash, n)
	for i := range b {
		b[i] = from + kv.Hash(i)
	}
	return b
}

func newCreditSource(steps, credits int, fifo bool) *creditSource {
	s := &creditSource{steps: steps, credits: credits, fifo: fifo}
	system := pubPrompt(pubSystem/pubBlock, 0)
	s.fresh = kv.Hash(len(system))
	for step := range steps {
		shared := slices.Concat(system, s.more(pubStep/pubBlock))
		for k := range pubPerStep {
			delay := 3.2
			switch k {
			case 0:
				delay = 0
			case 4:
				delay = 2.2
			}
			s.waiting = append(s.waiting, creditTurn{.25*float64(step) + delay, step*pubPerStep + k, 0})
			s.blocks = append(s.blocks, slices.Concat(shared, s.more(pubBrief/pubBlock)))
		}
	}
	slices.SortStableFunc(s.waiting, func(a, b creditTurn) int {
		switch {
		case a.at < b.at:
			return -1
		case a.at > b.at:
			return 1
		}
		return 0
	})
	return s
}

func (s *creditSource) more(n int) []kv.Hash {
	b := pubPrompt(n, s.fresh)
	s.fresh += kv.Hash(n)
	return b
}

func (s *creditSource) next() (*request, bool) { return nil, false }

func (s *creditSource) begin(at func(*request)) {
	for range s.credits {
		s.spend(0, at)
	}
}

// spend gives one credit to a turn: to one that is ready, else to the rollout
// that will be ready next.
func (s *creditSource) spend(now float64, at func(*request)) {
	continued := len(s.ready) > 0
	started := len(s.waiting) > 0 && (s.waiting[0].at <= now || !continued)
	var t creditTurn
	switch {
	case continued && (!started || !s.fifo || s.ready[0].at <= s.waiting[0].at):
		t, s.ready = s.ready[0], s.ready[1:]
	case started:
		t, s.waiting = s.waiting[0], s.waiting[1:]
	default:
		return
	}
	prompt := pubSystem + pubStep + pubBrief + pubFeedback + t.turn*(pubOutput+pubFeedback)
	b := s.blocks[t.rollout]
	b = append(b, s.more(prompt/pubBlock-len(b))...)
	s.blocks[t.rollout] = b
	out := pubOutput
	if k := t.rollout % pubPerStep; t.turn == pubTurns-1 && (k == 0 || k == 4) {
		out = pubStraggler
	}
	n := prompt / pubBlock
	q := &request{Request: mock.Request{ID: s.nextID, Prompt: prompt, Output: out, Blocks: b[:n]},
		arrival: max(now, t.at), session: uint64(t.rollout), conv: int32(t.rollout), turn: int32(t.turn), prompt: n}
	s.nextID++
	at(q)
}

func (s *creditSource) ended(q *request, now float64, at func(*request)) {
	if int(q.turn)+1 < pubTurns {
		s.ready = append(s.ready, creditTurn{now, int(q.conv), int(q.turn) + 1})
	}
	s.spend(now, at)
}
