package metrics

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"kvasir/fleet"
	"kvasir/index"
	"kvasir/kv"
	"kvasir/proxy"
	"kvasir/sched"
	"kvasir/token"
)

// filled has another number in every field, so that no two can be taken for each
// other.
func filled[S any]() (s S) {
	next := 0
	fill(reflect.ValueOf(&s).Elem(), &next)
	return s
}

func fill(v reflect.Value, next *int) {
	if !v.CanSet() {
		return
	}
	*next += 7
	n := *next
	switch v.Kind() {
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.Unix(int64(n), 0)))
			return
		}
		for i := range v.NumField() {
			fill(v.Field(i), next)
		}
	case reflect.Array:
		for i := range v.Len() {
			fill(v.Index(i), next)
		}
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64, reflect.Int32:
		v.SetInt(int64(n))
	case reflect.Uint64, reflect.Uint32:
		v.SetUint(uint64(n))
	case reflect.Float64:
		v.SetFloat(float64(n) / 2)
	}
}

// A values is what each series of a group must be, by name and own labels. A test
// that says it once more, from the field's name, is what a swap has to get past.
type values[S any] map[string]func(S) float64

// only collects one section.
type only struct{ section }

func (only) Describe(chan<- *prometheus.Desc)      {}
func (o only) Collect(ch chan<- prometheus.Metric) { o.collect(&Parts{}, ch) }

// gatherer reads one section as a scrape does.
func gatherer(s section) *prometheus.Registry {
	reg := prometheus.NewRegistry()
	reg.MustRegister(only{s})
	return reg
}

// check compares every series of g, read from s, with want.
func check[S any](t *testing.T, g *group[S], s S, want values[S]) {
	t.Helper()
	x := *g
	base := make([]string, len(g.labels))
	for i, l := range g.labels {
		base[i] = "the " + l
	}
	x.each = func(_ *Parts, emit func(S, ...string)) { emit(s, base...) }
	got := map[string]float64{}
	list, err := gatherer(&x).Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range list {
		for _, m := range f.GetMetric() {
			var own []string
			for _, l := range m.GetLabel() {
				if slices.Contains(g.labels, l.GetName()) {
					if l.GetValue() != "the "+l.GetName() {
						t.Errorf("%s: label %s is %q", f.GetName(), l.GetName(), l.GetValue())
					}
					continue
				}
				own = append(own, l.GetName()+"="+l.GetValue())
			}
			name := strings.TrimPrefix(f.GetName(), prefix)
			if len(own) > 0 {
				name += "{" + strings.Join(own, ",") + "}"
			}
			got[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + m.GetHistogram().GetSampleSum()
		}
	}
	for name, f := range want {
		if v, ok := got[name]; !ok || v != f(s) {
			t.Errorf("%s is %v (there: %v), want %v", name, v, ok, f(s))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(got)) {
		if want[name] == nil {
			t.Errorf("%s has no line in this test: say what it must be", name)
		}
	}
	for _, m := range g.metrics {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(got)), func(n string) bool { return n == m.Name || strings.HasPrefix(n, m.Name+"{") }) {
			t.Errorf("%s gave nothing", m.Name)
		}
	}
}

func TestValues(t *testing.T) {
	check(t, build, "v1", values[string]{"build_info{version=v1}": func(string) float64 { return 1 }})
	check(t, events, filled[Events](), values[Events]{
		"event_batches_total": func(e Events) float64 { return float64(e.Batches) }, "events_total": func(e Events) float64 { return float64(e.Events) },
		"event_gaps_total": func(e Events) float64 { return float64(e.Gaps) }, "event_duplicates_total": func(e Events) float64 { return float64(e.Duplicates) },
		"event_restarts_total": func(e Events) float64 { return float64(e.Restarts) }, "event_replays_total": func(e Events) float64 { return float64(e.Replays) },
		"event_replays_failed_total": func(e Events) float64 { return float64(e.ReplaysFailed) }, "event_batches_dropped_total": func(e Events) float64 { return float64(e.Dropped) },
		"event_forgets_total": func(e Events) float64 { return float64(e.Forgets) }, "events_malformed_total": func(e Events) float64 { return float64(e.Malformed) },
		"events_unknown_total": func(e Events) float64 { return float64(e.Unknown) },
	})
	check(t, kept, filled[Kept](), values[Kept]{
		"index_snapshot_timestamp_seconds": func(k Kept) float64 { return float64(k.Last.Unix()) }, "index_snapshot_bytes": func(k Kept) float64 { return float64(k.Bytes) },
		"index_snapshot_duration_seconds": func(k Kept) float64 { return k.Took.Seconds() }, "index_snapshot_failed_total": func(k Kept) float64 { return float64(k.Failed) },
	})
	check(t, receipts, filled[Receipts](), values[Receipts]{
		"receipts_written_total": func(r Receipts) float64 { return float64(r.Written) }, "receipts_dropped_total{reason=slow}": func(r Receipts) float64 { return float64(r.Slow) },
		"receipts_dropped_total{reason=failed}": func(r Receipts) float64 { return float64(r.Failed) }, "receipts_dropped_total{reason=overwritten}": func(r Receipts) float64 { return float64(r.Overwritten) },
	})
	check(t, asked, filled[token.RemoteStats](), values[token.RemoteStats]{
		"token_questions_total": func(s token.RemoteStats) float64 { return float64(s.Asked) }, "token_questions_failed_total": func(s token.RemoteStats) float64 { return float64(s.Failed) },
		"token_cache_hits_total": func(s token.RemoteStats) float64 { return float64(s.Hits) }, "token_cache_misses_total": func(s token.RemoteStats) float64 { return float64(s.Misses) },
		"token_cache_bytes": func(s token.RemoteStats) float64 { return float64(s.CacheBytes) },
	})
	check(t, made, filled[token.LocalStats](), values[token.LocalStats]{
		"token_prefix_hits_total": func(s token.LocalStats) float64 { return float64(s.Prefix.Hits) }, "token_prefix_misses_total": func(s token.LocalStats) float64 { return float64(s.Prefix.Misses) },
		"token_prefix_evicted_total": func(s token.LocalStats) float64 { return float64(s.Prefix.Evicted) }, "token_prefix_bytes": func(s token.LocalStats) float64 { return float64(s.Prefix.Bytes) },
		"token_panics_total": func(s token.LocalStats) float64 { return float64(s.Panics) },
	})
	check(t, models, token.ModelStats{Compared: 10, Mismatched: 3, Demoted: true}, values[token.ModelStats]{
		"token_checks_total{equal=yes}": func(token.ModelStats) float64 { return 7 }, "token_checks_total{equal=no}": func(token.ModelStats) float64 { return 3 },
		"token_model_demoted": func(token.ModelStats) float64 { return 1 },
	})
	check(t, replicas, &fleet.Replica{State: fleet.Up}, values[*fleet.Replica]{
		"replica_up": func(*fleet.Replica) float64 { return 1 }, "replica_state{state=up}": func(*fleet.Replica) float64 { return 1 },
	})
}

func TestIndexValues(t *testing.T) {
	s := filled[index.Stats]()
	want := values[index.Stats]{
		"index_blocks": func(s index.Stats) float64 { return float64(s.Blocks) }, "index_predicted": func(s index.Stats) float64 { return float64(s.Predicted) },
		"index_orphans": func(s index.Stats) float64 { return float64(s.Orphans) }, "index_bytes": func(s index.Stats) float64 { return float64(s.Bytes) },
		"index_evicted_total":         func(s index.Stats) float64 { return float64(s.Evicted) },
		"index_memberships{tier=gpu}": func(s index.Stats) float64 { return float64(s.Memberships[kv.GPU]) }, "index_memberships{tier=host}": func(s index.Stats) float64 { return float64(s.Memberships[kv.Host]) },
		"index_memberships{tier=disk}": func(s index.Stats) float64 { return float64(s.Memberships[kv.Disk]) },
	}
	for why := range s.Totals.Skipped {
		want[fmt.Sprintf("index_skipped_total{reason=%s}", index.Reason(why))] = func(s index.Stats) float64 { return float64(s.Totals.Skipped[why]) }
	}
	check(t, indexed, s, want)
}

func TestDoorValues(t *testing.T) {
	h := func(sum float64) proxy.Histogram {
		return proxy.Histogram{Bounds: []float64{1, 2}, Counts: []uint64{3, 4, 5}, Sum: sum}
	}
	s := proxy.Stats{
		Requests: []proxy.Requests{{Endpoint: proxy.Chat, Code: 200, Outcome: sched.Completed, N: 11}},
		Retries:  map[proxy.Reason]uint64{proxy.Broken: 12}, Failures: map[proxy.Reason]uint64{proxy.Broken: 13},
		Open: 14, Contradicted: 15, Avoided: 20, Panics: 21, FirstToken: h(16), Overhead: h(17), Tokens: h(18), Decision: h(19),
	}
	is := func(v float64) func(proxy.Stats) float64 { return func(proxy.Stats) float64 { return v } }
	why := proxy.Broken.String()
	check(t, door, s, values[proxy.Stats]{
		fmt.Sprintf("requests_total{code=200,endpoint=%s,outcome=completed}", proxy.Chat): is(11),
		"retries_total{reason=" + why + "}":                                               is(12), "engine_failures_total{reason=" + why + "}": is(13), "open_requests": is(14), "refusals_contradicted_total": is(15),
		"avoided_targets": is(20), "panic_decisions_total": is(21),
		"first_token_seconds": is(16), "overhead_seconds": is(17), "token_wait_seconds": is(18), "decision_seconds": is(19),
	})
}

// A histogram's buckets add up, and the last has all.
func TestHistogram(t *testing.T) {
	g := &group[int]{each: func(_ *Parts, emit func(int, ...string)) { emit(0) }, metrics: []metric[int]{histogram("x", "x", "", func(int) proxy.Histogram {
		return proxy.Histogram{Bounds: []float64{1, 2}, Counts: []uint64{3, 4, 5}, Sum: 6.5}
	})}}
	list, err := gatherer(g).Gather()
	if err != nil {
		t.Fatal(err)
	}
	h := list[0].GetMetric()[0].GetHistogram()
	if h.GetSampleCount() != 12 || h.GetSampleSum() != 6.5 || len(h.Bucket) != 2 || h.Bucket[0].GetUpperBound() != 1 || h.Bucket[0].GetCumulativeCount() != 3 ||
		h.Bucket[1].GetUpperBound() != 2 || h.Bucket[1].GetCumulativeCount() != 7 {
		t.Errorf("%v", h)
	}
}

func TestTargetValues(t *testing.T) {
	x := filled[target]() // the unexported fields are set below
	x.Trust = kv.Stale
	n := 5000
	fill(reflect.ValueOf(&x.load).Elem(), &n)
	fill(reflect.ValueOf(&x.speed).Elem(), &n)
	x.held, x.learns, x.speed.Known = &[kv.NumTiers]int64{3, 4, 5}, true, true
	x.now = time.Unix(100_000, 0)
	age := func(at time.Time) float64 { return 100_000 - float64(at.Unix()) }
	check(t, targets, x, values[target]{
		"target_trust{state=stale}":              func(target) float64 { return 1 },
		"target_held_blocks{tier=gpu}":           func(target) float64 { return 3 },
		"target_held_blocks{tier=host}":          func(target) float64 { return 4 },
		"target_held_blocks{tier=disk}":          func(target) float64 { return 5 },
		"target_decisions_total":                 func(x target) float64 { return float64(x.Picked) },
		"target_failed_total":                    func(x target) float64 { return float64(x.Failed) },
		"target_requests":                        func(x target) float64 { return float64(x.load.Requests) },
		"target_prefill_tokens":                  func(x target) float64 { return float64(x.load.Prefill) },
		"target_decode_blocks":                   func(x target) float64 { return float64(x.load.DecodeBlocks) },
		"target_phantom_tokens_total":            func(x target) float64 { return float64(x.Over) },
		"target_served_share":                    func(target) float64 { return 1 },
		"target_missed_tokens_total":             func(x target) float64 { return float64(x.Under) },
		"target_confirmed_total{announced=yes}":  func(x target) float64 { return float64(x.Confirmed) },
		"target_confirmed_total{announced=no}":   func(x target) float64 { return float64(x.Unconfirmed) },
		"target_predicted_cached_tokens_total":   func(x target) float64 { return float64(x.Predicted) },
		"target_served_cached_tokens_total":      func(x target) float64 { return float64(x.Cached) },
		"target_learned_prefill_token_seconds":   func(x target) float64 { return x.speed.PrefillToken },
		"target_learned_step_seconds":            func(x target) float64 { return x.speed.Step },
		"target_learned_decode_step_seconds":     func(x target) float64 { return x.speed.DecodeStep },
		"target_learned_ratio{of=prefill}":       func(x target) float64 { return x.speed.Prefill.Ratio },
		"target_learned_ratio{of=decode}":        func(x target) float64 { return x.speed.Decode.Ratio },
		"target_learned_clear{of=prefill}":       func(target) float64 { return 1 },
		"target_learned_clear{of=decode}":        func(target) float64 { return 1 },
		"target_learned_error{of=prefill}":       func(x target) float64 { return x.speed.Prefill.Error },
		"target_learned_error{of=decode}":        func(x target) float64 { return x.speed.Decode.Error },
		"target_learned_samples{of=prefill}":     func(x target) float64 { return float64(x.speed.Prefill.Samples) },
		"target_learned_samples{of=decode}":      func(x target) float64 { return float64(x.speed.Decode.Samples) },
		"target_learned_age_seconds{of=prefill}": func(x target) float64 { return age(x.speed.Prefill.Last) },
		"target_learned_age_seconds{of=decode}":  func(x target) float64 { return age(x.speed.Decode.Last) },
	})
	// What isn't known isn't shown as if it were.
	x.speed.Known = false
	y := *targets
	y.each = func(_ *Parts, emit func(target, ...string)) { emit(x, "r", "0") }
	list, err := gatherer(&y).Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range list {
		if s := f.GetName(); strings.Contains(s, "learned_prefill_token") || strings.Contains(s, "learned_step") || strings.Contains(s, "learned_decode_step") {
			t.Errorf("%s is shown although it isn't known", s)
		}
	}
}
