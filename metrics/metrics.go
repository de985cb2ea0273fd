// Package metrics shows the router's figures to Prometheus. It keeps none of its
// own: each scrape reads the counters of the packages that own them.
package metrics

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"kvasir/fleet"
	"kvasir/index"
	"kvasir/kv"
	"kvasir/proxy"
	"kvasir/sched"
	"kvasir/token"
)

// Parts are what is read.
type Parts struct {
	Fleet  *fleet.Table
	Sched  *sched.Scheduler
	Proxy  *proxy.Proxy
	Tokens func() token.RemoteStats
	Local  func() token.LocalStats
	Index  func() index.Stats
	Blocks func(t kv.Target) [kv.NumTiers]int64 // what the index has of t, by tier
	Events func() Events
	Kept   func() Kept // nil: the index isn't kept over a restart
	// Receipts is nil where they aren't kept in a file.
	Receipts func() Receipts
	Version  string
	Now      func() time.Time
}

// Receipts counts what became of receipts on their way to their file.
type Receipts struct {
	Written     uint64
	Slow        uint64 // dropped as the disk was too slow
	Failed      uint64 // lost as it took nothing
	Overwritten uint64 // in memory, by later ones, before their requests ended
}

// Events counts what came from the engines' event streams.
type Events struct {
	Batches       uint64 // applied
	Events        uint64 // understood
	Gaps          uint64 // times that a number was missing
	Duplicates    uint64 // batches that came again
	Restarts      uint64 // of engines
	Replays       uint64 // asked for
	ReplaysFailed uint64 // of those, not answered or broken off
	Dropped       uint64 // batches that found no room
	Forgets       uint64 // times that all about a target was forgotten
	Malformed     uint64 // events or batches
	Unknown       uint64 // events of unknown types
}

// Kept is what became of keeping the index in a file.
type Kept struct {
	Last   time.Time // that it worked; zero: not yet
	Bytes  int64     // then
	Took   time.Duration
	Failed uint64
}

// Handler serves the figures in Prometheus's text format.
func Handler(p Parts) http.Handler {
	reg := prometheus.NewRegistry()
	reg.MustRegister(&collector{p}, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return promhttp.HandlerFor(reg, promhttp.HandlerOpts{})
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("kvasir_"+name, help, labels, nil)
}

// Metrics of the front door.
var (
	build        = desc("build_info", "Always 1.", "version")
	requests     = desc("requests_total", "Requests that have ended. code 499: the client left first; code 0: any other.", "endpoint", "code", "outcome")
	open         = desc("open_requests", "Requests now.")
	retries      = desc("retries_total", "Requests that were given to another engine, by what the first one did.", "reason")
	failures     = desc("engine_failures_total", "Engines' failures, retried or not.", "reason")
	contradicted = desc("refusals_contradicted_total", "Requests that were answered although the source of tokens had said that the engine would refuse them.")
	firstToken   = desc("first_token_seconds", "From a request's arrival to its first content.")
	overhead     = desc("overhead_seconds", "From a request's arrival to its dispatch, wait for tokens included.")
	tokenWait    = desc("token_wait_seconds", "Of the overhead, the wait for token ids.")
	decision     = desc("decision_seconds", "Of the overhead, the decision itself: match, pick and book.")
)

// Metrics of tokens.
var (
	renders      = desc("token_questions_total", "Questions to engines for token ids.")
	renderFailed = desc("token_questions_failed_total", "Requests whose token ids could not be had.")
	renderHits   = desc("token_cache_hits_total", "Requests whose token ids were kept from an equal one.")
	renderMisses = desc("token_cache_misses_total", "Requests whose token ids were not kept.")
	renderBytes  = desc("token_cache_bytes", "Memory of kept token ids.")
)

// Metrics of tokens made in process.
var (
	pieceHits    = desc("token_prefix_hits_total", "Pieces of texts whose ids were kept.")
	pieceMisses  = desc("token_prefix_misses_total", "Pieces of texts that were encoded.")
	pieceEvicted = desc("token_prefix_evicted_total", "Pieces of texts that were forgotten at the bound.")
	pieceBytes   = desc("token_prefix_bytes", "Memory of kept pieces.")
	tokenChecks  = desc("token_checks_total", "Comparisons of our tokens with the engine's.", "model", "equal")
	tokenPanics  = desc("token_panics_total", "Bugs of ours that were met while making tokens; those requests went to the engine.")
	tokenDemoted = desc("token_model_demoted", "1 if the model's tokens come from its engines because ours were wrong.", "model")
)

// Metrics of the index.
var (
	indexBlocks    = desc("index_blocks", "Distinct blocks held by anyone.")
	indexHeld      = desc("index_memberships", "Pairs of target and block.", "tier")
	indexPredicted = desc("index_predicted", "Pairs of target and block that were dispatched and not reported yet.")
	indexOrphans   = desc("index_orphans", "Blocks that wait for an unknown parent.")
	indexBytes     = desc("index_bytes", "Memory that counts against the bound.")
	indexEvicted   = desc("index_evicted_total", "Blocks that were forgotten at the bound.")
	indexSkipped   = desc("index_skipped_total", "Blocks of events that made no prefix, by reason.", "reason")
)

// Metrics of the index's snapshot.
var (
	keptAt     = desc("index_snapshot_timestamp_seconds", "When what the index believes was last written to its file.")
	keptBytes  = desc("index_snapshot_bytes", "Size of that file.")
	keptTook   = desc("index_snapshot_duration_seconds", "How long writing it took; engines' events waited meanwhile.")
	keptFailed = desc("index_snapshot_failed_total", "Times that it could not be written.")
)

// Metrics of the file of receipts.
var (
	receiptsWritten = desc("receipts_written_total", "Receipts in the file of receipts.")
	receiptsDropped = desc("receipts_dropped_total", "Receipts that the file lacks. reason slow: the disk was behind; failed: it took nothing; overwritten: raise the setting receipts.", "reason")
)

// Metrics of replicas and targets.
var (
	replicaUp    = desc("replica_up", "1 if the replica takes requests.", "replica")
	replicaState = desc("replica_state", "1 for the state that the replica is in.", "replica", "state")

	trust        = desc("target_trust", "1 for the state of trust that the target is in.", "replica", "rank", "state")
	heldBlocks   = desc("target_held_blocks", "Blocks that the index has for the target.", "replica", "rank", "tier")
	decisions    = desc("target_decisions_total", "Requests sent there.", "replica", "rank")
	failed       = desc("target_failed_total", "Requests that failed there.", "replica", "rank")
	owedRequests = desc("target_requests", "Requests admitted and not done.", "replica", "rank")
	owedPrefill  = desc("target_prefill_tokens", "Prompt tokens owed.", "replica", "rank")
	owedDecode   = desc("target_decode_blocks", "Distinct blocks of the requests admitted and not done.", "replica", "rank")
	predicted    = desc("target_predicted_cached_tokens_total", "Prompt tokens predicted cached, over requests whose usage is known.", "replica", "rank")
	served       = desc("target_served_cached_tokens_total", "Prompt tokens reported cached, over the same requests.", "replica", "rank")
	phantom      = desc("target_phantom_tokens_total", "Tokens predicted cached but not served from cache.", "replica", "rank")
	confirmed    = desc("target_confirmed_total", "Answered requests whose blocks the engine announced (yes) or did not (no: the tokens are in doubt).", "replica", "rank", "announced")
	missed       = desc("target_missed_tokens_total", "Tokens served from cache but not predicted.", "replica", "rank")
)

// Metrics of the event streams, in the order of Events' fields.
var eventDescs = [...]*prometheus.Desc{
	desc("event_batches_total", "Event batches applied, live and by replay."),
	desc("events_total", "Events understood."),
	desc("event_gaps_total", "Times that a batch was missing."),
	desc("event_duplicates_total", "Batches that came again."),
	desc("event_restarts_total", "Restarts of engines, as their streams show them."),
	desc("event_replays_total", "Replays asked for."),
	desc("event_replays_failed_total", "Replays that were not answered or broke off."),
	desc("event_batches_dropped_total", "Batches that found no room and have to be replayed."),
	desc("event_forgets_total", "Times that all about a target was forgotten."),
	desc("events_malformed_total", "Events or batches that could not be read."),
	desc("events_unknown_total", "Events of unknown types."),
}

type collector struct{ p Parts }

// Describe is empty: the collector is unchecked, as its labels vary.
func (c *collector) Describe(chan<- *prometheus.Desc) {}

// Collect reads everything once.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	out := sink{ch}
	out.gauge(build, 1, c.p.Version)
	c.door(out)
	c.tokens(out)
	c.local(out)
	c.index(out)
	c.kept(out)
	c.receipts(out)
	c.fleet(out)
	if c.p.Events != nil {
		e := c.p.Events()
		for i, n := range [...]uint64{e.Batches, e.Events, e.Gaps, e.Duplicates, e.Restarts, e.Replays, e.ReplaysFailed, e.Dropped, e.Forgets, e.Malformed, e.Unknown} {
			out.count(eventDescs[i], n)
		}
	}
}

func (c *collector) door(out sink) {
	if c.p.Proxy == nil {
		return
	}
	s := c.p.Proxy.Stats()
	for _, r := range s.Requests {
		out.count(requests, r.N, r.Endpoint.String(), strconv.Itoa(r.Code), r.Outcome.String())
	}
	for why, n := range s.Retries {
		out.count(retries, n, why.String())
	}
	for why, n := range s.Failures {
		out.count(failures, n, why.String())
	}
	out.count(contradicted, s.Contradicted)
	out.gauge(open, float64(s.Open))
	out.histogram(firstToken, s.FirstToken)
	out.histogram(overhead, s.Overhead)
	out.histogram(tokenWait, s.Tokens)
	out.histogram(decision, s.Decision)
}

func (c *collector) tokens(out sink) {
	if c.p.Tokens == nil {
		return
	}
	s := c.p.Tokens()
	out.count(renders, s.Asked)
	out.count(renderFailed, s.Failed)
	out.count(renderHits, s.Hits)
	out.count(renderMisses, s.Misses)
	out.gauge(renderBytes, float64(s.CacheBytes))
}

func (c *collector) local(out sink) {
	if c.p.Local == nil {
		return
	}
	s := c.p.Local()
	out.count(pieceHits, s.Prefix.Hits)
	out.count(pieceMisses, s.Prefix.Misses)
	out.count(pieceEvicted, s.Prefix.Evicted)
	out.gauge(pieceBytes, float64(s.Prefix.Bytes))
	out.count(tokenPanics, s.Panics)
	for name, m := range s.Models {
		out.count(tokenChecks, m.Compared-m.Mismatched, name, "yes")
		out.count(tokenChecks, m.Mismatched, name, "no")
		demoted := 0.
		if m.Demoted {
			demoted = 1
		}
		out.gauge(tokenDemoted, demoted, name)
	}
}

func (c *collector) kept(out sink) {
	if c.p.Kept == nil {
		return
	}
	k := c.p.Kept()
	out.count(keptFailed, k.Failed)
	if !k.Last.IsZero() {
		out.gauge(keptAt, float64(k.Last.UnixMilli())/1e3)
		out.gauge(keptBytes, float64(k.Bytes))
		out.gauge(keptTook, k.Took.Seconds())
	}
}

func (c *collector) receipts(out sink) {
	if c.p.Receipts == nil {
		return
	}
	r := c.p.Receipts()
	out.count(receiptsWritten, r.Written)
	out.count(receiptsDropped, r.Slow, "slow")
	out.count(receiptsDropped, r.Failed, "failed")
	out.count(receiptsDropped, r.Overwritten, "overwritten")
}

func (c *collector) index(out sink) {
	if c.p.Index == nil {
		return
	}
	s := c.p.Index()
	out.gauge(indexBlocks, float64(s.Blocks))
	for t, n := range s.Memberships {
		out.gauge(indexHeld, float64(n), kv.Tier(t).String())
	}
	out.gauge(indexPredicted, float64(s.Predicted))
	out.gauge(indexOrphans, float64(s.Orphans))
	out.gauge(indexBytes, float64(s.Bytes))
	out.count(indexEvicted, s.Evicted)
	for why, n := range s.Totals.Skipped {
		if n > 0 {
			out.count(indexSkipped, n, index.Reason(why).String())
		}
	}
}

func (c *collector) fleet(out sink) {
	now := c.p.Now()
	for _, r := range c.p.Fleet.Snapshot().Replicas {
		up := 0.
		if r.State == fleet.Up {
			up = 1
		}
		out.gauge(replicaUp, up, r.Name)
		out.gauge(replicaState, 1, r.Name, r.State.String())
		for i, t := range r.Targets {
			c.target(out, t, r.Name, strconv.Itoa(i), now)
		}
	}
}

func (c *collector) target(out sink, t kv.Target, replica, rank string, now time.Time) {
	st, load := c.p.Sched.State(t), c.p.Sched.Load(t, now)
	out.gauge(trust, 1, replica, rank, st.Trust.String())
	out.count(decisions, st.Picked, replica, rank)
	out.count(failed, st.Failed, replica, rank)
	out.gauge(owedRequests, float64(load.Requests), replica, rank)
	out.gauge(owedPrefill, float64(load.Prefill), replica, rank)
	out.gauge(owedDecode, float64(load.DecodeBlocks), replica, rank)
	out.count(predicted, st.Predicted, replica, rank)
	out.count(served, st.Cached, replica, rank)
	out.count(phantom, st.Over, replica, rank)
	out.count(missed, st.Under, replica, rank)
	out.count(confirmed, st.Confirmed, replica, rank, "yes")
	out.count(confirmed, st.Unconfirmed, replica, rank, "no")
	if c.p.Blocks != nil {
		for tier, n := range c.p.Blocks(t) {
			out.gauge(heldBlocks, float64(n), replica, rank, kv.Tier(tier).String())
		}
	}
}

// A sink writes single metrics.
type sink struct{ ch chan<- prometheus.Metric }

func (s sink) count(d *prometheus.Desc, n uint64, labels ...string) {
	s.ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
}

func (s sink) gauge(d *prometheus.Desc, v float64, labels ...string) {
	s.ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func (s sink) histogram(d *prometheus.Desc, h proxy.Histogram) {
	var total uint64
	by := make(map[float64]uint64, len(h.Bounds))
	for i, n := range h.Counts {
		total += n
		if i < len(h.Bounds) {
			by[h.Bounds[i]] = total
		}
	}
	s.ch <- prometheus.MustNewConstHistogram(d, total, h.Sum, by)
}
