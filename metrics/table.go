package metrics

import (
	"strconv"

	"kvasir/index"
	"kvasir/kv"
	"kvasir/proxy"
	"kvasir/token"
)

// one is an each for what there is one of, or none.
func one[S any](read func(p *Parts) func() S) func(*Parts, func(S, ...string)) {
	return func(p *Parts, emit func(S, ...string)) {
		if f := read(p); f != nil {
			emit(f())
		}
	}
}

var build = &group[string]{
	title: "The process", look: "Go's own metrics (`go_*`) and the process's (`process_*`) are there too.",
	each: func(p *Parts, emit func(string, ...string)) { emit(p.Version) },
	metrics: []metric[string]{
		gauges("build_info", "Always 1.", "", []string{"version"}, func(version string, put put) { put(1, version) }),
	},
}

var door = &group[proxy.Stats]{
	title: "The front door", look: "Errors, retries, and what the router itself adds to a request.",
	each: one(func(p *Parts) func() proxy.Stats { return p.Proxy }),
	metrics: []metric[proxy.Stats]{
		counts("requests_total", "Requests that have ended. code 499: the client left first; code 0: any other.", "the share of codes 5xx and 429, by endpoint; outcome `open`: no engine had it",
			[]string{"endpoint", "code", "outcome"}, func(s proxy.Stats, put put) {
				for _, r := range s.Requests {
					put(float64(r.N), r.Endpoint.String(), strconv.Itoa(r.Code), r.Outcome.String())
				}
			}),
		gauge("open_requests", "Requests now.", "steady growth: engines can't keep up", func(s proxy.Stats) float64 { return float64(s.Open) }),
		counts("retries_total", "Requests that were given to another engine, by what the first one did.", "any rate above nothing: an engine is ill", []string{"reason"}, func(s proxy.Stats, put put) { byReason(s.Retries, put) }),
		counts("engine_failures_total", "Engines' failures, retried or not.", "as retries, and those that clients saw", []string{"reason"}, func(s proxy.Stats, put put) { byReason(s.Failures, put) }),
		gauge("avoided_targets", "Targets that get no requests at present because theirs fail.", "above nothing: an engine is ill, see /v1/kvasir/fleet", func(s proxy.Stats) float64 { return float64(s.Avoided) }),
		count("panic_decisions_total", "Requests that went to a target that is avoided or fails its health checks, as there was no better one.", "any rate above nothing: every engine of a model is ill",
			func(s proxy.Stats) uint64 { return s.Panics }),
		count("refusals_contradicted_total", "Requests that were answered although the source of tokens had said that the engine would refuse them.", "above nothing: those are routed by load for nothing; report it",
			func(s proxy.Stats) uint64 { return s.Contradicted }),
		histogram("first_token_seconds", "From a request's arrival to its first content.", "p50 and p99: what clients feel", func(s proxy.Stats) proxy.Histogram { return s.FirstToken }),
		histogram("overhead_seconds", "From a request's arrival to its dispatch, wait for tokens included.", "p99 above 10 ms: see the next two", func(s proxy.Stats) proxy.Histogram { return s.Overhead }),
		histogram("token_wait_seconds", "Of the overhead, the wait for token ids.", "large: tokens are asked of engines, see docs/tokens.md", func(s proxy.Stats) proxy.Histogram { return s.Tokens }),
		histogram("decision_seconds", "Of the overhead, the decision itself: match, pick and book.", "p99 above 1 ms: the machine is short of CPU", func(s proxy.Stats) proxy.Histogram { return s.Decision }),
	},
}

func byReason(m map[proxy.Reason]uint64, put put) {
	for why, n := range m {
		put(float64(n), why.String())
	}
}

var events = &group[Events]{
	title: "Event streams, over all engines", look: "What is believed of caches comes from here. `/v1/kvasir/fleet` has the same by target.",
	each: one(func(p *Parts) func() Events { return p.Events }),
	metrics: []metric[Events]{
		count("event_batches_total", "Event batches applied, live and by replay.", "no growth under load: events are off", func(e Events) uint64 { return e.Batches }),
		count("events_total", "Events understood.", "", func(e Events) uint64 { return e.Events }),
		count("event_gaps_total", "Times that a batch was missing.", "with failed replays: what is known of that engine was emptied", func(e Events) uint64 { return e.Gaps }),
		count("event_duplicates_total", "Batches that came again.", "", func(e Events) uint64 { return e.Duplicates }),
		count("event_restarts_total", "Restarts of engines, as their streams show them.", "restarts that nobody has made", func(e Events) uint64 { return e.Restarts }),
		count("event_replays_total", "Replays asked for.", "", func(e Events) uint64 { return e.Replays }),
		count("event_replays_failed_total", "Replays that were not answered or broke off.", "above nothing: the engine needs a replay_endpoint that is reachable", func(e Events) uint64 { return e.ReplaysFailed }),
		count("event_batches_dropped_total", "Batches that found no room and have to be replayed.", "above nothing: the router is short of CPU", func(e Events) uint64 { return e.Dropped }),
		count("event_forgets_total", "Times that all about a target was forgotten.", "each costs that engine's cache hits for a while", func(e Events) uint64 { return e.Forgets }),
		count("events_malformed_total", "Events or batches that could not be read.", "above nothing: an engine's version that isn't known yet; report it", func(e Events) uint64 { return e.Malformed }),
		count("events_unknown_total", "Events of unknown types.", "likewise, harmless", func(e Events) uint64 { return e.Unknown }),
	},
}

var indexed = &group[index.Stats]{
	title: "The index", look: "Which target holds which blocks.",
	each: one(func(p *Parts) func() index.Stats { return p.Index }),
	metrics: []metric[index.Stats]{
		gauge("index_blocks", "Distinct blocks held by anyone.", "", func(s index.Stats) float64 { return float64(s.Blocks) }),
		gauges("index_memberships", "Pairs of target and block.", "over index_blocks: on how many targets a block is", []string{"tier"}, func(s index.Stats, put put) { byTier(s.Memberships, put) }),
		gauge("index_predicted", "Pairs of target and block that were dispatched and not reported yet.", "", func(s index.Stats) float64 { return float64(s.Predicted) }),
		gauge("index_orphans", "Blocks that wait for an unknown parent.", "many, for long: events were lost", func(s index.Stats) float64 { return float64(s.Orphans) }),
		gauge("index_bytes", "Memory that counts against the bound.", "near `index_bytes` of the configuration: raise that", func(s index.Stats) float64 { return float64(s.Bytes) }),
		count("index_evicted_total", "Blocks that were forgotten at the bound.", "above nothing: raise `index_bytes`", func(s index.Stats) uint64 { return s.Evicted }),
		counts("index_skipped_total", "Blocks of events that made no prefix, by reason.", "growth under load: those blocks are never matched", []string{"reason"}, func(s index.Stats, put put) {
			for why, n := range s.Totals.Skipped {
				if n > 0 {
					put(float64(n), index.Reason(why).String())
				}
			}
		}),
	},
}

func byTier(list [kv.NumTiers]int64, put put) {
	for t, n := range list {
		put(float64(n), kv.Tier(t).String())
	}
}

var kept = &group[Kept]{
	title: "The index's snapshot", look: "Only where `index_snapshot` is configured; the first three once it was written.",
	each: one(func(p *Parts) func() Kept { return p.Kept }),
	metrics: []metric[Kept]{
		gauges("index_snapshot_timestamp_seconds", "When what the index believes was last written to its file.", "older than `index_snapshot_every`", nil, func(k Kept, put put) { k.put(put, float64(k.Last.UnixMilli())/1e3) }),
		gauges("index_snapshot_bytes", "Size of that file.", "", nil, func(k Kept, put put) { k.put(put, float64(k.Bytes)) }),
		gauges("index_snapshot_duration_seconds", "How long writing it took; engines' events waited meanwhile.", "above a second: write less often", nil, func(k Kept, put put) { k.put(put, k.Took.Seconds()) }),
		count("index_snapshot_failed_total", "Times that it could not be written.", "above nothing: the disk is full, or the folder not writable", func(k Kept) uint64 { return k.Failed }),
	},
}

// put gives v once there was a snapshot.
func (k *Kept) put(put put, v float64) {
	if !k.Last.IsZero() {
		put(v)
	}
}

var receipts = &group[Receipts]{
	title: "The file of receipts", look: "Only where `receipts_file` is configured.",
	each: one(func(p *Parts) func() Receipts { return p.Receipts }),
	metrics: []metric[Receipts]{
		count("receipts_written_total", "Receipts in the file of receipts.", "", func(r Receipts) uint64 { return r.Written }),
		counts("receipts_dropped_total", "Receipts that the file lacks. reason slow: the disk was behind; failed: it took nothing; overwritten: raise the setting receipts.", "above nothing: by reason, as said",
			[]string{"reason"}, func(r Receipts, put put) {
				put(float64(r.Slow), "slow")
				put(float64(r.Failed), "failed")
				put(float64(r.Overwritten), "overwritten")
			}),
	},
}

var asked = &group[token.RemoteStats]{
	title: "Token ids asked of engines", look: "[tokens.md](tokens.md) says how to have them made here.",
	each: one(func(p *Parts) func() token.RemoteStats { return p.Tokens }),
	metrics: []metric[token.RemoteStats]{
		count("token_questions_total", "Questions to engines for token ids.", "each costs a round trip and CPU of the engine", func(s token.RemoteStats) uint64 { return s.Asked }),
		count("token_questions_failed_total", "Requests whose token ids could not be had.", "those are routed by load", func(s token.RemoteStats) uint64 { return s.Failed }),
		count("token_cache_hits_total", "Requests whose token ids were kept from an equal one.", "", func(s token.RemoteStats) uint64 { return s.Hits }),
		count("token_cache_misses_total", "Requests whose token ids were not kept.", "", func(s token.RemoteStats) uint64 { return s.Misses }),
		gauge("token_cache_bytes", "Memory of kept token ids.", "", func(s token.RemoteStats) float64 { return float64(s.CacheBytes) }),
	},
}

var made = &group[token.LocalStats]{
	title: "Token ids made in process", look: "",
	each: one(func(p *Parts) func() token.LocalStats { return p.Local }),
	metrics: []metric[token.LocalStats]{
		count("token_prefix_hits_total", "Pieces of texts whose ids were kept.", "", func(s token.LocalStats) uint64 { return s.Prefix.Hits }),
		count("token_prefix_misses_total", "Pieces of texts that were encoded.", "", func(s token.LocalStats) uint64 { return s.Prefix.Misses }),
		count("token_prefix_evicted_total", "Pieces of texts that were forgotten at the bound.", "many: raise `tokens.local.cache_bytes`", func(s token.LocalStats) uint64 { return s.Prefix.Evicted }),
		gauge("token_prefix_bytes", "Memory of kept pieces.", "", func(s token.LocalStats) float64 { return float64(s.Prefix.Bytes) }),
		count("token_panics_total", "Bugs of ours that were met while making tokens; those requests went to the engine.", "above nothing: report it", func(s token.LocalStats) uint64 { return s.Panics }),
	},
}

var models = &group[token.ModelStats]{
	title: "The proof of tokens made in process, by model", look: "",
	labels: []string{"model"},
	each: func(p *Parts, emit func(token.ModelStats, ...string)) {
		if p.Local != nil {
			for name, m := range p.Local().Models {
				emit(m, name)
			}
		}
	},
	metrics: []metric[token.ModelStats]{
		counts("token_checks_total", "Comparisons of our tokens with the engine's.", "any `no` is worth a look: a template or a flag differs from the engine's", []string{"equal"}, func(m token.ModelStats, put put) {
			put(float64(m.Compared-m.Mismatched), "yes")
			put(float64(m.Mismatched), "no")
		}),
		gauge("token_model_demoted", "1 if the model's tokens come from its engines because ours were wrong.", "1: the log says where they differ", func(m token.ModelStats) float64 { return truth(m.Demoted) }),
	},
}
