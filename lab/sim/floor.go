package sim

import (
	"errors"

	"kvasir/kv"
	"kvasir/lab/mock"
)

// Floor returns the time to first token, and the hit rate, that an open loop
// would have if each request met an empty engine with every block that any
// earlier request had: a practical lower bound (docs/mock.md, "Metrics").
func (w *Workload) Floor(p mock.Profile) (ttft Spread, hitRate float64, err error) {
	if len(w.open) == 0 {
		return Spread{}, 0, errors.New("sim: the floor is defined for open loops only")
	}
	seen := map[kv.Hash]bool{}
	v := make([]float64, 0, len(w.open))
	hits, prompts := 0, 0
	for i := range w.open {
		a := &w.open[i]
		m := 0
		for m < len(a.blocks) && seen[a.blocks[m]] {
			m++
		}
		for _, h := range a.blocks[m:] {
			seen[h] = true
		}
		hit := min(m*w.size, a.prompt-1)
		v = append(v, p.Prefill(a.prompt-hit, hit, 0, 0))
		hits += hit
		prompts += a.prompt
	}
	return spread(v), float64(hits) / float64(prompts), nil
}
