// Package metrics shows the router's figures to Prometheus. It keeps none of its
// own: each scrape reads the counters of the packages that own them.
package metrics

import (
	"net/http"
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
	Proxy  func() proxy.Stats
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

// prefix is that of all names.
const prefix = "kvasir_"

type collector struct{ p Parts }

// Describe is empty: the collector is unchecked, as its labels vary.
func (c *collector) Describe(chan<- *prometheus.Desc) {}

// Collect reads everything once.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	for _, s := range sections {
		s.collect(&c.p, ch)
	}
}

// sections are all metrics, in the order of docs/metrics.md.
var sections = []section{build, door, targets, replicas, events, indexed, kept, receipts, asked, made, models}
