package policy

// LLMD configures `llmd_precise` and `llmd_approx`: the weights of the shipped
// profile, which differ only in where the prefix data come from.
type LLMD struct {
	Queue  float64 `yaml:"queue"`
	KV     float64 `yaml:"kv_cache_utilization"`
	Prefix float64 `yaml:"prefix_cache"`
	// The prefix score is w*min(1, tokens/scale)^2 + (1-w)*share matched.
	LengthWeight float64 `yaml:"match_length_weight"`
	LengthScale  int     `yaml:"match_length_scale_tokens"`
	HostWeight   float64 `yaml:"cpu_weight"` // of a block on host, against one on GPU
	// Speculative lets llmd_precise count predicted blocks (speculativeIndexing).
	Speculative bool `yaml:"speculative_indexing"`
}

func defaultLLMD() LLMD {
	return LLMD{Queue: 2, KV: 2, Prefix: 3, LengthScale: 8192, HostWeight: .8}
}

func (c *LLMD) validate() error {
	for _, f := range []struct {
		name string
		v    float64
		hi   float64
	}{
		{"queue", c.Queue, 1e6}, {"kv_cache_utilization", c.KV, 1e6}, {"prefix_cache", c.Prefix, 1e6},
		{"match_length_weight", c.LengthWeight, 1}, {"cpu_weight", c.HostWeight, 1},
	} {
		if err := checkRange("policy.llmd."+f.name, f.v, 0, f.hi); err != nil {
			return err
		}
	}
	return checkInt("policy.llmd.match_length_scale_tokens", c.LengthScale, 1, 1<<30)
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
