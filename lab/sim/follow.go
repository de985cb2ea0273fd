package sim

import (
	"math"

	"kvasir/kv"
	"kvasir/sched"
)

// RecordedPolicy is the name of the row that plays recorded placements.
const RecordedPolicy = "recorded"

// Choices says how often a policy chooses as recorded. Each request is placed where
// it went, whatever the policy would have done, so that one other choice doesn't
// change all that follow.
type Choices struct {
	Requests int `json:"requests"`
	Same     int `json:"same"`
	Equal    int `json:"equal"` // others, of the same cost as the recorded choice: chance decided
}

// A follower places requests where the log says that they went.
type follower struct {
	Choices
	priced bool // the policy has costs
	cost   map[kv.Target]float64
}

// decided hears the costs of the decision just made.
func (f *follower) decided(r *sched.Receipt) {
	clear(f.cost)
	for i := range r.Candidates[:r.NumKept] {
		f.cost[r.Candidates[i].Target] = r.Candidates[i].Cost
	}
}

// place compares d with where q went, and books it there.
func (f *follower) place(k *core, q *request, d *sched.Decision, now float64) (*sched.Decision, error) {
	f.Requests++
	want := k.targets[q.went]
	if d.Target == want {
		f.Same++
		return d, nil
	}
	if f.equal(d.Target, want) {
		f.Equal++
	}
	d.Done(at(now), sched.Failed) // takes the booking and its predictions back
	q.exclude = q.exclude[:0]
	for _, t := range k.targets {
		if t != want {
			q.exclude = append(q.exclude, t)
		}
	}
	d, err := k.decide(q, now, nil)
	q.exclude = q.exclude[:0]
	return d, err
}

// equal reports whether two candidates cost the same, but for rounding.
func (f *follower) equal(a, b kv.Target) bool {
	x, ok := f.cost[a]
	y, also := f.cost[b]
	return f.priced && ok && also && math.Abs(x-y) <= 1e-9*math.Max(math.Abs(x), math.Abs(y))
}

// compares reports whether the recorded choices can be compared with those of a run.
func (c *Config) compares() bool {
	w := c.Workload
	return w.recorded != nil && c.Replicas == w.recorded.Replicas && w.speed == 1 && c.Faults.none()
}

// compared adds what followers have found to the runs of the same policies and seeds,
// and the recorded placements as a row of its own, before the others.
func compared(runs, followed []Result) []Result {
	for _, f := range followed {
		for i := range runs {
			if runs[i].Policy == f.Policy && runs[i].Seed == f.Seed && !f.Partial {
				runs[i].Choices = f.Choices
			}
		}
	}
	if len(followed) == 0 {
		return runs
	}
	row := followed[0]
	row.Policy, row.Choices = RecordedPolicy, nil
	return append([]Result{row}, runs...)
}
