package policy

// Weighted configures `weighted`.
type Weighted struct {
	// Alpha is the points per token held.
	Alpha float64 `yaml:"alpha" default:"1" range:"0..1e12"`
	// Beta is the points per request in the queue. Without it a queued request outweighs
	// an average prefill.
	Beta float64 `yaml:"beta" range:"0..1e12" or:"0: the mean of uncached tokens of recent requests"`
	// Gamma is the points for a full KV cache, growing from 0 at 80 %.
	Gamma float64 `yaml:"gamma" range:"0..1e12" or:"0: the tokens of the whole pool"`
}

// weighted is the textbook score: alpha * tokens held - beta * queue - gamma *
// KV use, the highest wins, ties at random. Units are tokens, so that the
// defaults mean something for any model. Queue and KV use are
// the engine's own where they are fresh; else the ledger's requests without a
// first token, and its blocks over the pool.
type weighted struct {
	Basic
	cfg      Weighted
	uncached ewma
	intn     func(int) int
}

// An ewma is a mean over the last values, the weight of older ones falling by
// 1/32 with each.
type ewma struct {
	v    float64
	seen bool
}

func (m *ewma) add(v float64) {
	if !m.seen {
		m.v, m.seen = v, true
		return
	}
	m.v += (v - m.v) / 32
}

func (p *weighted) Terms() ([]string, string) {
	return []string{"prefix", "queue", "kv"}, "tokens"
}

func (p *weighted) Pick(req *Request, cands []Candidate) int {
	beta := p.cfg.Beta
	if beta == 0 {
		beta = 1000 // before the first request; any number of tokens of that order
		if p.uncached.seen {
			beta = max(1, p.uncached.v)
		}
	}
	for i := range cands {
		c := &cands[i]
		gamma := p.cfg.Gamma
		if gamma == 0 {
			gamma = float64(c.Blocks * blockOf(req, c))
		}
		c.Terms = [MaxTerms]float64{
			-p.cfg.Alpha * float64(cachedOn(req, c, true)),
			beta * float64(queueOf(c)),
			gamma * max(0, usageOf(c)-.8) / .2,
		}
		c.Cost = c.Terms[0] + c.Terms[1] + c.Terms[2]
	}
	return lowest(cands, 1e-9, p.intn)
}

func (p *weighted) Placed(req *Request, cands []Candidate, i int) {
	p.uncached.add(float64(tokensOf(req) - cachedOn(req, &cands[i], true)))
}

// queueOf returns the requests waiting on c: as the engine says, plus none, or
// those that the ledger has without a first token.
func queueOf(c *Candidate) int {
	if c.Engine.Known() {
		return c.Engine.Waiting
	}
	return c.Load.Prefilling
}

// usageOf returns the share of the GPU pool in use: as the engine says, or the
// ledger's blocks over the pool; 0 if neither is known.
func usageOf(c *Candidate) float64 {
	if c.Engine.Known() {
		return min(max(c.Engine.KVUsage, 0), 1)
	}
	if c.Blocks <= 0 {
		return 0
	}
	return min(float64(c.Load.DecodeBlocks)/float64(c.Blocks), 1)
}
