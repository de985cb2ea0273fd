package sim

import (
	"encoding/json"
	"fmt"
	"io"

	"kvasir/kv"
	"kvasir/lab/mock"
	"kvasir/lab/trace"
)

// A chat is a session in the form in which the closed loop plays it.
type chat struct {
	turns []chatTurn
}

type chatTurn struct {
	think       float64
	prompt, out int
	blocks      []kv.Hash
}

// sharedIDs is where ids that all sessions share end: a session played again
// keeps those and gets fresh ones otherwise (docs/mock.md, "Workloads").
const sharedIDs = 4096

// A Crowd is the schedule of a closed loop: when each user starts, and how many
// requests are issued in all.
type Crowd struct {
	Replicas int       `json:"replicas"`
	Users    int       `json:"users"`
	Start    []float64 `json:"start"` // s, by user
	Requests int       `json:"requests"`
}

// readChats reads sessions of turns.
func readChats(r *trace.Reader) (list []chat, size int, err error) {
	for {
		s, err := r.NextSession()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, 0, err
		}
		if size == 0 {
			size = s.BlockSize
		}
		if s.BlockSize != size {
			return nil, 0, fmt.Errorf("session %s has blocks of %d tokens, those before have %d: one size per input", s.ID, s.BlockSize, size)
		}
		c := chat{turns: make([]chatTurn, len(s.Turns))}
		for i, t := range s.Turns {
			c.turns[i] = chatTurn{t.Think, t.Input, t.Output, hashes(t.Blocks)}
		}
		list = append(list, c)
	}
	if len(list) == 0 {
		return nil, 0, fmt.Errorf("the trace has no usable session")
	}
	return list, size, nil
}

// readWeka makes sessions of Claude Code files (docs/mock.md, "Workloads"): each
// main agent and each sub-agent with at least two requests, up to 60 requests
// and up to the first beyond 120,000 tokens, in an order drawn with seed.
func readWeka(r *trace.Reader, seed uint64) ([]chat, error) {
	const most, longest = 60, 120_000
	if seed == 0 {
		seed = 3
	}
	var list []chat
	offset := uint64(1) << 20
	for {
		f, err := r.NextWeka()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		top := uint64(0)
		agent := func(reqs []trace.WekaRequest, shared int) {
			for i := range reqs {
				for _, id := range reqs[i].Blocks {
					top = max(top, id)
				}
			}
			if len(reqs) < 2 {
				return
			}
			var c chat
			for i := range reqs[:min(most, len(reqs))] {
				q := &reqs[i]
				if q.Input > longest {
					break
				}
				b := make([]kv.Hash, len(q.Blocks))
				for k, id := range q.Blocks {
					if b[k] = kv.Hash(offset + id); k < shared {
						b[k] = kv.Hash(k)
					}
				}
				c.turns = append(c.turns, chatTurn{min(60, q.Think), q.Input, q.Output, b})
			}
			if len(c.turns) >= 2 {
				list = append(list, c)
			}
		}
		agent(f.Main, int(.5*float64(f.Tool+f.Sys)/512))
		for i := range f.Subs {
			agent(f.Subs[i].Requests, 4)
		}
		offset += top + 2
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("the trace has no session with two requests of at most %d tokens", longest)
	}
	NewPython(seed).Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list, nil
}

// crowdSource plays sessions closed loop: a user plays one session after the
// other; the next turn arrives its think time after the end of the last, the
// next session pause seconds after the last one's end. With once no session is
// played again, and the next one's first think time takes the place of pause.
type crowdSource struct {
	chats  []chat
	crowd  Crowd
	pause  float64
	once   bool
	paged  bool // engines announce the blocks that output fills
	size   int
	nextID uint64
	conv   int // sessions started so far
}

func (s *crowdSource) next() (*request, bool) { return nil, false }

func (s *crowdSource) begin(at func(*request)) {
	for _, t := range s.crowd.Start {
		s.open(t, at)
	}
}

// open starts the next session at time t.
func (s *crowdSource) open(t float64, at func(*request)) {
	conv := s.conv
	if s.once && conv >= len(s.chats) {
		return
	}
	s.conv++
	s.issue(conv, 0, t, at)
}

func (s *crowdSource) issue(conv, turn int, t float64, at func(*request)) {
	if int(s.nextID) >= s.crowd.Requests {
		return
	}
	c := &s.chats[conv%len(s.chats)].turns[turn]
	blocks := c.blocks
	if rep := conv / len(s.chats); rep > 0 {
		blocks = make([]kv.Hash, len(c.blocks))
		for i, h := range c.blocks {
			if h >= sharedIDs {
				h += kv.Hash(rep) << 40
			}
			blocks[i] = h
		}
	}
	n := len(blocks)
	if s.paged {
		blocks = s.withOutput(conv, turn, blocks)
	}
	q := &request{Request: mock.Request{ID: s.nextID, Prompt: c.prompt, Output: c.out, Blocks: blocks},
		arrival: t, session: uint64(conv), conv: int32(conv), turn: int32(turn), prompt: n}
	if turns := s.chats[conv%len(s.chats)].turns; turn+1 < len(turns) {
		q.think = turns[turn+1].think
	}
	s.nextID++
	at(q)
}

// withOutput appends the blocks that the turn's output will fill: the next
// turn's, if its prompt begins with this one.
func (s *crowdSource) withOutput(conv, turn int, blocks []kv.Hash) []kv.Hash {
	turns := s.chats[conv%len(s.chats)].turns
	if turn+1 >= len(turns) {
		return blocks
	}
	c, next := &turns[turn], turns[turn+1].blocks
	n, full := len(c.blocks), (c.prompt+c.out)/s.size
	if len(next) <= n || n > 0 && next[n-1] != c.blocks[n-1] {
		return blocks
	}
	out := append([]kv.Hash(nil), blocks...)
	for _, h := range next[n:min(full, len(next))] {
		if rep := conv / len(s.chats); rep > 0 && h >= sharedIDs {
			h += kv.Hash(rep) << 40
		}
		out = append(out, h)
	}
	return out
}

func (s *crowdSource) ended(q *request, now float64, at func(*request)) {
	turns := s.chats[int(q.conv)%len(s.chats)].turns
	if next := int(q.turn) + 1; next < len(turns) {
		s.issue(int(q.conv), next, now+turns[next].think, at)
		return
	}
	s.open(now+s.between(), at)
}

// between returns the time from the end of a user's session to the next one.
func (s *crowdSource) between() float64 {
	if s.once && s.conv < len(s.chats) {
		return s.chats[s.conv].turns[0].think
	}
	return s.pause
}

// Rollouts are the parameters of the RL rollout experiment (cells/README).
type Rollouts struct {
	Steps           int     `json:"steps"`
	PerStep         int     `json:"rollouts_per_step"`
	Turns           int     `json:"turns"`
	InFlight        int     `json:"in_flight"`
	Input           int     `json:"input"`
	SharedBlocks    int     `json:"shared_blocks"`
	OwnBlocks       int     `json:"own_blocks"`
	BlockSize       int     `json:"block_size"`
	Output          int     `json:"output"`
	StragglerOutput int     `json:"straggler_final_output"`
	Feedback        int     `json:"feedback"`
	Think           float64 `json:"think_s"`
	Spacing         float64 `json:"start_spacing_s"`
	Stragglers      [][]int `json:"stragglers"`
}

func readRollouts(src io.Reader, name string) (*Rollouts, error) {
	d := json.NewDecoder(src)
	d.DisallowUnknownFields()
	var r Rollouts
	if err := d.Decode(&r); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return &r, r.validate()
}

func (r *Rollouts) validate() error {
	for _, f := range []struct {
		name      string
		v, lo, hi int
	}{
		{"steps", r.Steps, 1, 1 << 20}, {"rollouts_per_step", r.PerStep, 1, 1 << 16}, {"turns", r.Turns, 1, 1 << 12},
		{"in_flight", r.InFlight, 1, 1 << 20}, {"input", r.Input, 1, 1 << 24}, {"block_size", r.BlockSize, 1, 1 << 16},
		{"shared_blocks", r.SharedBlocks, 0, 1 << 20}, {"own_blocks", r.OwnBlocks, 0, 1 << 20},
		{"output", r.Output, 1, 1 << 24}, {"straggler_final_output", r.StragglerOutput, 1, 1 << 24}, {"feedback", r.Feedback, 0, 1 << 24},
	} {
		if f.v < f.lo || f.v > f.hi {
			return fmt.Errorf("rollouts: %s is %d, must be between %d and %d", f.name, f.v, f.lo, f.hi)
		}
	}
	if !(r.Think >= 0 && r.Think < 1e6 && r.Spacing >= 0 && r.Spacing < 1e6) {
		return fmt.Errorf("rollouts: think_s is %v and start_spacing_s is %v, must be seconds >= 0", r.Think, r.Spacing)
	}
	if len(r.Stragglers) != 0 && len(r.Stragglers) != r.Steps {
		return fmt.Errorf("rollouts: stragglers has %d steps, must have %d", len(r.Stragglers), r.Steps)
	}
	return nil
}

// rolloutSource keeps InFlight rollouts going; a rollout's prompt grows by its
// output and the feedback each turn.
type rolloutSource struct {
	r       *Rollouts
	straggl []bool // by rollout
	started int
	nextID  uint64
	fresh   kv.Hash
	blocks  map[int32][]kv.Hash // of the rollouts in flight
}

func newRolloutSource(r *Rollouts) *rolloutSource {
	s := &rolloutSource{r: r, straggl: make([]bool, r.Steps*r.PerStep), fresh: kv.Hash(r.SharedBlocks), blocks: map[int32][]kv.Hash{}}
	for step, list := range r.Stragglers {
		for _, k := range list {
			if k >= 0 && k < r.PerStep {
				s.straggl[step*r.PerStep+k] = true
			}
		}
	}
	return s
}

func (s *rolloutSource) next() (*request, bool) { return nil, false }

func (s *rolloutSource) begin(at func(*request)) {
	for i := range s.r.InFlight {
		s.open(float64(i)*s.r.Spacing, at)
	}
}

func (s *rolloutSource) open(t float64, at func(*request)) {
	if s.started >= len(s.straggl) {
		return
	}
	conv := int32(s.started)
	s.started++
	var blocks []kv.Hash
	for i := range s.r.SharedBlocks {
		blocks = append(blocks, kv.Hash(i))
	}
	for range s.r.OwnBlocks {
		blocks = append(blocks, s.fresh)
		s.fresh++
	}
	s.blocks[conv] = blocks
	s.issue(conv, 0, t, at)
}

func (s *rolloutSource) issue(conv, turn int32, t float64, at func(*request)) {
	prompt := s.r.Input + int(turn)*(s.r.Output+s.r.Feedback)
	blocks := s.blocks[conv]
	for len(blocks) < prompt/s.r.BlockSize {
		blocks = append(blocks, s.fresh)
		s.fresh++
	}
	s.blocks[conv] = blocks
	out := s.r.Output
	if int(turn) == s.r.Turns-1 && s.straggl[conv] {
		out = s.r.StragglerOutput
	}
	n := prompt / s.r.BlockSize
	q := &request{Request: mock.Request{ID: s.nextID, Prompt: prompt, Output: out, Blocks: blocks[:n]},
		arrival: t, session: uint64(conv), conv: conv, turn: turn, prompt: n}
	if int(turn)+1 < s.r.Turns {
		q.think = s.r.Think
	}
	s.nextID++
	at(q)
}

func (s *rolloutSource) ended(q *request, now float64, at func(*request)) {
	if int(q.turn)+1 < s.r.Turns {
		s.issue(q.conv, q.turn+1, now+s.r.Think, at)
		return
	}
	delete(s.blocks, q.conv)
	s.open(now, at)
}

func rolloutWorkload(name string, r *Rollouts) *Workload {
	return &Workload{name: name, size: r.BlockSize, speed: 1, total: r.Steps * r.PerStep * r.Turns,
		closed: func(bool) source { return newRolloutSource(r) }}
}
