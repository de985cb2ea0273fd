package policy

import (
	"math"

	"kvasir/setting"
)

// Dynamo configures `dynamo`: the cost of NVIDIA Dynamo's KV router, with its
// options' names, defaults and ranges (ai-dynamo/dynamo, lib/kv-router,
// scheduling/config.rs).
type Dynamo struct {
	// Preset overrides the keys that it sets: "load-aware" (nothing is known of caches) or
	// "agentic" (long shared contexts; tuned for blocks of 16 tokens).
	Preset string `yaml:"preset" oneof:"|load-aware|agentic"`

	// OverlapCredit is the blocks saved per block held on GPU.
	OverlapCredit float64 `yaml:"overlap_score_credit" default:"1" range:"0.."`
	// CreditDecay is how fast the credit fades with the excess of owed prefill.
	CreditDecay float64 `yaml:"overlap_score_credit_decay" range:"0.."`
	// PrefillScale is the cost per block to prefill.
	PrefillScale float64 `yaml:"prefill_load_scale" default:"1" range:"0.."`
	// RequestWeight is the cost per request in flight, in blocks.
	RequestWeight float64 `yaml:"decode_active_request_weight" range:"0.."`
	// HostWeight is the credit per block on host beyond GPU.
	HostWeight float64 `yaml:"host_cache_hit_weight" default:"0.75" range:"0..1"`
	// DiskWeight is the credit per block on disk beyond host.
	DiskWeight float64 `yaml:"disk_cache_hit_weight" default:"0.25" range:"0..1"`
	// Temperature 0 takes the lowest cost; above, softmax draws.
	Temperature float64 `yaml:"router_temperature" range:"0.."`
	// UseEvents counts what the engines announce.
	UseEvents bool `yaml:"use_kv_events" default:"true"`
	// Predicted counts dispatched blocks as held (router_predicted_ttl_secs).
	Predicted bool `yaml:"predict_on_route"`
	// ActiveBlocks counts the blocks of the requests in flight.
	ActiveBlocks bool `yaml:"router_track_active_blocks" default:"true"`
	// OutputBlocks counts those of their answers too. It needs ActiveBlocks.
	OutputBlocks bool `yaml:"router_track_output_blocks"`
	// AssumeReuse counts a block once that several requests share.
	AssumeReuse bool `yaml:"router_assume_kv_reuse" default:"true"`
	// PrefillTokens counts the prefill that a target owes already.
	PrefillTokens bool `yaml:"router_track_prefill_tokens" default:"true"`
	// DecodeStage says that the targets only decode (disaggregated serving).
	DecodeStage bool `yaml:"decode_stage"`
	// OverlapWeight is deprecated. Above 0 it replaces PrefillScale; 0 sets that and the
	// credit to 0.
	OverlapWeight *float64 `yaml:"overlap_score_weight,omitempty" range:"0.." example:"2"`
}

// Check accepts what fits together.
func (d *Dynamo) Check() error {
	if d.OutputBlocks && !d.ActiveBlocks {
		return &setting.Error{Key: "router_track_output_blocks", Value: "true", Want: "router_track_active_blocks as well"}
	}
	return nil
}

// Effective returns the settings with presets and the deprecated weight applied.
//
// A preset beats what is set beside it. The deprecated overlap_score_weight is
// asymmetric: a weight above 0 replaces prefill_load_scale, whatever that says,
// and leaves the credit alone; weight 0 sets both to 0. The agentic preset clears
// it.
func (d Dynamo) Effective() Dynamo {
	switch d.Preset {
	case "load-aware":
		d.OverlapCredit = 0
		d.UseEvents = false
		d.ActiveBlocks = true
		d.AssumeReuse = false
		d.PrefillTokens = true
		d.Predicted = false
	case "agentic":
		d.OverlapCredit = 2
		d.PrefillScale = 4
		d.RequestWeight = 64
		d.OverlapWeight = nil
	}
	if w := d.OverlapWeight; w != nil {
		d.PrefillScale = *w
		if *w == 0 {
			d.OverlapCredit = 0
		}
		d.OverlapWeight = nil
	}
	d.Preset = ""
	return d
}

func (d Dynamo) needs() Need {
	reuse := d.OverlapCredit > 0
	return Need{
		Events: d.UseEvents && reuse, Tokens: reuse || d.ActiveBlocks && d.AssumeReuse,
		Dispatch: reuse && (d.Predicted || !d.UseEvents),
		Blocks:   d.ActiveBlocks, OutputBlocks: d.OutputBlocks, Private: !d.AssumeReuse,
	}
}

// dynamo adds up, in blocks, what a target would owe: the prefill that it owes
// already and this request's, less a credit for what it holds, and the distinct
// blocks of all its requests.
//
//	raw    = (owed prefill tokens + prompt tokens) / block size
//	decay  = 1 / (1 + g * (owed prefill above the least owed, in blocks) / request blocks)
//	credit = c*decay*gpu + .75*host + .25*disk
//	cost   = scale*max(0, raw-credit) + active blocks + new blocks + w*active requests
//
// Exact ties are broken uniformly. Dynamo's caches that the fleet shares, its taints and
// its settings per request are left out: nothing here feeds them. Source: ai-dynamo/dynamo
// lib/kv-router/src/scheduling/selector/default.rs at 07a6c9ce.
type dynamo struct {
	Basic
	cfg  Dynamo
	intn func(int) int
}

func newDynamo(effective Dynamo, intn func(int) int) *dynamo {
	return &dynamo{cfg: effective, intn: intn}
}

func (p *dynamo) Terms() ([]string, string) {
	return []string{"prefill", "decode", "requests", "credit", "decay"}, "blocks"
}

func (p *dynamo) Pick(req *Request, cands []Candidate) int {
	cfg := &p.cfg
	least := math.MaxInt
	for i := range cands {
		least = min(least, cands[i].Load.Prefill)
	}
	for i := range cands {
		cfg.price(req, &cands[i], least)
	}
	if cfg.Temperature > 0 {
		return softmax(cands, cfg.Temperature, p.intn)
	}
	return lowest(cands, 0, p.intn)
}

// price writes c.Cost and c.Terms. least is the least prefill that a candidate
// owes, in tokens.
func (d *Dynamo) price(req *Request, c *Candidate, least int) {
	size := blockOf(req, c)
	n := tokensOf(req)
	gpu, host, disk := heldBy(c, d.Predicted || !d.UseEvents)
	raw, decay := 0.0, 1.0
	if d.PrefillTokens {
		raw = float64(c.Load.Prefill+n) / float64(size)
		if d.CreditDecay > 0 {
			excess := float64(c.Load.Prefill-least) / float64(size)
			decay = 1 / (1 + d.CreditDecay*excess*float64(size)/float64(n))
		}
	}
	credit := d.OverlapCredit*decay*blocks(gpu, size) + d.HostWeight*blocks(host, size) +
		d.DiskWeight*blocks(disk, size)
	// Dynamo books by the weights of the tiers alone, whatever the credit.
	held := blocks(gpu, size) + d.HostWeight*blocks(host, size) + d.DiskWeight*blocks(disk, size)
	c.Uncached = max(0, n-int(math.Round(held*float64(size))))
	decode := 0.0
	if d.ActiveBlocks {
		// What has no hash is new everywhere: a partial tail, or all of it.
		full := 0
		if len(req.Hashes) > 0 {
			full = n / size
		}
		decode = float64(c.Load.DecodeBlocks+c.Load.NewBlocks-full) + blocks(n, size)
	}
	prefill := d.PrefillScale * max(0, raw-credit)
	if d.DecodeStage && !d.PrefillTokens && d.OverlapCredit > 0 {
		prefill, decode = 0, max(0, decode-credit)
	}
	requests := d.RequestWeight * float64(c.Load.Requests)
	c.Cost = prefill + decode + requests
	c.Terms = [MaxTerms]float64{prefill, decode, requests, credit, decay}
}
