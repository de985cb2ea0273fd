package sim

import (
	"errors"

	"kvasir/model"
	"kvasir/policy"
)

var errStopped = errors.New("stopped before the end")

// runTwin plays w on n engines with the reference's own policy t.
func runTwin(w *Workload, n int, profile model.Profile, kvTokens int, t twin, seed uint64, stop func() bool) (*cluster, error) {
	m := newMetrics(n)
	m.byID = map[uint64]*request{}
	if kvTokens > 0 {
		profile.KVTokens = kvTokens
	}
	var pool *model.Pool
	if t.pool {
		pool = model.NewPool(n * (profile.KVTokens / w.size))
	}
	engines := make([]*model.Engine, n)
	for i := range engines {
		e, err := model.New(model.Config{Profile: profile, BlockSize: w.size, Admission: model.Reserved, Instant: true, Pool: pool})
		if err != nil {
			return nil, err
		}
		engines[i] = e
	}
	c := newCluster(engines, w.start(), m)
	c.pooled = t.pool
	x := newExact(engines, w.size, t, m)
	dice := NewPython(seed)
	x.live, x.intn, x.unit = c.live, dice.Intn, dice.Float64
	c.router = x
	return c, c.run(stop)
}

// runCore plays w on n engines with the production core under policy p.
func runCore(w *Workload, n int, profile model.Profile, kvTokens int, p policy.Config, intn func(int) int, stop func() bool) (*cluster, error) {
	m := newMetrics(n)
	if kvTokens > 0 {
		profile.KVTokens = kvTokens
	}
	engines := make([]*model.Engine, n)
	for i := range engines {
		e, err := model.New(model.Config{Profile: profile, BlockSize: w.size, Admission: model.Reserved, Instant: true})
		if err != nil {
			return nil, err
		}
		engines[i] = e
	}
	c := newCluster(engines, w.start(), m)
	x, err := newCore(p, engines, newNames(w.size, nil), w.size, intn, m)
	if err != nil {
		return nil, err
	}
	c.router = x
	return c, c.run(stop)
}
