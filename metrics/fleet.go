package metrics

import (
	"strconv"
	"time"

	"kvasir/fleet"
	"kvasir/kv"
	"kvasir/policy/learn"
	"kvasir/sched"
)

var replicas = &group[*fleet.Replica]{
	title: "Replicas", look: "",
	labels: []string{"replica"},
	each: func(p *Parts, emit func(*fleet.Replica, ...string)) {
		for _, r := range p.Fleet.Snapshot().Replicas {
			emit(r, r.Name)
		}
	},
	metrics: []metric[*fleet.Replica]{
		gauge("replica_up", "1 if the replica takes requests.", "0: `/v1/kvasir/fleet` has the reason", func(r *fleet.Replica) float64 { return truth(r.State == fleet.Up) }),
		gauges("replica_state", "1 for the state that the replica is in.", "", []string{"state"}, func(r *fleet.Replica, put put) { put(1, r.State.String()) }),
	},
}

// A target is all that is known of one.
type target struct {
	sched.TargetState
	load   kv.Load
	held   *[kv.NumTiers]int64 // nil: not told
	speed  learn.Learned
	learns bool
	now    time.Time
}

var targets = &group[target]{
	title: "Targets", look: "A target is a rank of a replica. The default policy prices requests in seconds with what it has learned: a target whose ratio is clearly above 1 is thought slow.",
	labels: []string{"replica", "rank"},
	each: func(p *Parts, emit func(target, ...string)) {
		now := p.Now()
		for _, r := range p.Fleet.Snapshot().Replicas {
			for i, t := range r.Targets {
				x := target{TargetState: p.Sched.State(t), load: p.Sched.Load(t, now), now: now}
				x.speed, x.learns = p.Sched.Learned(t)
				if p.Blocks != nil {
					held := p.Blocks(t)
					x.held = &held
				}
				emit(x, r.Name, strconv.Itoa(i))
			}
		}
	},
	metrics: []metric[target]{
		gauges("target_trust", "1 for the state of trust that the target is in.", "anything but `exact` for long: [trust.md](trust.md)", []string{"state"}, func(x target, put put) { put(1, x.Trust.String()) }),
		gauges("target_held_blocks", "Blocks that the index has for the target.", "", []string{"tier"}, func(x target, put put) {
			if x.held != nil {
				byTier(*x.held, put)
			}
		}),
		count("target_decisions_total", "Requests sent there.", "the balance between targets", func(x target) uint64 { return x.Picked }),
		count("target_failed_total", "Requests that failed there.", "one target above the others", func(x target) uint64 { return x.Failed }),
		gauge("target_requests", "Requests admitted and not done.", "the balance between targets", func(x target) float64 { return float64(x.load.Requests) }),
		gauge("target_prefill_tokens", "Prompt tokens owed.", "the wait of the next request, in tokens", func(x target) float64 { return float64(x.load.Prefill) }),
		gauge("target_decode_blocks", "Distinct blocks of the requests admitted and not done.", "against the pool's size: engines preempt near it", func(x target) float64 { return float64(x.load.DecodeBlocks) }),
		count("target_predicted_cached_tokens_total", "Prompt tokens predicted cached, over requests whose usage is known.", "", func(x target) uint64 { return x.Predicted }),
		count("target_served_cached_tokens_total", "Prompt tokens reported cached, over the same requests.", "over all prompt tokens: the hit rate", func(x target) uint64 { return x.Cached }),
		count("target_phantom_tokens_total", "Tokens predicted cached but not served from cache.", "more than a few percent of predicted: what is known is wrong", func(x target) uint64 { return x.Over }),
		gauge("target_served_share", "How much of what its blocks say the target's engine serves, as it is priced; 1 unless less was learned.", "below 1: an engine with recurrent layers, or events that aren't true; [trust.md](trust.md)", func(x target) float64 { return x.Share() }),
		count("target_missed_tokens_total", "Tokens served from cache but not predicted.", "many: events are missing", func(x target) uint64 { return x.Under }),
		counts("target_confirmed_total", "Answered requests whose blocks the engine announced (yes) or did not (no: the tokens are in doubt).", "mostly `no`: our token ids aren't the engine's", []string{"announced"}, func(x target, put put) {
			put(float64(x.Confirmed), "yes")
			put(float64(x.Unconfirmed), "no")
		}),
		learned("target_learned_prefill_token_seconds", "Learned: time per prompt token that isn't cached. Absent until it is known.", "", func(l learn.Learned) float64 { return l.PrefillToken }),
		learned("target_learned_step_seconds", "Learned: time per engine step with prefill in it. Absent until it is known.", "", func(l learn.Learned) float64 { return l.Step }),
		learned("target_learned_decode_step_seconds", "Learned: time per decode step, without what each request in it adds. Absent until prefill is known.", "", func(l learn.Learned) float64 { return l.DecodeStep }),
		evidence("target_learned_ratio", "How long the target takes for what takes the fleet 1: 2 is half as fast.", "above 1.2 and clear: why is that engine slow?", func(e learn.Evidence) float64 { return e.Ratio }),
		evidence("target_learned_clear", "1 if the ratio is clear enough to be priced with.", "", func(e learn.Evidence) float64 { return truth(e.Clear) }),
		evidence("target_learned_error", "Standard error of the ratio, as a share of it; 0: can't be told yet.", "", func(e learn.Evidence) float64 { return e.Error }),
		evidence("target_learned_samples", "Samples of the target that the ratio rests on.", "none, with decisions: its first tokens aren't usable", func(e learn.Evidence) float64 { return float64(e.Samples) }),
		gauges("target_learned_age_seconds", "Since the target's latest sample.", "large under load: what is thought of it is old", []string{"of"}, func(x target, put put) {
			for _, e := range x.evidence() {
				if !e.Last.IsZero() {
					put(x.now.Sub(e.Last).Seconds(), e.of)
				}
			}
		}),
	},
}

// learned is a coefficient. Before it is known it is a proportion and no time, and
// isn't shown.
func learned(name, help, look string, read func(learn.Learned) float64) metric[target] {
	return gauges(name, help, look, nil, func(x target, put put) {
		if x.learns && x.speed.Known {
			put(read(x.speed))
		}
	})
}

// evidence is a figure that prefill and decode have each.
func evidence(name, help, look string, read func(learn.Evidence) float64) metric[target] {
	return gauges(name, help, look, []string{"of"}, func(x target, put put) {
		for _, e := range x.evidence() {
			put(read(e.Evidence), e.of)
		}
	})
}

type evidenceOf struct {
	learn.Evidence
	of string
}

func (x *target) evidence() []evidenceOf {
	if !x.learns {
		return nil
	}
	return []evidenceOf{{x.speed.Prefill, "prefill"}, {x.speed.Decode, "decode"}}
}
