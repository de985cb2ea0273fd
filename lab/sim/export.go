package sim

import (
	"fmt"
	"strconv"

	"kvasir/kv"
	"kvasir/lab/trace"
)

// Trace returns the workload as package replay plays it in real time: requests of an
// open loop, at the workload's rate, or sessions of a closed one, each once. Rollouts
// have neither.
func (w *Workload) Trace() (requests []trace.Request, sessions []trace.Session, err error) {
	for i := range w.open {
		a := &w.open[i]
		requests = append(requests, trace.Request{ID: int64(i), At: a.at / w.speed, Input: a.prompt, Output: a.out,
			Session: strconv.Itoa(int(a.conv)), Blocks: numbers(a.blocks), BlockSize: w.size})
	}
	for i, c := range w.chats {
		s := trace.Session{ID: strconv.Itoa(i), BlockSize: w.size}
		for _, t := range c.turns {
			s.Turns = append(s.Turns, trace.Turn{Think: t.think, Input: t.prompt, Output: t.out, Blocks: numbers(t.blocks)})
		}
		sessions = append(sessions, s)
	}
	if len(requests)+len(sessions) == 0 {
		return nil, nil, fmt.Errorf("%s is neither requests at fixed times nor sessions: only kvasir sim can play it", w.name)
	}
	return requests, sessions, nil
}

func numbers(blocks []kv.Hash) []uint64 {
	out := make([]uint64, len(blocks))
	for i, h := range blocks {
		out[i] = uint64(h)
	}
	return out
}
