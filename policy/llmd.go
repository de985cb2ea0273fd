package policy

// LLMD configures `llmd_precise` and `llmd_approx`: the weights of the shipped
// profile, which differ only in where the prefix data come from.
type LLMD struct {
	// Queue is the weight of the queue's score.
	Queue float64 `yaml:"queue" default:"2" range:"0..1e6"`
	// KV is the weight of the score of free KV cache.
	KV float64 `yaml:"kv_cache_utilization" default:"2" range:"0..1e6"`
	// Prefix is the weight of the prefix score.
	Prefix float64 `yaml:"prefix_cache" default:"3" range:"0..1e6"`
	// LengthWeight is w in the prefix score: w*min(1, tokens/scale)^2 + (1-w)*share matched.
	LengthWeight float64 `yaml:"match_length_weight" range:"0..1"`
	// LengthScale is the scale in the prefix score.
	LengthScale int `yaml:"match_length_scale_tokens" default:"8192" range:"1..1Gi" unit:"tokens"`
	// HostWeight is the worth of a block on host, against one on GPU.
	HostWeight float64 `yaml:"cpu_weight" default:"0.8" range:"0..1"`
	// Speculative lets llmd_precise count predicted blocks.
	Speculative bool `yaml:"speculative_indexing"`
}

// llmd adds up scores between 0 and 1 and takes the highest sum, ties at random
// (llm-d's router, a Gateway API inference extension: queue-scorer 2,
// kv-cache-utilization-scorer 2, prefix-cache-scorer 3, max-score-picker).
//
//	queue  = (max-q)/(max-min), 1 if all are equal
//	kv     = 1 - KV use
//	prefix = share of the prompt's blocks held
//
// The approximate one has predicted blocks only, from its own dispatches: it
// declares no need of events, so the index holds nothing else. Scores are
// relative to the fleet at hand: a queue of 1 against 0 weighs as much as one of
// 100 against 0.
type llmd struct {
	Basic
	cfg       LLMD
	predicted bool
	intn      func(int) int
}

func (p *llmd) Terms() ([]string, string) { return []string{"queue", "kv", "prefix"}, "points" }

func (p *llmd) Pick(req *Request, cands []Candidate) int {
	lo, hi := queueOf(&cands[0]), 0
	for i := range cands {
		q := queueOf(&cands[i])
		lo, hi = min(lo, q), max(hi, q)
	}
	all := p.cfg.Queue + p.cfg.KV + p.cfg.Prefix
	for i := range cands {
		c := &cands[i]
		queue := 1.0
		if hi > lo {
			queue = float64(hi-queueOf(c)) / float64(hi-lo)
		}
		c.Terms = [MaxTerms]float64{p.cfg.Queue * queue, p.cfg.KV * (1 - usageOf(c)), p.cfg.Prefix * p.prefix(req, c)}
		c.Cost = all - (c.Terms[0] + c.Terms[1] + c.Terms[2])
	}
	return lowest(cands, 1e-12, p.intn)
}

// prefix scores what c holds of the prompt's full blocks.
func (p *llmd) prefix(req *Request, c *Candidate) float64 {
	size := blockOf(req, c)
	full := tokensOf(req) / size
	if full == 0 {
		return 0
	}
	gpu, host, _ := heldBy(c, p.predicted)
	held := blocks(gpu, size) + p.cfg.HostWeight*blocks(host, size)
	share := min(held/float64(full), 1)
	if p.cfg.LengthWeight == 0 {
		return share
	}
	long := min(held*float64(size)/float64(p.cfg.LengthScale), 1)
	return p.cfg.LengthWeight*long*long + (1-p.cfg.LengthWeight)*share
}
