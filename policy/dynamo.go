package policy

import (
	"fmt"
	"math"
)

// Dynamo configures `dynamo`: the cost of NVIDIA Dynamo's KV router, with its
// options' names, defaults and ranges (ai-dynamo/dynamo, lib/kv-router,
// scheduling/config.rs).
type Dynamo struct {
	// Preset is "", "load-aware" (nothing is known of caches) or "agentic"
	// (long shared contexts; tuned for blocks of 16 tokens). It overrides the
	// fields that it sets.
	Preset string `yaml:"preset"`

	OverlapCredit float64  `yaml:"overlap_score_credit"`           // blocks saved per block held on GPU
	CreditDecay   float64  `yaml:"overlap_score_credit_decay"`     // how fast the credit fades with the excess of owed prefill
	PrefillScale  float64  `yaml:"prefill_load_scale"`             // cost per block to prefill
	RequestWeight float64  `yaml:"decode_active_request_weight"`   // cost per request in flight, in blocks
	HostWeight    float64  `yaml:"host_cache_hit_weight"`          // credit per block on host beyond GPU
	DiskWeight    float64  `yaml:"disk_cache_hit_weight"`          // credit per block on disk beyond host
	SharedWeight  float64  `yaml:"shared_cache_multiplier"`        // credit per block in a shared cache beyond GPU
	Temperature   float64  `yaml:"router_temperature"`             // 0: the lowest cost; else softmax
	UseEvents     bool     `yaml:"use_kv_events"`                  //
	Predicted     bool     `yaml:"predict_on_route"`               // count dispatched blocks as held (router_predicted_ttl_secs)
	ActiveBlocks  bool     `yaml:"router_track_active_blocks"`     //
	OutputBlocks  bool     `yaml:"router_track_output_blocks"`     //
	AssumeReuse   bool     `yaml:"router_assume_kv_reuse"`         //
	PrefillTokens bool     `yaml:"router_track_prefill_tokens"`    //
	DecodeStage   bool     `yaml:"decode_stage"`                   // the targets only decode (disaggregated serving)
	OverlapWeight *float64 `yaml:"overlap_score_weight,omitempty"` // deprecated; see Effective
}

func defaultDynamo() Dynamo {
	return Dynamo{
		OverlapCredit: 1, PrefillScale: 1, HostWeight: .75, DiskWeight: .25,
		UseEvents: true, ActiveBlocks: true, AssumeReuse: true, PrefillTokens: true,
	}
}

func (d *Dynamo) validate() error {
	if d.Preset != "" {
		if err := checkName("policy.dynamo.preset", d.Preset, []string{"load-aware", "agentic"}); err != nil {
			return err
		}
	}
	inf := math.Inf(1)
	for _, f := range []struct {
		name   string
		v      float64
		lo, hi float64
	}{
		{"overlap_score_credit", d.OverlapCredit, 0, inf},
		{"overlap_score_credit_decay", d.CreditDecay, 0, inf},
		{"prefill_load_scale", d.PrefillScale, 0, inf},
		{"decode_active_request_weight", d.RequestWeight, 0, inf},
		{"host_cache_hit_weight", d.HostWeight, 0, 1},
		{"disk_cache_hit_weight", d.DiskWeight, 0, 1},
		{"shared_cache_multiplier", d.SharedWeight, 0, 1},
		{"router_temperature", d.Temperature, 0, inf},
	} {
		if err := checkRange("policy.dynamo."+f.name, f.v, f.lo, f.hi); err != nil {
			return err
		}
	}
	if d.OverlapWeight != nil {
		if err := checkRange("policy.dynamo.overlap_score_weight", *d.OverlapWeight, 0, inf); err != nil {
			return err
		}
	}
	if d.OutputBlocks && !d.ActiveBlocks {
		return fmt.Errorf("policy.dynamo.router_track_output_blocks is true: needs router_track_active_blocks")
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
		d.SharedWeight = 0
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

// A DynamoOverride replaces settings for one request (Dynamo:
// router_config_override). nil fields replace nothing.
type DynamoOverride struct {
	OverlapCredit *float64
	PrefillScale  *float64
	Temperature   *float64
	SharedWeight  *float64
	PrefillTokens *bool
	OverlapWeight *float64 // deprecated; as in Effective
}

// Validate accepts what the configuration accepts.
func (o *DynamoOverride) Validate() error {
	d := defaultDynamo()
	d.apply(o)
	d.OverlapWeight = o.OverlapWeight
	return d.validate()
}

func (d *Dynamo) apply(o *DynamoOverride) {
	set := func(to *float64, v *float64) {
		if v != nil {
			*to = *v
		}
	}
	set(&d.OverlapCredit, o.OverlapCredit)
	set(&d.PrefillScale, o.PrefillScale)
	set(&d.Temperature, o.Temperature)
	set(&d.SharedWeight, o.SharedWeight)
	if o.PrefillTokens != nil {
		d.PrefillTokens = *o.PrefillTokens
	}
	if w := o.OverlapWeight; w != nil {
		d.PrefillScale = *w
		if *w == 0 {
			d.OverlapCredit = 0
		}
	}
}

// dynamo adds up, in blocks, what a target would owe: the prefill that it owes
// already and this request's, less a credit for what it holds, and the distinct
// blocks of all its requests.
//
//	raw    = (owed prefill tokens + prompt tokens) / block size
//	decay  = 1 / (1 + g * (owed prefill above the least owed, in blocks) / request blocks)
//	credit = c*decay*gpu + .75*host + .25*disk + s*shared
//	cost   = scale*max(0, raw-credit) + active blocks + new blocks + w*active requests
//
// and times exp(-tanh(taints)) where the request prefers some. Exact ties are
// broken uniformly. Source: ai-dynamo/dynamo
// lib/kv-router/src/scheduling/selector/default.rs at 07a6c9ce.
type dynamo struct {
	cfg  Dynamo
	intn func(int) int
}

func newDynamo(effective Dynamo, intn func(int) int) *dynamo {
	return &dynamo{effective, intn}
}

func (p *dynamo) Terms() ([]string, string) {
	return []string{"prefill", "decode", "requests", "credit", "decay"}, "blocks"
}

func (p *dynamo) Pick(req *Request, cands []Candidate) int {
	cfg := p.cfg
	if req.Override != nil {
		cfg.apply(req.Override)
	}
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
		d.DiskWeight*blocks(disk, size) + d.SharedWeight*blocks(c.Shared, size)
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
	if c.Taint != 0 {
		c.Cost *= math.Exp(-math.Tanh(c.Taint))
	}
	c.Terms = [MaxTerms]float64{prefill, decode, requests, credit, decay}
}
