package policy

// LMetric configures `lmetric`.
type LMetric struct {
	// Backlog counts the prefill that the target owes already beside this request's own, as
	// the paper is read by most; without it the score is that of SMG's branch.
	Backlog bool `yaml:"backlog" default:"true"`
	// Predicted counts dispatched blocks as held.
	Predicted bool `yaml:"predicted"`
}

// lmetric multiplies the tokens to prefill by the size of the batch that they
// join, and takes the lowest product: no weights to tune. (LMetric, arXiv
// 2603.15202.) Factors start at 1, as a product with 0 would say nothing. Ties go
// to the fewest requests, then at random.
type lmetric struct {
	Basic
	cfg  LMetric
	intn func(int) int
}

func (p *lmetric) Terms() ([]string, string) {
	return []string{"uncached", "backlog", "requests"}, "tokens x requests"
}

func (p *lmetric) Pick(req *Request, cands []Candidate) int {
	n := tokensOf(req)
	for i := range cands {
		c := &cands[i]
		u := float64(max(1, n-cachedOn(req, c, p.cfg.Predicted)))
		backlog := 0.0
		if p.cfg.Backlog {
			backlog = float64(c.Load.Prefill)
		}
		batch := float64(c.Load.Requests + 1)
		c.Terms = [MaxTerms]float64{u, backlog, batch}
		c.Cost = (u + backlog) * batch
	}
	return lowestThenLoad(cands, 0, p.intn)
}
