package sim

import (
	"math"
	"testing"

	"kvasir/kv"
	"kvasir/lab/mock"
)

// runArm plays w under one policy and returns the fleet after it.
func runArm(t *testing.T, w *Workload, name string, replicas int, edit func(c *Config)) *cluster {
	t.Helper()
	c := Config{Workload: w, Policies: []string{name}, Replicas: replicas, Profile: mock.Profile70B}
	if edit != nil {
		edit(&c)
	}
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	arms, err := resolve(c.Policies, c.Profile)
	if err != nil {
		t.Fatal(err)
	}
	w.prepare()
	s := uint64(1)
	if len(c.Seeds) > 0 {
		s = c.Seeds[0]
	}
	cl, err := c.build(arms[0], s, false)
	if err != nil {
		t.Fatal(err)
	}
	cl.metrics.byID = map[uint64]*request{}
	if err := cl.run(); err != nil {
		t.Fatal(err)
	}
	return cl
}

// micro is the micro trace of docs/mock.md, "Workloads".
func micro() *Workload {
	seq := func(from, n int) (out []kv.Hash) {
		for i := range n {
			out = append(out, kv.Hash(from+i))
		}
		return out
	}
	a, z := seq(1, 4), seq(100, 35)
	with := func(parts ...[]kv.Hash) (out []kv.Hash) {
		for _, p := range parts {
			out = append(out, p...)
		}
		return out
	}
	x, y, w, v := seq(10, 1), seq(11, 1), seq(12, 1), seq(13, 1)
	load := &Workload{name: "micro", size: 512, speed: 1, open: []openArrival{
		{at: 0, prompt: 3000, out: 50, blocks: with(a, x)},
		{at: .05, prompt: 3000, out: 80, blocks: with(a, y)},
		{at: .1, prompt: 20000, out: 20, blocks: with(a, z)},
		{at: .12, prompt: 2560, out: 10, blocks: with(a, x)},
		{at: .3, prompt: 2100, out: 1, blocks: a},
		{at: .31, prompt: 400, out: 60},
		{at: .5, prompt: 9000, out: 30, blocks: seq(200, 17)},
		{at: 1.6, prompt: 3100, out: 40, blocks: with(a, x, w)},
		{at: 1.6, prompt: 3000, out: 5, blocks: with(a, y)},
		{at: 1.75, prompt: 20500, out: 12, blocks: with(a, z, v)},
	}}
	for i := range load.open {
		load.open[i].conv = int32(i)
	}
	return load
}

func TestMicroTrace(t *testing.T) {
	type row struct {
		r, hit      int
		first, done float64
	}
	for _, c := range []struct {
		policy            string
		rows              [10]row
		hit, ttft, workCV float64
	}{
		{"round_robin", [10]row{{0, 0, .1672, 2.464132}, {1, 0, .2172, 1.065548}, {0, 2048, 1.777492, 2.188479}, {1, 2048, .254788, .366692}, {0, 2048, 1.777492, 1.777492},
			{1, 0, .346249, .944312}, {0, 0, 1.991426, 2.302498}, {1, 2560, 1.639445, 3.295265}, {0, 2048, 1.991426, 2.035528}, {1, 2048, 3.036344, 3.153801}}, .192019, .686906, .047668},
		{"dynamo_tie_low", [10]row{{0, 0, .1672, 1.937205}, {1, 0, .2172, 1.590759}, {0, 2048, 1.411748, 1.614319}, {1, 2048, .254788, .369464}, {1, 2048, .318703, .318703},
			{1, 0, .349022, 1.469524}, {1, 0, 1.036253, 1.337770}, {1, 2560, 1.639445, 2.057872}, {1, 2560, 1.673506, 1.714325}, {0, 19968, 1.809669, 1.927103}}, .468527, .254753, .015607},
		{"marg 1/.3/.3", [10]row{{0, 0, .1672, 2.017891}, {0, 2048, .656339, 2.331075}, {0, 2048, 1.463394, 1.692252}, {1, 0, .263243, .377039}, {1, 2048, .316461, .316461},
			{1, 0, .346679, 1.461250}, {1, 0, 1.042306, 1.340864}, {1, 2560, 1.639445, 2.033510}, {0, 2560, 1.638030, 1.681488}, {0, 19968, 1.807499, 1.926051}}, .468527, .301060, .135494},
	} {
		cl := runArm(t, micro(), "ref:"+c.policy, 2, nil)
		for i, want := range c.rows {
			l := cl.metrics.byID[uint64(i)]
			if l.replica != want.r || l.hit != want.hit || math.Abs(l.first-want.first) > 5.1e-7 || math.Abs(l.done-want.done) > 5.1e-7 {
				t.Errorf("%s, request %d: replica %d hit %d first %.6f done %.6f, want %v", c.policy, i, l.replica, l.hit, l.first, l.done, want)
			}
		}
		r := cl.result()
		for _, f := range []struct {
			name      string
			got, want float64
		}{{"hit rate", r.HitRate, c.hit}, {"mean TTFT", r.TTFT.Mean, c.ttft}, {"work CV", r.WorkCV, c.workCV}} {
			if math.Abs(f.got-f.want) > 5.1e-7 {
				t.Errorf("%s: %s %.6f, want %.6f", c.policy, f.name, f.got, f.want)
			}
		}
	}
}
