// Package web is the admin listener's HTTP: what the router believes of its fleet
// and why requests went where they went, as JSON for people and programs.
package web

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"kvasir/fleet"
	"kvasir/kv"
	"kvasir/policy/learn"
	"kvasir/sched"
)

// Parts are what the pages show. Metrics may be nil.
type Parts struct {
	Fleet   *fleet.Table
	Sched   *sched.Scheduler
	Policy  string
	Version string
	Blocks  func(t kv.Target) [kv.NumTiers]int64 // what the index has of t, by tier
	Events  func(t kv.Target) any                // the event stream's own figures; nil: none
	Metrics http.Handler
	Now     func() time.Time

	// Forget drops what is known of a replica's cache, and has it filled again by
	// replay, without what adapter has stored until now unless that is "". It returns an
	// error if there is no such replica. nil: not offered.
	Forget func(replica, adapter string) error
}

// Handler returns the admin API:
//
//	GET /metrics                  Prometheus text
//	GET /v1/kvasir/fleet          replicas, ranks, trust, load
//	GET /v1/kvasir/decisions      the latest receipts, newest first (?limit=N, ?session=S)
//	POST /v1/kvasir/forget        ?replica=NAME[&adapter=NAME]: what is known of its cache is not true any more
//	GET /health                   the process is alive
//	GET /                         a page that draws the two, for browsers
func Handler(p Parts) http.Handler {
	mux := http.NewServeMux()
	if p.Metrics != nil {
		mux.Handle("GET /metrics", p.Metrics)
	}
	mux.HandleFunc("GET /v1/kvasir/fleet", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, 200, p.fleet()) })
	mux.HandleFunc("GET /v1/kvasir/decisions", p.decisions)
	if p.Forget != nil {
		mux.Handle("POST /v1/kvasir/forget", http.NewCrossOriginProtection().Handler(http.HandlerFunc(p.forget)))
	}
	mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /{$}", index)
	mux.Handle("GET /page/", dashboard())
	return mux
}

func writeJSON(w http.ResponseWriter, code int, v any) {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	w.Write(append(b, '\n'))
}

// A Fleet is the answer of /v1/kvasir/fleet.
type Fleet struct {
	Version  string    `json:"version"`
	Policy   string    `json:"policy"`
	Models   []string  `json:"models"`
	Replicas []Replica `json:"replicas"`
}

// A Replica is one engine.
type Replica struct {
	Name      string    `json:"name"`
	URL       string    `json:"url"`
	State     string    `json:"state"`
	Reason    string    `json:"reason,omitempty"`
	Since     time.Time `json:"since"`
	Models    []Model   `json:"models"`
	Version   string    `json:"engine_version,omitempty"`
	BlockSize int       `json:"block_size"`
	Blocks    int       `json:"blocks"` // of the GPU pool, per rank
	Ranks     []Rank    `json:"ranks"`
}

// A Model is a name that a replica serves.
type Model struct {
	ID     string `json:"id"`
	Parent string `json:"parent,omitempty"`
	MaxLen int    `json:"max_model_len,omitempty"`
}

// A Rank is one target.
type Rank struct {
	Target int       `json:"target"`
	Trust  string    `json:"trust"`
	Reason string    `json:"trust_reason,omitempty"`
	Since  time.Time `json:"trust_since"`

	HeldBlocks map[string]int64 `json:"held_blocks"` // by tier, as the index has it

	Requests     int `json:"requests"`       // admitted and not done
	Prefilling   int `json:"prefilling"`     // of those, without a first token
	Prefill      int `json:"prefill_tokens"` // owed
	DecodeBlocks int `json:"decode_blocks"`

	Engine *kv.Gauge `json:"engine,omitempty"` // what the engine reports of itself

	Decisions uint64 `json:"decisions"`
	Failed    uint64 `json:"failed"`
	Drift     Drift  `json:"drift"`

	Learned *Learned `json:"learned,omitempty"` // absent where the policy learns nothing

	Events any `json:"events,omitempty"`
}

// Learned is why a target is thought fast or slow: what the policy has learned of it,
// as it prices requests with it. Times are in seconds.
type Learned struct {
	// Known says that times are measured, or configured. Otherwise the policy counts
	// tokens, and the times are absent.
	Known        bool    `json:"known"`
	PrefillToken float64 `json:"prefill_token_s,omitempty"` // per prompt token that isn't cached
	Step         float64 `json:"step_s,omitempty"`          // per engine step with prefill in it
	DecodeStep   float64 `json:"decode_step_s,omitempty"`   // per engine step without

	Prefill Evidence `json:"prefill"`
	Decode  Evidence `json:"decode"`

	Output float64 `json:"mean_output_tokens"` // of the whole fleet; 0: no answer has ended yet
}

// Evidence compares one target with the fleet, and says what that rests on.
type Evidence struct {
	Ratio   float64  `json:"ratio"`          // 2: takes twice as long as the fleet
	Clear   bool     `json:"clear"`          // only then is the target priced apart
	Error   float64  `json:"standard_error"` // of the ratio, as a share of it; 0: can't be told yet
	Samples int      `json:"samples"`        // of this target
	Fleet   int      `json:"fleet_samples"`  // of all targets; 0 and known: configured
	Age     *float64 `json:"age_s"`          // of the latest sample; null: none yet
}

// A Drift compares predictions with what engines reported, in prompt tokens.
type Drift struct {
	Compared  uint64 `json:"requests_compared"`
	Predicted uint64 `json:"predicted_tokens"`
	Cached    uint64 `json:"served_tokens"`
	Over      uint64 `json:"over_tokens"`
	Under     uint64 `json:"under_tokens"`
	Phantoms  uint64 `json:"phantom_requests"`
	// Confirmed requests' blocks were announced by the engine afterwards.
	Confirmed   uint64 `json:"confirmed_requests"`
	Unconfirmed uint64 `json:"unconfirmed_requests"`
}

func (p *Parts) fleet() Fleet {
	snap := p.Fleet.Snapshot()
	out := Fleet{Version: p.Version, Policy: p.Policy, Models: []string{}, Replicas: []Replica{}}
	for _, g := range snap.Groups() {
		out.Models = append(out.Models, g.Model.ID)
	}
	for _, r := range snap.Replicas {
		x := Replica{
			Name: r.Name, URL: r.URL, State: r.State.String(), Reason: r.Reason, Since: r.Since,
			Version: r.Version, BlockSize: r.BlockSize, Blocks: r.Blocks, Models: []Model{},
		}
		for _, m := range r.Models {
			x.Models = append(x.Models, Model{ID: m.ID, Parent: m.Parent, MaxLen: m.MaxLen})
		}
		for _, t := range r.Targets {
			x.Ranks = append(x.Ranks, p.rank(t))
		}
		out.Replicas = append(out.Replicas, x)
	}
	return out
}

func (p *Parts) rank(t kv.Target) Rank {
	st, load := p.Sched.State(t), p.Sched.Load(t, p.Now())
	x := Rank{
		Target: int(t), Trust: st.Trust.String(), Reason: st.Reason, Since: st.Since,
		Requests: load.Requests, Prefilling: load.Prefilling, Prefill: load.Prefill, DecodeBlocks: load.DecodeBlocks,
		Decisions: st.Picked, Failed: st.Failed,
		Drift: Drift{st.Compared, st.Predicted, st.Cached, st.Over, st.Under, st.Phantoms, st.Confirmed, st.Unconfirmed},
	}
	if st.Gauge.Known() {
		x.Engine = &st.Gauge
	}
	x.HeldBlocks = map[string]int64{}
	for tier, n := range p.Blocks(t) {
		x.HeldBlocks[kv.Tier(tier).String()] = n
	}
	if p.Events != nil {
		x.Events = p.Events(t)
	}
	if l, ok := p.Sched.Learned(t); ok {
		x.Learned = learned(l, p.Now())
	}
	return x
}

func learned(l learn.Learned, now time.Time) *Learned {
	x := &Learned{Known: l.Known, Prefill: evidence(l.Prefill, now), Decode: evidence(l.Decode, now), Output: l.Output}
	if l.Known {
		x.PrefillToken, x.Step, x.DecodeStep = l.PrefillToken, l.Step, l.DecodeStep
	}
	return x
}

func evidence(e learn.Evidence, now time.Time) Evidence {
	x := Evidence{Ratio: e.Ratio, Clear: e.Clear, Error: e.Error, Samples: e.Samples, Fleet: e.Fleet}
	if !e.Last.IsZero() {
		age := max(0, now.Sub(e.Last).Seconds())
		x.Age = &age
	}
	return x
}

func (p *Parts) forget(w http.ResponseWriter, r *http.Request) {
	replica, adapter := r.URL.Query().Get("replica"), r.URL.Query().Get("adapter")
	if err := p.Forget(replica, adapter); err != nil {
		writeJSON(w, http.StatusNotFound, map[string]string{"error": err.Error()})
		return
	}
	writeJSON(w, http.StatusAccepted, map[string]string{"forgetting": replica})
}

func (p *Parts) decisions(w http.ResponseWriter, r *http.Request) {
	limit := 50
	if s := r.URL.Query().Get("limit"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 || n > 1_000_000 {
			writeJSON(w, http.StatusBadRequest, map[string]string{"error": "limit: " + strconv.Quote(s) + ", want 1 to 1000000"})
			return
		}
		limit = n
	}
	session, filter := r.URL.Query().Get("session"), r.URL.Query().Has("session")
	out := []Decision{}
	terms, unit := p.Sched.Costs()
	for _, x := range p.Sched.Receipts(nil, 0) {
		if filter && x.Session != session {
			continue
		}
		out = append(out, decision(&x, terms, unit))
		if len(out) == limit {
			break
		}
	}
	writeJSON(w, 200, map[string]any{"decisions": out})
}
