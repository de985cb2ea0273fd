package sim

import (
	"math"
	"testing"

	"kvasir/lab/mock"
)

// The reference's tables (docs/mock.md) that need no trace file, to their printed digits:
// 6.2 (rollouts), 8.2 (tool), 8.4 (cold burst).
func TestTables(t *testing.T) {
	type row struct {
		policy  string
		hit     float64 // %
		figures []float64
	}
	p99 := func(r *Result) []float64 { return []float64{r.Session.P99, r.DecodeCV, r.ContextCV, r.Makespan} }
	open := func(r *Result) []float64 { return []float64{r.TTFT.Mean, r.TTFT.P95, r.TTFT.P99, r.DecodeCV} }
	burst := func(r *Result) []float64 { return []float64{r.TTFT.Mean, r.TTFT.P95, r.E2E.Mean} }
	digits := map[string][]float64{"rl_rollouts": {.1, .001, .001, .1}, "tool": {.001, .001, .001, .001}, "burst": {.001, .01, .01}}
	for _, c := range []struct {
		gen      string
		profile  mock.Profile
		replicas int
		figures  func(r *Result) []float64
		rows     []row
	}{
		{"rl_rollouts", mock.Profile8B, 4, p99, []row{
			{"ref:pure_affinity_low", 81.1, []float64{229.2, 1.732, 1.732, 2563.1}},
			{"ref:session_hash", 81.1, []float64{160.4, .530, .531, 1632.1}},
			{"ref:chwbl", 78.3, []float64{149.7, .374, .408, 1597.5}},
			{"ref:round_robin", 51.4, []float64{157.5, .391, .450, 1628.4}},
			{"ref:least_requests", 68.9, []float64{143.0, .200, .301, 1572.3}},
			{"ref:dynamo", 73.8, []float64{139.9, .164, .258, 1575.7}},
			{"ref:marg 1/.3/.3", 78.6, []float64{140.7, .213, .324, 1564.4}},
			{"marginal:reference", 78.6, []float64{140.7, .213, .324, 1564.4}},
			{"ref:POOL", 81.1, []float64{138.6, .124, .173, 1560.1}},
		}},
		{"rl_rollouts", mock.Profile70B, 8, p99, []row{
			{"ref:round_robin", 31.4, []float64{202.9, .550, .617, 2238.9}},
			{"round_robin", 31.4, []float64{202.9, .550, .617, 2238.9}},
			{"ref:marg 1/.3/.3", 81.1, []float64{192.5, .428, .540, 2160.0}},
		}},
		{"tool", mock.Profile70B, 8, open, []row{
			{"ref:random", 36.4, []float64{7.832, 31.327, 37.145, .673}},
			{"ref:p2c", 38.4, []float64{1.793, 6.823, 10.815, .319}},
			{"ref:session_hash", 69.0, []float64{.742, 3.912, 7.417, .828}},
			{"ref:prefix_hash_4", 68.9, []float64{1.009, 4.830, 8.004, 1.028}},
			{"ref:chwbl", 57.4, []float64{.902, 4.376, 7.964, .508}},
			{"ref:sglang_cache_aware", 68.9, []float64{.507, 2.122, 5.966, .575}},
			{"ref:sgl_cli", 69.1, []float64{.522, 2.412, 5.380, .596}},
			{"ref:sgl_rand", 69.0, []float64{.561, 2.463, 5.731, .606}},
			{"ref:ray_prefix_affinity", 42.8, []float64{1.703, 6.693, 10.858, .445}},
			{"ref:marg kdyn/.3/0", 67.1, []float64{.271, 1.037, 2.634, .455}},
			{"ref:llmd_3_2_2", 68.7, []float64{.452, 1.960, 5.414, .500}},
			{"ref:lmetric", 61.5, []float64{.291, 1.142, 2.859, .418}},
			{"ref:dyn_agentic", 64.3, []float64{.309, 1.058, 2.631, .383}},
			{"ref:time static", 61.7, []float64{.296, 1.133, 2.874, .388}},
			{"ref:time W+p", 66.0, []float64{.265, 1.031, 2.629, .442}},
			{"ref:marg 1/.3/.3", 67.5, []float64{.278, 1.075, 2.824, .458}},
			{"marginal:reference", 67.5, []float64{.278, 1.075, 2.824, .458}},
			{"ref:marg 2/.3/.3", 68.3, []float64{.281, 1.063, 2.868, .464}},
			{"ref:POOL", 69.2, []float64{.215, .748, 2.417, .256}},
		}},
		{"burst", mock.Profile70B, 4, burst, []row{
			{"ref:round_robin", 48.2, []float64{2.168, 2.54, 3.76}},
			{"ref:session_hash", 84.4, []float64{1.276, 2.40, 2.73}},
			{"ref:dynamo", 74.8, []float64{1.158, 1.57, 2.48}},
			{"ref:time W+p", 77.2, []float64{1.091, 1.14, 2.35}},
			{"ref:marg 1/.3/.3", 84.4, []float64{.841, 1.25, 2.12}},
		}},
	} {
		w, err := Generate(c.gen, c.replicas)
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range c.rows {
			r := runArm(t, w, row.policy, c.replicas, func(k *Config) { k.Profile = c.profile }).result()
			if math.Abs(100*r.HitRate-row.hit) > .0501 {
				t.Errorf("%s %s N=%d %s: hit rate %.2f %%, table %.1f", c.gen, c.profile.Name, c.replicas, row.policy, 100*r.HitRate, row.hit)
			}
			for i, got := range c.figures(&r) {
				if math.Abs(got-row.figures[i]) > digits[c.gen][i]*.5001 {
					t.Errorf("%s %s N=%d %s: figure %d is %.5f, table %v", c.gen, c.profile.Name, c.replicas, row.policy, i, got, row.figures[i])
				}
			}
		}
	}
}

// The published rollout benchmark (docs/mock.md, "Rollouts"), continuations first: the
// cells whose policy draws nothing, and the order that the product must keep.
func TestPublishedRollouts(t *testing.T) {
	w, err := Generate("rl_published", 4)
	if err != nil {
		t.Fatal(err)
	}
	result := func(policy string) Result {
		return runArm(t, w, policy, 4, func(k *Config) { k.Profile = mock.Profile8B }).result()
	}
	affinity, aware, session := result("ref:pure_affinity_low"), result("dynamo"), result("ref:session_hash")
	if math.Abs(affinity.SessionP99-264.9) > .05 || math.Abs(affinity.Makespan-880) > .5 {
		t.Errorf("pure affinity: p99 %.2f s, span %.1f s, table 264.9 and 880", affinity.SessionP99, affinity.Makespan)
	}
	if affinity.SessionP99 < 1.3*aware.SessionP99 {
		t.Errorf("p99 of pure affinity %.1f s is less than 1.3 times that of dynamo, %.1f s", affinity.SessionP99, aware.SessionP99)
	}
	if aware.HitRate >= session.HitRate {
		t.Errorf("hit rate of dynamo %.3f is not below session hash's %.3f", aware.HitRate, session.HitRate)
	}
	if math.Abs(100*aware.HitRate-85.3) > .3 || math.Abs(aware.SessionP99-146) > .5 {
		t.Errorf("dynamo: hit %.2f %%, p99 %.2f s, table 85.3 and 146.0", 100*aware.HitRate, aware.SessionP99)
	}
}

// The reference's floors (docs/mock.md, "Metrics") for the generated trace.
func TestFloor(t *testing.T) {
	w, err := Generate("tool", 8)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		p    mock.Profile
		want Spread
	}{{mock.Profile70B, Spread{.207, .082, .737, 2.405}}, {mock.Profile8B, Spread{.121, .047, .414, 1.458}}} {
		got, _, err := w.Floor(c.p)
		if err != nil {
			t.Fatal(err)
		}
		for i, d := range []float64{got.Mean - c.want.Mean, got.P50 - c.want.P50, got.P95 - c.want.P95, got.P99 - c.want.P99} {
			if math.Abs(d) > .0005001 {
				t.Errorf("%s: floor %+v, table %+v (figure %d)", c.p.Name, got, c.want, i)
			}
		}
	}
}
